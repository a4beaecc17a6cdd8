"""What schedules cost: an idle worker under 10,000 of them, and how late they fire, spread out and all at once."""

from __future__ import annotations

import signal
import subprocess
import time
from contextlib import closing

import psutil

from benchmarks.frame import Bench, Benchmark, Contestant, Goal, Sample
from benchmarks.ours import SITE, place, worker_command
from benchmarks.processes import Failed, started
from engine.clock import MILLISECOND, SECOND, Micros
from engine.model import NewOp
from engine.schedules import Every, NewSchedule, OpsTarget
from engine.store.store import Store

NAME = "schedules"
TITLE = "10,000 schedules: an idle worker, and how late they fire"

#: Each is due once in this time.
INTERVAL = 600 * SECOND
#: How soon schedules are due after they are told to be.
SOON = 5 * SECOND
_SOME_DAY: Micros = 1 << 52


def benchmark(bench: Bench) -> Benchmark:
    """Ours on both databases; the schedules spread evenly, or all due in one instant."""
    count, seconds = bench.size(10_000, 1_000), bench.size(10, 3)
    names = [("ours on SQLite", "sqlite"), ("ours on PostgreSQL", "postgresql")]
    spread = [Contestant(name, lambda url=url: fired(bench, url, count, seconds)) for name, url in names]
    at_once = [
        Contestant(f"{name}, at once", lambda url=url: burst(bench, url, count), quick=False) for name, url in names
    ]
    return Benchmark(
        title=TITLE,
        figure="lateness p99",
        unit="ms",
        rounds=1,
        sizes={"schedules": count, "interval": "10 min", "seconds idle, then busy": seconds},
        contestants=[*spread, *at_once],
        goals=[
            goal
            for name, _ in names
            for goal in (
                Goal(name, None, "<=", 1.0, figure="idle % of a core"),
                Goal(name, None, "<=", 1000.0, note="p99 of an even load"),
            )
        ],
    )


def fired(bench: Bench, dialect: str, count: int, seconds: int) -> Sample:
    """First nothing is due, then the share of the schedules that an even load brings."""
    with place(bench, dialect) as here, closing(Store.open(here.engine_db)) as store:
        _add(store, count)
        with started(worker_command(here.told(max_workers=4, until_idle=False))) as process:
            _up(store)
            watched = psutil.Process(process.pid)
            idle = _busy(watched, seconds)
            begin = store.clock.now() + SOON
            _due(store, f"{begin} + pk * {INTERVAL // count}")
            time.sleep(max(0.0, (begin - store.clock.now()) / SECOND))
            busy = _busy(watched, seconds)
            _stop(process)
        return _lateness(store) | {"idle % of a core": idle, "busy % of a core": busy}


def burst(bench: Bench, dialect: str, count: int) -> Sample:
    """All are due in one instant."""
    with place(bench, dialect) as here, closing(Store.open(here.engine_db)) as store:
        _add(store, count)
        with started(worker_command(here.told(max_workers=4, until_idle=False))) as process:
            _up(store)
            _due(store, str(store.clock.now() + SOON))
            deadline = time.monotonic() + 600
            while _runs(store) < count:
                if process.poll() is not None or time.monotonic() > deadline:
                    raise Failed(f"{_runs(store)} of {count} schedules fired")
                time.sleep(0.5)
            _stop(process)
        return _lateness(store)


def _due(store: Store, instant: str) -> None:
    """Make every schedule due at the instant that an SQL expression says."""
    with store.database.write() as connection:
        connection.exec_driver_sql(f"UPDATE schedule SET due_at = {instant}, look_at = {instant}")


def _add(store: Store, count: int) -> None:
    """Schedules that are due some day."""
    note = OpsTarget((NewOp(id="noop", kind="noop", site=SITE),), name="bench")
    wanted = (
        NewSchedule(site=SITE, name=f"s{number}", rule=Every(INTERVAL), target=note, first_due=_SOME_DAY)
        for number in range(count)
    )
    store.schedules.sync(SITE, wanted)


def _up(store: Store) -> None:
    while not store.workers("bench"):
        time.sleep(0.05)
    time.sleep(1.5)


def _busy(process: psutil.Process, seconds: int) -> float:
    before = sum(process.cpu_times()[:2])
    time.sleep(seconds)
    return float(100 * (sum(process.cpu_times()[:2]) - before) / seconds)


def _stop(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)


def _runs(store: Store) -> int:
    with store.database.read() as connection:
        return int(connection.exec_driver_sql("SELECT sum(runs) FROM schedule").scalar_one())


def _lateness(store: Store) -> dict[str, float]:
    """How long after their due times workflows were stored."""
    query = "SELECT w.created_at - s.last_due_at FROM schedule s JOIN workflow w ON w.id = s.last_workflow"
    with store.database.read() as connection:
        late: list[Micros] = sorted(int(row[0]) for row in connection.exec_driver_sql(query))
    if not late:
        raise Failed("nothing fired")
    return {
        "lateness p99": late[int(len(late) * 0.99)] / MILLISECOND,
        "lateness p50": late[len(late) // 2] / MILLISECOND,
        "fired": float(len(late)),
    }
