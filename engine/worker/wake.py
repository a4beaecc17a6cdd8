"""What ends a worker's pause: its own work, another process's commit, or the clock."""

from __future__ import annotations

import asyncio
import threading

from engine.errors import DatabaseUnavailable
from engine.store.store import Store

_LISTEN_SECONDS = 1.0


class Wake:
    """An event of the worker's loop that a thread also sets when the engine DB changes under another process."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()
        #: Set by every ring; cleared by the timer, which has pauses of its own.
        self.rung = asyncio.Event()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._listen, name="scraper-wake", daemon=True)
        self._thread.start()

    def ring(self) -> None:
        """End the present pause, or the next one if none is under way."""
        self._event.set()
        self.rung.set()

    def clear(self) -> None:
        """Forget earlier rings: called before a claim looks at the database."""
        self._event.clear()

    async def wait(self, seconds: float) -> bool:
        """Pause until a ring, a foreign commit or ``seconds``; whether it was no more than the time that passed."""
        try:
            async with asyncio.timeout(seconds):
                return await self._event.wait()
        except TimeoutError:
            return False

    def close(self) -> None:
        """End the listening thread."""
        self._closed.set()
        self._thread.join(timeout=2 * _LISTEN_SECONDS)

    def _listen(self) -> None:
        while not self._closed.is_set():
            try:
                changes = self._store.changes()
            except DatabaseUnavailable:
                self._closed.wait(_LISTEN_SECONDS)
                continue
            try:
                while not self._closed.is_set():
                    if changes.wait(_LISTEN_SECONDS):
                        self._ring_from_thread()
            except DatabaseUnavailable:
                self._closed.wait(_LISTEN_SECONDS)
            finally:
                changes.close()

    def _ring_from_thread(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self.ring)
        except RuntimeError:
            self._closed.set()
