"""Ops of kind ``js``: a site's script, in a fresh isolate of a child process."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

from engine.clock import MILLISECOND, rfc3339
from engine.durations import parse_duration
from engine.errors import OpError
from engine.js.jobs import ChildBusy, ScriptJob
from engine.js.pool import ChildLost, JsPool, ScriptFailed
from engine.js.ports import SessionSpec
from engine.model import Result
from engine.runners.base import Refund, RunContext, RunFailed, Vanished

_BUSY_PAUSE = 200 * MILLISECOND
#: Ops that were claimed together share their instants.
_instant = lru_cache(maxsize=64)(rfc3339)


class JsRunner:
    """Runs scripts through a pool of children."""

    def __init__(self, pool: JsPool) -> None:
        self._pool = pool

    async def run(self, ctx: RunContext) -> Result:
        """Execute the op's script. Raises OpError, RunFailed, Refund, Vanished."""
        job = script_job(ctx)
        try:
            return await self._pool.run(job, ctx.prepare, ctx.started)
        except ChildLost as lost:
            raise Vanished(lost.message) from lost
        except ScriptFailed as failed:
            raise RunFailed(failed.error, failed.evidence) from failed
        except ChildBusy as busy:
            raise Refund(f"the site database is busy: {busy}", _BUSY_PAUSE) from busy

    async def resolve(self, ctx: RunContext) -> Result | None:
        """Complete from the inbox, or close the op's key there."""
        try:
            return await self._pool.resolve(_job(ctx, entry=""))
        except ChildLost as lost:
            raise Vanished(lost.message) from lost
        except ChildBusy as busy:
            raise Refund(f"the site database is busy: {busy}", _BUSY_PAUSE) from busy

    async def aclose(self) -> None:
        """End the children."""
        await self._pool.aclose()


def script_job(ctx: RunContext) -> ScriptJob:
    """The job of one claim. Raises OpError where the op names no script or a bad time limit."""
    script = ctx.op.metadata.get("script", "").strip()
    if not script:
        raise OpError("runner_error", f'op "{ctx.op.id}" of kind js has no metadata.script')
    return _job(ctx, entry=script)


def _job(ctx: RunContext, entry: str) -> ScriptJob:
    op, lease, site = ctx.op, ctx.lease, ctx.site
    return ScriptJob(
        site=site,
        spec=SessionSpec(
            engine_uuid=ctx.engine_uuid,
            op_key=str(op.pk),
            generation=op.generation,
            claimed_at=lease.acquired_at,
            workflow_id=op.workflow.id,
            op_id=op.id,
        ),
        entry=entry,
        ctx=_shown(ctx),
        earlier_claims=lease.earlier_claims,
        fence=ctx.fence,
        timeout=_timeout(ctx),
        heap_mb=site.js.heap_mb,
    )


def _timeout(ctx: RunContext) -> int:
    wanted = ctx.op.metadata.get("timeout", "").strip()
    if not wanted:
        return ctx.site.js.timeout
    try:
        return parse_duration(float(wanted) if wanted.replace(".", "", 1).isdigit() else wanted)
    except ValueError as error:
        raise OpError("runner_error", f'metadata.timeout of op "{ctx.op.id}": {error}') from error


def _shown(ctx: RunContext) -> dict[str, Any]:
    op, lease = ctx.op, ctx.lease
    acquired = _instant(lease.acquired_at)
    return {
        "site": op.site,
        "now": acquired,
        "input": json.loads(op.input),
        "workflow": {
            "id": op.workflow.id,
            "site": op.workflow.site,
            "name": op.workflow.name,
            "status": "running",
            "input": json.loads(op.workflow.input),
            "metadata": dict(op.workflow.metadata),
        },
        "op": {
            "id": op.id,
            "workflowID": op.workflow.id,
            "site": op.site,
            "kind": op.kind,
            "queue": op.queue,
            "dedupKey": op.dedup_key,
            "metadata": dict(op.metadata),
        },
        "lease": {
            "workerID": lease.worker_id,
            "token": lease.token,
            "acquiredAt": acquired,
            "expiresAt": _instant(lease.expires_at),
        },
    }
