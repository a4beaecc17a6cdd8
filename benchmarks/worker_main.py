"""A real worker with one more kind of op, ``noop``, whose runner does nothing.

``python -m benchmarks.worker_main JSON``: works until idle and prints what it measured as one JSON object. The clock
starts with the first op and ends with the last commit, so that starting the process costs no contestant anything.
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
from engine.js.pool import JsPool
from engine.model import EMPTY_RESULT, Op, Result
from engine.plugins.registry import discover
from engine.runners.base import RunContext, Runner
from engine.runners.http_wire import Wire

_PAGE = os.sysconf("SC_PAGE_SIZE")


class NoOp:
    """Runs ops that ask for nothing."""

    async def run(self, ctx: RunContext) -> Result:
        """Succeed."""
        ctx.started()
        return EMPTY_RESULT

    async def resolve(self, ctx: RunContext) -> Result | None:
        """There are no site writes to look for."""
        return None

    async def aclose(self) -> None: ...


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

    def op_started(self, op: Op) -> None:
        if not self.first:
            self.first = time.monotonic()

    def op_ended(self, op: Op, ending: str, detail: str) -> None:
        self.last = time.monotonic()
        self.ops += 1
        self.endings[ending] = self.endings.get(ending, 0) + 1
        if self.ops in self.marks:
            self.resident_mb[self.ops] = _resident_mb()

    def notice(self, message: str) -> None:
        print(message, file=sys.stderr)


def _resident_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE / 2**20


def settings_of(told: Mapping[str, Any]) -> Settings:
    """The settings a benchmark chose."""
    sites = Path(__file__).resolve().parent / "sites"
    return Settings(
        engine_db=told["engine_db"],
        sites_dir=Path(told["sites_dir"]),
        manifest_dirs=(ManifestDirectory(sites, "flag"),),
    )


def add_noop() -> None:
    """Make the kind ``noop`` known to workers of this process."""
    ours = app._runners

    def runners(settings: Settings, pool: JsPool, wire: Wire | None) -> dict[str, Runner]:
        return {**ours(settings, pool, wire), "noop": NoOp()}

    app._runners = runners


def main() -> None:
    """Run one worker."""
    told = json.loads(sys.argv[1])
    add_noop()
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
            }
        )
    )


if __name__ == "__main__":
    main()
