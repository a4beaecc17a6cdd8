"""What a benchmark is: contestants that are run in turns, and the ratios that matter."""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.peers import NotInstalled, Peers
from benchmarks.postgres import Postgres

ROOT = Path(__file__).resolve().parents[1]
STATE = ROOT / ".bench"

#: What one run of a contestant measured, by name of the figure.
Sample = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Contestant:
    """One side of a comparison."""

    name: str
    run: Callable[[], Sample]
    #: Whether it takes part in a quick run, too.
    quick: bool = True


@dataclass(frozen=True, slots=True)
class Goal:
    """A figure to reach: ``ours`` over ``other`` (None: ``ours`` by itself) at least, or at most, ``bound``."""

    ours: str
    other: str | None
    sense: str  # ">=" or "<="
    bound: float
    #: The figure that is compared; "" = the benchmark's own.
    figure: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """Contestants to be run interleaved, ``rounds`` times each."""

    title: str
    #: The figure that is compared, and its unit.
    figure: str
    unit: str
    contestants: Sequence[Contestant]
    goals: Sequence[Goal] = ()
    rounds: int = 3
    #: What the sizes were.
    sizes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Bench:
    """What benchmarks share: how large they may be, the peers, a PostgreSQL server, scratch folders."""

    quick: bool
    peers: Peers
    postgres: Postgres
    #: Kept for as long as this runs: servers that several runs of a benchmark use.
    lasting: ExitStack
    #: How often each contestant runs.
    rounds: int

    def size(self, full: int, quick: int) -> int:
        """The size of a benchmark."""
        return quick if self.quick else full

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """An empty folder on the disk of the checkout, gone afterwards."""
        parent = STATE / "scratch"
        parent.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(dir=parent))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


@dataclass(slots=True)
class Run:
    """All samples of one contestant, or why there are none."""

    samples: list[Sample] = field(default_factory=list)
    problem: str = ""

    def median(self, figure: str) -> float | None:
        """The median of one figure."""
        found = [sample[figure] for sample in self.samples if figure in sample]
        return statistics.median(found) if found else None

    def medians(self) -> dict[str, float]:
        """The median of every figure."""
        names = dict.fromkeys(name for sample in self.samples for name in sample)
        return {name: value for name in names if (value := self.median(name)) is not None}


def play(benchmark: Benchmark, say: Callable[[str], None]) -> dict[str, Run]:
    """Run the contestants in turns (A B A B); one that fails is reported and not run again."""
    runs = {contestant.name: Run() for contestant in benchmark.contestants}
    for number in range(benchmark.rounds):
        for contestant in benchmark.contestants:
            run = runs[contestant.name]
            if run.problem:
                continue
            began = time.monotonic()
            try:
                sample = contestant.run()
            except NotInstalled as error:
                run.problem = str(error)
            except Exception as error:
                run.problem = f"{type(error).__name__}: {error}"
            else:
                run.samples.append(sample)
            shown = run.problem or f"{sample[benchmark.figure]:,.4g} {benchmark.unit}"
            say(f"  {number + 1}/{benchmark.rounds} {contestant.name}: {shown}  [{time.monotonic() - began:.1f} s]")
    return runs


def judged(goal: Goal, benchmark: Benchmark, runs: Mapping[str, Run]) -> tuple[float | None, bool | None]:
    """What was reached, and whether that is enough; None where a side is missing."""
    figure = goal.figure or benchmark.figure
    ours = runs[goal.ours].median(figure) if goal.ours in runs else None
    other = 1.0 if goal.other is None else runs[goal.other].median(figure) if goal.other in runs else None
    if ours is None or not other:
        return None, None
    reached = ours / other
    return reached, reached >= goal.bound if goal.sense == ">=" else reached <= goal.bound
