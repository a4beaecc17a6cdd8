"""Iterations of jobs by a real worker: pages and webhooks over HTTP, hooks in child processes."""

from __future__ import annotations

import base64
import hashlib
import hmac
import itertools
import json
import sqlite3
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from engine.app import open_store
from engine.errors import UsageError
from engine.jobs import deliveries, list_jobs, records, redeliver, start_job, stop_job
from engine.lifecycle.catalog import discover
from tests.lifecycle.lab import PAGE, SITE, Lab, open_lab
from tests.servers import Call, hangs_up

FAST = {"stagger_ms": 0, "webhook_retry": {"max_attempts": 4, "backoff_ms": 1}}
SECRET = "whsec_" + base64.b64encode(b"a key of the sink's").decode()


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    monkeypatch.setattr("engine.jobs.machine_id", lambda _: "m1")
    with open_lab(tmp_path) as made:
        yield made


def rows(lab: Lab, sql: str) -> list[tuple[object, ...]]:
    """A read of a site DB that may not be there yet."""
    try:
        return lab.site(sql)
    except sqlite3.OperationalError:
        return []


def test_new_items_are_posted_once_under_one_id_signed_and_byte_for_byte_the_same(lab: Lab) -> None:
    """JOB-801, JOB-820, JOB-821, JOB-822, JOB-823, JOB-806"""
    job = lab.job(webhook={"url": lab.webhook, "headers": {"Authorization": "Bearer x"}, "secret": SECRET}, engine=FAST)
    lab.answers = [500, 302]
    lab.run(job)
    lab.run(job)
    assert len(lab.posts) == 3
    assert {post.headers["x-delivery-id"] for post in lab.posts} == {"job/1/1"}
    assert len({post.body for post in lab.posts}) == 1
    assert {post.headers["authorization"] for post in lab.posts} == {"Bearer x"}
    assert json.loads(lab.posts[0].body)["item_count"] == 2
    for post in lab.posts:
        signed = f"{post.headers['webhook-id']}.{post.headers['webhook-timestamp']}.".encode() + post.body
        digest = hmac.new(b"a key of the sink's", signed, hashlib.sha256).digest()
        assert post.headers["webhook-signature"] == f"v1,{base64.b64encode(digest).decode()}"
    assert lab.site("SELECT status, attempts FROM monitor_outbox WHERE channel = 'webhook'") == [("sent", 3)]
    assert lab.names() == ["one", "two"]


def test_a_sink_that_never_answers_well_holds_nothing_up_and_can_be_sent_to_again(lab: Lab) -> None:
    """JOB-806, JOB-824, JOB-825"""
    scripts = {"defer.js": "function on_success(ctx) { log('webhook ' + ctx.telemetry.map.webhook.status) }"}
    job = lab.job(files=scripts, webhook={"url": lab.webhook}, engine=FAST)
    lab.answers = [500] * 4
    lab.run(job)
    assert lab.cycles() == {"job/1/1": ("success", "")}
    assert "webhook error" in lab.logs()
    assert (lab.ops()["c1/deliver"], lab.ops()["finished"]) == ("failed", "succeeded")
    site = lab.registry.site(SITE)
    with closing(open_store(lab.settings)) as store:
        (row,) = [one for one in deliveries(lab.settings, store.clock, site, job, 9) if one["channel"] == "webhook"]
        assert (row["id"], row["status"], row["attempts"]) == ("job/1/1", "failed", 4)
        assert "500" in row["error"]
        redeliver(lab.settings, store, site, job, "job/1/1")
        with pytest.raises(UsageError, match='has no delivery "job/9/9"'):
            redeliver(lab.settings, store, site, job, "job/9/9")
    lab.work()
    assert len({(post.headers["x-delivery-id"], post.body) for post in lab.posts}) == 1
    assert lab.site("SELECT status FROM monitor_outbox WHERE id = 'job/1/1'") == [("sent",)]


