"""The shipped site of hooks, through the installed script, on a site of ten pages (HOOK-110 to HOOK-114)."""

from __future__ import annotations

import contextlib
import http.server
import io
import json
import re
import signal
import subprocess
import threading
import urllib.request
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from cli.main import run
from tests.cli.console import SCRIPT, Ran, clean_env, scraper
from tests.hooks.plugins import write_hook

PAGES = 10


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves files and says nothing."""

    def log_message(self, *_: Any) -> None: ...


@contextlib.contextmanager
def serving(directory: Path) -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(directory))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(scope="module")
def archived(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str, dict[str, Any]]]:
    """A working directory with the ten pages archived, the address of the first, and what the command said."""
    work = tmp_path_factory.mktemp("archive")
    (work / "www").mkdir()
    (work / "www/favicon.ico").write_bytes(b"\0\0\1\0")
    links = "".join(f'<a href="/p{n}.html#x">page {n}</a>' for n in range(1, PAGES))
    (work / "www/index.html").write_text(f"<title>The\n index &amp; all</title><p>zebra</p>{links}")
    for number in range(1, PAGES):
        text = f"<title>Page {number}</title><p>crossing number{number}</p><a href='/deeper.html'>deeper</a>"
        (work / f"www/p{number}.html").write_text(text)
    with serving(work / "www") as base:
        url = f"{base}/index.html"
        ran = scraper(work, "site", "archive", "crawl", "add", url, "--depth", "1", "--wait", "--output", "json")
        assert ran.code == 0, ran.err
        yield work, url, json.loads(ran.out)


def shown(work: Path, *words: str) -> Any:
    ran = here(work, *words, "--output", "json")
    assert ran.code == 0, ran.err
    return json.loads(ran.out)


def here(work: Path, *words: str, site: str = "archive") -> Ran:
    """As the installed script, but in this process."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.chdir(work), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run([*(("site", site) if site else ()), *words], clean_env(work / "home"))
    return Ran(code, out.getvalue(), err.getvalue())


def test_one_command_archives_ten_pages(archived: tuple[Path, str, dict[str, Any]]) -> None:
    work, _, said = archived
    assert said["crawl"]["status"] == "sealed"
    assert said["snapshots"] == {"sealed": PAGES}
    found = shown(work, "snapshot", "list")["snapshots"]
    assert sorted(one["title"] for one in found) == sorted(["The index & all", *(f"Page {n}" for n in range(1, PAGES))])
    assert sorted(one["depth"] for one in found) == [0] + [1] * (PAGES - 1)


def test_a_snapshot_shows_every_hook_with_all_that_became_of_it(archived: tuple[Path, str, dict[str, Any]]) -> None:
    work, url, _ = archived
    told = shown(work, "snapshot", "show", url)
    hooks = {hook["plugin"]: hook for hook in told["hooks"]}
    assert [
        (hook["plugin"], hook["step"], hook["background"], hook["status"], hook["exitCode"]) for hook in told["hooks"]
    ] == [
        ("watch", 0, True, "succeeded", 0),
        ("headers", 1, False, "succeeded", 0),
        ("favicon", 2, False, "succeeded", 0),
        ("title", 5, False, "succeeded", 0),
        ("text", 5, False, "succeeded", 0),
        ("outlinks", 7, False, "succeeded", 0),
        ("links", 7, False, "succeeded", 0),
    ]
    foreground = [hook for hook in told["hooks"] if not hook["background"]]
    assert all(one["end"] <= other["start"] for one, other in pairwise(foreground))
    assert hooks["watch"]["start"] < hooks["headers"]["start"] < hooks["watch"]["end"]
    assert hooks["favicon"]["files"] == {"favicon.ico": {"extension": "ico", "mimetype": "image/x-icon", "size": 4}}
    assert (hooks["favicon"]["size"], hooks["favicon"]["mimetypes"]) == (4, ["image/x-icon"])
    assert hooks["title"]["output"] == "The index & all"
    assert told["snapshot"]["status"] == "sealed"


