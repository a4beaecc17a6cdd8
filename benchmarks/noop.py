"""Ops that do nothing, through one worker; storing them is excluded."""

from __future__ import annotations

from benchmarks.frame import Bench, Benchmark, Contestant, Goal, Sample
from benchmarks.ours import AT_ONCE, noops, place

NAME = "noop"
TITLE = "no-op ops through one worker, submission excluded"
#: What a worker of ours runs at once, and what pgqueuer fetches at once, unless told otherwise.
_OUR_DEFAULT, _PGQUEUER_DEFAULT = 4, 10


def benchmark(bench: Bench) -> Benchmark:
    """Ours on both databases beside every queue."""
    counts = {
        "ours": bench.size(20_000, 3_000),
        "ours, defaults": bench.size(10_000, 1_000),
        "huey": bench.size(6_000, 1_000),
        "pgqueuer": bench.size(12_000, 2_000),
        "procrastinate": bench.size(1_500, 300),
        "dbos": bench.size(400, 100),
    }
    return Benchmark(
        title=TITLE,
        figure="rate",
        unit="ops/s",
        rounds=bench.rounds,
        sizes={"ops": counts, "at once": AT_ONCE},
        contestants=[
            Contestant("ours on SQLite", lambda: ours(bench, "sqlite", counts["ours"])),
            Contestant("huey on SQLite", lambda: huey(bench, counts["huey"])),
            Contestant("DBOS on SQLite", lambda: dbos_sqlite(bench, counts["dbos"]), quick=False),
            Contestant("ours on PostgreSQL", lambda: ours(bench, "postgresql", counts["ours"])),
            Contestant("pgqueuer", lambda: pgqueuer(bench, counts["pgqueuer"], AT_ONCE)),
            Contestant(
                "ours on PostgreSQL, defaults",
                lambda: ours(bench, "postgresql", counts["ours, defaults"], _OUR_DEFAULT),
            ),
            Contestant("pgqueuer, defaults", lambda: pgqueuer(bench, counts["pgqueuer"] // 2, _PGQUEUER_DEFAULT)),
            Contestant("procrastinate", lambda: procrastinate(bench, counts["procrastinate"])),
            Contestant("DBOS on PostgreSQL", lambda: dbos_postgresql(bench, counts["dbos"]), quick=False),
        ],
        goals=[
            Goal("ours on SQLite", "huey on SQLite", ">=", 4.0),
            Goal("ours on PostgreSQL", "pgqueuer", ">=", 2.0),
            Goal("ours on PostgreSQL, defaults", "pgqueuer, defaults", ">=", 2.0),
        ],
    )


def ours(bench: Bench, dialect: str, count: int, at_once: int = AT_ONCE) -> Sample:
    """One worker until idle."""
    with place(bench, dialect) as here:
        here.submit(noops(count))
        before = bench.postgres.cpu_seconds() if dialect == "postgresql" else 0.0
        ran = here.work(max_workers=at_once)
        served = bench.postgres.cpu_seconds() - before if dialect == "postgresql" else 0.0
    return {"rate": count / ran.said["seconds"], "cpu s": ran.cpu_seconds, "server cpu s": served}


def huey(bench: Bench, count: int) -> Sample:
    """One consumer with one thread, the default."""
    with bench.scratch() as folder:
        ran = bench.peers.run("huey", "throughput", {"database": str(folder / "huey.db"), "count": count})
    return {"rate": ran.said["rate"]}


def pgqueuer(bench: Bench, count: int, batch: int) -> Sample:
    """One consumer; its rate depends on the size of its batches more than on anything else."""
    with bench.postgres.database() as url:
        ran = bench.peers.run("pgqueuer", "throughput", {"database": url, "count": count, "batch": batch})
    return {"rate": ran.said["rate"]}


def procrastinate(bench: Bench, count: int) -> Sample:
    """One worker that runs 20 jobs at once (its default is 1)."""
    with bench.postgres.database() as url:
        ran = bench.peers.run("procrastinate", "throughput", {"database": url, "count": count, "batch": 20})
    return {"rate": ran.said["rate"]}


def dbos_sqlite(bench: Bench, count: int) -> Sample:
    """One executor on SQLite."""
    with bench.scratch() as folder:
        return _dbos(bench, f"sqlite:///{folder}/dbos.db", count)


def dbos_postgresql(bench: Bench, count: int) -> Sample:
    """One executor on PostgreSQL."""
    with bench.postgres.database() as url:
        return _dbos(bench, url, count)


def _dbos(bench: Bench, url: str, count: int) -> Sample:
    return {"rate": bench.peers.run("dbos", "throughput", {"database": url, "count": count}).said["rate"]}
