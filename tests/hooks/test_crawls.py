"""Crawls and snapshots as ops, and the rows they leave (HOOK-44 to HOOK-46, HOOK-50 to HOOK-55, HOOK-60 to HOOK-73)."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.clock import SECOND
from engine.errors import SubmissionRefused, UsageError
from tests.hooks.crashing import living
from tests.hooks.lab import Lab, record
from tests.hooks.plugins import write_config

ENDED = record(type="ArchiveResult", status="succeeded", output_str="done")


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    made = Lab(tmp_path)
    yield made
    left = living(made)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert left == []


def log_of(lab: Lab) -> list[str]:
    return (lab.folder / "log").read_text().split()


def test_foreground_hooks_run_one_after_another_in_order_whatever_becomes_of_them(lab: Lab) -> None:
    for number, ending in ((10, "exit 1"), (15, "kill -9 $$"), (20, "exit 0"), (9, ENDED), (95, "exit 10")):
        word = f"{number:02d}"
        lab.hook(
            f"p{word}/on_Snapshot__{word}_x.sh",
            f"echo {word}+ >> {lab.folder}/log; sleep 0.05; echo {word}- >> {lab.folder}/log; {ending}",
        )
    lab.crawl(attempts=1)
    words = ("09", "10", "15", "20", "95")
    assert log_of(lab) == [mark for word in words for mark in (f"{word}+", f"{word}-")]
    assert [row["status"] for row in lab.results("status").values()] == [
        "succeeded",
        "failed",
        "failed",
        "noresults",
        "skipped",
    ]
    assert lab.statuses() == ["sealed", "sealed"]


def test_every_hook_has_its_row_before_the_first_one_starts(lab: Lab) -> None:
    script = f"cp {lab.settings.sites_dir}/lab.db* {lab.folder}/"
    lab.hook("a/on_Snapshot__00_a.sh", script)
    lab.hook("a/on_Snapshot__50_b.sh", "exit 0")
    lab.hook("z/on_Snapshot__99_c.bg.sh", "exit 0")
    lab.crawl()
    lab.settings.sites_dir.joinpath("lab.db").rename(lab.folder / "later.db")
    (lab.folder / "lab.db").rename(lab.settings.sites_dir / "lab.db")
    (lab.folder / "lab.db-wal").replace(lab.settings.sites_dir / "lab.db-wal")
    assert [row["status"] for row in lab.results("status").values()] == ["started", "queued", "queued"]


def test_background_hooks_block_nothing_and_have_their_own_time(lab: Lab) -> None:
    lab.hook("slow/on_Snapshot__05_slow.bg.sh", f"while [ ! -e {lab.folder}/go ]; do sleep 0.02; done; {ENDED}")
    lab.hook("a/on_Snapshot__10_a.sh", f"echo a >> {lab.folder}/log")
    lab.hook("b/on_Snapshot__90_b.sh", f"echo b >> {lab.folder}/log; touch {lab.folder}/go")
    lab.crawl(config={"SLOW_TIMEOUT": 30, "TIMEOUT": 5})
    assert log_of(lab) == ["a", "b"]
    rows = lab.results("status, start_ts, end_ts, background")
    slow, last = rows["slow/on_Snapshot__05_slow.bg.sh"], rows["b/on_Snapshot__90_b.sh"]
    assert slow["status"] == "succeeded"
    assert slow["background"] == 1
    assert slow["start_ts"] < last["start_ts"] < slow["end_ts"]


def test_sixty_background_hooks_hold_no_place_of_the_worker(lab: Lab) -> None:
    for number in range(60):
        script = f"while [ ! -e {lab.folder}/go ]; do sleep 0.1; done; {ENDED}"
        lab.hook(f"bg{number:02d}/on_Snapshot__10_x.bg.sh", script)
    lab.hook("last/on_Snapshot__90_last.sh", f"touch {lab.folder}/go")
    lab.add()
    lab.work(max_workers=2)
    assert {row["status"] for name, row in lab.results("status").items() if name.startswith("bg")} == {"succeeded"}
    assert len(lab.results()) == 61


def test_a_daemon_serves_the_others_and_is_ended_after_them(lab: Lab) -> None:
    lab.hook(
        "chrome/on_Snapshot__00_chrome.daemon.bg.sh",
        f"bye() {{ {ENDED}; rm up; exit 0; }}; trap bye TERM; sleep 0.3; touch up; echo ready\nsleep 900 & wait",
    )
    lab.hook("pdf/on_Snapshot__50_pdf.sh", "test -e ../chrome/up || exit 1; exit 10")
    lab.crawl()
    rows = lab.results("status, output_str, end_ts")
    assert rows["pdf/on_Snapshot__50_pdf.sh"]["status"] == "skipped"
    assert rows["chrome/on_Snapshot__00_chrome.daemon.bg.sh"]["status"] == "succeeded"
    assert rows["chrome/on_Snapshot__00_chrome.daemon.bg.sh"]["output_str"] == "done"
    assert lab.statuses() == ["sealed", "sealed"]


def test_the_policy_may_let_daemons_live_or_end_all_background_hooks(lab: Lab) -> None:
    # with a policy of its own a hook ends by itself, without it never
    life = 'case "$*" in *--crawl-id=own*) sleep 0.1;; *) sleep 600;; esac'
    lab.hook("a/on_Snapshot__00_a.daemon.bg.sh", f"echo up; {life}; {ENDED}")
    lab.hook("b/on_Snapshot__00_b.bg.sh", f"{life}; {ENDED}")
    lab.add(crawl_id="own", bg_policy="own")
    lab.add(crawl_id="all", bg_policy="all-at-end")
    lab.work()
    said = {
        (row["crawl_id"], row["plugin"]): (row["status"], row["output_str"])
        for row in lab.rows("SELECT crawl_id, plugin, status, output_str FROM archive_results")
    }
    own, ended = ("succeeded", "done"), ("succeeded", "")
    assert said == {("own", "a"): own, ("own", "b"): own, ("all", "a"): ended, ("all", "b"): ended}


def test_a_hard_failure_runs_again_alone_and_reopens_what_was_sealed(lab: Lab) -> None:
    lab.hook(
        "flaky/on_Snapshot__10_flaky.sh",
        f"echo flaky >> {lab.folder}/log; [ -e second ] || {{ touch second; exit 1; }}; {ENDED}",
    )
    lab.hook("after/on_Snapshot__20_after.sh", f"echo after >> {lab.folder}/log")
    lab.crawl(retry_delay=SECOND // 2)
    assert log_of(lab) == ["flaky", "after", "flaky"]
    row = lab.results("status, attempts, retry_at, error")["flaky/on_Snapshot__10_flaky.sh"]
    assert (row["status"], row["attempts"], row["retry_at"], row["error"]) == ("succeeded", 2, None, "")
    assert lab.statuses() == ["sealed", "sealed"]


def test_a_hook_that_waits_for_its_retry_counts_as_over_for_the_seal(lab: Lab) -> None:
    lab.hook("bad/on_Snapshot__10_bad.sh", "exit 3")
    lab.add(retry_delay=3600 * SECOND)
    lab.work(until_idle=False, until=lambda: lab.statuses() == ["sealed", "sealed"])
    row = lab.results("status, retry_at, exit_code, error")["bad/on_Snapshot__10_bad.sh"]
    assert (row["status"], row["exit_code"], row["error"]) == ("backoff", 3, "exit code 3")
    assert row["retry_at"] is not None


def test_soft_failures_are_recorded_and_not_tried_again(lab: Lab) -> None:
    lab.hook("soft/on_Snapshot__10_soft.sh", record(type="ArchiveResult", status="failed", output_str="404"))
    lab.crawl()
    row = lab.results("status, attempts, error, exit_code")["soft/on_Snapshot__10_soft.sh"]
    assert (row["status"], row["attempts"], row["error"], row["exit_code"]) == ("failed", 1, "404", 0)


def test_what_a_hook_said_before_it_failed_is_kept(lab: Lab) -> None:
    lab.hook("part/on_Snapshot__10_part.sh", f"{record(type='Tag', name='kept')}; echo x > x.txt; kill -9 $$")
    lab.crawl(attempts=2)
    assert [row["tag"] for row in lab.rows("SELECT tag FROM snapshot_tags")] == ["kept"]
    row = lab.results("status, attempts, output_files, error")["part/on_Snapshot__10_part.sh"]
    assert (row["status"], row["attempts"], row["error"]) == ("failed", 2, "ended by signal 9")
    assert json.loads(row["output_files"]) == {"x.txt": {"extension": "txt", "mimetype": "text/plain", "size": 2}}


def test_a_timeout_is_a_failure_that_says_so(lab: Lab) -> None:
    lab.hook("slow/on_Snapshot__10_slow.sh", "sleep 60")
    lab.crawl(config={"SLOW_TIMEOUT": 0.3}, attempts=1)
    assert lab.results("error")["slow/on_Snapshot__10_slow.sh"]["error"] == "timed out after 0.3s"


def test_hooks_are_told_who_they_are_and_nothing_secret(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2")
    lab.hook("a/on_Snapshot__10_a.sh", 'env > env.txt; echo "$@" > args.txt')
    lab.crawl("http://a.test/x?y=1&z=2", arguments={"skip_js": True, "headers": {"A": "b c"}}, config={"A_KEY": [1]})
    directory = Path(lab.results("pwd")["a/on_Snapshot__10_a.sh"]["pwd"])
    env = dict(line.partition("=")[::2] for line in (directory / "env.txt").read_text().splitlines())
    (snapshot,) = lab.rows("SELECT id, output_dir FROM snapshots")
    assert env["SNAP_DIR"] == snapshot["output_dir"] == str(directory.parent)
    assert env["CRAWL_DIR"] == lab.rows("SELECT output_dir FROM crawls")[0]["output_dir"]
    assert env["DATA_DIR"] == str(lab.settings.data_dir)
    assert (env["ABX_RUNTIME"], env["A_KEY"]) == ("archivebox", "[1]")
    assert json.loads(env["EXTRA_CONTEXT"])["snapshot_id"] == snapshot["id"]
    assert "hunter2" not in (directory / "env.txt").read_text()
    arguments = (directory / "args.txt").read_text()
    assert arguments.startswith('--skip-js --headers={"A": "b c"} --url=http://a.test/x?y=1&z=2 --crawl-id=c1')
    assert snapshot["id"] in str(directory)


def test_children_come_from_records_within_depth_filters_and_once_each(lab: Lab) -> None:
    links = [
        "http://a.test/1",
        "HTTP://A.test:80/1#top",
        "http://b.test/no",
        "http://a.test/deny-me",
        "mailto:x@a.test",
        "http://a.test/2",
    ]
    prints = "; ".join(record(type="Snapshot", url=url, id="", tags="t1,t2") for url in links)
    lab.hook("links/on_Snapshot__10_links.sh", prints)
    lab.hook("links/on_Snapshot__11_again.sh", prints)
    lab.crawl("http://a.test/", max_depth=2, allow=("a.test",), deny=("deny",))
    rows = lab.rows("SELECT url, depth, parent_snapshot_id IS NULL AS root, status FROM snapshots ORDER BY url")
    assert [(row["url"], row["depth"], row["root"], row["status"]) for row in rows] == [
        ("http://a.test/", 0, 1, "sealed"),
        ("http://a.test/1", 1, 0, "sealed"),
        ("http://a.test/2", 1, 0, "sealed"),
    ]
    assert lab.rows("SELECT count(*) AS n FROM snapshot_tags") == [{"n": 4}]
    assert len(lab.rows("SELECT id FROM archive_results")) == 6
    assert lab.statuses()[0] == "sealed"


def test_a_child_deeper_than_the_crawl_allows_is_dropped(lab: Lab) -> None:
    lab.hook(
        "links/on_Snapshot__10_links.sh",
        f"{record(type='Snapshot', url='http://a.test/told', depth=2)}\n{record(type='Snapshot', url='http://a.test/n')}",
    )
    lab.crawl(max_depth=1)
    assert [row["url"] for row in lab.rows("SELECT url FROM snapshots ORDER BY url")] == [
        "http://a.test/",
        "http://a.test/n",
    ]


def test_a_record_changes_only_the_running_snapshot(lab: Lab) -> None:
    lab.hook(
        "t/on_Snapshot__10_t.sh",
        """case "$*" in *a.test/1*) other=$(cat ../../*/t/id 2>/dev/null);
echo "{\\"type\\": \\"Snapshot\\", \\"id\\": \\"$SNAPSHOT_ID\\", \\"title\\": \\"mine\\"}"
echo "{\\"type\\": \\"Snapshot\\", \\"id\\": \\"$other\\", \\"title\\": \\"stolen\\"}";;
*) echo $SNAPSHOT_ID > id;; esac""",
    )
    lab.crawl("http://a.test/0", "http://a.test/1")
    titles = {row["url"]: row["title"] for row in lab.rows("SELECT url, title FROM snapshots")}
    assert titles == {"http://a.test/0": "", "http://a.test/1": "mine"}
    rows = lab.rows("SELECT warnings FROM archive_results WHERE warnings <> '[]'")
    assert "without a URL" in rows[0]["warnings"]


def test_crawl_hooks_run_first_and_end_hooks_last(lab: Lab) -> None:
    for event in ("CrawlSetup", "Crawl", "Snapshot", "SnapshotEnd", "CrawlEnd"):
        lab.hook(f"p/on_{event}__10_x.sh", f"echo {event} >> {lab.folder}/log; exit 1")
    lab.crawl("http://a.test/1", attempts=1)
    assert log_of(lab) == ["CrawlSetup", "Crawl", "Snapshot", "SnapshotEnd", "CrawlEnd"]
    assert lab.statuses() == ["sealed", "sealed"]


def test_a_crawl_whose_urls_come_from_its_own_hook(lab: Lab) -> None:
    lab.hook("feed/on_Crawl__10_feed.sh", record(type="Snapshot", url="http://a.test/from-feed"))
    lab.hook("p/on_Snapshot__10_p.sh", "exit 0")
    lab.add()
    lab.work()
    assert lab.statuses() == ["sealed", "sealed", "sealed"]


def test_crawl_daemons_live_until_the_crawl_is_sealed(lab: Lab) -> None:
    lab.hook(
        "chrome/on_CrawlSetup__90_chrome.daemon.bg.sh",
        "touch up; echo up; trap 'rm up; exit 0' TERM; sleep 900 & wait",
    )
    lab.hook("p/on_Snapshot__10_p.sh", 'test -e "$CRAWL_DIR/chrome/up" || exit 1; exit 10')
    lab.crawl("http://a.test/1", "http://a.test/2")
    assert [row["status"] for row in lab.results("status").values()] == ["succeeded", "skipped"]
    assert lab.statuses() == ["sealed", "sealed", "sealed"]


def test_the_seal_ends_daemons_that_hooks_left_behind(lab: Lab) -> None:
    lab.hook("d/on_Snapshot__10_d.sh", "setsid -f sleep 62; setsid -f env -i sleep 63; pgrep -n -f '^sleep 63' > d.pid")
    lab.crawl()
    (row,) = lab.results("pwd").values()
    assert not Path(row["pwd"], "d.pid").exists()
    assert not [pid for pid in _sleepers("63") if _cwd(pid) == row["pwd"]]


def _sleepers(argument: str) -> list[str]:
    return [
        path.parent.name
        for path in Path("/proc").glob("[0-9]*/cmdline")
        if path.exists() and path.read_bytes() == f"sleep\0{argument}\0".encode()
    ]


