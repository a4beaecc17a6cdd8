"""Garbage collection of old workflows beside a worker that works."""

from __future__ import annotations

import json
import subprocess
import sys
import time

from benchmarks.bulk import Past, load
from benchmarks.frame import Bench, Benchmark, Contestant, Goal, Sample
from benchmarks.ours import AT_ONCE, noops, place, require_success, worker_command
from benchmarks.processes import ROOT, started
from engine.clock import SECOND, SystemClock

NAME = "collect"
TITLE = "no-op ops while 10,000 old workflows are collected"
_DAY = 24 * 3_600 * SECOND
#: A worker's first half second does not count.
_SETTLE = 5


def benchmark(bench: Bench) -> Benchmark:
    """The rate during ``scraper engine gc`` over the rate before and after it, in the same run."""
    workflows = bench.size(10_000, 1_000)
    count = bench.size(60_000, 8_000)
    return Benchmark(
        title=TITLE,
        figure="kept",
        unit="of the rate",
        rounds=bench.rounds,
        sizes={"workflows": workflows, "ops of each": 5, "ops": count},
        contestants=[
            Contestant("ours on SQLite", lambda: ours(bench, "sqlite", workflows, count)),
            Contestant("ours on PostgreSQL", lambda: ours(bench, "postgresql", workflows, count)),
        ],
        goals=[Goal("ours on SQLite", None, ">=", 0.5), Goal("ours on PostgreSQL", None, ">=", 0.5)],
    )


def ours(bench: Bench, dialect: str, workflows: int, count: int) -> Sample:
    """One worker until idle; the collection begins in the middle of its run."""
    with place(bench, dialect) as here:
        load(here, Past(workflows=workflows, finished=5 * workflows, ended_at=SystemClock().now() - 60 * _DAY))
        here.submit(noops(count))
        told = here.told(max_workers=AT_ONCE)
        with started(worker_command(told)) as worker:
            gc = [sys.executable, "-m", "cli.main", "engine", "gc", "--older-than", "30d", "-o", "json"]
            where = ["--engine-db", here.engine_db, "--sites-dir", told["sites_dir"]]
            time.sleep(bench.size(4, 3))
            began = time.monotonic()
            done = subprocess.run([*gc, *where], cwd=ROOT, capture_output=True, text=True, check=True)
            ended = time.monotonic()
            out, _ = worker.communicate(timeout=600)
    said = json.loads(out.strip().splitlines()[-1])
    require_success(said)
    timeline = {int(tenth): ops for tenth, ops in said["timeline"].items()}
    first, last = int(said["first"] * 10) + _SETTLE, int(said["last"] * 10)
    inside = [tenth for tenth in range(first, last) if began * 10 <= tenth < ended * 10]
    outside = [tenth for tenth in range(first, last) if not began * 10 <= tenth < ended * 10]
    if len(inside) < _SETTLE or len(outside) < _SETTLE:
        raise RuntimeError("the run and the collection did not overlap long enough to compare")
    beside, alone = (10 * sum(timeline.get(tenth, 0) for tenth in part) / len(part) for part in (inside, outside))
    pruned = json.loads(done.stdout)
    return {
        "kept": beside / alone,
        "rate beside": beside,
        "rate alone": alone,
        "gc s": ended - began,
        **_counts(pruned),
    }


def _counts(pruned: dict[str, object]) -> dict[str, float]:
    return {f"gc {name}": float(value) for name, value in pruned.items() if isinstance(value, int) and value}
