"""Several workers on one PostgreSQL database: more of them must not be slower."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from typing import Any

from sqlalchemy import func, select

from benchmarks.frame import Bench, Benchmark, Contestant, Goal, Sample
from benchmarks.ours import AT_ONCE, SITE, noops, place, require_success, worker_command
from benchmarks.processes import started
from engine.model import OpStatus
from engine.store.schema import op
from engine.store.store import Store

NAME = "workers"
TITLE = "no-op ops through several workers on PostgreSQL"
QUEUE = "work"
_PATIENCE = 300.0


def benchmark(bench: Bench) -> Benchmark:
    """One, two and eight workers on the same queue."""
    count, many = bench.size(10_000, 2_000), bench.size(8, 3)
    return Benchmark(
        title=TITLE,
        figure="rate",
        unit="ops/s",
        rounds=min(2, bench.rounds),
        sizes={"ops": count},
        contestants=[Contestant(_shown(workers), partial(ours, bench, workers, count)) for workers in (1, 2, many)],
        goals=[
            Goal(_shown(2), _shown(1), ">=", 1.0),
            Goal(_shown(many), _shown(2), ">=", 1.0),
        ],
    )


def _shown(workers: int) -> str:
    return f"{workers} worker{'s' if workers > 1 else ''}"


def ours(bench: Bench, workers: int, count: int) -> Sample:
    """The queue is paused until every worker is up."""
    with place(bench, "postgresql") as here, closing(Store.open(here.engine_db)) as store, ExitStack() as running:
        here.submit(replace(spec, queue=QUEUE) for spec in noops(count))
        store.pause(SITE, QUEUE)
        told = here.told(max_workers=AT_ONCE, until_idle=False)
        processes = [
            running.enter_context(started(worker_command(told | {"worker_id": f"bench{number}"})))
            for number in range(workers)
        ]
        _await(lambda: len(store.workers("bench")) == workers, processes)
        served, began = bench.postgres.cpu_seconds(), time.monotonic()
        store.resume(SITE, QUEUE)
        _await(lambda: _succeeded(store) == count, processes)
        wall, served = time.monotonic() - began, bench.postgres.cpu_seconds() - served
        reports = [_stopped(process) for process in processes]
    active = [report for report in reports if report["ops"]]
    seconds = max(report["last"] for report in active) - min(report["first"] for report in active)
    return {"rate": count / seconds, "server's share of a core": served / wall, "workers that got ops": len(active)}


def _await(met: Any, processes: list[subprocess.Popen[str]]) -> None:
    deadline = time.monotonic() + _PATIENCE
    while not met():
        if time.monotonic() > deadline or any(process.poll() is not None for process in processes):
            raise TimeoutError("the workers did not get there")
        time.sleep(0.1)


def _succeeded(store: Store) -> int:
    with store.database.read() as connection:
        return int(
            connection.execute(
                select(func.count()).select_from(op).where(op.c.status == OpStatus.SUCCEEDED.value)
            ).scalar_one()
        )


def _stopped(process: subprocess.Popen[str]) -> dict[str, Any]:
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=60)
    said: dict[str, Any] = json.loads(out.strip().splitlines()[-1])
    require_success(said)
    return said
