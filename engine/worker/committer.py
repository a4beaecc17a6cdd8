"""Group commit: outcomes are settled together, and what comes next is claimed in the same transaction.

A group waits for whatever else runs, but not for long: an outcome that stands alone is committed at once.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol

from engine.clock import Micros
from engine.model import Lease
from engine.outcome import Outcome
from engine.store.store import Store
from engine.store.types import Claim, ClaimRequest, Settlement, Verdict
from engine.worker.database import DatabaseThread

#: More than this in one transaction gains nothing and delays everybody.
_LARGEST_GROUP = 500
#: Outcomes that need not wait for more: a larger group is hardly cheaper, and this one is stored while others run.
_ENOUGH = 100
#: Seconds from one group to the next while other ops still run.
BREATH = 0.02
#: Seconds after which a start mark is written even if nothing else is.
_MARK = 0.05


class Crew(Protocol):
    """Who runs the ops whose outcomes are settled."""

    def running(self) -> int:
        """How many ops have no outcome yet."""
        ...

    def appetite(self) -> ClaimRequest | None:
        """What the next claim should ask for; None: nothing."""
        ...

    def take(self, request: ClaimRequest, claim: Claim | None) -> None:
        """Begin what a request brought; None: it was not put."""
        ...

    def settled(self, settlement: Settlement, verdict: Verdict) -> None:
        """Hear what became of an outcome."""
        ...

    def dropped(self, settlement: Settlement) -> None:
        """Hear that an outcome is not stored and will not be: the database is gone for good."""
        ...


class Idle:
    """A crew that never runs anything."""

    def running(self) -> int:
        return 0

    def appetite(self) -> ClaimRequest | None:
        return None

    def take(self, request: ClaimRequest, claim: Claim | None) -> None: ...

    def settled(self, settlement: Settlement, verdict: Verdict) -> None: ...

    def dropped(self, settlement: Settlement) -> None: ...


class Committer:
    """Collects outcomes and start marks of many ops and settles them together."""

    def __init__(self, store: Store, database: DatabaseThread, made_ready: Callable[[], None]) -> None:
        self._store = store
        self._database = database
        #: Call after a commit that made ops ready.
        self.made_ready = made_ready
        self.crew: Crew = Idle()
        self._waiting: list[Settlement] = []
        self._started: list[tuple[str, Micros]] = []
        self._bell = asyncio.Event()
        #: When the next group is due, and when the last one was settled, by the loop's clock.
        self._due = math.inf
        self._last = -math.inf
        self._ending = False
        #: The database refuses everything: no outcome will be stored any more.
        self._failed = False

    def settle(self, lease: Lease, outcome: Outcome) -> None:
        """Commit ``outcome`` with its neighbours; the crew hears what became of it."""
        settlement = Settlement(lease, outcome)
        if self._failed:
            self.crew.dropped(settlement)
            return
        self._waiting.append(settlement)
        self._expect(self._last + BREATH)

    def started(self, lease: Lease, at: Micros) -> None:
        """Note that the claim's op really began; written soon, nobody waits for it.

        At once where a claim of the op was lost before: whatever ends the worker is not to escape being counted twice.
        """
        if lease.earlier_claims:
            self._expect(-math.inf)
        elif not self._started:
            self._expect(asyncio.get_running_loop().time() + _MARK)
        self._started.append((lease.token, at))

    async def run(self) -> None:
        """Settle group after group until told to end; what waits then is settled first.

        One task for all of them: where much waits already, the next group is on its way before the ops that the last
        one brought have their turn.
        """
        while not self._ending:
            await self._group()
            await self._settle_group()
        await self.flush()

    def end(self) -> None:
        """Bring no more: settle what waits and return."""
        self._ending = True
        self._expect(-math.inf)

    def _expect(self, due: float) -> None:
        self._due = min(self._due, due)
        self._bell.set()

    async def _group(self) -> None:
        """Until all that runs has its outcome, or enough has, or the first to come has waited long enough."""
        loop = asyncio.get_running_loop()
        while not (self._waiting and self.crew.running() == 0) and len(self._waiting) < _ENOUGH:
            left = self._due - loop.time()
            if left <= 0:
                return
            self._bell.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(None if self._due == math.inf else left):
                    await self._bell.wait()

    async def flush(self) -> None:
        """Settle all that waits."""
        while self._waiting or self._started:
            await self._settle_group()

    async def _settle_group(self) -> None:
        group, self._waiting = self._waiting[:_LARGEST_GROUP], self._waiting[_LARGEST_GROUP:]
        started, self._started = self._started, []
        self._due = self._last if self._waiting else math.inf
        if not group and not started:
            return
        request = self.crew.appetite()
        try:
            report = await self._database.until_done(self._store.settle, group, started, request)
        except Exception:
            self._failed = True
            for settlement in (*group, *self._waiting):
                self.crew.dropped(settlement)
            self._waiting = []
            raise
        loop = asyncio.get_running_loop()
        self._last = loop.time()
        if request is not None:
            self.crew.take(request, report.claim)
        # the database does not wait for the books
        loop.call_soon(self._tell, group, report.verdicts)
        if report.claim is None and report.made_ready:
            self.made_ready()

    def _tell(self, group: Sequence[Settlement], verdicts: Sequence[Verdict]) -> None:
        for settlement, verdict in zip(group, verdicts, strict=True):
            self.crew.settled(settlement, verdict)
