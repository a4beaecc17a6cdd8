"""Rules that show in what one crawl leaves behind: several in each run of a worker (HOOK-4 to HOOK-93)."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from engine.machine import machine_id
from tests.hooks.crashing import living
from tests.hooks.lab import Lab, record

ROOT = "http://a.test/"
EXTRA = "http://a.test/extra"
OWN = """case "$*" in *a.test/extra*) exit 10;; esac\n"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Lab, list[tuple[Any, ...]]]:
    """A crawl after its end, and what its row of a background hook was while that ran: state, text, exit code."""
    lab = Lab(tmp_path_factory.mktemp("rules"), "hookConfig: {M_WORD: site, M_SITE: site}\n")
    folder = lab.folder
    seed = [
        record(type="Machine", _method="update", key="config/M_WORD", value="machine"),
        record(type="Machine", config={"M_OTHER": "machine", "PATH": "/evil"}),
        record(type="Machine", key="hostname", value="x"),
        record(type="Crawl", id="another", label="told by a hook"),
    ]
    lab.hook("seed/on_CrawlSetup__10_seed.sh", 'env > env.txt; echo "$@" > args.txt\n' + "\n".join(seed))
    child = record(type="Snapshot", id="", snapshot_id="x", url=f"{EXTRA}#top", title="Extra", tags="one, two")
    lab.hook("feed/on_Crawl__10_feed.sh", child)
    lab.hook("first/on_Snapshot__01_first.sh", f"{OWN}ls -A > ../listing; ls -A .. > ../beside; env > env.txt")
    lab.hook(
        "early/on_Snapshot__05_early.bg.sh",
        f"{OWN}{record(type='ArchiveResult', status='succeeded', output_str='open')}\n"
        f"while [ ! -e {folder}/seen ]; do sleep 0.05; done; touch closed\n"
        + record(type="ArchiveResult", status="succeeded", output_str="closed"),
    )
    lab.hook("failing/on_Snapshot__06_failing.bg.sh", f"{OWN}echo 'first line' >&2; echo 'why it failed' >&2; exit 4")
    lab.hook("failed/on_Snapshot__07_failed.sh", f"{OWN}exit 5")
    foreign = {"id": "x", "snapshot_id": "y", "crawl_id": "z", "hook_name": "on_Snapshot__01_first.sh"}
    lab.hook(
        "ids/on_Snapshot__20_ids.sh",
        OWN
        + "\n".join(
            [
                record(type="ArchiveResult", status="failed", output_str="first", **foreign),
                record(type="ArchiveResult", status="noresult", output_str="../../etc/passwd", odd=1, **foreign),
                record(type="Process", pid=1),
                record(type="BinaryRequest", name="x"),
                record(type="Tag", name="a tag"),
                record(type="Tag", name="a tag"),
                record(type="Crawl", label="not from a snapshot's hook"),
                "echo http://a.test/bare",
                """echo '{"type": "Snapshot", "url": "http://a.test/from-a-file"}' > urls.jsonl""",
            ]
        ),
    )
    lab.hook("title/on_Snapshot__30_title.sh", f"{OWN}echo 'A longer title' > title.txt")
    lab.hook(
        "title/on_Snapshot__31_title.sh",
        OWN + record(type="Snapshot", id="PLACE", title="Short").replace("PLACE", "'$SNAPSHOT_ID'"),
    )
    lab.hook(
        "stale/on_Snapshot__40_stale.sh", f"{OWN}: > empty.pid; echo junk > junk.pid; echo 1 > init.pid; echo x > x.txt"
    )
    lab.hook("later/on_Snapshot__zz.sh", f"{OWN}ls ../stale > there")
    lab.hook("clean/on_CrawlCleanup__10_clean.sh", f"touch {folder}/cleaned; exit 1")
    lab.add(ROOT, attempts=1, max_depth=1, config={"M_OTHER": "crawl"}, arguments={"_own": 1, "wait": False, "x": ""})
    seen: list[tuple[Any, ...]] = []

    def look() -> bool:
        if not seen and (folder / "state/lab.db").exists():
            sql = (
                "SELECT status, output_str, exit_code FROM archive_results WHERE plugin = 'early' AND output_str <> ''"
            )
            rows = lab.rows(sql) if lab.rows("SELECT 1 FROM sqlite_master WHERE name = 'archive_results'") else []
            seen.extend((row["status"], row["output_str"], row["exit_code"]) for row in rows)
            if seen:
                (folder / "seen").touch()
        return False

    lab.work(until=look)
    assert living(lab) == []
    return lab, seen