def test_a_notification_is_shown_by_the_jobs_command_and_tried_again_when_that_fails(lab: Lab) -> None:
    """JOB-812, JOB-826"""
    shown = lab.folder / "shown"
    program = (
        "import os, sys, pathlib; f = pathlib.Path(sys.argv[1]); old = f.read_text() if f.exists() else '';"
        "f.open('a').write('|'.join([*sys.argv[2:], os.environ['SCRAPER_DELIVERY_ID']]) + chr(10));"
        "sys.exit(not old or sys.argv[2] == 'Bad' and 'Bad' not in old)"
    )
    command = [sys.executable, "-c", program, str(shown), "{title}", "{timeout}"]
    scripts = {
        "hooks.js": "function before_store(i) { notify('Own', 'text', 7); return i }",
        "defer.js": "function on_success() { notify('Good', '', 7); notify('Bad', '', 7) }",
    }
    told = {"title": "{item_count} for {job_name}", "command": command}
    lab.run(lab.job(files=scripts, notification=told, engine=FAST))
    lines = shown.read_text().splitlines()
    mine = "2 for job|5000|job/1/1/notification"
    late = ["Good|7|job/1/1/on_success/0/notify1", "Bad|7|job/1/1/on_success/0/notify2"]
    assert set(lines) == {mine, "Own|7|job/1/1/before_store/0/notify1", *late}
    # what has arrived is not sent again with what has not
    assert [lines.count(line) for line in late] == [1, 2]
    assert lab.site("SELECT DISTINCT status FROM monitor_outbox") == [("sent",)]
    assert sum(row[0] for row in lab.site("SELECT attempts FROM monitor_outbox")) == len(lines) >= 6


@pytest.mark.parametrize("gone", ["hangs up", "status"])
def test_a_fetch_is_tried_as_often_as_the_job_says(lab: Lab, gone: str) -> None:
    """JOB-1304, JOB-307"""
    tries: list[int] = []

    def answer(call: Call) -> None:
        tries.append(1)
        if len(tries) >= 3:
            call.reply(PAGE.encode(), 200, {"Content-Type": "text/html"})
        elif gone == "status":
            call.reply(b"busy", 503)
        else:
            hangs_up(call)

    lab.pages["/page"] = answer
    lab.run(lab.job(engine={"fetch_retry": {"max_attempts": 3, "backoff_ms": 1}}))
    assert (len(tries) >= 3, lab.names()) == (True, ["one", "two"])


def test_a_failed_fetch_tells_its_kind_and_a_bad_address_too(lab: Lab) -> None:
    """JOB-409, JOB-408"""
    hook = "function after_fetch(f) { log([f.ok, f.error?.kind, f.response?.status].join(':')); return f }"
    bad = hook + "\nfunction before_fetch(r) { r.url = 'nowhere'; return r }"
    lab.run(
        lab.job("refused", {"hooks.js": hook}, url="http://127.0.0.1:9/x"),
        lab.job("missing", {"hooks.js": hook}, url=f"{lab.server.url}/none"),
        lab.job("bad", {"hooks.js": bad}),
        lab.job("large", {"hooks.js": hook + "\nfunction before_fetch(r) { r.max_body_size = 0.00001; return r }"}),
    )
    told = {line for line in lab.logs() if line.startswith("false:")}
    assert told == {"false:connect:", "false:http:404", "false:unknown:", "false:size:"}
    ended = {cycle.partition("/")[0]: status for cycle, (status, _) in lab.cycles().items()}
    assert ended == {"refused": "error", "bad": "error", "large": "error", "missing": "success"}


def test_a_slow_page_of_a_queue_does_not_hold_up_the_other_worker(lab: Lab) -> None:
    """JOB-1202, JOB-1203, JOB-1205"""
    others = threading.Event()
    served: list[str] = []

    def slow(call: Call) -> None:
        assert others.wait(60)
        call.reply(PAGE.encode(), 200, {"Content-Type": "text/html"})

    def quick(call: Call) -> None:
        served.append(call.request.path)
        call.reply(b"", 200 if call.request.path != "/2" else 500)
        if len(served) == 4:
            others.set()

    lab.pages |= {"/0": slow} | {f"/{n}": quick for n in range(1, 5)}
    scripts = {"defer.js": "async function on_finished() { log('finished ' + await store_incr('finished')) }"}
    urls = [f"{lab.server.url}/{n}" for n in range(5)]
    lab.run(lab.job(files=scripts, urls=urls, workers=2))
    assert served == ["/1", "/2", "/3", "/4"]
    rows = lab.site("SELECT url, worker_id FROM monitor_cycles ORDER BY cycle_id")
    assert [row[1] for row in rows] == [1, 2, 2, 2, 2]
    assert [line for line in lab.logs() if line.startswith("finished")] == ["finished 1"]
    assert sorted(status for status, _ in lab.cycles().values()) == ["error", *["success"] * 4]


def test_workers_start_one_after_another_and_only_at_the_beginning(lab: Lab) -> None:
    """JOB-1204"""
    lab.pages |= {f"/{n}": PAGE for n in range(4)}
    urls = [f"{lab.server.url}/{n}" for n in range(4)]
    lab.run(lab.job(urls=urls, workers=3, engine={"stagger_ms": 30}))
    with closing(open_store(lab.settings)) as store, store.database.read() as connection:
        rows = connection.exec_driver_sql("SELECT id, not_before FROM op WHERE id LIKE 'c%/fetch' ORDER BY id").all()
    starts = [row[1] for row in rows]
    assert [start - starts[0] for start in starts[:3]] == [0, 30_000, 60_000]
    assert starts[3] == 0


