"""The host side of a hook's isolate: what its globals ask for."""

from __future__ import annotations

import json
import platform
import re
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from engine.clock import Clock
from engine.js.host import Host, parameters
from engine.js.hostcall import HostError
from engine.lifecycle import http
from engine.lifecycle.extensions import Extension, HostFunction
from engine.lifecycle.files import PinnedModules, read_text
from engine.lifecycle.journal import Journal
from engine.lifecycle.later import LaterCalls, Resources
from engine.lifecycle.scripts import Ask, CycleContext, JobScripts, scope_of
from engine.lifecycle.writes import HookWrites
from engine.projection.session import Database
from engine.projection.sqlite import split

#: Between two tries to end a running statement.
_INTERRUPT_SECONDS = 0.01
_DDL = re.compile(r"(?:\s|--[^\n]*\n|/\*.*?\*/)*(create|alter|drop)\b", re.IGNORECASE | re.DOTALL)

_BODY = re.compile(r"\$\w*\$")


class HookHost(Host):
    """Answers the calls of one isolate, on V8's thread. ``begin`` tells for which hook call."""

    def __init__(
        self, scripts: JobScripts, clock: Clock, ask: Ask | None, extensions: Sequence[Extension] = ()
    ) -> None:
        super().__init__(PinnedModules(scripts.files), clock)
        self._scripts = scripts
        self._ask = ask
        self._cycle: CycleContext | None = None
        self._writes: HookWrites | None = None
        self._definitions: HookWrites | None = None
        self._database: Database | None = None
        self._waited_before = 0.0
        self._over = False
        self._mutex = threading.Lock()
        self.later = LaterCalls()
        self.resources = Resources()
        self.job: dict[str, Any] = {}
        self.answer: dict[str, Any] | None = None
        self.why = ""
        self._later: dict[str, HostFunction] = {"http": lambda _, told: http.send(told, scripts.user_agent)}
        self._directly: dict[str, HostFunction] = {}
        for extension in extensions:
            self._later |= extension.later
            self._directly |= extension.directly
        own: Mapping[str, Callable[[Any], Any]] = {
            "hook.job": lambda _: self.job,
            "hook.end": self._end,
            "hook.why": lambda _: self.why,
            "ctx.last_fetch": self._last_fetch,
            "later.start": self._start,
            "later.take": lambda _: self.later.take(),
            "directly": lambda call: self._function(self._directly, call[0])(self.resources, call[1]),
            "print": self._print,
            "env": scripts.env.get,
            "engine": self._engine,
            "fs.read": lambda path: read_text(path, scripts.folder, scripts.shared),
            "notify": lambda call: self._hook().announce(*call),
            "store.get": lambda key: self._hook().store.get(key),
            "store.set": lambda call: self._hook().store.changed.update({call[0]: _storable(call[1])}),
            "store.delete": lambda key: self._hook().store.changed.update({key: None}),
            "store.incr": lambda call: self._hook().incr(self._hook().store, *call),
            "batch.get": self._batch_get,
            "batch.set": lambda call: self._hook().batch.changed.update({call[0]: json.dumps(call[1])}),
            "batch.delete": lambda key: self._hook().batch.changed.update({key: None}),
            "batch.incr": lambda call: self._hook().incr(self._hook().batch, *call),
            "global_store.get": lambda key: self._worker("kv.get", {"key": key}),
            "global_store.set": lambda call: self._change("kv.set", {"key": call[0], "value": _storable(call[1])}),
            "global_store.delete": lambda key: self._change("kv.delete", {"key": key}),
            "global_store.incr": lambda call: self._change(
                "kv.incr", dict(zip(("key", "default", "delta"), call, strict=True))
            ),
            "db.exec": lambda call: self._hook().execute(call[0], parameters(call[1])),
            "db.query": lambda call: self._shown(self._hook().query(call[0], parameters(call[1]))),
            "db.define": self._define,
        }
        self._calls = {**self._calls, **own}

    def call(self, name: str, payload: str) -> str:
        """Answer one call of the bridge. Raises HostError."""
        with self._mutex:
            return super().call(name, payload)

    @property
    def waited(self) -> float:
        """Seconds spent waiting for the site DB's lock: not the hook's time."""
        return 0.0 if self._database is None else self._database.waited - self._waited_before

    def load_into(self, journal: Journal) -> None:
        """Statements at the top level of the scripts make their tables, once for these scripts."""
        self._database = journal.database
        self._waited_before = self._database.waited
        definitions = Journal(journal.database, f"script/{self._scripts.job_id}/{self._scripts.digest}")
        self._definitions = HookWrites(definitions, self._clock, self._scripts.job_id, "")
        self._definitions.begin("load", 0)

    def begin(self, stage: str, seq: int, cycle: CycleContext, writes: HookWrites) -> None:
        """Calls from now on belong to this hook call."""
        writes.begin(stage, seq)
        self._cycle, self._writes, self._over = cycle, writes, False
        self._database = cycle.journal.database
        self._waited_before = self._database.waited
        self.busy = False
        self.answer = None
        self.resources = Resources()

    def end(self) -> None:
        """The hook call is over: nothing of it may write, nothing it opened stays open."""
        self._over = True
        self.later.abandon()
        for failure in self.resources.close_all():
            self.report("warning", f"closing what the hook left open: {failure}")

    def interrupt(self) -> None:
        """End a statement that is running too long, and refuse every later one. Its connection is free afterwards."""
        self._over = True
        while not self._mutex.acquire(timeout=_INTERRUPT_SECONDS):
            if self._database is not None:
                self._database.interrupt()
        self._mutex.release()

    def report(self, level: str, message: str) -> None:
        """A log line of the engine's."""
        self._log([level, message])

    def _hook(self) -> HookWrites:
        if self._writes is None or self._over:
            raise HostError("the hook is over")
        return self._writes

    def _end(self, answer: dict[str, Any]) -> None:
        if self.answer is None:
            self.answer = answer

    def _last_fetch(self, _: Any) -> Any:
        read = None if self._cycle is None else self._cycle.last_fetch
        return None if read is None else read()

    def _start(self, call: list[Any]) -> int:
        if self._over:
            raise HostError("the hook is over")
        run, resources = self._function(self._later, call[0]), self.resources
        return self.later.start(lambda: run(resources, call[1]))

    @staticmethod
    def _function(functions: Mapping[str, HostFunction], name: str) -> HostFunction:
        if name not in functions:
            raise HostError(f"the host has no {name}")
        return functions[name]

    def _print(self, text: str) -> None:
        print(f"[{self._scripts.job_id}] {text}", file=sys.stderr, flush=True)

    def _engine(self, _: Any) -> dict[str, str]:
        return {
            "os": platform.system().lower(),
            "arch": platform.machine().lower(),
            "version": self._scripts.engine_version,
            "storage": "sqlite" if self._database is None or self._database.is_sqlite else "postgresql",
        }

    def _batch_get(self, key: str) -> Any:
        text = self._hook().batch.get(key)
        return None if text is None else json.loads(text)

    def _change(self, name: str, told: dict[str, Any]) -> Any:
        assert self._cycle is not None
        scope = scope_of(self._scripts.site, self._cycle.cycle_id)
        return self._worker(name, {**told, "scope": scope, "call": self._hook().number()})

    def _worker(self, name: str, told: dict[str, Any]) -> Any:
        if self._ask is None:
            raise HostError("there is no global store here")
        return self._ask(name, told)

    def _define(self, call: list[Any]) -> int:
        # the body of a PostgreSQL function holds statements of its own
        statements = [call[0]] if _BODY.search(call[0]) else split(call[0])
        if not statements or not all(_DDL.match(statement) for statement in statements):
            raise HostError("db_exec at the top level of a script only makes tables: CREATE, ALTER or DROP")
        return 0 if self._definitions is None else self._definitions.execute(call[0], parameters(call[1]))


def _storable(text: str) -> str:
    """A text as PostgreSQL can hold it."""
    return text.replace("\0", "\ufffd")