def result(lab: Lab, plugin: str, columns: str = "*") -> dict[str, Any]:
    sql = f"SELECT {columns} FROM archive_results r LEFT JOIN snapshots s ON s.id = r.snapshot_id WHERE plugin = ?"
    (row,) = lab.rows(f"{sql} AND COALESCE(url, ?) = ?", (plugin, ROOT, ROOT))
    return row


def environment(lab: Lab, plugin: str) -> dict[str, str]:
    text = Path(result(lab, plugin, "pwd")["pwd"], "env.txt").read_text()
    return dict(line.partition("=")[::2] for line in text.splitlines())


Run = tuple[Lab, list[tuple[Any, ...]]]


def test_a_background_hook_is_at_work_until_it_ends_whatever_it_has_said(run: Run) -> None:
    lab, seen = run
    assert seen == [("started", "open", None)]
    row = result(lab, "early", "r.status, output_str, exit_code, output_files")
    assert (row["status"], row["output_str"], row["exit_code"]) == ("succeeded", "closed", 0)
    assert list(json.loads(row["output_files"])) == ["closed"]


def test_failures_in_front_and_behind_touch_nobody_else(run: Run) -> None:
    lab, _ = run
    statuses = lab.rows(
        "SELECT plugin, hook_name, r.status FROM archive_results r JOIN snapshots s ON s.id = r.snapshot_id"
        " WHERE url = ? ORDER BY position",
        (ROOT,),
    )
    assert [(row["plugin"], row["status"]) for row in statuses] == [
        ("first", "succeeded"),
        ("early", "succeeded"),
        ("failing", "failed"),
        ("failed", "failed"),
        ("ids", "noresults"),
        ("title", "succeeded"),
        ("title", "succeeded"),
        ("stale", "succeeded"),
        ("later", "succeeded"),
    ]
    assert lab.statuses() == ["sealed"] * 3
    assert (lab.folder / "cleaned").exists()
    assert result(lab, "clean", "r.status")["status"] == "failed"


def test_the_last_line_for_people_says_why_a_hook_failed_that_said_nothing_else(run: Run) -> None:
    row = result(run[0], "failing", "error, exit_code")
    assert (row["error"], row["exit_code"]) == ("exit code 4: why it failed", 4)
    place = Path(result(run[0], "failing", "pwd")["pwd"]).parent / ".hooks"
    assert (place / "failing.on_Snapshot__06_failing.bg.sh.stderr.log").read_text() == "first line\nwhy it failed\n"


def test_a_hook_starts_in_an_empty_directory_beside_those_of_the_others(run: Run) -> None:
    lab, _ = run
    place = Path(result(lab, "first", "pwd")["pwd"])
    (snapshot,) = lab.rows("SELECT id, output_dir FROM snapshots WHERE url = ?", (ROOT,))
    assert place == Path(snapshot["output_dir"]) / "first"
    assert place.parent.name == snapshot["id"]
    assert (place.parent / "listing").read_text() == ""
    assert (place.parent / "beside").read_text().split() == [".hooks", "beside", "first", "listing"]


def test_hooks_are_told_every_place_that_plugins_ask_for(run: Run) -> None:
    lab, _ = run
    env, data = environment(lab, "first"), lab.settings.data_dir
    modules = str(data / "lib/node_modules")
    wanted = {
        "DATA_DIR": str(data),
        "PERSONAS_DIR": str(data / "personas"),
        "LIB_DIR": str(data / "lib"),
        "ABXPKG_LIB_DIR": str(data / "lib"),
        "NODE_MODULES_DIR": modules,
        "NODE_PATH": modules,
        "MACHINE_ID": machine_id(lab.settings.sites_dir),
        "CRAWL_ID": "c1",
        "ABX_RUNTIME": "archivebox",
    }
    assert {name: env.get(name) for name in wanted} == wanted
    assert data.is_dir()
    crawl = lab.rows("SELECT output_dir FROM crawls")[0]["output_dir"]
    assert result(lab, "seed", "pwd")["pwd"] == f"{crawl}/seed"
    told = (Path(crawl) / "seed/args.txt").read_text().strip()
    assert told == f"--url={ROOT} --crawl-id=c1 --source-url={ROOT}"
    assert "SNAP_DIR" not in environment(lab, "seed")


