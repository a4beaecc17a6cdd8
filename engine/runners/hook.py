"""Ops of kind ``hook``: the hooks of crawls and snapshots, and the ops that move those on."""

from __future__ import annotations

import contextlib
import json
import os

from engine.clock import SECOND, Clock
from engine.codec import decode_result
from engine.config import Settings
from engine.errors import LeaseLost, OpError, ScraperError
from engine.hooks.graph import CrawlSpec, HookInput
from engine.hooks.inputs import inherited
from engine.hooks.process import become_subreaper, end_marked
from engine.liveness import own_identity
from engine.model import Result
from engine.projection import archive_rows as rows
from engine.projection.databases import OpenDatabases
from engine.runners.base import Refund, RunContext, RunFailed
from engine.runners.hook_binary import BinaryRun, rows_of
from engine.runners.hook_hands import Hands, mark_of, own_address, session_spec
from engine.runners.hook_projection import Projector
from engine.runners.hook_run import HookRun
from engine.runners.hook_scope import ScopeRun
from engine.runners.hook_wait import release

_GIVEN_UP = "the op was canceled, or lost its worker too often"


def hook_runner(settings: Settings, clock: Clock) -> HookRunner:
    """The runner of a worker with these settings."""
    url = settings.site_database_url
    return HookRunner(
        Hands(
            projector=Projector(lambda: OpenDatabases(settings.sites_dir, url, clock), clock),
            clock=clock,
            grace=settings.hooks.grace / SECOND,
            environment=inherited(os.environ, settings.hooks.environment),
            configured={name: os.environ[name] for name in settings.hooks.environment if name in os.environ},
            owner=own_identity(),
            iface=own_address(),
        )
    )


class HookRunner:
    """Runs hooks as processes of this worker and keeps the rows about them."""

    def __init__(self, hands: Hands) -> None:
        self._hands = hands
        self._begun = False

    async def run(self, ctx: RunContext) -> Result:
        """Execute the op. Raises OpError, RunFailed, LeaseLost."""
        if not self._begun:
            self._begun = True
            become_subreaper()
        for generation in ctx.fence:
            await self._hands.projector.fence(ctx.site, session_spec(ctx, generation))
        if ctx.lease.earlier_claims:
            stored = await self._hands.projector.outcome(ctx.site, session_spec(ctx))
            if stored is not None:
                if ctx.op.metadata.get("task") == "hook":
                    _release(ctx)
                return decode_result(stored)
        try:
            return await self._task(ctx)
        except ScraperError as error:
            raise OpError("site_error", str(error)) from error

    async def _task(self, ctx: RunContext) -> Result:
        match ctx.op.metadata.get("task"):
            case "hook":
                # it begins when its process does: one that outlived its worker has lost nothing
                return await self._hook(ctx)
            case "binary":
                ctx.started()
                return await BinaryRun(self._hands, ctx).run()
            case _:
                ctx.started()
                return await ScopeRun(self._hands, ctx).run()

    async def _hook(self, ctx: RunContext) -> Result:
        try:
            return await HookRun(self._hands, ctx).run()
        except (RunFailed, LeaseLost, Refund):
            raise
        except Exception as error:
            await self._give_up(ctx, f"{type(error).__name__}: {error}")
            raise

    async def resolve(self, ctx: RunContext) -> Result | None:
        """End what still runs of the op; complete it from the inbox, or close its key there."""
        if ctx.op.metadata.get("task") == "hook":
            # first the row: from then on the run that lost the op writes nothing
            with contextlib.suppress(LeaseLost, OpError):
                await self._give_up(ctx, _GIVEN_UP)
            await end_marked(mark_of(ctx, HookInput.load(ctx.op.input).scope.id), self._hands.grace)
            _release(ctx)
        elif ctx.op.metadata.get("task") == "binary":
            given = json.loads(ctx.op.input)
            if given.get("crawl"):
                beginning = rows_of(given["crawl"], given["need"]["name"])
                lost = rows.abandon_results(given["crawl"], beginning, _GIVEN_UP, self._hands.now())
                with contextlib.suppress(LeaseLost, OpError):
                    await self._hands.write(ctx, [lost])
            await end_marked(mark_of(ctx, "binaries"), self._hands.grace)
        for generation in ctx.fence:
            await self._hands.projector.fence(ctx.site, session_spec(ctx, generation))
        stored = await self._hands.projector.fence(ctx.site, session_spec(ctx))
        return None if stored is None else decode_result(stored)

    async def _give_up(self, ctx: RunContext, reason: str) -> None:
        """The row of a hook that no run will end any more."""
        row = ctx.op.id.partition("#")[0]
        await self._hands.write(ctx, [rows.abandon_result(row, reason.replace("\0", ""), self._hands.now())])

    async def aclose(self) -> None:
        """Commit what waits; the hooks themselves have ended with their ops."""
        await self._hands.projector.aclose()


def _release(ctx: RunContext) -> None:
    """The op has ended without a run of its own that would have seen to it."""
    release(HookInput.load(ctx.op.input), CrawlSpec.load(ctx.op.workflow.input))
