"""Keeps a worker's leases alive and takes back those of the dead.

Heartbeat first, sweep after: a process that stood still (a sleeping laptop, SIGSTOP) extends what is still its own
before it declares anything expired, and after such a gap it leaves the sweep to the next round.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from engine.clock import SECOND, Micros
from engine.liveness import is_dead
from engine.store.machines import take_over
from engine.store.store import Store
from engine.store.types import WorkerInfo
from engine.worker.database import DatabaseThread
from engine.worker.options import Observer, WorkerReport

#: How often a worker looks whether ops it runs were canceled or taken away.
_LOOK: Micros = SECOND // 2
#: Lease durations without a sign of life after which a machine counts as dead.
_DEAD_AFTER = 3


class Heartbeat:
    """One worker's heartbeat, sweep and look-out for revoked leases."""

    def __init__(
        self,
        store: Store,
        database: DatabaseThread,
        me: WorkerInfo,
        lease_duration: Micros,
        observer: Observer,
        portable: frozenset[str] = frozenset(),
    ) -> None:
        """``portable``: sites whose databases are no machine's own; their ops move when their machine dies."""
        self._store = store
        self._database = database
        self._me = me
        self._lease_duration = lease_duration
        self._observer = observer
        self._portable = portable
        self._interval = lease_duration // 3

    async def run(
        self,
        tokens: Callable[[], tuple[str, ...]],
        revoke: Callable[[frozenset[str]], None],
        report: WorkerReport,
    ) -> None:
        """Beat until canceled. ``tokens`` gives the leases held, ``revoke`` is told of those that are gone."""
        last = 0
        while True:
            now = self._store.clock.now()
            if now - last >= self._interval:
                await self._beat(tokens(), revoke)
                if last == 0 or now - last < 2 * self._interval:
                    report.refreshed += await self._sweep()
                last = now
            elif held := tokens():
                lost = await self._database.until_done(self._store.lost, held)
                if lost:
                    revoke(lost)
            await asyncio.sleep(min(_LOOK, self._interval) / SECOND)

    async def _beat(self, held: tuple[str, ...], revoke: Callable[[frozenset[str]], None]) -> None:
        lost = await self._database.until_done(self._store.heartbeat, self._me.id, held, self._lease_duration)
        if lost:
            revoke(lost)

    async def _sweep(self) -> int:
        for worker in await self._database.until_done(self._store.workers, self._me.machine):
            if worker.id != self._me.id and is_dead(worker.process):
                self._observer.notice(f"worker {worker.id} died: taking back what it held")
                await self._database.until_done(self._store.bury_worker, worker.id)
        if self._portable:
            await self._take_over()
        return await self._database.until_done(self._store.sweep)

    async def _take_over(self) -> None:
        before = self._store.clock.now() - _DEAD_AFTER * self._lease_duration
        me = self._me.machine
        for gone in await self._database.until_done(take_over, self._store.database, me, self._portable, before):
            self._observer.notice(f"machine {gone} has not been heard of: what waited for it runs here")