def test_what_a_hook_sets_for_its_machine_holds_for_the_hooks_after_it_unless_the_crawl_says_otherwise(
    run: Run,
) -> None:
    env = environment(run[0], "first")
    assert (env["M_SITE"], env["M_WORD"], env["M_OTHER"]) == ("site", "machine", "crawl")
    assert env["PATH"] == os.environ["PATH"]
    assert "sets nothing" in result(run[0], "seed", "warnings")["warnings"]


def test_an_archive_result_speaks_of_the_running_hook_and_the_last_one_counts(run: Run) -> None:
    row = result(run[0], "ids", "r.status, output_str, warnings")
    assert (row["status"], row["output_str"], row["warnings"]) == ("noresults", "../../etc/passwd", "[]")
    assert result(run[0], "first", "output_str")["output_str"] == ""


def test_children_come_from_records_of_stdout_only_and_know_where_they_come_from(run: Run) -> None:
    lab, _ = run
    rows = lab.rows("SELECT url, title, depth, crawl_id, created_by, parent_snapshot_id FROM snapshots ORDER BY url")
    assert [tuple(row.values())[:5] for row in rows] == [
        (ROOT, "A longer title", 0, "c1", "system"),
        (EXTRA, "Extra", 0, "c1", "system"),
    ]
    tags = "SELECT s.url, t.tag FROM snapshot_tags t JOIN snapshots s ON s.id = t.snapshot_id ORDER BY 1, 2"
    assert [tuple(row.values()) for row in lab.rows(tags)] == [(ROOT, "a tag"), (EXTRA, "one"), (EXTRA, "two")]


def test_only_a_crawls_own_hook_changes_the_crawl(run: Run) -> None:
    assert run[0].rows("SELECT id, label FROM crawls") == [{"id": "c1", "label": "told by a hook"}]


def test_a_hook_without_a_number_runs_after_all_others(run: Run) -> None:
    row = result(run[0], "later", "pwd, step")
    assert (Path(row["pwd"]) / "there").read_text().split() == ["empty.pid", "init.pid", "junk.pid", "x.txt"]
    assert row["step"] == 9


def test_pid_files_that_name_nobody_are_cleared_away_and_nobody_is_hurt(run: Run) -> None:
    row = result(run[0], "stale", "pwd, output_files")
    assert os.listdir(row["pwd"]) == ["x.txt"]
    assert list(json.loads(row["output_files"])) == ["x.txt"]


def test_a_result_remembers_where_it_ran(run: Run) -> None:
    lab, _ = run
    row = result(lab, "first", "machine, iface, attempts, cmd")
    assert row["machine"] == machine_id(lab.settings.sites_dir)
    assert isinstance(row["iface"], str)
    assert row["attempts"] == 1
    words = json.loads(row["cmd"])
    assert words[0] == str(lab.hooks / "first/on_Snapshot__01_first.sh")
    assert all(word.startswith("--") and "=" in word for word in words[1:])


def test_a_crawl_without_a_snapshot_is_sealed_at_once(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    lab.hook("p/on_Snapshot__10_p.sh", "exit 10")
    lab.crawl(ROOT, deny=("a.test",))
    assert lab.statuses() == ["sealed"]


def test_the_next_hook_waits_for_a_finite_one_to_speak_but_not_for_ever(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    lab.hook("slow/on_Snapshot__10_slow.finite.bg.sh", "sleep 0.3; touch up; echo up; exit 10")
    lab.hook("after/on_Snapshot__20_after.sh", "test -e ../slow/up && exit 10")
    lab.hook("mute/on_Snapshot__30_mute.finite.bg.sh", f"while [ ! -e {tmp_path}/go ]; do sleep 0.05; done; exit 10")
    lab.hook("plain/on_Snapshot__31_plain.bg.sh", f"while [ ! -e {tmp_path}/go ]; do sleep 0.05; done; exit 10")
    lab.hook("last/on_Snapshot__40_last.sh", f"touch {tmp_path}/go; exit 10")
    lab.crawl(attempts=1, ready_max=2.0)
    assert [row["status"] for row in lab.results("status").values()] == ["skipped"] * 5