def _cwd(pid: str) -> str:
    try:
        return os.readlink(f"/proc/{pid}/cwd")
    except OSError:
        return ""


def test_canceling_a_crawl_ends_its_hooks_at_once(lab: Lab) -> None:
    from engine.app import open_store
    from engine.crawls import cancel_crawl

    lab.hook("left/on_Snapshot__01_left.sh", "setsid -f sleep 600")
    lab.hook("bg/on_Snapshot__05_bg.bg.sh", "sleep 600")
    lab.hook("fg/on_Snapshot__10_fg.sh", f"touch {lab.folder}/up; sleep 600")
    lab.add()
    canceled = threading.Event()

    def cancel() -> None:
        while not (lab.folder / "up").exists():
            time.sleep(0.01)
        store = open_store(lab.settings)
        cancel_crawl(lab.settings, store, lab.site, "c1")
        store.close()
        canceled.set()

    thread = threading.Thread(target=cancel)
    thread.start()
    lab.work(until_idle=False, until=lambda: canceled.is_set() and not living(lab))
    thread.join()
    lab.work()
    assert lab.statuses() == ["canceled", "canceled"]
    assert [row["status"] for row in lab.results("status").values()] == ["noresults", "canceled", "canceled"]


def test_a_broken_site_or_url_is_said_before_anything_is_stored(lab: Lab) -> None:
    lab.hook("p/on_Snapshot__10_p.sh", "exit 0")
    with pytest.raises(UsageError, match="not a URL"):
        lab.add("javascript:alert(1)")
    with pytest.raises(UsageError, match='no plugin "q"'):
        lab.add(plugins=("q",))
    with pytest.raises(UsageError, match="regular expression"):
        lab.add(deny=("(",))
    lab.add()
    with pytest.raises(SubmissionRefused, match="exists already"):
        lab.add()


