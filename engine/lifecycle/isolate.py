"""One isolate that holds a job's scripts: loaded once, called hook by hook, driven while promises are pending."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import cache
from importlib.resources import files
from typing import Any

from py_mini_racer import JSEvalException, JSOOMException, JSTimeoutException

from engine.errors import OpError
from engine.js.hostcall import HostCall
from engine.js.isolate import prelude
from engine.js.v8 import Isolate
from engine.lifecycle.extensions import Extension
from engine.lifecycle.host import HookHost

#: In this order: a name defined twice is the later one's.
SCRIPTS = ("hooks.js", "defer.js")
#: For the deferred functions of a hook that ran out of time.
_LAST_SECONDS = 5.0


class Discarded(Exception):
    """The isolate can be used no more; the message is for the hook's author."""


@cache
def _additions() -> str:
    folder = files("engine.lifecycle").joinpath("prelude")
    return "\n".join(
        item.read_text("utf-8") for item in sorted(folder.iterdir(), key=lambda item: item.name, reverse=True)
    )


@cache
def _opening(extensions: tuple[str, ...]) -> str:
    expression, _, name = prelude("\n".join((_additions(), *extensions))).rpartition("\n")
    return (
        "(() => { const notify = globalThis.$notify; delete globalThis.$notify;"
        f" {expression}(notify); const hooks = globalThis.$hooks; delete globalThis.$hooks;"
        f" Object.defineProperty(globalThis, '$hooks', {{ value: hooks, configurable: true }});"
        f" hooks('install'); return hooks; }})()\n{name}"
    )


class HookIsolate:
    """Scripts in V8. To be closed; after Discarded nothing but that is left to do."""

    def __init__(self, host: HookHost, heap_bytes: int, extensions: Sequence[Extension] = ()) -> None:
        self._host = host
        self._heap_bytes = heap_bytes
        #: Whatever becomes of the call, no other may follow.
        self.is_spent = False
        self._isolate = Isolate(heap_bytes)
        self._bridge = HostCall(self._isolate, host.call)
        self._isolate.set_global("$notify", self._bridge.function)
        self._hooks = self._isolate.eval(_opening(tuple(item.javascript for item in extensions)))

    @property
    def heap_bytes(self) -> int:
        """What is in use."""
        return self._isolate.heap_bytes

    def load(self, sources: Iterable[tuple[str, str]], names: Iterable[str], seconds: float) -> frozenset[str]:
        """Evaluate scripts in order; which of ``names`` are functions then. Raises OpError ``job_scripts_invalid``."""
        deadline = time.monotonic() + seconds
        offered = ", ".join(f'{name}: typeof {name} === "function" ? {name} : undefined' for name in names)
        name = ""
        try:
            for name, source in sources:
                self._isolate.eval(f"{source}\n//# sourceURL={name}", self._left(deadline))
            found = self._isolate.eval(f'$hooks("offer", {{{offered}}})', self._left(deadline))
            self._isolate.eval("delete globalThis.$hooks; 0")
        except JSTimeoutException:
            raise _invalid(name, f"its top level ran longer than {seconds:g} s") from None
        except JSEvalException as error:
            if isinstance(error, JSOOMException) or self._isolate.out_of_memory:
                raise _invalid(name, f"its top level needed more than {self._heap_bytes >> 20} MB of heap") from None
            raise _invalid(name, error) from error
        return frozenset(str(found).split())

    def call(self, seconds: float) -> dict[str, Any]:
        """Run the hook call that the host was told of; what it said at its end. Raises Discarded."""
        deadline = time.monotonic() + seconds
        late = f"the hook ran longer than {seconds:g} s and was stopped"
        try:
            try:
                self._drive(deadline)
            except JSTimeoutException:
                self._expire(late)
        except JSEvalException as error:
            self.is_spent = True
            if self._host.answer is None:
                raise Discarded(self._why(error, late)) from None
        finally:
            if not self._isolate.is_stuck:
                self._bridge.release()
        if self._host.answer is None:
            raise Discarded(late)
        return self._host.answer

    def _why(self, error: JSEvalException, late: str) -> str:
        if isinstance(error, JSOOMException) or (not self._isolate.is_stuck and self._isolate.out_of_memory):
            return f"the hook needed more than {self._heap_bytes >> 20} MB of heap"
        return late if isinstance(error, JSTimeoutException) else str(error).strip().partition("\n")[0]

    def _drive(self, deadline: float) -> None:
        self._run("call", deadline)
        later = self._host.later
        while self._host.answer is None:
            if later.wait(0):
                self._run("complete", deadline)
                continue
            pause = self._run("next", deadline)
            if pause < 0 and not later.pending:
                self._expire("the hook's promise can never settle: nothing is pending that could do it")
                return
            left = self._left(deadline)
            wait = left if pause < 0 else min(pause / 1000, left)
            if later.pending:
                later.wait(wait)
            else:
                time.sleep(wait)
            self._run("timers", deadline)

    def _expire(self, why: str) -> None:
        """End the hook with an error; its deferred functions still run."""
        if self._host.answer is not None or self._isolate.is_stuck:
            # the hook has ended and what it left behind does not, or there is no getting in any more
            raise JSTimeoutException
        self._host.why = why
        deadline = time.monotonic() + _LAST_SECONDS
        self._run("expire", deadline)

    def _run(self, command: str, deadline: float) -> Any:
        return self._isolate.call(self._hooks, command, self._left(deadline))

    def _left(self, deadline: float) -> float:
        left = deadline + self._host.waited - time.monotonic()
        if left <= 0:
            raise JSTimeoutException
        return left

    def close(self) -> None:
        """End it, and whatever runs in it."""
        with suppress(Exception):
            self._isolate.close()


_WHERE = re.compile(r"(?P<file>[^\n]*?):(?P<line>\d+): (?P<message>[^\n]*)\n(?P<rest>.*)", re.DOTALL)


_FRAME = re.compile(r"^\s*at (?:.*\()?((?!scraper:)[^\s()]+):(\d+):(\d+)\)?$", re.MULTILINE)


def _invalid(name: str, error: JSEvalException | str) -> OpError:
    found = None if isinstance(error, str) else _WHERE.match(str(error))
    if found is None:
        message = str(error).strip().partition("\n")[0]
        return OpError("job_scripts_invalid", f"{name}: {message}", details={"script": name})
    # V8 does not tell the name of a text that it could not even read; what the engine threw, a script asked for
    stack = [] if not found["file"].startswith("scraper:") else _FRAME.findall(found["rest"])
    if stack:
        script, line, column = stack[0]
    else:
        caret = next((text for text in found["rest"].splitlines()[:3] if text.strip() and not text.strip(" ^\t")), "")
        script = name if found["file"].startswith("<") else found["file"]
        line, column = found["line"], caret.find("^") + 1 or 1
    place = {"script": script, "line": int(line), "column": int(column)}
    return OpError("job_scripts_invalid", f"{script}:{line}:{column}: {found['message']}", details=place)


def dumps(value: Any) -> str:
    """JSON as it is journaled."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
