"""The composition root of a JS child process: ``python -m engine.jschild DESCRIPTOR WORKER_PID``.

What the child may open comes through the environment variable ``SCRAPER_CHILD`` (JSON), not through the command line,
where other users could read a database password.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from engine.clock import Clock, SystemClock
from engine.js.child import Child, die_with_parent
from engine.js.ports import CycleSteps, EngineReads, SiteDatabases
from engine.js.wire import ChildChannel
from engine.projection.databases import OpenDatabases
from engine.store.reads import open_reads

ENVIRONMENT = "SCRAPER_CHILD"

Databases = Callable[[Mapping[str, Any], Clock], SiteDatabases]


def open_databases(told: Mapping[str, Any], clock: Clock) -> SiteDatabases:
    """The site DBs a child works on."""
    return OpenDatabases(Path(told["sites_dir"]), told.get("site_database_url"), clock)


def main(databases: Databases = open_databases) -> None:
    """Serve the worker until it goes away."""
    descriptor, worker = int(sys.argv[1]), int(sys.argv[2])
    die_with_parent(worker)
    # Ctrl-C reaches the whole terminal; it is the worker that decides what it means
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    told = json.loads(os.environ.pop(ENVIRONMENT))
    clock = SystemClock(told.get("clock_offset", 0))
    reads: EngineReads | None = open_reads(told["engine_url"]) if told.get("engine_url") else None
    sites = databases(told, clock)

    def cycles() -> CycleSteps:
        from engine.lifecycle.steps import Steps  # most children never do a step of a job

        return Steps(sites, reads, clock, told)

    gc.freeze()  # the modules stay: no collection needs to look at them
    with socket.socket(fileno=descriptor) as end:
        Child(ChildChannel(end), sites, reads, clock, cycles).serve()


if __name__ == "__main__":
    main()