def test_text_of_sealed_snapshots_can_be_searched(lab: Lab) -> None:
    lab.hook("text/on_Snapshot__50_text.sh", f"echo 'the quick brown fox' > page.txt; ln -s /etc/passwd x.txt; {ENDED}")
    lab.crawl()
    found = lab.rows("SELECT url FROM snapshot_texts WHERE snapshot_texts MATCH 'brown'")
    assert found == [{"url": "http://a.test/"}]
    assert lab.rows("SELECT url FROM snapshot_texts WHERE snapshot_texts MATCH 'root'") == []


@pytest.mark.parametrize(
    ("script", "status"),
    [
        ("#!/nowhere/interpreter\n", "failed"),
        ('rm -rf "$SNAP_DIR"; exit 0', "noresults"),
        ("exec 1>&-; exit 0", "noresults"),
        ('printf \'\\377\\376{\\n\'; printf \'{"type": "Tag", "name": "\\377"}\\n\'; exit 0', "noresults"),
        ("""printf '{"type": "Tag", "name": "a\\\\u0000b\\\\ud800"}\\n'""", "succeeded"),
        ("""printf '{"type": "Snapshot", "url": {"a": 1}, "depth": "x", "tags": [1]}\\n'""", "succeeded"),
        (
            """printf '{"type": "ArchiveResult", "status": 7, "output_str": ["x"], "output_json": {"a": 1e999}}\\n'""",
            "noresults",
        ),
        ("ln -s /etc/passwd link; mkdir sub; ln -s / sub/root; exit 0", "noresults"),
    ],
)
def test_bad_hooks_are_outcomes(lab: Lab, script: str, status: str) -> None:
    lab.hook("bad/on_Snapshot__10_bad.rb" if "nowhere" in script else "bad/on_Snapshot__10_bad.sh", script)
    lab.crawl(attempts=1)
    (row,) = lab.results("status, output_files").values()
    assert row["status"] == status
    assert row["output_files"] == "{}"
    assert lab.statuses()[0] == "sealed"


