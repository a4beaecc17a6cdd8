"""Runs of an op that come too late or again, and rules of jobs that no other file looks at."""

from __future__ import annotations

import json
import socket
import sqlite3
import ssl
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpcore
import pytest

from engine.errors import OpError
from engine.js.ports import DatabaseBusy
from engine.lifecycle.cycle import CycleRun
from engine.lifecycle.ledger import Draft, Ledger
from engine.lifecycle.manifest import InvalidJob, parse_job
from engine.runners.cycle_fetch import kind_of
from tests.lifecycle.bench import Bench, Crash
from tests.lifecycle.lab import PAGE, SITE, open_lab
from tests.lifecycle.rig import Rig
from tests.servers import Call

HOOK = {"url": "http://sink/x"}
BASE = "name: Job\nselector: .i\nfields: ['name:b']\n"


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.close()


def begin(bench: Bench, workflow: str) -> dict[str, Any]:
    """An iteration whose first page is fetched: what its next steps are given."""
    begun = bench.step(workflow, "begin", job="job").value
    given = {"plan": begun["plan"], "cycle": begun["cycles"][0]}
    bench.fetch(workflow, given, begun["requests"][begun["cycles"][0]["url"]], lambda step: step())
    return given


def test_a_run_that_lost_its_op_calls_no_hook_to_effect_once_the_cycle_is_over(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """JOB-220, JOBHOOK-51: the journal is wiped by then."""
    bench.job("async function after_extract(items) { await store_incr('calls'); return null }")
    given = begin(bench, "w1")
    running = Ledger(bench.database(bench.site), bench.clock, "job").state("job/1/1")
    bench.step("w1", "process", **given)
    monkeypatch.setattr(Ledger, "state", lambda *_: running)
    with pytest.raises(DatabaseBusy):
        bench.step("w1", "process", **given)
    assert bench.rows("SELECT value FROM monitor_kv") == [("1",)]


def test_ops_of_a_cycle_that_is_over_do_nothing_when_they_are_tried_again(bench: Bench) -> None:
    """JOB-220"""
    hooks = "async function before_fetch(r) { await store_incr('calls'); return r }"
    bench.job(hooks, "async function on_finished() { await store_incr('calls') }")
    given = begin(bench, "w1")
    for _ in range(2):
        bench.step("w1", "process", **given)
        bench.step("w1", "finished", plan=given["plan"])
        assert bench.step("w1", "request", **given, request={}, started_at=1).value == {"skip": True}
    assert bench.rows("SELECT value FROM monitor_kv") == [("2",)]
    assert bench.names() == ["one", "two"]


def test_nothing_is_stored_in_a_cycle_that_is_over_for_nobody_would_announce_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """JOB-220, JOB-221"""
    bench.job(webhook=HOOK)
    given = begin(bench, "w1")

    def overtaken(run: CycleRun) -> list[Draft]:
        run.ledger.conclude(run.cycle_id, "skipped", "", {})
        return []

    monkeypatch.setattr(CycleRun, "_drafts", overtaken)
    with pytest.raises(DatabaseBusy, match="job/1/1 is over"):
        bench.step("w1", "process", **given)
    assert bench.names() == []


def test_neither_notification_nor_webhook_is_made_before_both_hooks_have_seen_the_items(bench: Bench) -> None:
    """JOB-207"""
    bench.job(
        "function before_webhook(p, ctx) { log('notify ' + ctx.telemetry.map.notify.status); return p }", webhook=HOOK
    )
    bench.iterate()
    assert "notify inactive" in bench.logs
    assert bench.stages()["notify"]["status"] == "success"


@pytest.mark.parametrize(
    ("returned", "after", "status", "names"),
    [
        ("null", "f", "error", []),
        ("null", "{body: '<li class=i><b>mended'}", "success", ["mended"]),
        ("null", "null", "skipped", []),
        ("{error: 'boom', status: 200, body: ''}", "f.ok ? f : 0", "error", []),
    ],
)
def test_a_fetch_that_a_hook_failed_can_be_answered_for_or_passed_over(
    bench: Bench, returned: str, after: str, status: str, names: list[str]
) -> None:
    """JOB-304, JOB-307, JOBHOOK-20, JOBHOOK-22: after_fetch sees it as it sees any other failure."""
    hooks = f"function override_fetch() {{ return {returned} }} function after_fetch(f) {{ return {after} }}"
    bench.job(hooks, "function on_error(error) { log('failed: ' + error) }")
    bench.iterate()
    if after == "f":
        # the envelope has no response to go on with
        assert "failed: override_fetch must return a response table" in bench.logs
    assert ("failed: boom" in bench.logs) == ("boom" in returned)
    assert (bench.outcomes()[0][0], bench.names()) == (status, names)


def test_hooks_see_what_the_ones_before_them_made(bench: Bench) -> None:
    """JOB-203, JOB-304, JOB-1110: the request of before_fetch, no items of override_extract."""
    bench.job(
        """function before_fetch(r) { r.url += '?p=2'; return r }
        function override_fetch(r) { return {status: 200, body: r.url} }
        function override_extract() { return null }
        function after_extract(items, ctx) {
          log('items ' + items.length + ' of ' + ctx.last_fetch.response.body);
          return [{fields: {name: 'late', extra: 1}, matches: ['mine']}];
        }
        function before_notify() { return null }
        function before_webhook(p) { log('webhook ' + p.item_count); return p }""",
        "function on_finally(ctx) { log('fetched ' + ctx.last_fetch.response.body) }",
        webhook=HOOK,
        keywords=["late"],
    )
    bench.iterate()
    assert {"items 0 of http://s/page?p=2", "webhook 1", "fetched http://s/page?p=2"} <= set(bench.logs)
    stored = bench.rows("SELECT fields_json, matches_json FROM monitor_records")
    assert stored == [('{"name": "late", "extra": "1"}', '["late"]')]
    assert bench.rows("SELECT channel FROM monitor_outbox") == [("webhook",)]


def test_globals_do_not_outlast_an_op_and_the_end_of_an_iteration_may_stand_in_hooks_js(bench: Bench) -> None:
    """JOBHOOK-4, JOBHOOK-2, JOB-209"""
    bench.job(
        """let n = 0;
        function before_fetch(r) { log('fetch ' + ++n); return r }
        function after_fetch(f) { log('after ' + ++n + typeof fs_write); return f }
        function on_finished() { log('finished ' + ++n) }""",
        workers=2,
    )
    bench.iterate()
    assert [line for line in bench.logs if line[-1:].isdigit() or "after" in line] == [
        *["fetch 1", "after 1undefined"] * 2,
        "finished 1",
    ]


def test_with_hash_fields_a_changed_price_leaves_the_record_and_blank_ones_are_told(bench: Bench) -> None:
    """JOB-703, JOB-707"""
    row = "<li class=i><b>x</b><a href='{}'></a><i>{}</i></li>"
    keys: dict[str, Any] = {"fields": ["name:b", "link:a@href", "price:i"], "hash_fields": ["link"]}
    bench.job(**keys)
    for page in (row.format("/x", 1), row.format("/x", 2), row.format("", 3), row.format("", 4)):
        bench.pages["http://s/page"] = page
        bench.iterate()
    prices = [
        json.loads(fields)["price"] for (fields,) in bench.rows("SELECT fields_json FROM monitor_records ORDER BY id")
    ]
    assert prices == ["1", "3", "4"]
    told = [line for line in bench.logs if "hash_fields" in line]
    assert len(told) == 2
    assert "all fields were hashed instead" in told[0]


def test_judging_a_job_calls_no_hook_and_makes_no_table(bench: Bench) -> None:
    """JOB-111, JOB-113: nor does a disabled job keep anybody from trying it."""
    called = "function before_fetch() { while (true); } function on_finished() { log('called') }"
    bench.job(f"db_exec('CREATE TABLE mine (a)'); {called}", enabled=False)
    looked = bench.step("w1", "look", folder=str(bench.folder / "jobs" / "job"))
    assert looked.value["hooks"] == ["before_fetch", "on_finished"]
    assert bench.logs == []
    assert bench.rows("SELECT name FROM sqlite_master WHERE name = 'mine'") == []
    assert "plan" in bench.step("w2", "begin", job="job", debug=True).value


def test_a_notification_of_a_hook_lasts_five_seconds_unless_it_says_otherwise(bench: Bench) -> None:
    """JOBHOOK-86"""
    bench.job("function before_fetch(r) { notify('a', 'b'); return r }", notification={"enabled": False})
    bench.iterate()
    (told,) = bench.rows("SELECT payload_json FROM monitor_outbox")
    assert json.loads(told[0]) == {"title": "a", "body": "b", "timeout": 5000}


def test_keywords_are_trimmed_and_blank_ones_count_for_nothing() -> None:
    """JOB-601"""
    job = parse_job(Path("job.yaml"), BASE + "url: http://s/\nkeywords: [' Rust ', '', RUST, go]\n")
    assert job.keywords == ("rust", "go")


@pytest.mark.parametrize("url", ["/page", "s/page", "ftp://s/page"])
def test_the_page_has_an_absolute_address(url: str) -> None:
    """JOB-106"""
    with pytest.raises(InvalidJob, match=r"job\.url must be an absolute URL"):
        parse_job(Path("job.yaml"), f"{BASE}url: {url}\n")


@pytest.mark.parametrize(
    ("cause", "kind"),
    [
        (socket.gaierror(-2, "unknown"), "dns"),
        (httpcore.ReadTimeout("slow"), "timeout"),
        (TimeoutError(), "timeout"),
        (httpcore.ProxyError("refused"), "proxy"),
        (ssl.SSLCertVerificationError("self-signed"), "tls"),
        (ConnectionResetError(), "connect"),
        (ValueError(), "unknown"),
    ],
)
def test_the_kind_of_a_failed_fetch_is_that_of_what_lies_beneath(cause: Exception, kind: str) -> None:
    """JOB-409"""
    error = OpError("transport_error", "no")
    between = httpcore.ConnectError("no") if kind in ("dns", "tls") else httpcore.NetworkError("no")
    between.__cause__ = cause
    error.__cause__ = between
    assert kind_of(error) == kind


@pytest.mark.timeout(600)
def test_jobs_ask_conditionally_obey_robots_and_let_hooks_choose_the_proxy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """JOB-1302, JOB-1301, JOBHOOK-19: a 304 stores and announces nothing, a disallowed page is never requested."""
    monkeypatch.setattr("engine.jobs.machine_id", lambda _: "m1")
    answers: list[int] = []

    def tagged(call: Call) -> None:
        known = call.request.headers.get("if-none-match") == '"1"'
        answers.append(304 if known else 200)
        call.reply(b"" if known else PAGE.encode(), answers[-1], {"ETag": '"1"', "Content-Type": "text/html"})

    with open_lab(tmp_path) as lab:
        http = "http: {conditional: true, robots: obey}"
        lab.write("site.yaml", f"name: {SITE}\ndatabaseFileName: watch.db\njobsRoot: jobs\n{http}\n")
        lab.pages |= {"/robots.txt": "User-agent: *\nDisallow: /private\n", "/tagged": tagged, "/private": PAGE}
        choosing = f"async function before_fetch(r) {{ r.proxy = '{lab.server.url}'; log(await SHARED); return r }}"
        choosing = choosing.replace("SHARED", "global_store_incr('n', 6)")
        watched = lab.job("tagged", url=f"{lab.server.url}/tagged", webhook={"url": lab.webhook})
        private = lab.job("private", url=f"{lab.server.url}/private")
        proxied = lab.job("proxied", {"hooks.js": choosing}, proxy={"urls": ["http://127.0.0.1:9"]})
        lab.run(watched, private, proxied)
        assert not [target for target in lab.requested if target.endswith("/private")]
        assert lab.cycles()["private/1/1"][0] == "error"
        assert "robots.txt" in lab.cycles()["private/1/1"][1]
        assert lab.names("proxied") == ["one", "two"]
        assert "7" in lab.logs()
        lab.run(watched)
        assert (lab.cycles()["tagged/2/1"], [post.headers["x-delivery-id"] for post in lab.posts]) == (
            ("skipped", ""),
            ["tagged/1/1"],
        )
        assert (answers, lab.names("tagged")) == ([200, 304], ["one", "two"])


def test_what_a_cycle_stored_before_it_was_given_up_is_announced_with_the_end_of_its_iteration(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """JOB-221, JOB-222: also when nothing that was to end the cycle ever ran, and again until that is settled."""
    bench.job("async function before_webhook(p) { await store_incr('seen'); return p }", webhook=HOOK)
    given = begin(bench, "w1")
    with monkeypatch.context() as patched:
        patched.setattr(CycleRun, "announce", crash)
        with pytest.raises(Crash):
            bench.step("w1", "process", **given)
    ended = [bench.step("w1", "finished", plan=given["plan"]).value for _ in range(2)]
    assert ended == [{"late": ["job/1/1"]}] * 2
    assert bench.outcomes()[0][0] == "error"
    assert bench.rows("SELECT value FROM monitor_kv") == [("1",)]
    assert bench.rows("SELECT id, status FROM monitor_outbox ORDER BY id") == [
        ("job/1/1", "pending"),
        ("job/1/1/notification", "sent"),
    ]
    assert wiped(bench)


def test_what_a_cycle_remembers_is_wiped_even_if_its_op_dies_right_before_that(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """JOBHOOK-34"""
    bench.job("async function after_fetch(f) { await store_incr('n'); return f }")
    given = begin(bench, "w1")
    with monkeypatch.context() as patched:
        patched.setattr(CycleRun, "wipe", crash)
        with pytest.raises(Crash):
            bench.step("w1", "process", **given)
    assert not wiped(bench)
    assert bench.step("w1", "process", **given).value["status"] == "success"
    assert wiped(bench)


def test_an_iteration_that_was_canceled_is_forgotten_like_any_other(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """JOB-223"""
    monkeypatch.setattr("engine.lifecycle.ledger.KEPT_ITERATIONS", 1)
    bench.job("async function before_fetch(r) { await batch_set('a', 1); await store_incr('n'); return r }")
    begin(bench, "canceled")
    assert not wiped(bench)
    bench.clock.advance(1)
    bench.job(selector="li")
    bench.iterate()
    assert bench.rows("SELECT number FROM monitor_iterations ORDER BY number") == [(2,)]
    assert bench.rows("SELECT 1 FROM monitor_batch") == []
    assert wiped(bench)
    bench.iterate()
    assert bench.rows("SELECT COUNT(*) FROM monitor_versions") == [(1,)]


def test_an_end_of_an_iteration_that_takes_its_process_down_has_thrown(bench: Bench) -> None:
    """JOB-320"""
    bench.job("function on_finished() { log('called') }")
    given = begin(bench, "w1")
    bench.step("w1", "process", **given)
    bench.step("w1", "finished", plan=given["plan"], blame="out of memory")
    assert "called" not in bench.logs
    assert any("out of memory" in line for line in bench.logs)
    assert bench.rows("SELECT status FROM monitor_iterations") == [("finished",)]


def test_a_notification_that_only_the_log_shows_is_said_by_whichever_run_of_its_op_counts(bench: Bench) -> None:
    """JOB-812: the log of a run that dies before it is settled is lost."""
    hook = "notify('{0}', 'n')"
    lasts = f"function on_success() {{ {hook.format('ended')} }} function on_finished() {{ {hook.format('finished')} }}"
    for workflow, scripts in (("w1", (None, None)), ("w2", (None, lasts))):
        bench.job(*scripts, fields=[f"name{workflow}:b"])
        given = begin(bench, workflow)
        for step, said in (
            ("process", "2 new matches from Job"),
            ("conclude", "ended\nn"),
            ("finished", "finished\nn"),
        ):
            if step == "process" or scripts[1] is not None:
                told = [bench.step(workflow, step, **given).logs for _ in range(2)]
                lines = [[line.message for line in logs if line.message.startswith("notification: ")] for logs in told]
                assert lines[0] == lines[1]
                assert [line.startswith(f"notification: {said}") for line in lines[1]] == [True], (step, lines)


def test_the_worker_hears_of_every_call_of_a_hook_however_long_an_op_takes(tmp_path: Path) -> None:
    """JOBHOOK-24: the limit is that of one call."""
    rig = Rig(tmp_path)
    heard: list[int] = []
    hooks = rig.load("function filter_item(i) { return i }")
    hooks.alive = lambda: heard.append(1)
    hooks.call_each("filter_item", [[{"fields": {}, "matches": []}]] * 5, rig.cycle)
    assert len(heard) == 5
    rig.close()


def test_a_failure_that_comes_late_does_not_undo_what_another_run_delivered(bench: Bench) -> None:
    """JOB-822: the child of a worker that was killed notes its try when the next worker has been there."""
    bench.job(webhook=HOOK)
    given = begin(bench, "w1")
    bench.step("w1", "process", **given)
    deliver = {"job": "job", "cycle_id": "job/1/1", "ids": [], "version": given["plan"]["version"]}
    (row,) = bench.step("w1", "outbox", **deliver).value["rows"]

    def note(status: str, attempts: int) -> tuple[Any, ...]:
        tried = {"id": row["id"], "status": status, "error": "", "duration_ms": 1.0, "attempts": attempts}
        bench.step("w1", "delivered", **deliver, rows=[tried])
        return bench.rows("SELECT status, attempts FROM monitor_outbox WHERE channel = 'webhook'")[0]

    assert note("pending", 0) == ("pending", 1)
    assert note("sent", 0) == ("sent", 2)
    assert note("pending", 0) == ("sent", 2)
    # sent again by hand, and that fails
    assert note("failed", 2) == ("failed", 3)


def test_hooks_of_one_job_keep_nobody_waiting(tmp_path: Path) -> None:
    """While one runs, whatever it has written so far, another may write."""
    rig = Rig(tmp_path)

    def other(_name: str, _told: object) -> str:
        with closing(sqlite3.connect(tmp_path / "site.db", timeout=0)) as database:
            database.execute("BEGIN IMMEDIATE")
        return "free"

    rig.ask = other
    writes = (
        "await store_set('a', '1'); await store_incr('n'); await db_exec('CREATE TABLE mine (a)'); notify('a', 'b')"
    )
    rig.run(
        f"async function before_fetch() {{ {writes}; log(await global_store_get('x')); return null }}", "before_fetch"
    )
    assert rig.messages == ["free"]
    rig.close()


def crash(_run: CycleRun) -> None:
    raise Crash


def wiped(bench: Bench) -> bool:
    """Whether nothing is left of what cycles and iterations remembered."""
    tables = ("hook_journal", "monitor_calls")
    return not any(bench.rows(f"SELECT 1 FROM {table} WHERE cycle_id LIKE 'job/%'") for table in tables)
