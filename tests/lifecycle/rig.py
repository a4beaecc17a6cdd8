"""Hooks called in this process: real V8, a real site DB, no worker."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from engine.lifecycle.extensions import Extension
from engine.lifecycle.hooks import Ask, Called, CycleContext, Hooks, JobScripts
from engine.lifecycle.journal import Journal
from engine.projection.session import Database
from engine.projection.sqlite import SqliteDatabase
from tests.fakes import FakeClock


def _fast(database: SqliteDatabase) -> SqliteDatabase:
    """Nothing here survives the machine: no commit has to reach the disk."""
    database.connection.execute("PRAGMA synchronous = OFF")
    return database


class Rig:
    """A job's scripts, a site DB, and the cycle its hooks are called in."""

    def __init__(self, folder: Path, database: Database | None = None) -> None:
        self.folder = folder
        self.clock = FakeClock()
        self.database = database if database is not None else _fast(SqliteDatabase(folder / "site.db"))
        self.ask: Ask | None = None
        self.extensions: Sequence[Extension] = ()
        self.settings: dict[str, Any] = {}
        self._numbers = itertools.count(1)
        self.cycle = self.next_cycle()
        self.logs: list[tuple[str, str]] = []
        self._hooks: Hooks | None = None

    def new_cycle(self, cycle_id: str, **more: Any) -> CycleContext:
        """A fresh cycle."""
        values: dict[str, Any] = {"iteration_id": "deals/1", "worker_id": 1, **more}
        return CycleContext(cycle_id=cycle_id, journal=Journal(self.database, cycle_id), **values)

    def next_cycle(self, **more: Any) -> CycleContext:
        """Go on with a cycle that there never was."""
        self.cycle = self.new_cycle(f"deals/1/{next(self._numbers)}", **more)
        return self.cycle

    def load(self, hooks: str, defer: str | None = None, files: Mapping[str, str] | None = None) -> Hooks:
        """Hooks made of these texts, in place of those before."""
        self.close_hooks()
        texts = {"hooks.js": hooks, **({} if defer is None else {"defer.js": defer}), **(files or {})}
        values: dict[str, Any] = {"folder": self.folder / "job", "shared": self.folder / "shared", **self.settings}
        scripts = JobScripts(site="shop", job_id="deals", job_name="Deals", files=texts, **values)
        self._hooks = Hooks(scripts, self.clock, self.ask, self.extensions)
        return self._hooks

    def call(self, stage: str, *arguments: Any, seq: int = 0) -> Called:
        """Call a hook of the loaded scripts in the current cycle."""
        assert self._hooks is not None
        called = self._hooks.call(stage, list(arguments), self.cycle, seq)
        self.logs += [(line.level, line.message) for line in self._hooks.take_logs()]
        return called

    def run(self, hooks: str, stage: str, *arguments: Any) -> Called:
        """Load these hooks and call one of them in a fresh cycle."""
        self.next_cycle()
        self.logs.clear()
        self.load(hooks, "")
        return self.call(stage, *arguments)

    @property
    def messages(self) -> list[str]:
        """What was logged, without levels."""
        return [message for _, message in self.logs]

    def close_hooks(self) -> None:
        """End the isolate."""
        if self._hooks is not None:
            self._hooks.close()
            self._hooks = None

    def close(self) -> None:
        """End everything."""
        self.close_hooks()
        self.database.close()
