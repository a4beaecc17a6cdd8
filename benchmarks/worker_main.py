"""A real worker with more kinds of ops: ``noop`` does nothing, ``note`` tells how late it began, ``fan`` fans out.

``python -m benchmarks.worker_main JSON``: works until idle or stopped and prints what it measured as one JSON object.
The clock starts with the first op and ends with the last commit, so that starting the process costs nothing.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine import app
from engine.config import ManifestDirectory, Settings
from engine.model import EMPTY_RESULT, Dependency, NewOp, Op, Result
from engine.plugins.registry import discover
from engine.runners.base import RunContext, Runner

_PAGE = os.sysconf("SC_PAGE_SIZE")


class NoOp:
    """Runs ops that ask for nothing."""

    async def run(self, ctx: RunContext) -> Result:
        """Succeed."""
        ctx.started()
        return self.result(ctx.op)

    def result(self, op: Op) -> Result:
        """What the op produces."""
        return EMPTY_RESULT

    async def resolve(self, ctx: RunContext) -> Result | None:
        """There are no site writes to look for."""
        return None

    async def aclose(self) -> None: ...


class Note(NoOp):
    """Notes the seconds between an op's submission, which is its input, and now."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def result(self, op: Op) -> Result:
        """Nothing; the delay is kept for the report."""
        self.seconds.append(time.monotonic() - float(op.input))
        return EMPTY_RESULT


class Fan(NoOp):
    """Emits as many no-ops as its input says, and one that waits for all of them."""

    def result(self, op: Op) -> Result:
        """The leaves and the join."""
        leaves = [f"{op.id}:{number}" for number in range(int(op.input))]
        join = NewOp(
            id=f"{op.id}:join", kind="noop", site=op.site, depends_on=tuple(Dependency(leaf) for leaf in leaves)
        )
        return Result(emitted=(*(NewOp(id=leaf, kind="noop", site=op.site) for leaf in leaves), join))


@dataclass(slots=True)
class Stopwatch:
    """Observes the worker: when the first op began, when the last one was stored, how memory grew."""

    #: Numbers of ops after which the resident memory is noted.
    marks: tuple[int, ...] = ()
    first: float = 0.0
    last: float = 0.0
    ops: int = 0
    endings: dict[str, int] = field(default_factory=dict)
    resident_mb: dict[int, float] = field(default_factory=dict)
    #: Ops ended in each tenth of a second.
    timeline: dict[int, int] = field(default_factory=dict)

    def op_started(self, op: Op) -> None:
        if not self.first:
            self.first = time.monotonic()

    def op_ended(self, op: Op, ending: str, detail: str) -> None:
        self.last = time.monotonic()
        self.ops += 1
        tenth = int(self.last * 10)
        self.timeline[tenth] = self.timeline.get(tenth, 0) + 1
        self.endings[ending] = self.endings.get(ending, 0) + 1
        if self.ops in self.marks:
            self.resident_mb[self.ops] = _resident_mb()

    def notice(self, message: str) -> None:
        print(message, file=sys.stderr)


def _resident_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE / 2**20


def settings_of(told: Mapping[str, Any]) -> Settings:
    """The settings a benchmark chose."""
    sites = Path(told.get("manifests", Path(__file__).resolve().parent / "sites"))
    return Settings(
        engine_db=told["engine_db"],
        sites_dir=Path(told["sites_dir"]),
        manifest_dirs=(ManifestDirectory(sites, "flag"),),
    )


def add_runners(more: Mapping[str, Runner]) -> None:
    """Make further kinds known to workers of this process."""
    ours = app._runners

    def runners(*given: Any, **named: Any) -> dict[str, Runner]:
        return {**ours(*given, **named), **more}

    app._runners = runners


def main() -> None:
    """Run one worker."""
    told = json.loads(sys.argv[1])
    note = Note()
    add_runners({"noop": NoOp(), "note": note, "fan": Fan()})
    settings = settings_of(told)
    watch = Stopwatch(tuple(told.get("marks", ())))
    options = app.WorkerOptions(
        worker_id=told.get("worker_id", "bench"),
        machine_id="bench",
        max_workers=told["max_workers"],
        js_processes=told.get("js_processes", 1),
        until_idle=told.get("until_idle", True),
    )
    app.run_worker(settings, discover(settings), options, watch)
    print(
        json.dumps(
            {
                "ops": watch.ops,
                "first": watch.first,
                "last": watch.last,
                "seconds": watch.last - watch.first,
                "endings": watch.endings,
                "resident_mb": watch.resident_mb,
                "timeline": watch.timeline,
                "latencies": note.seconds,
            }
        )
    )


if __name__ == "__main__":
    main()
