"""One V8 isolate, driven straight through mini-racer's library.

mini-racer's own front end starts an event loop on a thread for every isolate and sends each evaluation through it,
which costs more than V8 itself takes. Here the caller waits for V8's answer on a queue. Values are converted by
its own code. Like :mod:`engine.js.hostcall` this leans on private members of mini-racer, whose version is pinned.

What V8 keeps for all isolates of a process (its read-only heap) goes with the last of them, and making it anew takes as
long as the rest of an isolate; so an idle one holds it from the first isolate on.
"""

from __future__ import annotations

import ctypes
import json
from functools import cache
from itertools import count
from queue import Empty, SimpleQueue
from typing import Any

from py_mini_racer import JSTimeoutException, JSUndefined
from py_mini_racer._context import Context
from py_mini_racer._dll import DEFAULT_V8_FLAGS, init_mini_racer, mr_callback_func
from py_mini_racer._objects import ObjectFactoryImpl

#: Under these ids V8 reports the end of an evaluation, that the microtasks it left have run, and the end of one that
#: leaves none.
_TASK, _DRAINED, _ALONE = 1, 2, 3
#: PyGILState_LOCKED: what PyGILState_Ensure returns where the GIL was held already.
_GIL_HELD = 0
#: Most scripts end before optimising their loops has paid; those that go on reach these counts soon enough.
_PATIENT = ("--invocation-count-for-maglev=2000", "--invocation-count-for-maglev-osr=1000")
#: How long a stopped script may take to end before it is left alone.
_STOP_SECONDS = 5.0


class Isolate:
    """Evaluates code on V8's own thread while the caller waits. Used from one thread; to be closed."""

    def __init__(self, heap_bytes: int) -> None:
        self._drained: SimpleQueue[None] = SimpleQueue()
        self._answer: Any = None
        #: A script could not be stopped: nothing but :meth:`close` may follow.
        self.is_stuck = False
        self._arguments: dict[str, Any] = {}
        self._is_at_home = self._is_leaving = False
        self._dll, _ = _library()

        @mr_callback_func
        def callback(callback_id: int, raw_val_handle: Any) -> None:
            self._ctx.handle_callback_from_v8(callback_id, raw_val_handle)

        self._callback = callback  # V8 calls it for as long as the isolate lives
        handle = self._dll.mr_init_context(callback)
        # no event loop: nothing here goes through the part of the context that needs one
        self._ctx: Any = Context(self._dll, handle, None, ObjectFactoryImpl(), count(_ALONE + 1))  # type: ignore[arg-type]
        object.__setattr__(self._ctx, "handle_callback_from_v8", self._answered)
        self._handle = handle
        self._dll.mr_set_hard_memory_limit(handle, heap_bytes)
        self._nothing = self._ctx._python_to_value_handle("0")

    def _answered(self, callback_id: int, raw: Any) -> None:
        """On V8's thread: an evaluation's end is only noted, the caller wakes up once for it and its microtasks."""
        if callback_id != _DRAINED:
            self._answer = raw
        if callback_id != _TASK:
            if self._is_leaving:
                self._is_at_home = self._is_leaving = False
                ctypes.pythonapi.PyGILState_Release(_GIL_HELD)
            self._drained.put(None)

    def make_at_home(self) -> None:
        """In a callback: let Python's state of V8's thread outlast it. To make it anew takes longer than most calls."""
        if not self._is_at_home:
            self._is_at_home = True
            ctypes.pythonapi.PyGILState_Ensure()

    def leave_home(self) -> None:
        """In a callback: undo :meth:`make_at_home` when this evaluation ends, before the thread does."""
        self._is_leaving = self._is_at_home

    @property
    def out_of_memory(self) -> bool:
        """Whether the heap limit was reached."""
        return bool(self._dll.mr_hard_memory_limit_reached(self._handle))

    @property
    def heap_bytes(self) -> int:
        """The heap in use."""
        raw = self._dll.mr_heap_stats(self._handle)
        stats = self._ctx._value_handle_to_python(self._ctx._wrap_raw_handle(raw))
        return int(json.loads(stats)["used_heap_size"])

    def eval(self, code: str, timeout_sec: float | None = None) -> Any:
        """The value of ``code``, after the microtasks it left have run; or both are stopped.

        Raises JSEvalException and its kin: syntax, timeout, memory.
        """
        return self._task(self._dll.mr_eval, (self._ctx._python_to_value_handle(code),), timeout_sec)

    def call(self, function: Any, argument: str, timeout_sec: float | None = None) -> Any:
        """What ``function`` returns for one of a few strings. Raises like :meth:`eval`."""
        convert = self._ctx._python_to_value_handle
        if argument not in self._arguments:
            self._arguments[argument] = self.eval(f"[{argument!r}]", timeout_sec)
        handles = (convert(function), convert(JSUndefined), convert(self._arguments[argument]))
        return self._task(self._dll.mr_call_function, handles, timeout_sec)

    def set_global(self, name: str, value: Any) -> None:
        """``globalThis[name] = value``."""
        convert = self._ctx._python_to_value_handle
        whole, key, held = convert(self._alone("globalThis")), convert(name), convert(value)
        self._ctx._free(self._dll.mr_set_object_item(self._handle, whole.raw, key.raw, held.raw))

    def _alone(self, code: str) -> Any:
        source = self._ctx._python_to_value_handle(code)
        self._dll.mr_eval(self._handle, source.raw, _ALONE)
        self._drained.get()
        return self._ctx._value_handle_to_python(self._ctx._wrap_raw_handle(self._answer))

    def _task(self, method: Any, handles: tuple[Any, ...], timeout_sec: float | None) -> Any:
        self._answer = None
        task = method(self._handle, *(handle.raw for handle in handles), _TASK)
        barrier = self._dll.mr_eval(self._handle, self._nothing.raw, _DRAINED)
        try:
            self._drained.get(timeout=timeout_sec)
        except Empty:
            self._dll.mr_cancel_task(self._handle, task)
            self._dll.mr_cancel_task(self._handle, barrier)
            try:
                self._drained.get(timeout=_STOP_SECONDS)
            except Empty:
                self.is_stuck = True
            raise JSTimeoutException from None
        return self._ctx._value_handle_to_python(self._ctx._wrap_raw_handle(self._answer))

    def close(self) -> None:
        """End the isolate and whatever still runs in it."""
        self._dll.mr_free_context(self._handle)


@cache
def _library() -> tuple[Any, Any]:
    """mini-racer's library with an idle isolate in it, and what that one calls back."""
    library = init_mini_racer(flags=(*DEFAULT_V8_FLAGS, *_PATIENT), ignore_duplicate_init=True)
    ignore = mr_callback_func(lambda callback_id, raw_val_handle: None)
    library.mr_init_context(ignore)
    return library, ignore
