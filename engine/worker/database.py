"""The worker's one seam between its event loop and the synchronous store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from engine.errors import DatabaseUnavailable
from engine.worker.options import Observer

P = ParamSpec("P")
T = TypeVar("T")

_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 2.0


class DatabaseThread:
    """Runs store calls in order on one thread, and keeps trying while the database is locked, full or gone."""

    def __init__(self, name: str, observer: Observer) -> None:
        self._threads = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)
        self._observer = observer
        self._unavailable = False

    async def once(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run ``call`` once. Raises DatabaseUnavailable like the store does."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, lambda: call(*args, **kwargs))

    async def until_done(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run ``call`` until the database takes it; the pause between tries grows to two seconds."""
        pause = _FIRST_PAUSE
        while True:
            try:
                answer = await self.once(call, *args, **kwargs)
            except DatabaseUnavailable as error:
                self._say_unavailable(error)
                await asyncio.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE)
            else:
                self._say_available()
                return answer

    def _say_unavailable(self, error: DatabaseUnavailable) -> None:
        if not self._unavailable:
            self._observer.notice(f"the engine database is unavailable, trying again: {error}")
        self._unavailable = True

    def _say_available(self) -> None:
        if self._unavailable:
            self._observer.notice("the engine database is available again")
        self._unavailable = False

    def close(self) -> None:
        """Wait for the running call and end the thread."""
        self._threads.shutdown(wait=True, cancel_futures=True)
