"""The worker: claims in batches, runs many ops at once, settles in groups, and stops in good order.

Teardown runs from the claim outwards: stop claiming, let ops end, give back what has not, commit, and only then stop
the heartbeats that kept the leases alive meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import assert_never

from engine.clock import SECOND, Micros
from engine.errors import LeaseLost, OpError, ScraperError
from engine.model import EMPTY_RESULT, TERMINAL, Lease
from engine.outcome import Failed, Fenced, Interrupted, Outcome, RetryAt, Succeeded
from engine.store.store import Store
from engine.store.types import Applied, Claim, ClaimRequest, LeasedOp, LostLease, Refused, Settlement, Verdict
from engine.worker.committer import Committer
from engine.worker.execute import Workbench, execute
from engine.worker.heartbeat import Heartbeat
from engine.worker.options import Observer, WorkerOptions, WorkerReport
from engine.worker.places import PATIENCE, Places
from engine.worker.timer import Timer
from engine.worker.wake import Wake

log = logging.getLogger("scraper.worker")

Ask = Callable[[ClaimRequest], Claim]

#: Seconds between two looks of a busy worker at what others may have brought.
_LOOK_AGAIN = 0.05
#: Seconds a stopping worker waits for its last commits; what is not stored by then is found again by its lease.
_LAST_WORDS = 5.0


@dataclass(slots=True)
class Slot:
    """One op in flight: its lease, its task, and whether it really began."""

    leased: LeasedOp
    #: When it was claimed, by the loop's clock.
    since: float
    #: None while the op waits for a place.
    task: asyncio.Task[None] | None = None
    #: The task had its first turn: it says itself how it ends.
    under_way: bool = False
    begun: bool = False
    #: When it took its place, by the loop's clock; 0 while it has none.
    entered: float = 0.0
    #: The lease is gone: whatever comes out is thrown away.
    lost: bool = False
    #: Nobody need wait for it: it takes no place among the ops in flight.
    detached: bool = False
    #: The outcome is on its way into the database: nothing may cancel that.
    settling: bool = False
    #: Counted among the ops that run.
    counted: bool = True


@dataclass(slots=True)
class Worker:
    """One worker process on one event loop."""

    instance: str
    options: WorkerOptions
    bench: Workbench
    heartbeat: Heartbeat
    wake: Wake
    observer: Observer
    #: None: schedules are left to other workers.
    timer: Timer | None = None
    #: Seconds that an op which is told to end may take for it.
    patience: float = 0.0
    report: WorkerReport = field(default_factory=WorkerReport)
    _slots: dict[str, Slot] = field(default_factory=dict)
    #: Those that wait for a place, in order.
    _ahead: deque[Slot] = field(default_factory=deque)
    #: When they are looked at again, if any wait.
    _patience: asyncio.TimerHandle | None = None
    #: Set when the last slot is given up.
    _vacant: asyncio.Event = field(default_factory=asyncio.Event)
    _stopping: asyncio.Event = field(default_factory=asyncio.Event)
    _aborted: bool = False
    #: When work was last asked for (the loop's clock), and when more of it is due.
    _looked: float = -math.inf
    _next_due: Micros | None = None
    _places: Places = field(init=False)
    _running: int = 0
    #: Room that claims under way have asked for.
    _asked: int = 0

    def __post_init__(self) -> None:
        self.committer.crew = self
        self._places = Places(self.options.max_workers)

    @property
    def store(self) -> Store:
        return self.bench.store

    @property
    def committer(self) -> Committer:
        return self.bench.committer

    def stop(self) -> None:
        """First call: drain. Second call: end everything that runs, at once."""
        if self._stopping.is_set():
            self._aborted = True
            self._cancel(lambda slot: True)
        else:
            self.observer.notice("stopping: no new ops, running ones may end")
            self._stopping.set()
            self._cancel(lambda slot: not slot.begun)
        self.wake.ring()

    async def run(self) -> WorkerReport:
        """Work until told to stop or until the options say that the work is done."""
        beats = asyncio.create_task(self.heartbeat.run(self.tokens, self.revoke, self.report))
        commits = asyncio.create_task(self.committer.run())
        loop = asyncio.create_task(self._loop())
        timer = [] if self.timer is None else [asyncio.create_task(self.timer.run())]
        try:
            done, _ = await asyncio.wait({beats, commits, loop, *timer}, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        except BaseException:
            # without its committer or its heartbeat a worker has nothing to wait for
            self._aborted = True
            raise
        finally:
            for task in (loop, *timer):
                task.cancel()
            await asyncio.gather(loop, *timer, return_exceptions=True)
            await self._drain()
            self.committer.end()
            await asyncio.wait({commits}, timeout=_LAST_WORDS)
            beats.cancel()
            commits.cancel()
            await asyncio.gather(beats, commits, return_exceptions=True)
        return self.report

    def tokens(self) -> tuple[str, ...]:
        """The leases this worker holds."""
        return tuple(self._slots)

    def revoke(self, tokens: frozenset[str]) -> None:
        """End the ops whose leases are gone: canceled by somebody, or lost while this process stood still."""
        for token in tokens & self._slots.keys():
            self._slots[token].lost = True
        self._cancel(lambda slot: slot.lost)

    def running(self) -> int:
        """Ops that somebody waits for and that have no outcome yet."""
        return self._running

    def appetite(self) -> ClaimRequest | None:
        """What this worker has room for; counted rounds are the loop's alone."""
        room = self._free()
        return self._request(room) if room > 0 and not self._stopping.is_set() and not self.options.max_cycles else None

    def take(self, request: ClaimRequest, claim: Claim | None) -> None:
        """Begin what a request brought; None: it was not put."""
        self._asked -= request.limit
        if claim is None:
            return
        self.report.cycles += 1
        self._looked = now = asyncio.get_running_loop().time()
        for leased in claim.leased:
            slot = Slot(leased, now)
            self._slots[leased.lease.token] = slot
            self._running += 1
            self._ahead.append(slot)
        self._next_due = claim.next_due
        if self._giving_back():
            self._cancel(lambda slot: not slot.begun)
        self._fill()

    def _fill(self) -> None:
        """Begin the ops that wait, as far as there are places."""
        while self._ahead and self._places.enter():
            slot = self._ahead.popleft()
            slot.entered = asyncio.get_running_loop().time()
            slot.task = asyncio.create_task(self._work(slot))
        if self._ahead and self._patience is None:
            self._patience = asyncio.get_running_loop().call_later(PATIENCE, self._tire)

    def _tire(self) -> None:
        """Give back what has waited too long for its place."""
        self._patience = None
        late = asyncio.get_running_loop().time() - PATIENCE
        while self._ahead and self._ahead[0].since <= late:
            self._end(self._ahead.popleft(), Interrupted("the ops before it took longer than expected"))
        self._fill()

    async def _loop(self) -> None:
        ask: Ask | None = self.store.look
        while not self._stopping.is_set():
            self.wake.clear()
            wanted = self._free()
            claimed = await self._claim(wanted, ask)
            if self._cycles_used_up() or await self._done(claimed):
                return
            if not claimed or claimed < wanted or self._free() <= 0:
                # a claim looks at a bounded number of lanes: where it brought something there may be more
                ask = await self._rest(min(self._pause(), _LOOK_AGAIN) if claimed else self._pause())

    async def _rest(self, seconds: float) -> Ask | None:
        """Pause; how to ask for work after it, None where a commit has just done that."""
        rung = await self.wake.wait(seconds)
        # a busy worker's own commits ring as well, and bring the next claim with them
        if self._slots and (left := self._fresh()) > 0:
            await asyncio.sleep(left)
            if self._fresh() > 0:
                return None
        # where somebody rang there is likely something to lease
        return self.store.claim if rung else self.store.look

    def _fresh(self) -> float:
        """Seconds for which a busy worker need not ask for work again."""
        return self._looked + _LOOK_AGAIN - asyncio.get_running_loop().time()

    async def _claim(self, limit: int, ask: Ask | None) -> int:
        if limit <= 0:
            self._next_due = None
        if limit <= 0 or ask is None:
            return 0
        request = self._request(limit)
        claim = await self.bench.database.until_done(ask, request)
        self.take(request, claim)
        return len(claim.leased)

    def _request(self, limit: int) -> ClaimRequest:
        self._asked += limit
        return ClaimRequest(
            worker_id=self.instance,
            machine=self.options.machine_id,
            limit=limit,
            lease_duration=self.options.lease_duration,
            sites=self.options.sites,
        )

    async def _work(self, slot: Slot) -> None:
        slot.under_way = True
        outcome = None
        try:
            outcome = await self._outcome(slot)
        except ScraperError:
            # what the database says ends the worker by itself
            log.debug("op %s: given up", slot.leased.op.id, exc_info=True)
        except Exception:
            log.exception("an op's task ended by itself")
        finally:
            self._end(slot, outcome)

    def _end(self, slot: Slot, outcome: Outcome | None) -> None:
        self._discount(slot)
        if outcome is None:
            self._forget(slot.leased.lease)
        else:
            slot.settling = True
            self.committer.settle(slot.leased.lease, outcome)

    def _forget(self, lease: Lease) -> None:
        self._slots.pop(lease.token, None)
        if not self._slots:
            self._vacant.set()
        self.wake.ring()

    def _began(self, slot: Slot) -> None:
        slot.begun = True
        self.committer.started(slot.leased.lease, self.store.clock.now())
        self.observer.op_started(slot.leased.op)

    def _detach(self, slot: Slot) -> None:
        slot.detached = True
        self._discount(slot)
        self._leave(slot)
        self.wake.ring()

    def _discount(self, slot: Slot) -> None:
        self._running -= slot.counted
        slot.counted = False

    def _leave(self, slot: Slot) -> None:
        if slot.entered:
            self._places.leave(asyncio.get_running_loop().time() - slot.entered)
            slot.entered = 0.0
            self._fill()

    async def _outcome(self, slot: Slot) -> Outcome | None:
        if self._giving_back():
            return Interrupted("the worker stopped before the op began")
        try:
            return await execute(slot.leased, self.bench, lambda: self._began(slot), lambda: self._detach(slot))
        except LeaseLost:
            slot.lost = True
        except asyncio.CancelledError:
            if not (slot.lost or self._stopping.is_set()):
                raise
        finally:
            self._leave(slot)
        return self._stopped(slot)

    def _stopped(self, slot: Slot) -> Outcome | None:
        if slot.lost:
            self.observer.op_ended(slot.leased.op, "lease_lost", "the lease was taken back")
            return None
        return Interrupted("the worker stopped")

    def settled(self, settlement: Settlement, verdict: Verdict) -> None:
        """Count a stored outcome; one that cannot stand ends its op as a failure instead."""
        lease, outcome = settlement
        leased = self._slots[lease.token].leased
        match verdict:
            case Applied():
                self._count(leased, outcome)
            case LostLease():
                self.observer.op_ended(leased.op, "lease_lost", "the outcome came after the lease had passed on")
            case Refused(error=error):
                instead = _instead(outcome, error)
                if instead is not None:
                    self.committer.settle(lease, instead)
                    return
                log.error("op %s: its failure could not be stored: %s", leased.op.id, error)
            case _:
                assert_never(verdict)
        self._forget(lease)

    def dropped(self, settlement: Settlement) -> None:
        """Nothing more can be stored: the op is found again by its lease."""
        self._forget(settlement.lease)

    def _count(self, leased: LeasedOp, outcome: Outcome) -> None:
        report, ended = self.report, self.observer.op_ended
        match outcome:
            case Succeeded():
                report.processed += 1
                report.succeeded += 1
                ended(leased.op, "succeeded", "")
            case RetryAt(error=error):
                report.processed += 1
                report.retried += 1
                ended(leased.op, "retried", error.summary)
            case Failed(error=error):
                report.processed += 1
                report.failed += 1
                ended(leased.op, "failed", error.summary)
            case Interrupted(reason=reason):
                report.interrupted += 1
                ended(leased.op, "interrupted", reason)
            case Fenced():
                report.failed += leased.planned is not None and leased.planned.code != "canceled"
                ended(leased.op, "failed" if leased.planned else "canceled", str(leased.planned or ""))
            case _:
                assert_never(outcome)

    async def _done(self, claimed: int) -> bool:
        if self.options.until_workflow is not None:
            status = await self.bench.database.until_done(self.store.workflow_status, self.options.until_workflow)
            self.report.workflow_status = status
            if status is not None and status.value in {state.value for state in TERMINAL}:
                return True
        if self.options.until is not None and await asyncio.to_thread(self.options.until):
            return True
        if not self.options.until_idle or claimed or self._slots:
            return False
        if self.timer is not None and await self.timer.busy():
            return False
        return await self.bench.database.until_done(self.store.idle, self.options.machine_id, self.options.sites)

    def _giving_back(self) -> bool:
        return self._stopping.is_set() and not self._cycles_used_up()

    def _cycles_used_up(self) -> bool:
        return 0 < self.options.max_cycles <= self.report.cycles

    def _free(self) -> int:
        # counted rounds bring what runs and no more
        held = self.options.max_workers if self.options.max_cycles else self._places.at_hand()
        return held - self._running - self._asked

    def _pause(self) -> float:
        pause = self.options.poll_interval
        if self._next_due is not None:
            pause = min(pause, max(0, self._next_due - self.store.clock.now()))
        return pause / SECOND

    async def _drain(self) -> None:
        self._stopping.set()
        if not self._aborted:
            await self._all_gone(self.options.drain_timeout / SECOND if self._giving_back() else None)
        self._cancel(lambda slot: True)
        await self._all_gone(self.patience + _LAST_WORDS)

    async def _all_gone(self, timeout: float | None) -> None:  # noqa: ASYNC109 - running late is no error
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while self._slots:
                    self._vacant.clear()
                    await self._vacant.wait()

    def _cancel(self, which: Callable[[Slot], bool]) -> None:
        for slot in [slot for slot in self._slots.values() if not slot.settling and which(slot)]:
            if slot.task is not None:
                slot.task.cancel()
                if slot.under_way:
                    continue
            else:
                self._ahead.remove(slot)
            # none of its code will run
            self._end(slot, self._stopped(slot))
            self._leave(slot)


def _instead(outcome: Outcome, error: OpError) -> Outcome | None:
    """What to store of an op whose outcome was refused; None where nothing is left to leave out."""
    match outcome:
        case Succeeded(result=result):
            return Failed(error, result)
        case Failed(evidence=evidence) if evidence == EMPTY_RESULT:
            return None
        case Failed(error=first):
            # its log or its artifacts are what cannot be stored
            return Failed(first)
        case _:
            return Failed(error)
