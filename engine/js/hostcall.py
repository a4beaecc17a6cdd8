"""A synchronous call from JavaScript into Python, which mini-racer itself does not offer.

JavaScript writes a request as UTF-16 into shared memory and calls a native callback; mini-racer runs that callback on
V8's own thread while the script waits inside the call. The Python side reads the request, does the work and writes the
answer into the same memory before it returns. While in there, nothing that goes through the isolate may be used.

Only this module and :mod:`engine.js.v8` lean on private members of mini-racer, whose version is pinned.

Layout: four int32 (length in UTF-16 units, more-follows flag, error flag, spare), then the units.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from importlib.resources import files
from typing import Any

from py_mini_racer import MiniRacer

from engine.js.v8 import Isolate

#: UTF-16 units a single hand-over can hold; longer texts travel in pieces.
ROOM = 64 * 1024
_HEADER = struct.Struct("=iiii")
_CALLBACK_ID = 1 << 40
#: Calls whose payload is the author's own text instead of JSON.
_RAW = frozenset({"utf8", "atob", "btoa"})
#: How JSON.stringify spells half a surrogate pair, which no database and no file can hold (escaped backslashes first).
_LONE_SURROGATE = re.compile(r"(\\\\)|\\ud[89a-f][0-9a-f]{2}")


class HostError(Exception):
    """A failure that the script sees as a JavaScript Error and may catch."""

    def __init__(self, message: str, name: str = "", code: str = "") -> None:
        super().__init__(message)
        self.name = name
        self.code = code

    def as_json(self) -> str:
        """What the bridge turns into an Error."""
        return json.dumps({"message": str(self), "name": self.name, "code": self.code})


Handler = Callable[[str, str], str]


class HostCall:
    """The host's end of one isolate's bridge. ``handler`` gets a call's name and payload, and may raise HostError."""

    def __init__(self, racer: Isolate | MiniRacer, handler: Handler) -> None:
        self._handler = handler
        context: Any = racer._ctx
        self._context = context
        memory = racer.eval(f"globalThis.$shared = new SharedArrayBuffer({_HEADER.size + 2 * ROOM})")
        assert isinstance(memory, memoryview)
        self._memory = memory
        self._request: list[bytes] = []
        self._answer = b""
        self._handles: list[Any] = []
        self._library_handler = self._context.handle_callback_from_v8
        object.__setattr__(self._context, "handle_callback_from_v8", self._dispatch)
        raw = self._context._dll.mr_make_js_callback(self._context._ctx, _CALLBACK_ID)
        self.function = self._context._value_handle_to_python(self._context._wrap_raw_handle(raw))

    def turn_to(self, handler: Handler) -> None:
        """Calls go to ``handler`` from now on; what the last one left unfinished is forgotten."""
        self._handler = handler
        self._request.clear()
        self._answer = b""

    @property
    def calls(self) -> int:
        """How many calls there were since the last release."""
        return len(self._handles)

    def release(self) -> None:
        """Free the argument handles of the calls so far. Not from inside a call."""
        handles, self._handles = self._handles, []
        for raw in handles:
            self._context._free(raw)

    def _dispatch(self, callback_id: int, raw: Any) -> None:
        if callback_id != _CALLBACK_ID:
            # a script stopped in a microtask may still report to a loop that is gone
            with suppress(RuntimeError):
                self._library_handler(callback_id, raw)
            return
        self._handles.append(raw)
        length, flag, _, _ = _HEADER.unpack_from(self._memory)
        if flag == 2:
            self._hand_over(0)
            return
        piece = self._memory[_HEADER.size : _HEADER.size + 2 * length]
        if flag == 1:
            self._request.append(piece.tobytes())
            return
        whole: Any = piece
        if self._request:
            whole = b"".join((*self._request, piece))
            self._request.clear()
        failed, answer = self._call(str(whole, "utf-16-le", "replace"))
        self._answer = answer.encode("utf-16-le", "surrogatepass")
        self._hand_over(failed)

    def _call(self, request: str) -> tuple[int, str]:
        name, _, payload = request.partition("\n")
        if name not in _RAW and "\\ud" in payload:
            payload = _LONE_SURROGATE.sub(lambda found: found[1] or "\\ufffd", payload)
        if name == "part":
            return 0, _part(payload)
        try:
            return 0, self._handler(name, payload)
        except HostError as error:
            return 1, error.as_json()
        except BaseException as error:
            return 1, HostError(f"{type(error).__name__}: {error}", code="internal_error").as_json()

    def _hand_over(self, failed: int) -> None:
        piece = self._answer
        if len(piece) > 2 * ROOM:
            piece, self._answer = piece[: 2 * ROOM], piece[2 * ROOM :]
        else:
            self._answer = b""
        self._memory[_HEADER.size : _HEADER.size + len(piece)] = piece
        _HEADER.pack_into(self._memory, 0, len(piece) // 2, 1 if self._answer else 0, failed, 0)


@cache
def _part(name: str) -> str:
    """A part of the prelude that is read at first use."""
    return files("engine.js").joinpath("parts", f"{name}.js").read_text("utf-8") + "//# sourceURL=scraper:prelude"
