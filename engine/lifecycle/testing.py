"""The tests of a job: every function ``test_…`` of its scripts, each in an isolate and a database of its own.

A test has the bindings that hooks have, and gets a ctx. It may put functions of its own in the place of globals; the
next test does not see them. What it defers runs when it has ended.
"""

from __future__ import annotations

import json
import re
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.clock import Clock
from engine.counting import NotANumber, advance
from engine.js.hostcall import HostError
from engine.lifecycle.extensions import Extension
from engine.lifecycle.hooks import LOAD_SECONDS, message_of, shown
from engine.lifecycle.host import HookHost
from engine.lifecycle.isolate import SCRIPTS, Discarded, HookIsolate
from engine.lifecycle.journal import Journal
from engine.lifecycle.scripts import CycleContext, JobScripts
from engine.lifecycle.writes import HookWrites
from engine.projection.session import Database
from engine.projection.sqlite import SqliteDatabase

_SCRIPTS = (*SCRIPTS, "tests.js")
_NAME = re.compile(r"\btest_\w+")


@dataclass(frozen=True, slots=True)
class TestOutcome:
    """How one test ended: ``error`` "" where it passed."""

    __test__ = False  # for pytest, which takes every Test* for its own

    name: str
    error: str
    duration_ms: float
    logs: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether it passed."""
        return not self.error


def run_tests(
    scripts: JobScripts,
    clock: Clock,
    *,
    pattern: str = "",
    make_database: Callable[[Path], Database] = SqliteDatabase,
    extensions: Sequence[Extension] = (),
) -> list[TestOutcome]:
    """Run the tests whose names contain ``pattern``, by name; ``make_database`` makes an empty site DB at a path.

    Raises OpError ``job_scripts_invalid`` where the scripts cannot be loaded.
    """
    names = [name for name in _find_tests(scripts, clock, extensions) if pattern in name]
    return [_run(name, scripts, clock, make_database, extensions) for name in names]


def _find_tests(scripts: JobScripts, clock: Clock, extensions: Sequence[Extension]) -> list[str]:
    sources = scripts.sources(_SCRIPTS)
    candidates = sorted({name for _, text in sources for name in _NAME.findall(text)})
    if not candidates:
        return []
    isolate = HookIsolate(HookHost(scripts, clock, None, extensions), scripts.heap_bytes, extensions)
    try:
        return sorted(isolate.load(sources, candidates, LOAD_SECONDS))
    finally:
        isolate.close()


def _run(
    name: str,
    scripts: JobScripts,
    clock: Clock,
    make_database: Callable[[Path], Database],
    extensions: Sequence[Extension],
) -> TestOutcome:
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="scraper-test-") as folder:
        database = make_database(Path(folder) / "site.db")
        host = HookHost(scripts, clock, GlobalStore(), extensions)
        isolate = HookIsolate(host, scripts.heap_bytes, extensions)
        try:
            error = _call(name, scripts, clock, database, host, isolate)
        finally:
            host.end()
            isolate.close()
            database.close()
    logs = tuple(line.message for line in host.effects.logs)
    return TestOutcome(name, error, round((time.monotonic() - began) * 1000, 3), logs)


def _call(
    name: str, scripts: JobScripts, clock: Clock, database: Database, host: HookHost, isolate: HookIsolate
) -> str:
    journal = Journal(database, f"{scripts.job_id}/0/1")
    iteration = f"{scripts.job_id}/0"
    cycle = CycleContext(cycle_id=journal.cycle_id, iteration_id=iteration, worker_id=1, journal=journal)
    host.load_into(journal)
    isolate.load(scripts.sources(_SCRIPTS), [name], LOAD_SECONDS)
    host.begin(name, 0, cycle, HookWrites(journal, clock, scripts.job_id, iteration))
    host.job = {"stage": name, "values": [], "ctx": shown(cycle)}
    try:
        answer = isolate.call(scripts.hook_seconds)
    except Discarded as lost:
        return str(lost)
    return message_of(answer["error"]) if answer["kind"] == "threw" else ""


class GlobalStore:
    """What all jobs share, for one test alone."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def __call__(self, name: str, told: Mapping[str, Any]) -> Any:
        """Answer as the worker does."""
        key = told["key"]
        match name:
            case "kv.get":
                return self._texts.get(key)
            case "kv.set":
                self._texts[key] = told["value"]
            case "kv.delete":
                self._texts.pop(key, None)
            case "kv.incr":
                try:
                    value = advance(self._texts.get(key), told["default"], told["delta"])
                except NotANumber as error:
                    return {"value": told["default"], "fault": str(error)}
                self._texts[key] = json.dumps(value)
                return {"value": value}
            case _:
                raise HostError(f"the host has no {name}")
        return None
