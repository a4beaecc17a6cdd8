"""Warm isolates for sites that chose ``js: {isolation: frozen}``.

One isolate serves many executions of a site's scripts. Nothing may cross from one to the next: the global object and
all intrinsics are frozen before the first (``parts/frozen.js``), modules are evaluated anew for each, and an isolate
in which anything went wrong, or in which something might still happen, is thrown away.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from contextlib import suppress
from typing import Any

from engine.js.host import Host
from engine.js.isolate import Limits, Realm, opening
from engine.model import JsonText

#: Executions an isolate serves.
OPS = 500
#: Calls of the host it makes: each leaves a trace in it that is dearer to remove than the isolate is to replace.
_CALLS = 5_000
#: Heap that makes an isolate be thrown away, and after how many executions it is looked at: a look takes longer than
#: a small one of these.
_LARGEST, _LOOK_EVERY = 64 << 20, 50


class WarmIsolates:
    """The frozen isolates of one process, one for each key."""

    def __init__(self, ops: int = OPS) -> None:
        self._ops = ops
        self._warm: dict[Hashable, _Warm] = {}

    def execute(self, key: Hashable, host: Host, job: Mapping[str, Any], limits: Limits) -> JsonText:
        """Run one job like :func:`engine.js.isolate.execute`. Only executions with the same key share an isolate."""
        key = (key, limits.heap_bytes)
        warm = self._warm.pop(key, None) or _Warm(limits.heap_bytes)
        fit = False
        try:
            returned = warm.run(host, job, limits)
            fit = warm.served < self._ops and warm.is_quiet(host) and not warm.has_grown()
        finally:
            if fit:
                self._warm[key] = warm
            else:
                warm.close()
        return returned

    def close(self) -> None:
        """End all isolates."""
        while self._warm:
            self._warm.popitem()[1].close()


class _Warm:
    def __init__(self, heap_bytes: int) -> None:
        self._realm = Realm(heap_bytes)
        self._realm.bridge.turn_to(lambda name, payload: "")
        self._drive = self._realm.isolate.eval(opening("freeze"))
        self.served = 0

    def run(self, host: Host, job: Mapping[str, Any], limits: Limits) -> JsonText:
        self.served += 1
        return self._realm.run(host, job, limits, self._start)

    def _start(self, left: float) -> Any:
        self._realm.isolate.call(self._drive, "start", left)
        return self._drive

    def is_quiet(self, host: Host) -> bool:
        """Whether no timer is left that could still run code of the execution."""
        return not host.timed or self._realm.isolate.call(self._drive, "next", 1.0) < 0

    def has_grown(self) -> bool:
        if self._realm.bridge.calls > _CALLS:
            return True
        return self.served % _LOOK_EVERY == 0 and self._realm.isolate.heap_bytes > _LARGEST

    def close(self) -> None:
        with suppress(Exception):
            self._realm.close()
