"""Group commit: whatever outcomes queued up during the last commit go into the next one.

No timer: the first outcome is committed at once, and the busier the database the larger the groups.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from engine.clock import Micros
from engine.model import Lease
from engine.outcome import Outcome
from engine.store.store import Store
from engine.store.types import Settlement, Verdict
from engine.worker.database import DatabaseThread

#: More than this in one transaction gains nothing and delays everybody.
_LARGEST_GROUP = 500


class Committer:
    """Collects outcomes and start marks of many ops and settles them together."""

    def __init__(self, store: Store, database: DatabaseThread, made_ready: Callable[[], None]) -> None:
        self._store = store
        self._database = database
        #: Call after a commit that made ops ready.
        self.made_ready = made_ready
        self._waiting: list[tuple[Settlement, asyncio.Future[Verdict]]] = []
        self._started: list[tuple[str, Micros]] = []
        self._bell = asyncio.Event()
        #: Nobody settles groups any more: whoever brings an outcome does it.
        self._ended = False

    async def settle(self, lease: Lease, outcome: Outcome) -> Verdict:
        """Commit ``outcome`` with its neighbours; what became of it."""
        verdict: asyncio.Future[Verdict] = asyncio.get_running_loop().create_future()
        self._waiting.append((Settlement(lease, outcome), verdict))
        self._bell.set()
        if self._ended:
            await self.flush()
        return await verdict

    def started(self, token: str, at: Micros) -> None:
        """Note that the claim's op really began; written soon, nobody waits for it."""
        self._started.append((token, at))
        self._bell.set()

    async def run(self) -> None:
        """Settle group after group until canceled; a group that was taken is finished first."""
        try:
            while True:
                await self._bell.wait()
                self._bell.clear()
                await asyncio.shield(asyncio.ensure_future(self._settle_group()))
        finally:
            self._ended = True

    async def flush(self) -> None:
        """Settle all that waits."""
        while self._waiting or self._started:
            await self._settle_group()

    async def _settle_group(self) -> None:
        group, self._waiting = self._waiting[:_LARGEST_GROUP], self._waiting[_LARGEST_GROUP:]
        started, self._started = self._started, []
        if self._waiting:
            self._bell.set()
        if not group and not started:
            return
        try:
            report = await self._database.until_done(
                self._store.settle, tuple(settlement for settlement, _ in group), tuple(started)
            )
        except Exception as error:
            for _, future in group:
                if not future.done():
                    future.set_exception(error)
                    future.exception()  # its op may be gone, and nobody else is to be told
            raise
        for (_, future), verdict in zip(group, report.verdicts, strict=True):
            if not future.done():
                future.set_result(verdict)
        if report.made_ready:
            self.made_ready()
