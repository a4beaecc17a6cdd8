"""One claimed op from its lease to its outcome, without any loop: the only place where runner and store meet."""

from __future__ import annotations

import asyncio
import logging
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from engine.errors import LeaseLost, OpError
from engine.model import EMPTY_RESULT, Binary, JsonText, MachineFacts, NewOp, Result, Validators
from engine.outcome import Failed, Fenced, Interrupted, Outcome, Succeeded, failure
from engine.plugins.site import Site
from engine.runners.base import Refund, RunContext, RunFailed, Runner, Vanished
from engine.store.store import Store
from engine.store.types import LeasedOp
from engine.worker.committer import Committer
from engine.worker.database import DatabaseThread

log = logging.getLogger("scraper.worker")

#: Seconds for which a site's home is taken for granted: only an operator moves it.
_LOOK_AGAIN = 2.0


class Homes:
    """The home machines of site DBs, looked up now and then; a site without one gets this machine."""

    def __init__(self, store: Store, database: DatabaseThread, machine_id: str) -> None:
        self._store = store
        self._database = database
        self.here = machine_id
        #: Home and the instant of the last look.
        self._known: dict[str, tuple[str, float]] = {}

    async def of(self, site: str) -> str:
        """The machine that holds the site's DB."""
        home, looked = self._known.get(site, ("", 0.0))
        if not home or time.monotonic() - looked > _LOOK_AGAIN:
            home = await self._database.until_done(self._store.home_of, site, self.here)
            self._known[site] = (home, time.monotonic())
        return home


@dataclass(frozen=True, slots=True, kw_only=True)
class Workbench:
    """What executing an op needs, the same for every op of a worker."""

    store: Store
    database: DatabaseThread
    committer: Committer
    runners: Mapping[str, Runner]
    sites: Mapping[str, Site]
    homes: Homes
    rng: Random

    async def placed(self, result: Result) -> Result:
        """``result`` with every emitted op pinned to the machine that must run it."""
        if not result.emitted:
            return result
        homes = {site: await self.homes.of(site) for site in {op.site for op in result.emitted} & self.sites.keys()}
        return replace(result, emitted=tuple(self._place(op, homes) for op in result.emitted))

    def _place(self, op: NewOp, homes: Mapping[str, str]) -> NewOp:
        site = self.sites.get(op.site)
        if site is None:
            return op
        return replace(op, machine=site.machine_for(op.kind, homes[op.site]) or op.machine)


async def execute(
    leased: LeasedOp, bench: Workbench, began: Callable[[], None], detached: Callable[[], None] = lambda: None
) -> Outcome:
    """Run one claimed op to its outcome; ``began`` is called when its code really starts, ``detached`` when nobody
    need wait for its end any more.

    Only LeaseLost and cancellation come out as exceptions.
    """
    op, lease = leased.op, leased.lease
    evidence = EMPTY_RESULT
    try:
        site, runner = _find(leased, bench)
        context = _context(leased, site, bench, began, detached)
        if leased.planned is not None:
            found = await runner.resolve(context)
            return Fenced() if found is None else Succeeded(await bench.placed(found))
        return Succeeded(await bench.placed(await runner.run(context)))
    except Refund as refund:
        return Interrupted(refund.reason, bench.store.clock.now() + refund.pause if refund.pause else 0)
    except Vanished as vanished:
        await bench.database.until_done(bench.store.abandon, lease.token, str(vanished))
        raise LeaseLost(lease.token) from vanished
    except RunFailed as failed:
        error, evidence = failed.error, failed.evidence
    except OpError as failed_error:
        error = failed_error
    except (LeaseLost, asyncio.CancelledError):
        raise
    except Exception as bug:
        log.exception("op %s: the runner of kind %s has a bug", op.id, op.kind)
        error = OpError("internal_error", f"{type(bug).__name__}: {bug}", details={"traceback": traceback.format_exc()})
    if leased.planned is not None:
        return Failed(leased.planned)
    return failure(op, lease, error, evidence, bench.store.clock.now(), bench.rng)


def _find(leased: LeasedOp, bench: Workbench) -> tuple[Site, Runner]:
    op = leased.op
    runner = bench.runners.get(op.kind)
    if runner is None:
        kinds = ", ".join(sorted(bench.runners))
        raise OpError("missing_runner", f'no runner for kind "{op.kind}" of op "{op.id}" (known kinds: {kinds})')
    site = bench.sites.get(op.site)
    if site is None:
        raise OpError("unknown_site", f'op "{op.id}" belongs to site "{op.site}", which is not registered here')
    return site, runner


def _context(
    leased: LeasedOp, site: Site, bench: Workbench, began: Callable[[], None], detached: Callable[[], None]
) -> RunContext:
    op, lease = leased.op, leased.lease

    async def prepare(result: Result) -> None:
        if result.artifacts:
            await bench.database.until_done(bench.store.put_blobs, result.artifacts)
        if any(emitted.explicit_id for emitted in result.emitted):
            await bench.database.until_done(bench.store.reserve, lease, result.emitted)

    async def cookies() -> JsonText | None:
        return await bench.database.until_done(bench.store.cookies, op.workflow.id)

    async def turn(name: str, request: int) -> int:
        return await bench.database.until_done(bench.store.turn, lease, name, request)

    async def validators(scope: str, variant: str) -> Validators | None:
        return await bench.database.until_done(bench.store.validators, scope, variant)

    async def emit(specs: Sequence[NewOp]) -> None:
        placed = await bench.placed(Result(emitted=tuple(specs)))
        await bench.database.until_done(bench.store.emit, lease, placed.emitted)
        bench.committer.made_ready()

    async def machine_facts() -> MachineFacts:
        return await bench.database.until_done(bench.store.machine_facts, bench.homes.here)

    async def put_binary(found: Binary) -> None:
        await bench.database.until_done(bench.store.put_binary, bench.homes.here, found)

    async def configure_machine(values: Mapping[str, Any]) -> None:
        await bench.database.until_done(bench.store.configure_machine, bench.homes.here, values)

    async def survived() -> None:
        await bench.database.until_done(bench.store.forgive, lease.token)

    async def kv(name: str, arguments: Mapping[str, Any]) -> Any:
        return await bench.database.until_done(bench.store.kv, name, arguments, lease)

    async def background() -> None:
        await bench.database.until_done(bench.store.begun, lease)
        detached()
        bench.committer.made_ready()

    return RunContext(
        op=op,
        lease=lease,
        site=site,
        engine_uuid=bench.store.uuid,
        fence=leased.fence,
        started=began,
        prepare=prepare,
        cookies=cookies,
        turn=turn,
        validators=validators,
        machine=bench.homes.here,
        machine_facts=machine_facts,
        put_binary=put_binary,
        configure_machine=configure_machine,
        survived=survived,
        emit=emit,
        background=background,
        kv=kv,
    )
