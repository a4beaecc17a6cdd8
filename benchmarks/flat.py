"""Whether an op costs the same in an engine DB with a long past as in an empty one."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from benchmarks import noop
from benchmarks.bulk import Past, load
from benchmarks.frame import Bench, Benchmark, Contestant, Goal, Sample
from benchmarks.ours import Place, noops, place
from engine.clock import SECOND, SystemClock

NAME = "flat"
TITLE = "no-op ops beside many finished and waiting ones"


def benchmark(bench: Bench) -> Benchmark:
    """Both databases, empty and full. A full one is loaded once and used in every round."""
    finished, waiting = bench.size(1_000_000, 100_000), bench.size(100_000, 10_000)
    count = bench.size(10_000, 2_000)
    full: dict[str, Place] = {}
    contestants = []
    for shown, dialect in (("SQLite", "sqlite"), ("PostgreSQL", "postgresql")):
        past = partial(_loaded, bench, full, dialect, finished, waiting)
        contestants += [
            Contestant(f"empty {shown}", partial(noop.ours, bench, dialect, count)),
            Contestant(f"full {shown}", partial(ours, past, count)),
        ]
    return Benchmark(
        title=TITLE,
        figure="rate",
        unit="ops/s",
        rounds=min(2, bench.rounds),
        sizes={"finished": finished, "waiting": waiting, "ops": count},
        contestants=contestants,
        goals=[Goal(f"full {shown}", f"empty {shown}", ">=", 0.8) for shown in ("SQLite", "PostgreSQL")],
    )


def ours(past: Callable[[], Place], count: int) -> Sample:
    """One worker until idle."""
    here = past()
    here.submit(noops(count), name=f"w{SystemClock().now()}:")
    said = here.work().said
    return {"rate": said["ops"] / said["seconds"]}


def _loaded(bench: Bench, full: dict[str, Place], dialect: str, finished: int, waiting: int) -> Place:
    if dialect not in full:
        full[dialect] = bench.lasting.enter_context(place(bench, dialect))
        ended_at = SystemClock().now() - 3_600 * SECOND
        load(full[dialect], Past(workflows=1_000, finished=finished, waiting=waiting, ended_at=ended_at))
    return full[dialect]
