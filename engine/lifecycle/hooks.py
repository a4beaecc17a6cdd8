"""The hooks of one job at one version: found, called, journaled."""

from __future__ import annotations

import json
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from engine.clock import Clock
from engine.errors import OpError
from engine.js.ports import DatabaseBusy
from engine.lifecycle.extensions import Extension
from engine.lifecycle.host import HookHost
from engine.lifecycle.isolate import SCRIPTS, Discarded, HookIsolate, dumps
from engine.lifecycle.journal import Ended, Journaled
from engine.lifecycle.scripts import (
    CYCLE_HOOKS,
    HOOKS,
    PIPELINE_HOOKS,
    Ask,
    Called,
    CycleContext,
    JobScripts,
)
from engine.lifecycle.shapes import Malformed, check
from engine.lifecycle.writes import HookWrites
from engine.model import LogLine
from engine.projection.archive import transaction

#: Evaluating scripts takes no longer, whatever their hooks may take.
LOAD_SECONDS = 10.0
#: Hook calls that end together, unless they take longer than that.
_GROUP = 200
_GROUP_SECONDS = 1.0
_KNOWN = 64
_present: OrderedDict[str, frozenset[str]] = OrderedDict()


def find_hooks(scripts: JobScripts, clock: Clock, extensions: Sequence[Extension] = ()) -> frozenset[str]:
    """The hooks that the scripts define: found by loading them once. Raises OpError ``job_scripts_invalid``."""
    if not any(name in scripts.files for name in SCRIPTS):
        return frozenset()
    key = scripts.digest
    if key not in _present:
        isolate = HookIsolate(HookHost(scripts, clock, None, extensions), scripts.heap_bytes, extensions)
        try:
            _present[key] = _active(scripts, isolate.load(scripts.sources(SCRIPTS), HOOKS, LOAD_SECONDS))
        finally:
            isolate.close()
        if len(_present) > _KNOWN:
            _present.popitem(last=False)
    return _present[key]


def _active(scripts: JobScripts, found: frozenset[str]) -> frozenset[str]:
    return found if "defer.js" in scripts.files else found - set(CYCLE_HOOKS)


