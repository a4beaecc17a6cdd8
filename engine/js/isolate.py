"""One execution in a V8 isolate: a fresh one, created, used and closed, or one that a caller keeps."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from py_mini_racer import JSEvalException, JSOOMException, JSParseException, JSTimeoutException

from engine.errors import OpError
from engine.js.host import Host
from engine.js.hostcall import HostCall, HostError
from engine.js.positions import parse_error_position, tidy_stack
from engine.js.v8 import Isolate
from engine.model import JsonText


@dataclass(frozen=True, slots=True)
class Limits:
    """What one execution may use."""

    seconds: float
    heap_bytes: int


@cache
def opening(command: str, more: str = "") -> str:
    """The first evaluation of an isolate: the prelude, and with it a first command."""
    expression, _, name = prelude(more).rpartition("\n")
    return (
        "(() => { const notify = globalThis.$notify; delete globalThis.$notify;"
        f" const drive = {expression}(notify); drive('{command}'); return drive; }})()\n{name}"
    )


@cache
def prelude(more: str = "") -> str:
    """The code every isolate starts with: an expression that gives a function of the host's callback.

    ``more`` is JavaScript that declares ``$more(job, found)``, which answers jobs of further modes.
    """
    folder = files("engine.js").joinpath("prelude")
    parts = [item.read_text("utf-8") for item in sorted(folder.iterdir(), key=lambda item: item.name)]
    body = "\n".join([more, *parts])
    return (
        '(function ($notify) { "use strict"; const $shared = globalThis.$shared; delete globalThis.$shared;\n'
        f"{body}\n}})\n//# sourceURL=scraper:prelude"
    )


def execute(
    host: Host,
    job: Mapping[str, Any],
    limits: Limits,
    more: str = "",
    dispose: Callable[[Realm], None] = lambda realm: realm.close(),
) -> JsonText:
    """Run one job (``mode``, ``entry``, ``ctx``) against ``host``; the JSON of what it returned.

    ``more`` adds modes, see :func:`prelude`. ``dispose`` gets what is to be closed in the end.

    Raises OpError: ``runner_error``, ``js_timeout``, ``js_memory``, ``js_never_settled``, ``invalid_result`` or the
    code the author gave the error.
    """
    realm = Realm(limits.heap_bytes)
    try:
        return realm.run(host, job, limits, lambda left: realm.isolate.eval(opening("start", more), left))
    finally:
        dispose(realm)


class Realm:
    """An isolate with the host's end of its bridge. To be closed."""

    def __init__(self, heap_bytes: int) -> None:
        self.isolate = Isolate(heap_bytes)
        self.bridge = HostCall(self.isolate, _unasked)
        self.isolate.set_global("$notify", self.bridge.function)
        #: The numbers of the modules whose text JavaScript keeps.
        self.kept: set[int] = set()

    def run(self, host: Host, job: Mapping[str, Any], limits: Limits, begin: Callable[[float], Any]) -> JsonText:
        """Run one job; ``begin`` starts it, given the seconds left, and returns what drives it. Raises OpError."""
        host.kept = self.kept
        try:
            return _Execution(self, host, job, limits, begin).run()
        except JSTimeoutException:
            host.kill()
            if host.waited > limits.seconds / 2:
                # most of the time went into waiting for the site DB's lock, which is not the script's
                host.busy = True
            raise OpError("js_timeout", f"the script ran longer than {limits.seconds:g} s and was stopped") from None
        except JSOOMException:
            host.kill()
            raise OpError("js_memory", f"the script needed more than {limits.heap_bytes >> 20} MB of heap") from None

    def close(self) -> None:
        """End the isolate and whatever runs in it."""
        self.isolate.close()


def _unasked(name: str, payload: str) -> str:
    raise HostError(f"nothing runs that may ask for {name}")


#: Codes the bridge itself gives to errors; an author's ``error.code`` goes into the details.
_OWN_CODES = frozenset({"invalid_result", "internal_error"})


class _Execution:
    def __init__(
        self, realm: Realm, host: Host, job: Mapping[str, Any], limits: Limits, begin: Callable[[float], Any]
    ) -> None:
        self._isolate = realm.isolate
        self._begin = begin
        self._host = host
        self._deadline = time.monotonic() + limits.seconds
        self._done: JsonText | None = None
        self._failure: dict[str, Any] | None = None
        self._job = json.dumps({"mode": job["mode"], "entry": job["entry"], "ctx": job.get("ctx", {})} | dict(job))
        self._own = {"job": self._begun, "done": self._returned, "failed": self._threw, "gone": self._left_v8}
        realm.bridge.turn_to(self._handle)

    def run(self) -> JsonText:
        self._drive()
        if self._isolate.out_of_memory:
            # microtasks that fill the heap are ended without a word, maybe after the script had its result
            raise JSOOMException
        if self._failure is not None:
            raise self._classified(self._failure)
        if self._done is None:
            raise OpError(
                "js_never_settled", "the script's promise can never settle: nothing is pending that could do it"
            )
        return self._done

    def _drive(self) -> None:
        try:
            drive = self._begin(self._left())
            while not self._settled():
                pause = self._isolate.call(drive, "next", self._left())
                if pause < 0:
                    self._isolate.call(drive, "leave", self._left())
                    return
                time.sleep(min(pause / 1000, self._left()))
                self._isolate.call(drive, "timers", self._left())
        except (JSTimeoutException, JSOOMException):
            raise
        except JSEvalException as error:
            if self._isolate.out_of_memory:
                raise JSOOMException from None
            raise OpError("runner_error", str(error)) from None

    def _settled(self) -> bool:
        return self._done is not None or self._failure is not None

    def _left(self) -> float:
        left = self._deadline + self._host.waited - time.monotonic()
        if left <= 0:
            raise JSTimeoutException
        return left

    def _handle(self, name: str, payload: str) -> str:
        own = self._own.get(name)
        return self._host.call(name, payload) if own is None else own(payload)

    def _begun(self, _: str) -> str:
        self._isolate.make_at_home()
        return self._job

    def _returned(self, result: str) -> str:
        if not self._settled():
            self._done = result
        return self._left_v8("")

    def _threw(self, failure: str) -> str:
        if not self._settled():
            self._failure = json.loads(failure)
        return self._left_v8("")

    def _left_v8(self, _: str) -> str:
        self._isolate.leave_home()
        return ""

    def _classified(self, failure: dict[str, Any]) -> OpError:
        message, stack = failure["message"], failure["stack"]
        details: dict[str, Any] = {}
        if failure["name"] == "SyntaxError":
            details = self._syntax_error_position() or {}
            if details:
                message = f"{details['script']}:{details['line']}:{details['column']}: {message}"
        elif stack:
            details = tidy_stack(stack)
        code = failure["code"] if failure["code"] in _OWN_CODES else "runner_error"
        if failure["code"] and code != failure["code"]:
            details = {"code": failure["code"], **details}
        if failure["name"] and failure["name"] not in ("Error", "") and not message.startswith(failure["name"]):
            message = f"{failure['name']}: {message}"
        return OpError(code, message, failure["retryable"], details=details or None)

    def _syntax_error_position(self) -> dict[str, Any] | None:
        """Compile the modules read so far once more, outermost: only then does V8 tell the position."""
        for name, source in reversed(self._host.loaded):
            try:
                self._isolate.eval(f"(function () {{\n{source}\n}})")
            except JSParseException as error:
                return parse_error_position(str(error), name)
            except JSEvalException:
                continue
        return None


__all__ = ["HostError", "Limits", "Realm", "execute", "opening", "prelude"]
