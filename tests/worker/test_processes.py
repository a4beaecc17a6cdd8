"""Workers as processes: frozen, stopped, canceled (WRK-1 to WRK-19)."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from engine.clock import SECOND
from tests import warm
from tests.warm import Warm
from tests.worker.lab import COUNTERS, Lab, js

SLOW = """module.exports = async (ctx) => {
  require("site-db").query("SELECT 1");
  await new Promise((done) => setTimeout(done, ctx.input));
  require("site-db").exec("UPDATE counter SET n = n + 1");
}"""


Spawn = Callable[..., Warm]


@pytest.fixture
def spawn() -> Iterator[Spawn]:
    """Starts workers of a lab, and ends those the test leaves behind; their reports are in ``report.json``."""
    started: list[Warm] = []

    def start(lab: Lab, **options: Any) -> Warm:
        with (lab.folder / "report.json").open("w") as report:
            arguments = (lab.engine_db, lab.folder, json.dumps(options))
            started.append(warm.start("tests.worker.process:main", arguments, stdout=report.fileno()))
        return started[-1]

    yield start
    for process in started:
        process.send_signal(signal.SIGCONT)
        process.kill()
        process.wait()


def await_that(condition: Callable[[], bool]) -> None:
    """Look again and again until the condition holds; the test's own time limit bounds it."""
    while not condition():
        time.sleep(0.02)


def slow_lab(lab: Lab) -> Lab:
    """A lab with a script that takes as many milliseconds as its input says and counts itself."""
    lab.write("migrations/001_c.sql", COUNTERS)
    lab.write("scripts/slow.js", SLOW)
    return lab


def await_start(lab: Lab, op_id: str) -> None:
    """Wait until an attempt of the op has been marked as started."""
    query = f"SELECT count(*) FROM attempts WHERE op_id = '{op_id}' AND started_at IS NOT NULL"

    def look() -> bool:
        with store.database.read() as connection:
            return bool(connection.exec_driver_sql(query).scalar_one())

    with closing(lab.store()) as store:
        await_that(look)


def test_a_worker_frozen_past_its_lease_changes_nothing_and_works_on(either_lab: Lab, spawn: Spawn) -> None:
    lab = slow_lab(either_lab)
    lab.submit(js("a", "slow", input=1500))
    frozen = spawn(lab, lease_duration=SECOND, until_idle=False)
    await_start(lab, "a")
    children = [int(pid) for pid in Path(f"/proc/{frozen.pid}/task/{frozen.pid}/children").read_text().split()]
    for pid in (frozen.pid, *children):
        os.kill(pid, signal.SIGSTOP)
    second = spawn(lab, lease_duration=SECOND)
    assert second.wait() == 0
    assert lab.statuses() == {"a": "succeeded"}
    for pid in (*children, frozen.pid):
        os.kill(pid, signal.SIGCONT)
    lab.submit(js("b", "slow", input=0), workflow_id="w2")
    await_that(lambda: lab.statuses()["b"] == "succeeded")
    assert lab.attempts("a") == ["lease_lost", "succeeded"]
    assert lab.site("SELECT n FROM counter") == [(2,)]
    assert frozen.poll() is None


def test_sigterm_drains_and_gives_back_what_has_not_begun(lab: Lab, spawn: Spawn) -> None:
    slow_lab(lab).submit(js("a", "slow", input=1000), *(js(f"q{n}", "slow", input=0) for n in range(3)))
    worker = spawn(lab, max_workers=4, js_processes=1, until_idle=False)
    await_start(lab, "a")
    worker.send_signal(signal.SIGTERM)
    assert worker.wait() == 0
    assert json.loads((lab.folder / "report.json").read_text())["succeeded"] == 1
    assert lab.statuses() == {"a": "succeeded", "q0": "ready", "q1": "ready", "q2": "ready"}
    assert set(lab.attempts("q0")) <= {"interrupted"}
    lab.work()
    assert lab.site("SELECT n FROM counter") == [(4,)]


def test_a_drain_that_takes_too_long_refunds_the_attempt(lab: Lab, spawn: Spawn) -> None:
    slow_lab(lab).submit(js("a", "slow", input=30_000))
    worker = spawn(lab, drain_timeout=SECOND // 5, until_idle=False)
    await_start(lab, "a")
    worker.send_signal(signal.SIGTERM)
    worker.wait()
    assert lab.attempts("a") == ["interrupted"]
    assert lab.statuses() == {"a": "ready"}


def test_no_child_outlives_its_worker(lab: Lab, spawn: Spawn) -> None:
    slow_lab(lab).submit(js("a", "slow", input=30_000))
    worker = spawn(lab)
    await_start(lab, "a")
    children = Path(f"/proc/{worker.pid}/task/{worker.pid}/children").read_text().split()
    assert children
    worker.kill()
    worker.wait()
    await_that(lambda: not any(_alive(pid) for pid in children))


def _alive(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_cancel_stops_a_running_op_and_nothing_completes_afterwards(either_lab: Lab, spawn: Spawn) -> None:
    lab = slow_lab(either_lab)
    lab.submit(js("a", "slow", input=20_000), js("b", "slow", input=0, depends_on=()))
    worker = spawn(lab, js_processes=2)
    await_start(lab, "a")
    await_that(lambda: lab.statuses()["b"] == "succeeded")
    with closing(lab.store()) as store:
        assert store.cancel("w") == 1
    assert worker.wait() == 0
    assert lab.statuses() == {"a": "canceled", "b": "succeeded"}
    assert lab.attempts("a") == ["canceled", "canceled"]
    assert lab.site("SELECT n FROM counter") == [(1,)]
    assert lab.site("SELECT count(*) FROM scraper_inbox WHERE outcome IS NULL") == [(1,)]
