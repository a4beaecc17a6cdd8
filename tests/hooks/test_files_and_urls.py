"""What is listed of a hook's output, which URLs a crawl takes, where things are, what holds if nobody says (HOOK-28,
HOOK-46, HOOK-51, HOOK-53, HOOK-55, HOOK-71)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.clock import SECOND
from engine.config import HookSettings, Settings
from engine.hooks.config import DEFAULT_TIMEOUT
from engine.hooks.files import survey
from engine.hooks.graph import CrawlSpec
from engine.hooks.layout import Traces, crawl_place, snapshot_place
from engine.hooks.machine import machine_config
from engine.hooks.process import PidRecord, read_record, write_record
from engine.hooks.urls import UrlFilter, identifier, normalised
from engine.liveness import identity, own_identity
from engine.model import BackoffKind
from engine.retry import delay

DAY = 1_750_000_000 * SECOND


def test_files_are_listed_with_type_and_size_and_the_heaviest_type_first(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    for name, size in (("a.html", 10), ("sub/b.PNG", 30), ("sub/c.html", 5), ("d.jsonl", 20), ("e", 1)):
        (tmp_path / name).write_bytes(b"x" * size)
    found = survey(tmp_path)
    assert [(file.path, file.extension, file.mimetype, file.size) for file in found.files] == [
        ("a.html", "html", "text/html", 10),
        ("d.jsonl", "jsonl", "application/jsonl", 20),
        ("e", "", "application/octet-stream", 1),
        ("sub/b.PNG", "png", "image/png", 30),
        ("sub/c.html", "html", "text/html", 5),
    ]
    assert (found.count, found.size) == (5, 66)
    assert found.mimetypes == ("image/png", "application/jsonl", "text/html", "application/octet-stream")


def test_logs_pid_files_and_links_are_no_output_and_a_directory_that_is_gone_has_none(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("outside")
    place = tmp_path / "plugin"
    (place / ".hooks").mkdir(parents=True)
    for name in ("stdout.log", "stderr.log", "cmd.sh", "hook.pid", "chrome.pid", ".hooks/x", "kept.txt"):
        (place / name).write_text("x")
    (place / "link").symlink_to(tmp_path / "secret")
    (place / "up").symlink_to(tmp_path)
    assert [file.path for file in survey(place).files] == ["kept.txt"]
    assert survey(tmp_path / "gone").count == 0


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("http://A.test:80/x/../y?q#frag", "http://a.test/y?q"),
        (" https://a.test ", "https://a.test/"),
        ("file:///etc/x", "file:///etc/x"),
        ("ftp://a.test/", None),
        ("javascript:alert(1)", None),
        ("data:text/plain,x", None),
        ("/relative", None),
        ("", None),
        ("http://", None),
        ("http://a.test/" + "x" * 20_000, None),
    ],
)
def test_urls_have_one_spelling_and_only_three_schemes(text: str, url: str | None) -> None:
    assert normalised(text) == url


@pytest.mark.parametrize(
    ("allow", "deny", "url", "wanted"),
    [
        ((), (), "http://a.test/", True),
        (("a.test",), (), "http://a.test/x", True),
        (("a.test",), (), "http://b.a.test/x", False),
        (("a.test",), (), "http://a.test.evil/x", False),
        (("a.test",), (), "http://evil/?a.test/", False),
        (("*.a.test",), (), "http://b.a.test/x", True),
        (("*.a.test",), (), "http://a.test/x", True),
        (("*.a.test",), (), "http://nota.test/x", False),
        (("localhost:80",), (), "http://localhost:81/", False),
        ((r"/\d+$",), (), "http://a.test/12", True),
        ((r"/\d+$",), (), "http://a.test/x", False),
        (("a.test",), ("a.test",), "http://a.test/", False),
        ((), (r"\.pdf$",), "http://a.test/x.pdf", False),
    ],
)
def test_deny_beats_allow_and_a_pattern_is_a_host_or_a_regular_expression(
    allow: tuple[str, ...], deny: tuple[str, ...], url: str, wanted: bool
) -> None:
    assert UrlFilter(allow, deny).admits(url) is wanted


def test_every_directory_has_its_id_in_its_path(tmp_path: Path) -> None:
    crawl = crawl_place(tmp_path, "system", "../c 1", DAY)
    assert crawl.root == tmp_path / "users/system/crawls/20250615/_.._c_1"
    snapshot = snapshot_place(tmp_path, "system", "s1", "http://a.test:8000/x", DAY)
    assert snapshot.root == tmp_path / "users/system/snapshots/20250615/a.test/s1"
    assert snapshot.plugin("wget") == snapshot.root / "wget"
    assert snapshot.traces("wget", "on_Snapshot__61_wget.sh").pid.parent == snapshot.root / ".hooks"


def test_what_holds_if_nobody_says_anything_else() -> None:
    spec = CrawlSpec(urls=("http://a.test/",))
    assert (spec.max_depth, spec.user, spec.bg_policy, spec.install, spec.ready_max) == (
        0,
        "system",
        "daemon-at-end",
        False,
        30.0,
    )
    assert (spec.retry.max_attempts, spec.retry.backoff) == (5, BackoffKind.EXPONENTIAL)
    assert [delay(spec.retry, attempt) // SECOND for attempt in (1, 2, 3, 20)] == [10, 20, 40, 3600]
    assert DEFAULT_TIMEOUT == 60.0
    assert HookSettings().grace == 60 * SECOND
    assert Settings().data_dir == Path("state/archive").absolute()
    assert CrawlSpec.load(spec.dump()) == spec


@pytest.mark.parametrize(
    ("record", "config"),
    [
        ({"_method": "update", "key": "config/A_BINARY", "value": "/bin/a"}, {"A_BINARY": "/bin/a"}),
        ({"config": {"A": [1], "B": True, "lower": 1}}, {"A": [1], "B": True}),
        ({"key": "config/A", "value": None}, {"A": None}),
        ({"key": "config/A"}, {}),
        ({"key": "config/PATH", "value": "/evil"}, {}),
        ({"key": "config/LD_PRELOAD", "value": "/evil"}, {}),
        ({"key": "config/SCRAPER_HOOK", "value": "x"}, {}),
        ({"key": "hostname", "value": "x"}, {}),
        ({"key": "config/A", "value": "x" * 20_000}, {}),
        ({"key": ["config/A"], "config": "x", "value": 1}, {}),
    ],
)
def test_a_machine_is_configured_but_not_what_hooks_inherit_from_the_worker(
    record: dict[str, Any], config: dict[str, Any]
) -> None:
    assert machine_config({"type": "Machine", **record}) == config


def test_a_pid_record_of_another_boot_or_host_is_never_taken_for_a_process_of_here(tmp_path: Path) -> None:
    here = own_identity()
    _, namespace, pid, started = here.split(" ")
    file = Traces(tmp_path / "p.on_x").pid
    common = {"machine": "m", "op": "o", "claim": 0, "began": 0.0}
    write_record(file, PidRecord(pid=int(pid), process=here, owner=here, **common))  # type: ignore[arg-type]
    known = read_record(file)
    assert known is not None
    assert known.alive()
    assert not known.orphaned()
    for foreign in (f"other-boot {namespace} {pid} {started}", f"boot pid:[1] {pid} {started}", ""):
        assert not PidRecord(pid=int(pid), process=foreign, owner=here, **common).alive()  # type: ignore[arg-type]
    elsewhere = PidRecord(pid=int(pid), process=here, owner=f"boot pid:[1] {pid} {started}", **common)  # type: ignore[arg-type]
    assert not elsewhere.orphaned(), "the death of a worker elsewhere cannot be told from here"
    file.write_text('{"pid": 1}')
    assert read_record(file) is None
    assert identity(int(pid)) == here


def test_a_snapshots_id_belongs_to_its_crawl_and_url() -> None:
    assert identifier("c", "http://a/") == identifier("c", "http://a/") != identifier("d", "http://a/")
