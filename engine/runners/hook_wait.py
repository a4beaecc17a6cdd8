"""What a hook waits for before its process may start: its turn, and the daemons it had at its first attempt.

It waits outside the worker: the op is given back and comes again, so that nobody's place is held.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

from engine.clock import SECOND
from engine.hooks.daemons import Daemon, State, daemons, need, need_no_more
from engine.hooks.graph import CrawlSpec, HookInput, Scope, revived_daemon
from engine.hooks.layout import Place, crawl_place
from engine.hooks.naming import Ground
from engine.hooks.turn import Turn
from engine.runners.base import Refund, RunContext
from engine.runners.hook_hands import Hands

#: Before another look at a daemon that is being started again.
_PAUSE = SECOND // 4
#: Seconds between two tries of a hook that lets others go first.
_LONGEST_PAUSE = 30.0


class Admission:
    """Decides whether one claim of a hook may go on now."""

    def __init__(self, hands: Hands, ctx: RunContext, given: HookInput, spec: CrawlSpec) -> None:
        self._hands = hands
        self._ctx = ctx
        self._given = given
        self._spec = spec
        self._place = Place(Path(given.scope.root))
        self._places = _places(given, spec)
        self._traces = self._place.traces(given.plugin, given.file)

    @contextlib.asynccontextmanager
    async def granted(self) -> AsyncIterator[None]:
        """For as long as the hook runs. Raises Refund where it must come again later."""
        turn = Turn(self._place, self._traces, self._hands.owner)
        if self._given.ground is Ground.FOREGROUND and not turn.take():
            pause = max(_PAUSE, int(min(_LONGEST_PAUSE, self._waited(self._traces.queued) / 4) * SECOND))
            raise Refund("another foreground hook of the snapshot is running", pause)
        try:
            again = self._ctx.lease.earlier_claims > 0 and self._given.ground is not Ground.DAEMON
            if again:
                await self._daemons()
            try:
                yield
            finally:
                if again:
                    need_no_more(self._places, self._traces)
                    for file in (self._traces.queued, self._traces.waiting):
                        with contextlib.suppress(OSError):
                            file.unlink(missing_ok=True)
        finally:
            turn.give_back()

    async def _daemons(self) -> None:
        """See that the daemons that served the first attempt serve this one.

        One that died with its worker is being started again by its own op; one that was dismissed is started by a
        further one. Raises Refund meanwhile.
        """
        patience = self._spec.ready_max
        found = await asyncio.to_thread(lambda: list(daemons(self._places)))
        if not found:
            return
        need(self._places, self._traces)
        for daemon in found:
            state = await asyncio.to_thread(daemon.state, patience)
            if state is State.SETTLED or self._waited(self._traces.waiting) > patience:
                continue
            if state is State.DISMISSED and not await self._revive(daemon):
                continue
            raise Refund("a daemon that ran before this hook is being started again", _PAUSE)

    async def _revive(self, daemon: Daemon) -> bool:
        """Start a daemon again; whether its hook is still there."""
        ctx, spec, scope = self._ctx, self._spec, self._given.scope
        hook = self._hands.plugins(ctx.site, spec).hook(daemon.label)
        if hook is None:
            return False
        if daemon.place != self._place:
            url, root = spec.urls[0] if spec.urls else "", str(daemon.place.root)
            scope = Scope(kind="crawl", id=scope.crawl_id, crawl_id=scope.crawl_id, url=url, root=root)
        emitter = f"{ctx.op.pk}.{ctx.lease.earlier_claims}"
        op = revived_daemon(ctx.op.site, scope, hook, emitter, daemon.process)
        await ctx.emit([replace(op, machine=ctx.machine) if ctx.site.dialect == "postgresql" else op])
        with contextlib.suppress(OSError):
            os.utime(self._traces.waiting)
        return True

    @staticmethod
    def _waited(since: Path) -> float:
        """Seconds since the hook first waited for this."""
        with contextlib.suppress(OSError):
            if since.exists():
                return max(0.0, time.time() - since.stat().st_mtime)
            since.touch()
        return 0.0


def release(given: HookInput, spec: CrawlSpec) -> None:
    """A hook that no run will end any more needs no daemons."""
    place = Place(Path(given.scope.root))
    need_no_more(_places(given, spec), place.traces(given.plugin, given.file))


def _places(given: HookInput, spec: CrawlSpec) -> tuple[Place, ...]:
    """Where the daemons run that a hook may need: its crawl's, then its snapshot's."""
    scope = given.scope
    crawl = crawl_place(spec.data, spec.user, scope.crawl_id, spec.created)
    return (crawl,) if scope.kind == "crawl" else (crawl, Place(Path(scope.root)))
