"""Garbage collection of old workflows beside a worker that works."""

from __future__ import annotations

import json
import sys
import time
from contextlib import closing

from sqlalchemy import func, select

from benchmarks.bulk import Past, load
from benchmarks.frame import Bench, Benchmark, Contestant, Sample
from benchmarks.ours import AT_ONCE, Place, noops, place, require_success, worker_command
from benchmarks.processes import Failed, started
from engine.clock import SECOND, SystemClock
from engine.store.schema import workflow
from engine.store.store import Store

NAME = "collect"
TITLE = "no-op ops while 10,000 old workflows are collected"
_DAY = 24 * 3_600 * SECOND
#: A worker's first half second does not count.
_SETTLE = 5


def benchmark(bench: Bench) -> Benchmark:
    """The rate during ``scraper engine gc`` over the rate before it, in the same run."""
    workflows = bench.size(10_000, 1_000)
    count = bench.size(60_000, 40_000)
    return Benchmark(
        title=TITLE,
        figure="kept",
        unit="of the rate",
        rounds=1,
        sizes={"workflows": workflows, "ops of each": 5, "ops": count},
        contestants=[
            Contestant("ours on SQLite", lambda: ours(bench, "sqlite", workflows, count)),
            Contestant("ours on PostgreSQL", lambda: ours(bench, "postgresql", workflows, count)),
        ],
    )


def ours(bench: Bench, dialect: str, workflows: int, count: int) -> Sample:
    """One worker until idle; the collection begins when a third of its run is over, and is stopped with it."""
    with place(bench, dialect) as here:
        load(here, Past(workflows=workflows, finished=5 * workflows, ended_at=SystemClock().now() - 60 * _DAY))
        here.submit(noops(count))
        told = here.told(max_workers=AT_ONCE)
        gc = [sys.executable, "-m", "cli.main", "engine", "gc", "--older-than", "30d", "-o", "json"]
        where = ["--engine-db", here.engine_db, "--sites-dir", told["sites_dir"]]
        with started(worker_command(told)) as worker:
            _await_ops(here, count // 3)
            began = time.monotonic()
            with started([*gc, *where]) as collection:
                out, _ = worker.communicate(timeout=600)
                finished = collection.poll() is not None
        collected = workflows - _past(here)
    said = json.loads(out.strip().splitlines()[-1])
    require_success(said)
    timeline = {int(tenth): ops for tenth, ops in said["timeline"].items()}
    # what the collection's process needs to start counts as beside it
    first, middle, last = int(said["first"] * 10) + _SETTLE, int(began * 10), int(said["last"] * 10)
    if finished or min(middle - first, last - middle) < _SETTLE:
        raise Failed("the run and the collection did not overlap long enough to compare")
    alone, beside = (
        10 * sum(timeline.get(tenth, 0) for tenth in part) / len(part)
        for part in (range(first, middle), range(middle, last))
    )
    return {
        "kept": beside / alone,
        "rate beside": beside,
        "rate alone": alone,
        "workflows collected": collected,
        "seconds beside": said["last"] - began,
    }


def _await_ops(here: Place, ops: int) -> None:
    done = select(func.sum(workflow.c.succeeded)).where(workflow.c.id.like("w%"))
    with closing(Store.open(here.engine_db)) as store:
        while True:
            with store.database.read() as connection:
                if (connection.scalar(done) or 0) >= ops:
                    return
            time.sleep(0.2)


def _past(here: Place) -> int:
    """How many of the old workflows are left."""
    with closing(Store.open(here.engine_db)) as store, store.database.read() as connection:
        return int(connection.scalar(select(func.count()).where(workflow.c.id.like("past%"))) or 0)
