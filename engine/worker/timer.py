"""The worker's timer: sleeps until the next due time and turns schedules that have come due into workflows.

It reads the engine DB when something rang, when the next due time has come, and every few seconds in case a clock
jumped; between those it costs nothing. Verbs run beside it, a few at a time, each held under a token.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from engine.clock import SECOND, Micros
from engine.errors import LeaseLost, OpError, ScraperError
from engine.model import NewOp, NewWorkflow
from engine.plugins.site import Site
from engine.schedules import VerbTarget
from engine.store.firing import HOLD, Firing
from engine.store.schedules import BATCH
from engine.store.store import Store
from engine.worker.database import DatabaseThread
from engine.worker.options import Observer
from engine.worker.wake import Wake

log = logging.getLogger("scraper.worker")

#: Seconds after which the timer looks whatever it expects: clocks jump, wake-ups get lost.
_HEAL = 5.0
#: Seconds between two looks that others rang for.
_REST = 0.1
#: Verbs that run at a time.
_VERBS = 4
#: Seconds a stopping worker waits for word that what it held is free.
_LAST_WORDS = 5.0


class RunVerb(Protocol):
    """Runs a verb of a site."""

    async def __call__(
        self,
        site: Site,
        verb: str,
        values: Mapping[str, Any],
        workflow_id: str,
        metadata: Mapping[str, str],
        accept: Callable[[NewWorkflow], Awaitable[None]],
    ) -> None:
        """Hand what the verb asks for to ``accept``; if that raises, nothing of the verb remains.

        Raises ScraperError.
        """
        ...


@dataclass(slots=True, kw_only=True)
class Timer:
    """The schedules of some sites, fired by one worker."""

    store: Store
    database: DatabaseThread
    sites: Mapping[str, Site]
    worker_id: str
    #: The machine of this worker: SQLite site DBs of other machines are other workers' affair, schedules and all.
    machine: str
    wake: Wake
    run_verb: RunVerb
    observer: Observer
    _verbs: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    _homes: dict[str, str] = field(default_factory=dict)
    #: What had come due before this worker began is not looked at yet.
    _unseen: bool = True
    _extended: Micros = 0

    async def busy(self) -> bool:
        """Whether something that was due is on its way to its workflow, here or in another worker."""
        if self._unseen or self._verbs:
            return True
        return await self.database.until_done(self._pending)

    def _pending(self) -> bool:
        return self.store.schedules.held(self.sites) or bool(self._due_here(self.store.clock.now()))

    async def run(self) -> None:
        """Fire until canceled."""
        try:
            while True:
                self.wake.rung.clear()
                next_look = await self._look()
                if self._unseen:
                    self._unseen = False
                    self.wake.ring()
                await self._extend()
                await self._sleep(next_look)
        finally:
            await self._close()

    async def _look(self) -> Micros | None:
        """Fire all that is due; when the next look is due."""
        now = self.store.clock.now()
        schedules = self.store.schedules
        first = await self.database.until_done(schedules.next_look, self.sites, -1)
        if first is None or first > now:
            return first
        here = await self.database.until_done(self._due_here, now)
        while True:
            free = _VERBS - len(self._verbs)
            fired = await self.database.until_done(schedules.fire, here, self.worker_id, self._place, free)
            for key, reason in fired.refused:
                self.observer.notice(f"schedule {key}: {reason}")
            for firing in fired.verbs:
                self._verbs[firing.token] = asyncio.create_task(self._fire(firing))
            if fired.workflows:
                self.wake.ring()
            await self._extend()
            if fired.seen < BATCH:
                # what is still due then has another step to take, what was due before is in other hands
                return await self.database.until_done(schedules.next_look, self.sites, fired.at - 1)

    def _due_here(self, now: Micros) -> list[str]:
        """The sites with something due whose databases are at hand."""
        self._homes.clear()
        due = self.store.schedules.due_sites(self.sites, now)
        return [name for name in due if self.sites[name].dialect != "sqlite" or self._home(name) == self.machine]

    def _home(self, name: str) -> str:
        if name not in self._homes:
            self._homes[name] = self.store.home_of(name, self.machine)
        return self._homes[name]

    def _place(self, op: NewOp) -> NewOp:
        site = self.sites.get(op.site)
        if site is None or not site.machine_for(op.kind, self.machine):
            return op
        return replace(op, machine=self._home(op.site))

    async def _sleep(self, next_look: Micros | None) -> None:
        pause = _HEAL if next_look is None else min(_HEAL, max(0, next_look - self.store.clock.now()) / SECOND)
        loop = asyncio.get_running_loop()
        began = loop.time()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await self.wake.rung.wait()
                await asyncio.sleep(_REST - (loop.time() - began))

    async def _extend(self) -> None:
        now = self.store.clock.now()
        if self._verbs and now - self._extended > HOLD // 3:
            await self.database.until_done(self.store.schedules.extend, tuple(self._verbs))
            self._extended = now

    async def _fire(self, firing: Firing) -> None:
        """Run the verb of a due time."""
        known, stored = firing.schedule, False
        assert isinstance(known.target, VerbTarget)

        async def accept(new: NewWorkflow) -> None:
            nonlocal stored
            await self.database.until_done(self.store.schedules.submit, firing, new)
            stored = True

        try:
            site = self.sites[known.site]
            target = known.target
            await self.run_verb(site, target.verb, target.values, firing.workflow_id, firing.metadata, accept)
        except LeaseLost:
            log.info("schedule %s: another worker took over", known.key)
        except (ScraperError, OpError) as error:
            await self._failed(firing, str(error), stored=stored)
        except Exception as bug:
            log.exception("schedule %s", known.key)
            await self._failed(firing, f"internal error: {type(bug).__name__}: {bug}", stored=stored)
        # a task that is canceled stays in the list, so that what it holds is released
        del self._verbs[firing.token]
        self.wake.ring()

    async def _failed(self, firing: Firing, reason: str, *, stored: bool) -> None:
        key = firing.schedule.key
        if stored:
            self.observer.notice(f"schedule {key}: the workflow is stored, but its verb's writes are not: {reason}")
            return
        try:
            given_up = await self.database.until_done(self.store.schedules.fail, firing, reason)
        except LeaseLost:
            return
        self.observer.notice(f"schedule {key}: {reason} ({'given up' if given_up else 'it will be tried again'})")

    async def _close(self) -> None:
        for task in self._verbs.values():
            task.cancel()
        await asyncio.gather(*self._verbs.values(), return_exceptions=True)
        if self._verbs:
            with contextlib.suppress(Exception):
                release = self.database.until_done(self.store.schedules.release, tuple(self._verbs))
                await asyncio.wait_for(release, _LAST_WORDS)
