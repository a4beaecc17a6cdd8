"""What a hook started and has not finished: host functions on threads, and resources such as browsers."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any

from engine.js.hostcall import HostError

#: Host functions that run at the same time; more wait.
_AT_ONCE = 32


class Rejected(HostError):
    """A failure with members of its own, which the script finds on its Error."""

    def __init__(self, message: str, **members: Any) -> None:
        super().__init__(message)
        self.members = members


class LaterCalls:
    """Asynchronous host functions: each runs on a thread, its end is taken by whoever drives the isolate."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._pending: set[int] = set()
        self._ended: SimpleQueue[tuple[int, bool, Any]] = SimpleQueue()
        self._places = threading.BoundedSemaphore(_AT_ONCE)

    @property
    def pending(self) -> bool:
        """Whether an end is still to come."""
        return bool(self._pending)

    def start(self, run: Callable[[], Any]) -> int:
        """Run a function; the number its end will carry."""
        number = next(self._numbers)
        self._pending.add(number)
        threading.Thread(target=self._run, args=(number, run, self._ended), daemon=True).start()
        return number

    def _run(self, number: int, run: Callable[[], Any], ended: SimpleQueue[tuple[int, bool, Any]]) -> None:
        with self._places:
            try:
                ended.put((number, False, run()))
            except Exception as error:
                members = error.members if isinstance(error, Rejected) else {}
                if isinstance(error, HostError):
                    named = {key: value for key, value in (("name", error.name), ("code", error.code)) if value}
                    ended.put((number, True, {"message": str(error), **named, **members}))
                else:
                    ended.put((number, True, {"message": f"{type(error).__name__}: {error}"}))

    def wait(self, seconds: float | None) -> bool:
        """Whether a call ended within the time; it stays to be taken."""
        try:
            ended = self._ended.get(timeout=seconds)
        except Empty:
            return False
        self._ended.put(ended)
        return True

    def take(self) -> list[tuple[int, bool, Any]]:
        """The calls that ended since the last time: number, whether it failed, value."""
        taken: list[tuple[int, bool, Any]] = []
        with suppress(Empty):
            while True:
                taken.append(self._ended.get_nowait())
        self._pending.difference_update(number for number, _, _ in taken)
        return taken

    def abandon(self) -> None:
        """Forget what runs: nobody waits for its end any more."""
        self._pending.clear()
        self._ended = SimpleQueue()


class Resources:
    """Things a hook opened. Thread-safe; closed in reverse order when the hook has ended."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._open: dict[int, tuple[Any, Callable[[], None]]] = {}
        self._over = False

    def add(self, thing: Any, close: Callable[[], None]) -> int:
        """Keep a thing until it is closed; the number a script knows it by. Raises HostError after the hook's end."""
        with self._lock:
            if not self._over:
                number = next(self._numbers)
                self._open[number] = (thing, close)
                return number
        close()
        raise HostError("the hook is over")

    def get(self, number: int) -> Any:
        """The thing of that number. Raises HostError where it was closed."""
        with self._lock:
            if number not in self._open:
                raise HostError("it is closed already")
            return self._open[number][0]

    def close(self, number: int) -> None:
        """Close one; a second time does nothing."""
        with self._lock:
            _, close = self._open.pop(number, (None, None))
        if close is not None:
            close()

    def close_all(self) -> list[Exception]:
        """Close what is left, the last first; what went wrong."""
        failures: list[Exception] = []
        with self._lock:
            self._over = True
            left = [close for _, close in reversed(self._open.values())]
            self._open.clear()
        for close in left:
            try:
                close()
            except Exception as error:
                failures.append(error)
        return failures