def test_requests_of_a_job_take_turns_with_its_proxies(lab: Lab) -> None:
    """JOB-1301"""
    proxied: list[str] = []

    def proxy(call: Call) -> None:
        proxied.append(call.request.headers["host"])
        call.reply(PAGE.encode(), 200, {"Content-Type": "text/html"})

    lab.pages["/page"] = proxy
    hook = "function after_fetch(f) { log('by ' + f.response.proxy.slice(-5)); return f }"
    here = lab.server.url
    proxies = {"urls": [here.replace("127.0.0.1", "127.0.0.1"), here.replace("127.0.0.1", "localhost")]}
    lab.run(lab.job(files={"hooks.js": hook.replace(".slice(-5)", ".split(':')[1]")}, proxy=proxies, workers=3))
    turns = sorted(line for line in lab.logs() if line.startswith("by "))
    assert turns == ["by //127.0.0.1", "by //127.0.0.1", "by //localhost"]


def test_a_hook_that_takes_its_process_down_has_thrown_and_the_cycle_goes_on(lab: Lab) -> None:
    """JOB-320"""
    hook = "function after_extract(items) { const all = []; while (true) all.push(new Array(1e5).fill(all.length)) }"
    lab.write("site.yaml", f"name: {SITE}\ndatabaseFileName: watch.db\njobsRoot: jobs\njs: {{heapMB: 32}}\n")
    lab.run(lab.job(files={"hooks.js": hook}))
    assert (lab.names(), lab.cycles()) == (["one", "two"], {"job/1/1": ("success", "")})
    (told,) = lab.site("SELECT telemetry_json FROM monitor_cycles")
    stages = {stage["name"]: stage for stage in json.loads(told[0])["telemetry"]["stages"]}
    assert stages["after_extract"]["status"] == "error"


def test_iterations_of_a_job_do_not_overlap(lab: Lab) -> None:
    """JOB-210"""
    job = lab.job()
    (first,) = lab.submit(job)
    with pytest.raises(UsageError, match=f"scraper workflow cancel {first}"):
        lab.submit(job)
    site = lab.registry.site(SITE)
    with closing(open_store(lab.settings)) as store:
        with pytest.raises(UsageError, match=f"scraper workflow cancel {first}"):
            start_job(lab.settings, store, site, job)
        store.cancel(first)
        assert start_job(lab.settings, store, site, job)
        assert not start_job(lab.settings, store, site, job)
        stop_job(store, site, job)
    lab.submit(job)


def test_a_started_job_runs_again_and_again_and_a_stopped_one_no_more(lab: Lab) -> None:
    """JOB-210, JOB-211, JOB-1510, JOB-709"""
    job = lab.job(interval=1)
    site = lab.registry.site(SITE)
    pages = iter(range(1000))

    def growing(call: Call) -> None:
        number = next(pages)
        if number == 2:
            with closing(open_store(lab.settings)) as store:
                stop_job(store, site, job)
        status = 500 if number == 1 else 200
        call.reply(f"<li class=i><b>{number}</b></li>".encode(), status, {"Content-Type": "text/html"})

    lab.pages["/page"] = growing
    with closing(open_store(lab.settings)) as store:
        assert start_job(lab.settings, store, site, job)
        assert not start_job(lab.settings, store, site, job)
    while len(rows(lab, "SELECT 1 FROM monitor_iterations WHERE finished_at > 0")) < 3:
        with closing(open_store(lab.settings)) as store:
            (schedule,) = store.schedules.all(SITE)
            assert schedule.due_at is not None
            time.sleep(max(schedule.due_at - store.clock.now(), 0) / 1_000_000)
        lab.work()
    assert lab.names() == ["0", "2"]
    ended = lab.site("SELECT number, started_at, finished_at FROM monitor_iterations ORDER BY number")
    assert [row[0] for row in ended] == [1, 2, 3]
    for (_, _, finished), (_, started, _) in itertools.pairwise(ended):
        assert started - finished >= 1_000_000
    with closing(open_store(lab.settings)) as store:
        with pytest.raises(UsageError, match="is not started"):
            stop_job(store, site, job)
        (line,) = list_jobs(lab.settings, store, site, discover(site))
        assert (line.records, line.schedule, (line.last or {})["number"]) == (2, None, 3)
        newest = records(lab.settings, store.clock, site, job, 2)
        assert [one["fields"]["name"] for one in newest] == ["2", "0"]