class Hooks:
    """``hooks.js`` and ``defer.js`` of one job, in one isolate that is made at the first call. To be closed.

    Raises OpError ``job_scripts_invalid`` where the scripts cannot be loaded.
    """

    def __init__(
        self, scripts: JobScripts, clock: Clock, ask: Ask | None = None, extensions: Sequence[Extension] = ()
    ) -> None:
        self._scripts = scripts
        self._clock = clock
        self._ask = ask
        self._extensions = extensions
        self._host: HookHost | None = None
        self._isolate: HookIsolate | None = None
        self._logs: list[LogLine] = []
        #: Called before each hook: the worker gives up a child that has been silent for longer than a hook may take.
        self.alive: Callable[[], object] = lambda: None
        self._blame = ""
        #: The heap in use when it was last measured.
        self._heap_bytes = 0
        #: Names of the hooks the scripts define.
        self.present = find_hooks(scripts, clock, extensions)

    def call(self, stage: str, arguments: list[Any], cycle: CycleContext, seq: int = 0) -> Called:
        """Call a hook, or give what is journaled of that call. ``arguments`` without ctx, which is added by stage.

        Raises DatabaseBusy: what the hook did counts for nothing then, but for what is kept at once.
        """
        if stage not in self.present:
            return Called(outcome="absent")
        return self._calls(stage, [(seq, arguments)], cycle)[0]

    def call_each(self, stage: str, arguments: Sequence[list[Any]], cycle: CycleContext) -> list[Called]:
        """Call a hook for one after another; their ends are journaled together."""
        if stage not in self.present:
            return [Called(outcome="absent")] * len(arguments)
        return self._calls(stage, list(enumerate(arguments)), cycle)

    def blame(self, error: str) -> None:
        """The next call that is really made ended the process of an earlier run: it is taken for one that threw."""
        self._blame = error

    def _calls(self, stage: str, calls: list[tuple[int, list[Any]]], cycle: CycleContext) -> list[Called]:
        writes = HookWrites(cycle.journal, self._clock, self._scripts.job_id, cycle.iteration_id)
        group = 1 if len(calls) > 1 and self._is_suspect(stage, cycle) else _GROUP
        called: list[Called] = []
        ended: list[Ended] = []
        due = time.monotonic() + _GROUP_SECONDS
        for seq, arguments in calls:
            journaled = cycle.journal.stage(stage, seq)
            if journaled is not None:
                called.append(_replayed(journaled, cycle))
                continue
            if self._blame:
                called.append(self._called(stage, {"kind": "threw", "error": {"message": self._blame}}, arguments, {}))
                self._blame = ""
            else:
                self.alive()
                called.append(self._run(stage, seq, arguments, cycle, writes))
                if seq == calls[-1][0]:
                    called[-1] = self._weighed(called[-1])
            ended.append(Ended(stage, seq, _result_json(called[-1])))
            if len(ended) == group or time.monotonic() >= due:
                self._settle(ended, cycle, writes)
                due = time.monotonic() + _GROUP_SECONDS
        self._settle(ended, cycle, writes)
        return called

    def _is_suspect(self, stage: str, cycle: CycleContext) -> bool:
        """Whether one of many calls ended the process, nobody knows which: they are told apart by ending one by one."""
        known = cycle.journal.call(stage, -1, 0) is not None
        if self._blame and not known:
            self._blame = ""
            with transaction(cycle.journal.database):
                cycle.journal.keep_call(stage, -1, 0, "", "null")
            return True
        return known

    @staticmethod
    def _settle(ended: list[Ended], cycle: CycleContext, writes: HookWrites) -> None:
        if ended:
            cycle.journal.finish_all(ended, dumps(cycle.kept), writes.pending())
            writes.settled()
            ended.clear()

    def _run(self, stage: str, seq: int, arguments: list[Any], cycle: CycleContext, writes: HookWrites) -> Called:
        began = time.monotonic()
        try:
            host, isolate = self._loaded(cycle)
        except OpError as error:
            return Called(outcome="threw", error=error.message, duration_ms=_since(began))
        host.begin(stage, seq, cycle, writes)
        host.job = {"stage": stage, "values": arguments, "ctx": None if stage == "on_finished" else shown(cycle)}
        try:
            answer = isolate.call(self._scripts.hook_seconds)
        except Discarded as lost:
            host.interrupt()
            answer = {"kind": "threw", "error": {"message": str(lost)}, "ctx": None}
        finally:
            host.end()
            self._take_logs(host)
        if isolate.is_spent:
            self._discard()
        if host.busy:
            raise DatabaseBusy("the site database was busy while the hook ran")
        if answer["ctx"] is not None:
            cycle.kept = json.loads(answer["ctx"])
        measures = {"duration_ms": _since(began), "heap_bytes": self._heap_bytes}
        return self._called(stage, answer, arguments, measures)

    def _weighed(self, called: Called) -> Called:
        """With the heap now in use. Measuring takes longer than a short hook: of many it is done once."""
        if self._isolate is None:
            return called
        before, self._heap_bytes = self._heap_bytes, self._isolate.heap_bytes
        return replace(called, heap_bytes=self._heap_bytes, heap_delta_bytes=self._heap_bytes - before)

    def _called(self, stage: str, answer: dict[str, Any], arguments: list[Any], measures: dict[str, Any]) -> Called:
        match answer["kind"]:
            case "threw":
                message = message_of(answer["error"])
                self._report("error", f"{stage} of job {self._scripts.job_name} failed: {message}")
                return Called(outcome="threw", error=message, **measures)
            case "undefined" | "null" | "false" as kind:
                if kind == "undefined" and stage in PIPELINE_HOOKS:
                    self._report("warning", f"{stage} returned undefined: treated as skip")
                return Called(outcome="returned", nil=True, **measures)
            case "other":
                return Called(outcome="returned", **measures)
        try:
            value = check(stage, _with_matches(stage, answer["value"], arguments))
        except Malformed as error:
            return self._called(stage, {"kind": "threw", "error": {"message": str(error)}}, arguments, measures)
        return Called(outcome="returned", is_table=True, value=value, **measures)

    def _loaded(self, cycle: CycleContext) -> tuple[HookHost, HookIsolate]:
        if self._host is None or self._isolate is None:
            host = HookHost(self._scripts, self._clock, self._ask, self._extensions)
            host.load_into(cycle.journal)
            isolate = HookIsolate(host, self._scripts.heap_bytes, self._extensions)
            try:
                isolate.load(self._scripts.sources(SCRIPTS), HOOKS, LOAD_SECONDS)
            except OpError:
                isolate.close()
                if host.busy:
                    raise DatabaseBusy("the site database was busy while the scripts were loaded") from None
                raise
            finally:
                self._take_logs(host)
            self._host, self._isolate, self._heap_bytes = host, isolate, isolate.heap_bytes
        return self._host, self._isolate

    def _take_logs(self, host: HookHost) -> None:
        self._logs += host.effects.logs
        host.effects.logs.clear()

    def _report(self, level: str, message: str) -> None:
        self._logs.append(LogLine(at=self._clock.now(), level=level, message=message))

    def take_logs(self) -> list[LogLine]:
        """What was logged since the last time."""
        logs, self._logs = self._logs, []
        return logs

    def _discard(self) -> None:
        if self._isolate is not None:
            self._isolate.close()
        self._isolate = self._host = None

    def close(self) -> None:
        """End the isolate."""
        self._discard()


