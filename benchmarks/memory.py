"""Whether a worker's memory grows with the ops it has run."""

from __future__ import annotations

from benchmarks.frame import Bench, Benchmark, Contestant, Goal, Sample
from benchmarks.ours import noops, place

NAME = "memory"
TITLE = "resident memory of a worker over many no-op ops"


def benchmark(bench: Bench) -> Benchmark:
    """The same worker early and late."""
    early, late = bench.size(10_000, 1_000), bench.size(100_000, 4_000)
    return Benchmark(
        title=TITLE,
        figure="growth",
        unit="MB",
        rounds=1,
        sizes={"from op": early, "to op": late},
        contestants=[Contestant("ours on SQLite", lambda: ours(bench, early, late))],
        goals=[
            Goal("ours on SQLite", None, "<=", 5.0),
            Goal("ours on SQLite", None, "<=", 120.0, figure="late MB"),
        ],
    )


def ours(bench: Bench, early: int, late: int) -> Sample:
    """One worker until idle."""
    with place(bench, "sqlite") as here:
        here.submit(noops(late))
        resident = here.work(marks=[early, late]).said["resident_mb"]
    first, last = resident[str(early)], resident[str(late)]
    return {"growth": last - first, "early MB": first, "late MB": last}
