"""Workers killed at random instants while they watch fifty pages: nothing is lost, nothing is announced twice."""

from __future__ import annotations

import json
import os
import random
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from engine.app import open_store
from tests import warm
from tests.lifecycle.lab import Lab, open_lab
from tests.servers import Call
from tests.warm import Warm

PAGES = 50
HOOKS = """
async function after_extract(items) { await store_incr("extracted"); return items }
async function before_webhook(payload) {
  await store_incr("announced");
  await global_store_incr("shared", 0, 1);
  return payload;
}
"""
DEFER = """
async function on_finally(ctx) { await store_incr(ctx.telemetry.map.store.status === "success" ? "stored" : "other") }
async function on_finished() { await store_incr("finished") }
"""


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    monkeypatch.setattr("engine.jobs.machine_id", lambda _: "m1")
    with open_lab(tmp_path) as made:
        yield made


def storm(lab: Lab, kills: int, iterations: int, seed: int) -> int:
    """Run iterations of a job of fifty pages under kills; how many landed on a worker with something in flight."""
    draw = random.Random(seed)
    begun: list[str] = []

    def page(call: Call) -> None:
        # two items of its own, and one that all pages of the iteration have
        own = "".join(f"<li class=i><b>{call.request.path}-{n}-{len(begun)}</b></li>" for n in range(2))
        common = f"<li class=i><b>common-{len(begun)}</b></li>"
        call.reply((own + common).encode(), 200, {"Content-Type": "text/html"})

    lab.pages |= {f"/{n}": page for n in range(PAGES)}
    urls = [f"{lab.server.url}/{n}" for n in range(PAGES)]
    engine = {"stagger_ms": 0, "webhook_retry": {"max_attempts": 50, "backoff_ms": 5}}
    webhook = {"url": lab.webhook}
    job = lab.job(
        files={"hooks.js": HOOKS, "defer.js": DEFER},
        urls=urls,
        workers=4,
        fields=["name:b"],
        webhook=webhook,
        engine=engine,
    )
    lab.answers = [draw.choice([204, 204, 500]) for _ in range(PAGES * iterations)]
    landed = 0
    for _ in range(iterations):
        begun += lab.submit(job)
        while open_ops(lab):
            worker = warm.start("tests.lifecycle.worker_main:main", (str(lab.folder), "m1"))
            if landed < kills and await_progress(lab, worker, draw.randrange(8), draw.uniform(0.0, 0.1)):
                worker.kill()
                landed += 1
            worker.wait(300)
    return landed


def counted(lab: Lab, sql: str) -> int:
    with closing(open_store(lab.settings)) as store, store.database.read() as connection:
        return int(connection.exec_driver_sql(sql).scalar_one())


def open_ops(lab: Lab) -> int:
    return counted(lab, "SELECT COUNT(*) FROM op WHERE status IN ('pending', 'ready', 'running')")


def await_progress(lab: Lab, worker: Warm, ops: int, seconds: float) -> bool:
    """Let the worker end some ops, go on for a moment, and have one in flight; False where it ended first."""
    deadline: float | None = None
    with closing(open_store(lab.settings)) as store, store.database.engine.connect() as connection:
        looking = connection.execution_options(isolation_level="AUTOCOMMIT")
        before = None
        while worker.poll() is None:
            query = "SELECT SUM(status = 'running'), SUM(status IN ('succeeded', 'failed')) FROM op"
            running, ended = (int(value or 0) for value in looking.exec_driver_sql(query).one())
            before = ended if before is None else before
            if deadline is None and ended - before >= ops:
                deadline = time.monotonic() + seconds
            if running and deadline is not None and time.monotonic() >= deadline:
                return True
            time.sleep(0.005)
    return False


def deliveries_of(lab: Lab) -> list[tuple[object, ...]]:
    """What became of the ops that deliver, where that was anything but a success at once."""
    query = (
        "SELECT w.id, o.id, o.status, o.attempts, o.lost FROM op o JOIN workflow w ON w.pk = o.workflow_pk"
        " WHERE o.id LIKE '%deliver%' AND (o.status <> 'succeeded' OR o.lost > 0)"
    )
    with closing(open_store(lab.settings)) as store, store.database.read() as connection:
        return [tuple(row) for row in connection.exec_driver_sql(query.replace("%", "%%"))]


def check(lab: Lab, iterations: int) -> None:
    cycles = PAGES * iterations
    assert Counter(status for status, _ in lab.cycles().values()) == {"success": cycles}
    names = Counter(lab.names())
    assert set(names.values()) == {1}
    assert len(names) == (2 * PAGES + 1) * iterations
    kept = {key: lab.kept(key) for key in ("extracted", "announced", "stored", "other", "finished")}
    assert kept == {
        "extracted": str(cycles),
        "announced": str(cycles),
        "stored": str(cycles),
        "other": None,
        "finished": str(iterations),
    }
    assert counted(lab, "SELECT value FROM kv WHERE key = 'shared'") == cycles
    bodies: dict[str, set[bytes]] = {}
    for post in lab.posts:
        bodies.setdefault(post.headers["x-delivery-id"], set()).add(post.body)
    assert bodies.keys() == lab.cycles().keys()
    assert {len(texts) for texts in bodies.values()} == {1}
    told = Counter(item["name"] for (text,) in bodies.values() for item in json.loads(text)["items"])
    assert told == names
    unsent = lab.site("SELECT id, status, attempts, last_error FROM monitor_outbox WHERE status <> 'sent'")
    assert unsent == [], deliveries_of(lab)
    assert lab.site("SELECT COUNT(*) FROM hook_journal") == [(0,)]


@pytest.mark.timeout(600)
def test_twenty_kills_over_fifty_cycles(lab: Lab) -> None:
    """JOB-220, JOB-221, JOB-822"""
    assert storm(lab, kills=20, iterations=1, seed=11) == 20
    check(lab, 1)


@pytest.mark.chaos
@pytest.mark.timeout(3600)
def test_two_hundred_kills(lab: Lab) -> None:
    """JOB-220, JOB-221, JOB-822"""
    kills = int(os.environ.get("CHAOS_KILLS", "200"))
    landed = storm(lab, kills=kills, iterations=max(kills // 20, 1), seed=random.randrange(1 << 30))
    print(f"{landed} kills landed, {len(lab.posts)} posts for {len(lab.cycles())} announcements")
    check(lab, max(kills // 20, 1))