def shown(cycle: CycleContext) -> dict[str, Any]:
    """What a script's ctx is made of."""
    return {
        "kept": cycle.kept,
        "worker_id": cycle.worker_id,
        "selector_matches": cycle.selector_matches,
        "telemetry": cycle.telemetry,
        "fetched": cycle.last_fetch is not None,
    }


def _with_matches(stage: str, value: Any, arguments: list[Any]) -> Any:
    """Items with the matches the engine gave them; those a hook made have none."""
    if stage == "filter_item":
        return {"fields": value["fields"], "matches": _matches(arguments[0])}
    if not isinstance(value, list) or stage not in (
        "override_extract",
        "after_extract",
        "before_store",
        "before_notify",
    ):
        return value
    given = arguments[0] if isinstance(arguments[0], list) else []
    return [
        {"fields": item["fields"], "matches": [] if item["from"] is None else _matches(given[item["from"]])}
        for item in value
    ]


def _matches(item: Any) -> list[str]:
    return list(item.get("matches") or ())


def message_of(error: dict[str, Any]) -> str:
    """What a script threw, and where."""
    name, message = error.get("name") or "", error["message"].replace("\0", "\ufffd")
    text = f"{name}: {message}" if name not in ("", "Error") and not message.startswith(name) else message
    place = next((line.strip() for line in (error.get("stack") or "").splitlines()[1:] if ".js:" in line), "")
    place = place.removeprefix("at ").rpartition("(")[2].rstrip(")")
    return f"{text} ({place})" if place and not place.startswith("scraper:") else text


def _since(began: float) -> float:
    return round((time.monotonic() - began) * 1000, 3)


def _result_json(called: Called) -> str:
    return dumps(
        {
            "outcome": called.outcome,
            "nil": called.nil,
            "is_table": called.is_table,
            "value": called.value,
            "error": called.error,
            "duration_ms": called.duration_ms,
            "heap_bytes": called.heap_bytes,
            "heap_delta_bytes": called.heap_delta_bytes,
        }
    )


def _replayed(journaled: Journaled, cycle: CycleContext) -> Called:
    if journaled.ctx_json:
        cycle.kept = json.loads(journaled.ctx_json)
    return Called(**json.loads(journaled.result_json), replayed=True)


__all__ = [
    "CYCLE_HOOKS",
    "HOOKS",
    "PIPELINE_HOOKS",
    "Ask",
    "Called",
    "CycleContext",
    "Hooks",
    "JobScripts",
    "find_hooks",
]
