"""One op that emits many, and one that waits for all of them."""

from __future__ import annotations

from benchmarks.frame import Bench, Benchmark, Contestant, Goal, Sample
from benchmarks.ours import SITE, place
from engine.model import NewOp

NAME = "fanout"
TITLE = "fan-out and join: 1 -> many -> 1"


def benchmark(bench: Bench) -> Benchmark:
    """Ours beside a hand-made join and DBOS's child workflows; and one very wide fan."""
    runs, width = 5, bench.size(200, 40)
    wide = bench.size(10_000, 1_000)
    return Benchmark(
        title=TITLE,
        figure="seconds",
        unit="s",
        rounds=min(2, bench.rounds),
        sizes={"runs": runs, "width": width, "wide": wide},
        contestants=[
            Contestant("ours on SQLite", lambda: ours(bench, "sqlite", runs, width)),
            Contestant("ours on PostgreSQL", lambda: ours(bench, "postgresql", runs, width)),
            Contestant("procrastinate", lambda: procrastinate(bench, runs, width)),
            Contestant("DBOS", lambda: dbos(bench, runs, width), quick=False),
            Contestant("ours on SQLite, wide", lambda: ours(bench, "sqlite", 1, wide)),
            Contestant("ours on PostgreSQL, wide", lambda: ours(bench, "postgresql", 1, wide)),
        ],
        goals=[
            Goal("ours on SQLite", "procrastinate", "<=", 0.15),
            Goal("ours on PostgreSQL", "procrastinate", "<=", 0.15),
            Goal("ours on SQLite, wide", None, "<=", 3.0),
        ],
    )


def ours(bench: Bench, dialect: str, runs: int, width: int) -> Sample:
    """Each run is one op that emits its leaves and their join."""
    with place(bench, dialect) as here:
        here.submit(NewOp(id=f"fan{run}", kind="fan", site=SITE, input=str(width)) for run in range(runs))
        said = here.work().said
    assert said["ops"] == runs * (width + 2)
    return {"seconds": said["seconds"]}


def procrastinate(bench: Bench, runs: int, width: int) -> Sample:
    """Leaves that count themselves in a table; the last one defers the join."""
    told = {"count": 0, "runs": runs, "width": width, "batch": 20}
    with bench.postgres.database() as url:
        return {"seconds": bench.peers.run("procrastinate", "fanout", {"database": url, **told}).said["seconds"]}


def dbos(bench: Bench, runs: int, width: int) -> Sample:
    """A workflow that enqueues its children and awaits them."""
    with bench.postgres.database() as url:
        told = {"database": url, "runs": runs, "width": width}
        return {"seconds": bench.peers.run("dbos", "fanout", told).said["seconds"]}