def test_what_programs_are_told_of_a_hook_is_complete(archived: tuple[Path, str, dict[str, Any]]) -> None:
    work, url, _ = archived
    told = shown(work, "snapshot", "show", url)["hooks"]
    members = "plugin hook event step background status attempts start end exitCode error output outputJson files"
    more = "fileCount size mimetypes warnings command directory machine iface retryAt id"
    assert all(set(hook) == set(f"{members} {more}".split()) for hook in told)
    for hook in told:
        place = Path(hook["directory"])
        assert hook["files"].keys() == {file.name for file in place.iterdir()}
        assert hook["size"] == sum(file.stat().st_size for file in place.iterdir())
        assert hook["fileCount"] == len(hook["files"])
        assert hook["start"] < hook["end"]
        assert hook["attempts"] == 1
        assert hook["machine"] != ""
        assert f"--url={url}" in hook["command"]


def test_pages_to_try_it_on_are_served_until_ctrl_c(tmp_path: Path) -> None:
    words = [str(SCRIPT), "demo", "serve", "--port", "0"]
    child = subprocess.Popen(words, env=clean_env(tmp_path), stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    first = child.stdout.readline().split()[0]
    with urllib.request.urlopen(first, timeout=30) as answer:
        pages = re.findall(rb'href="(book-\d\.html)"', answer.read())
    assert len(pages) == PAGES - 1
    port = first.split(":")[2].partition("/")[0]
    taken = here(tmp_path, "demo", "serve", "--port", port, site="")
    assert (taken.code, taken.err) == (
        2,
        f"error: --port: {port} on 127.0.0.1 cannot be used: Address already in use\n",
    )
    child.send_signal(signal.SIGINT)
    assert child.wait(timeout=30) == 0
    child.stdout.close()


def test_the_gantt_page_is_self_contained_and_has_a_bar_for_every_hook(
    archived: tuple[Path, str, dict[str, Any]],
) -> None:
    work, url, _ = archived
    page = scraper(work, "site", "archive", "snapshot", "show", url, "--html").out
    assert page.startswith("<!doctype html>")
    assert page.count("<i style=") == 7
    assert "The index &amp; all" in page
    assert "src=" not in page
    assert "href=" not in page


def test_snapshots_are_found_by_their_text(archived: tuple[Path, str, dict[str, Any]]) -> None:
    work, url, _ = archived
    assert [one["url"] for one in shown(work, "snapshot", "search", "zebra")["snapshots"]] == [url]
    found = shown(work, "snapshot", "search", "crossing", "number3")["snapshots"]
    assert [one["title"] for one in found] == ["Page 3"]
    assert shown(work, "snapshot", "search", 'no"such')["snapshots"] == []


def test_tables_are_for_people(archived: tuple[Path, str, dict[str, Any]]) -> None:
    work, url, said = archived
    listed = scraper(work, "site", "archive", "crawl", "list").out
    assert said["crawl"]["id"] in listed
    table = scraper(work, "site", "archive", "snapshot", "show", url).out
    assert "watch/on_Snapshot__05_watch.bg.sh" in table
    assert scraper(work, "site", "archive", "crawl", "show", said["crawl"]["id"]).out.startswith("Crawl: ")


def test_hooks_are_listed_checked_and_tried_by_hand(archived: tuple[Path, str, dict[str, Any]]) -> None:
    work, url, _ = archived
    hooks = shown(work, "hook", "list", "--plugins", "title,headers")["hooks"]
    assert [hook["hook"] for hook in hooks if hook["runs"]] == [
        "headers/on_Snapshot__10_headers.py",
        "title/on_Snapshot__54_title.py",
    ]
    assert shown(work, "hook", "check") == {"faults": []}
    told = shown(work, "hook", "run", "title/on_Snapshot__54_title.py", "--url", url)
    assert (told["status"], told["records"][-1]["output_str"]) == ("succeeded", "The index & all")
    assert list(told["files"]) == ["title.txt"]


def test_plugins_of_the_operator_join_those_of_the_site(archived: tuple[Path, str, dict[str, Any]]) -> None:
    work, _, _ = archived
    write_hook(work / "mine", "mine/on_Snapshot__01_mine.sh", 'echo "$MINE_WORD" > word.txt')
    write_hook(work / "mine", "mine/tests/test_nothing.sh", "exit 0")
    write_hook(work / "mine", "mine/tests/test_wrong.sh", "exit 3")
    words = [
        "crawl",
        "add",
        "http://127.0.0.1:1/",
        "--plugins",
        "mine",
        "--hook-dir",
        "mine",
        "--config",
        "MINE_WORD=x",
    ]
    assert shown(work, *words, "--wait", "--crawl-id", "mine")["results"] == {"succeeded": 1}
    (snapshot,) = shown(work, "snapshot", "list", "--crawl", "mine")["snapshots"]
    assert (Path(snapshot["outputDir"]) / "mine/word.txt").read_text() == "x\n"
    tested = scraper(work, "site", "archive", "hook", "test", "mine", "--hook-dir", "mine")
    assert tested.code == 1
    assert tested.out == "mine/tests/test_nothing.sh: ok\nmine/tests/test_wrong.sh: failed (exit code 3)\n"


def test_a_crawl_is_canceled_retried_updated_and_sealed_by_hand(archived: tuple[Path, str, dict[str, Any]]) -> None:
    work, _, _ = archived
    write_hook(work / "bad", "bad/on_Snapshot__01_bad.sh", "exit 1")

    def add(name: str, *more: str) -> None:
        words = ("--plugins", "bad", "--hook-dir", "bad", "--crawl-id", name)
        shown(work, "crawl", "add", "http://127.0.0.1:1/", *words, *more)

    add("c-cancel")
    refused = here(work, "workflow", "cancel", "c-cancel", site="")
    assert (refused.code, refused.err.endswith(": scraper site archive crawl cancel c-cancel\n")) == (2, True)
    assert shown(work, "crawl", "cancel", "c-cancel")["crawl"]["status"] == "canceled"
    add("c-retry", "--attempts", "1", "--wait")
    assert shown(work, "crawl", "show", "c-retry")["results"] == {"failed": 1}
    assert shown(work, "crawl", "retry", "c-retry", "--wait")["crawl"]["status"] == "sealed"
    words = ("--plugins", "bad", "--hook-dir", "bad", "--retry-delay", "1h", "--crawl-id", "c-seal", "--wait")
    waited = here(work, "crawl", "add", "http://127.0.0.1:1/", *words)
    assert (waited.code, waited.err.splitlines()[-1].partition(":")[0]) == (0, "1 hooks wait for a retry")
    assert shown(work, "crawl", "show", "c-seal")["results"] == {"backoff": 1}
    assert shown(work, "crawl", "update", "c-seal")["results"] == {"backoff": 1}
    sealed = shown(work, "crawl", "seal", "c-seal")
    assert (sealed["crawl"]["status"], sealed["results"]) == ("sealed", {"failed": 1})


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("crawl add ftp://a.test/", "not a URL that can be crawled"),
        ("crawl add http://a.test/ --plugins nope", 'no plugin "nope"'),
        ("crawl add http://a.test/ --deny (", "not a regular expression"),
        ("crawl add http://a.test/ --config X", "not KEY=VALUE"),
        ("crawl add http://a.test/ --bg-policy never", "is none of own"),
        ("crawl add http://a.test/ --retry-delay soon", "--retry-delay"),
        ("crawl add http://a.test/ --hook-dir nowhere", "does not exist"),
        ("crawl show nope", 'no crawl "nope"'),
        ("crawl cancel nope", 'no crawl "nope"'),
        ("crawl retry nope", 'no crawl "nope"'),
        ("snapshot show nope", 'no snapshot "nope"'),
        ("hook run nope/on_Snapshot__1.sh --url http://a.test/", "there is no hook"),
        ("hook test nope", 'no plugin "nope"'),
    ],
)
def test_mistakes_are_said_in_one_line(archived: tuple[Path, str, dict[str, Any]], words: str, said: str) -> None:
    ran = here(archived[0], *words.split())
    assert ran.code in (1, 2)
    assert said in ran.err
    assert ran.err.count("\n") == 1, ran.err