def test_children_of_a_retried_hook_are_archived_and_sealed_too(lab: Lab) -> None:
    child = record(type="Snapshot", url="http://a.test/late")
    lab.hook("links/on_Snapshot__10_links.sh", f"[ -e second ] || {{ touch second; exit 1; }}; {child}")
    lab.crawl(max_depth=1, retry_delay=SECOND, attempts=2)
    assert lab.statuses() == ["sealed", "sealed", "sealed"]
    assert [row["url"] for row in lab.rows("SELECT url FROM snapshots WHERE depth = 1")] == ["http://a.test/late"]


def test_sensitive_values_are_in_no_row(lab: Lab) -> None:
    write_config(lab.hooks, "api", {"API_TOKEN": {"type": "string", "x-sensitive": True, "x-aliases": ["TOKEN"]}})
    lab.hook("api/on_Snapshot__10_api.sh", 'test "$API_TOKEN" = hunter2 || exit 1; exit 10')
    lab.crawl(config={"TOKEN": "hunter2", "OTHER": "seen"}, attempts=1)
    assert [row["status"] for row in lab.results("status").values()] == ["skipped"]
    for table in ("crawls", "snapshots", "archive_results"):
        assert "hunter2" not in json.dumps(lab.rows(f"SELECT * FROM {table}"))
    assert "seen" in lab.rows("SELECT config FROM crawls")[0]["config"]


