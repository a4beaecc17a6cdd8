"""Ops of kind ``cycle``: the steps of lifecycle jobs. HTTP and commands happen here, all else in a JS child."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from engine.clock import MILLISECOND, Clock
from engine.errors import OpError
from engine.js.jobs import ChildBusy, CycleJob
from engine.js.pool import ChildLost, JsPool
from engine.js.ports import SessionSpec
from engine.js.wire import Frame
from engine.lifecycle.chain import Cycle, Plan, cycle_ops, delivery_op, iteration_ops, rehearsal_ops
from engine.model import LogLine, NewOp, Result, Validators
from engine.runners.base import Refund, RunContext, RunFailed, Vanished
from engine.runners.cycle_deliver import Delivery
from engine.runners.cycle_fetch import CycleFetch
from engine.runners.http_client import HttpClient

_BUSY_PAUSE = 200 * MILLISECOND
#: How the end of a child says that the hook it ran cannot be run.
_HOOKS_FAULT = frozenset({"js_memory", "js_timeout", "js_crashed"})
#: Processes an op may lose to its hooks; one that looks at items loses two before the item is found.
_MOST_BLAMED = 6
#: In the id of what a lifecycle hook announces.
_LATE = "/on_"

Step = Callable[[RunContext, dict[str, Any]], Awaitable[Result]]


class CycleRunner:
    """Runs the ops of lifecycle jobs."""

    def __init__(self, pool: JsPool, client: HttpClient, clock: Clock) -> None:
        self._pool = pool
        self._clock = clock
        self._fetch = CycleFetch(client, clock)
        self._delivery = Delivery(client, clock)
        self._steps: Mapping[str, Step] = {
            "begin": self._begin,
            "fetch": self._fetched,
            "process": self._ended,
            "deliver": self._deliver,
            "conclude": self._ended,
            "next": self._next,
            "finished": self._finished,
        }

    async def run(self, ctx: RunContext) -> Result:
        """Execute the op. Raises OpError, RunFailed, Refund, Vanished."""
        given = json.loads(ctx.op.input)
        step = self._steps.get(str(given.get("step"))) if isinstance(given, dict) else None
        if step is None:
            raise OpError("invalid_input", f'op "{ctx.op.id}" of kind cycle names no known step')
        ctx.started()
        return await step(ctx, given)

    async def resolve(self, ctx: RunContext) -> Result | None:
        """Whatever a step did is in the site DB, keyed by its cycle: there is nothing to complete or to close."""
        return None

    async def aclose(self) -> None:
        """The pool and the connections belong to others."""

    async def _ask_child(self, ctx: RunContext, task: Mapping[str, Any]) -> Frame:
        """Let a child do a step; a hook that takes the child down with it has thrown."""
        op = ctx.op
        job = CycleJob(
            site=ctx.site,
            spec=SessionSpec(
                engine_uuid=ctx.engine_uuid,
                op_key=str(op.pk),
                generation=op.generation,
                claimed_at=ctx.lease.acquired_at,
                workflow_id=op.workflow.id,
                op_id=op.id,
            ),
            task=task,
            timeout=max(ctx.site.js.timeout, int(task.get("plan", {}).get("hook_timeout", 0))),
        )
        try:
            return await self._pool.cycle(job, ctx.kv)
        except ChildLost as lost:
            raise Vanished(lost.message) from lost
        except ChildBusy as busy:
            raise Refund(f"the site database is busy: {busy}", _BUSY_PAUSE) from busy
        except OpError as error:
            blamed = int(task.get("blamed", 0))
            if error.code not in _HOOKS_FAULT or blamed == _MOST_BLAMED or "plan" not in task:
                raise
            return await self._ask_child(ctx, {**task, "blame": error.message, "blamed": blamed + 1})

    async def _begin(self, ctx: RunContext, given: dict[str, Any]) -> Result:
        frame = await self._ask_child(ctx, given)
        value = frame.header["value"]
        if value.get("disabled"):
            return _result(frame, {"skipped": "the job is disabled"}, reschedule=value["interval"])
        plan = Plan.load(value["plan"])
        cycles = [Cycle(**cycle) for cycle in value["cycles"]]
        ops = iteration_ops(plan, cycles, self._clock.now(), value["stagger"])
        if given.get("debug"):
            ops = rehearsal_ops(plan, cycles[0])
        requests = {f"c{cycle.number}/fetch": value["requests"][cycle.url] for cycle in cycles}
        emitted = tuple(_told(op, requests, value["fetching"]) for op in ops)
        shown = {"iteration": plan.iteration_id, "version": plan.version, "hooks": list(plan.hooks)}
        return _result(frame, shown, emitted)

    async def _fetched(self, ctx: RunContext, given: dict[str, Any]) -> Result:
        started_at, request = self._clock.now(), given["request"]
        frame, envelope = None, None
        bodies: tuple[bytes, ...] = ()
        if {"before_fetch", "override_fetch"} & set(given["plan"]["hooks"]):
            frame = await self._ask_child(ctx, {**given, "step": "request", "started_at": started_at})
            answer = frame.header["value"]
            if answer.get("skip"):
                return _result(frame, {"skip": True, "started_at": started_at})
            request, envelope, bodies = answer["request"], answer.get("envelope"), frame.attachments
        if envelope is not None:
            result = self._fetch.overridden(ctx, envelope, bodies[0] if bodies else None, started_at)
        else:
            result = await self._fetch.run(ctx, request, given, started_at)
        return result if frame is None else replace(result, logs=_logs(frame))

    async def _ended(self, ctx: RunContext, given: dict[str, Any]) -> Result:
        frame = await self._ask_child(ctx, given)
        value = frame.header["value"]
        plan, cycle = Plan.load(given["plan"]), Cycle(**given["cycle"])
        late = value.pop("late", [])
        name = f"c{cycle.number}/deliver-late"
        emitted = (delivery_op(plan, name, plan.cycle_id(cycle.number), late),) if late else ()
        known = value.pop("validators", None)
        return _result(frame, value, emitted, validators=None if known is None else Validators(**known))

    async def _next(self, ctx: RunContext, given: dict[str, Any]) -> Result:
        frame = await self._ask_child(ctx, given)
        value = frame.header["value"]
        if value is None:
            return _result(frame, {"next": None})
        cycle = Cycle(**value["cycle"])
        requests = {f"c{cycle.number}/fetch": value["request"]}
        ops = cycle_ops(Plan.load(given["plan"]), cycle)
        return _result(frame, {"next": cycle.url}, tuple(_told(op, requests, value["fetching"]) for op in ops))

    async def _finished(self, ctx: RunContext, given: dict[str, Any]) -> Result:
        plan = Plan.load(given["plan"])
        frame = await self._ask_child(ctx, given)
        late = frame.header["value"]["late"]
        emitted = (delivery_op(plan, "finished/deliver", plan.iteration_id, late),) if late else ()
        return _result(frame, {}, emitted, reschedule=plan.interval)

    async def _deliver(self, ctx: RunContext, given: dict[str, Any]) -> Result:
        ids = given["ids"]
        frame = await self._ask_child(ctx, {**given, "step": "outbox"})
        outbox = frame.header["value"]
        rows = [row for row in outbox["rows"] if ctx.lease.attempt == 1 or _is_due(row, ids)]
        if not rows:
            return _result(frame, {"delivered": []})
        last = ctx.lease.attempt >= max(ctx.op.retry.max_attempts, 1)
        tries = await asyncio.gather(
            *(self._delivery.attempt(ctx, row, outbox["secret"], outbox["command"]) for row in rows)
        )
        told = [
            {
                **one,
                "status": "sent" if not one["error"] else "failed" if last else "pending",
                "attempts": row["attempts"],
            }
            for one, row in zip(tries, rows, strict=True)
        ]
        await self._ask_child(ctx, {**given, "step": "delivered", "rows": told})
        failed = [one for one in told if one["error"]]
        logs = tuple(
            LogLine(at=self._clock.now(), level="warning", message=f"{one['id']}: {one['error']}") for one in failed
        )
        if failed:
            error = OpError(
                "delivery_failed",
                f"{failed[0]['id']}: {failed[0]['error']}",
                retryable=True,
                retry_after=max((one["retry_after"] or 0 for one in failed), default=0) or None,
            )
            raise RunFailed(error, Result(logs=logs))
        return _result(frame, {"delivered": [one["id"] for one in told]})


def _is_due(row: Mapping[str, Any], ids: Sequence[str]) -> bool:
    """Whether an op that tries again sends this too; what the last hooks of a cycle said is another op's affair."""
    if ids:
        return bool(row["status"] != "sent")
    return bool(row["attempts"]) and _LATE not in row["id"]


def _told(op: NewOp, requests: Mapping[str, Any], fetching: Mapping[str, Any]) -> NewOp:
    """A fetch op with what it needs for that."""
    if op.id not in requests:
        return op
    given = {**json.loads(op.input), "request": requests[op.id], "fetching": dict(fetching)}
    return replace(op, input=json.dumps(given, ensure_ascii=False))


def _logs(frame: Frame) -> tuple[LogLine, ...]:
    return tuple(LogLine(at=at, level=level, message=message) for at, level, message in frame.header["logs"])


def _result(frame: Frame, data: Any, emitted: tuple[NewOp, ...] = (), **more: Any) -> Result:
    return Result(data=json.dumps(data, ensure_ascii=False), emitted=emitted, logs=_logs(frame), **more)