def test_hooks_that_vanish_between_discovery_and_their_turn_fail_and_the_rest_goes_on(lab: Lab) -> None:
    lab.hook("a/on_Snapshot__10_a.sh", f"rm -r {lab.hooks}/b; exit 10")
    lab.hook("b/on_Snapshot__20_b.sh", "exit 10")
    lab.hook("c/on_Snapshot__30_c.sh", "exit 10")
    lab.crawl(attempts=1)
    assert [row["status"] for row in lab.results("status").values()] == ["skipped", "failed", "skipped"]
    assert "does not exist" in lab.results("error")["b/on_Snapshot__20_b.sh"]["error"]
    assert lab.statuses() == ["sealed", "sealed"]


def test_values_that_no_database_or_json_holds_are_made_to_fit(lab: Lab) -> None:
    lab.hook(
        "odd/on_Snapshot__10_odd.sh",
        """cat <<'X'
{"type": "ArchiveResult", "status": "succeeded", "output_str": "a\\u0000\\ud800", "output_json": {"\\ud800": [1e999]}}
{"type": "Weird\\u0000\\ud800"}
X""",
    )
    lab.crawl(attempts=1)
    (row,) = lab.results("status, output_str, output_json, warnings").values()
    assert (row["status"], row["output_str"]) == ("succeeded", "a\ufffd")
    assert json.loads(row["output_json"]) is not None
    assert "are not known" in row["warnings"]


def test_a_snapshot_whose_directory_is_gone_starts_again_but_not_for_ever(lab: Lab) -> None:
    lab.hook("a/on_Snapshot__10_a.sh", f"echo a >> {lab.folder}/log; exit 10")
    lab.hook("b/on_Snapshot__20_b.sh", f"echo b >> {lab.folder}/log; rm -rf $SNAP_DIR; exit 10")
    lab.hook("c/on_Snapshot__30_c.sh", f"echo c >> {lab.folder}/log; exit 10")
    lab.crawl(attempts=1)
    assert log_of(lab) == ["a", "b", "a", "b", "a", "b", "c"]
    assert [row["status"] for row in lab.results("status").values()] == ["skipped"] * 3
    assert lab.statuses() == ["sealed", "sealed"]
