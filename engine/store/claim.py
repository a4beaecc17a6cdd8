"""Claiming: queue policy, fairness, lease and fencing token in one transaction.

Lanes are visited least recently served first. A lane that cannot be served carries the instant at which that may
change (``eligible_at``), so that blocked, empty and limited queues cost nothing meanwhile. On PostgreSQL the queue rows
are locked in one statement and their running ops counted in the next: a count in the same statement would see the
snapshot from before the lock.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Text, bindparam, case, cast, func, select, update

from engine.clock import SECOND, Micros
from engine.dialect import Among
from engine.errors import OpError
from engine.model import AttemptState, Lease, OpStatus
from engine.store import attempts
from engine.store.prepared import Prepared
from engine.store.rows import OP_COLUMNS, Shared, op_from_row, shared_by, stored_error
from engine.store.schema import lane, op, op_is, queue
from engine.store.types import Claim, ClaimRequest, LeasedOp

#: Lanes looked at in one claim.
_LANES = 64
#: When an empty or a full lane is looked at again although nobody announced work or room: a lost wake-up heals.
_HEAL: Micros = 30 * SECOND


@dataclass(slots=True)
class _Lane:
    pk: int
    queue_pk: int
    key: str
    max_in_flight: int | None
    running: int
    rate: float | None
    burst: float
    tokens: float
    taken: int = 0
    #: Looked at by this claim; the others keep their place at the front.
    visited: bool = False
    exhausted: bool = False

    def room(self) -> int | None:
        """How many ops policy still admits; None = any number."""
        limits = []
        if self.max_in_flight is not None:
            limits.append(self.max_in_flight - self.running)
        if self.rate is not None:
            limits.append(math.floor(self.tokens + 1e-9))
        return max(0, min(limits)) if limits else None

    def take(self, count: int) -> None:
        self.taken += count
        self.running += count
        if self.rate is not None:
            self.tokens -= count


def claim(connection: Connection, request: ClaimRequest, now: Micros) -> Claim:
    """Lease up to ``request.limit`` due ops."""
    if request.limit <= 0:
        return Claim((), None)
    lanes = _due_lanes(connection, request, now)
    rows = _take(connection, lanes, request.limit, now)
    rows.extend(_fence_duties(connection, request, request.limit - len(rows), now))
    keys = {visited.queue_pk: visited.key for visited in lanes}
    leased = _lease(connection, rows, shared_by(connection, rows, keys), request, now) if rows else ()
    _reschedule(connection, [looked_at for looked_at in lanes if looked_at.visited], now)
    return Claim(leased, _next_due(connection, request, now))


def look(connection: Connection, request: ClaimRequest, now: Micros) -> Claim | None:
    """The empty claim of a worker for which nothing is due; None where it should ask in earnest. Locks nothing."""
    asked: dict[str, Any] = {"now": now, "machine": request.machine}
    due = _ANY_LANE.scalar(connection, **asked) or _ANY_DUTY.scalar(connection, **asked, count=1)
    return None if due else Claim((), _next_due(connection, request, now))


_NEAR = lane.c.machine.in_(["", bindparam("machine")])

_SOME_LANES = (
    select(lane.c.pk, lane.c.queue_pk, queue.c.max_in_flight, queue.c.rate, queue.c.burst, queue.c.tokens)
    .add_columns(queue.c.refilled_at, queue.c.key)
    .join(queue, queue.c.pk == lane.c.queue_pk)
    .where(lane.c.eligible_at <= bindparam("now"), _NEAR, ~queue.c.paused)
    .order_by(lane.c.eligible_at, lane.c.pk)
    .limit(_LANES)
    .with_for_update(skip_locked=True)
)
_DUE_LANES = Prepared(_SOME_LANES)
_ANY_LANE = Prepared(
    select(lane.c.pk)
    .join(queue, queue.c.pk == lane.c.queue_pk)
    .where(lane.c.eligible_at <= bindparam("now"), _NEAR, ~queue.c.paused)
    .limit(1)
)
_DUE_LANES_OF_SITES = Prepared(_SOME_LANES.where(Among(queue.c.site, "sites")))

_IN_FLIGHT = Prepared(
    select(op.c.queue_pk, func.count().label("n"))
    .where(Among(op.c.queue_pk, "queues"), op_is(OpStatus.RUNNING))
    .group_by(op.c.queue_pk)
)


def _due_lanes(connection: Connection, request: ClaimRequest, now: Micros) -> list[_Lane]:
    asked: dict[str, Any] = {"now": now, "machine": request.machine}
    if request.sites is None:
        rows = _DUE_LANES.rows(connection, **asked)
    else:
        rows = _DUE_LANES_OF_SITES.rows(connection, **asked, sites=sorted(request.sites))
    capped = [row.queue_pk for row in rows if row.max_in_flight is not None]
    running: dict[int, int] = {}
    if capped:
        running = {row.queue_pk: row.n for row in _IN_FLIGHT.rows(connection, queues=capped)}
    return [
        _Lane(
            row.pk,
            row.queue_pk,
            row.key,
            row.max_in_flight,
            running.get(row.queue_pk, 0),
            row.rate,
            row.burst,
            _refilled(row, now),
        )
        for row in rows
    ]


def _refilled(row: Any, now: Micros) -> float:
    if row.tokens is None or row.refilled_at is None:
        return float(row.burst)
    elapsed = max(0, now - row.refilled_at) / SECOND
    return float(min(row.burst, row.tokens + elapsed * (row.rate or 0.0)))


def _take(connection: Connection, lanes: list[_Lane], limit: int, now: Micros) -> list[Any]:
    """Fair shares in rounds: every lane gets its part before anyone gets more."""
    rows: list[Any] = []
    open_lanes = list(lanes)
    seen: set[int] = set()
    while open_lanes and len(rows) < limit:
        for place, visited in enumerate(open_lanes):
            visited.visited = True
            share = math.ceil((limit - len(rows)) / (len(open_lanes) - place))
            room = _shared_room(visited, lanes)
            wanted = share if room is None else min(share, room)
            found = _ready(connection, visited.pk, seen, wanted, now) if wanted > 0 else []
            visited.exhausted = len(found) < share
            for sibling in lanes:
                if sibling.queue_pk == visited.queue_pk:
                    sibling.take(len(found))
            seen.update(row.pk for row in found)
            rows.extend(found)
            if len(rows) >= limit:
                break
        open_lanes = [visited for visited in open_lanes if not visited.exhausted]
    return rows


def _shared_room(visited: _Lane, lanes: Sequence[_Lane]) -> int | None:
    rooms = [sibling.room() for sibling in lanes if sibling.queue_pk == visited.queue_pk]
    bounded = [room for room in rooms if room is not None]
    return min(bounded) if bounded else None


_OP = select(*OP_COLUMNS, op.c.status, op.c.token, op.c.attempts, op.c.claims, op.c.fence, op.c.planned_json)
_SOME_READY = (
    _OP.where(op.c.lane_pk == bindparam("lane"), op_is(OpStatus.READY), op.c.ready_at <= bindparam("now"))
    .order_by(op.c.ready_at, op.c.pk)
    .limit(bindparam("count"))
    .with_for_update(of=op, skip_locked=True)
)
_READY = Prepared(_SOME_READY)
_MORE_READY = Prepared(_SOME_READY.where(~Among(op.c.pk, "seen")))


def _ready(connection: Connection, lane_pk: int, seen: set[int], count: int, now: Micros) -> list[Any]:
    asked = {"lane": lane_pk, "now": now, "count": count}
    if seen:
        return _MORE_READY.rows(connection, **asked, seen=sorted(seen))
    return _READY.rows(connection, **asked)


_OPEN_DUTIES = (
    _OP.where(op_is(OpStatus.CANCELED), op.c.fence.is_not(None))
    .where(op.c.expires_at.is_(None) | (op.c.expires_at < bindparam("now")))
    .where(op.c.lane_pk.in_(select(lane.c.pk).where(_NEAR)))
    .order_by(op.c.pk)
    .limit(bindparam("count"))
)
_FREE_DUTIES = _OPEN_DUTIES.with_for_update(of=op, skip_locked=True)
_DUTIES = Prepared(_FREE_DUTIES)
_DUTIES_OF_SITES = Prepared(_FREE_DUTIES.where(Among(op.c.site, "sites")))
_ANY_DUTY = Prepared(_OPEN_DUTIES.with_only_columns(op.c.pk))


def _fence_duties(connection: Connection, request: ClaimRequest, count: int, now: Micros) -> list[Any]:
    """Canceled ops whose inbox key is still open, unless somebody is at it; the key is where the op would have run."""
    if count <= 0:
        return []
    asked: dict[str, Any] = {"now": now, "count": count, "machine": request.machine}
    if request.sites is None:
        rows = _DUTIES.rows(connection, **asked)
    else:
        rows = _DUTIES_OF_SITES.rows(connection, **asked, sites=sorted(request.sites))
    abandoned = {row.pk: None for row in rows if row.token is not None}
    attempts.end(connection, abandoned, AttemptState.LEASE_LOST, None, now)
    return rows


def _lease(
    connection: Connection, rows: list[Any], shared: Shared, request: ClaimRequest, now: Micros
) -> tuple[LeasedOp, ...]:
    batch_id = uuid.uuid4().hex
    values = {"prefix": f"{batch_id}:", "by": request.worker_id, "now": now, "until": now + request.lease_duration}
    _LEASE.run(connection, **values, pks=[row.pk for row in rows])
    return tuple([_leased(row, shared, f"{batch_id}:{row.pk}", request, now) for row in rows])


_LEASE = Prepared(
    update(op)
    .where(Among(op.c.pk, "pks"))
    .values(
        # a canceled op stays canceled under its resolve-only lease
        status=case((op_is(OpStatus.READY), OpStatus.RUNNING.value), else_=op.c.status),
        token=bindparam("prefix", type_=Text) + cast(op.c.pk, Text),
        worker=bindparam("by"),
        acquired_at=bindparam("now"),
        started_at=None,
        expires_at=bindparam("until"),
        attempts=op.c.attempts + 1,
        claims=op.c.claims + 1,
        updated_at=bindparam("now"),
    )
)


def _leased(row: Any, shared: Shared, token: str, request: ClaimRequest, now: Micros) -> LeasedOp:
    given = op_from_row(row, shared)
    lease = Lease(
        op_pk=row.pk,
        token=token,
        worker_id=request.worker_id,
        acquired_at=now,
        expires_at=now + request.lease_duration,
        attempt=row.attempts + 1,
        earlier_claims=row.claims,
    )
    planned = stored_error(row.planned_json) if row.planned_json else None
    if row.status == OpStatus.CANCELED:
        planned = OpError("canceled", f'workflow "{given.workflow.id}" was canceled')
    fence = () if row.fence is None else (row.fence,)
    return LeasedOp(op=given, lease=lease, planned=planned, fence=fence)


_VISITED = Prepared(update(lane).where(lane.c.pk == bindparam("_pk")).values(eligible_at=bindparam("at")))
_SPENT = Prepared(
    update(queue).where(queue.c.pk == bindparam("_pk")).values(tokens=bindparam("tokens"), refilled_at=bindparam("now"))
)
_FOLLOWING = Prepared(
    select(op.c.ready_at)
    .where(op.c.lane_pk == bindparam("lane"), op_is(OpStatus.READY))
    .order_by(op.c.ready_at, op.c.pk)
    .limit(1)
)
_NEXT_DUE = Prepared(
    select(lane.c.eligible_at).where(lane.c.eligible_at > bindparam("now"), _NEAR).order_by(lane.c.eligible_at).limit(1)
)


def _reschedule(connection: Connection, lanes: list[_Lane], now: Micros) -> None:
    if not lanes:
        return
    visits = [{"_pk": visited.pk, "at": _next_visit(connection, visited, now)} for visited in lanes]
    _VISITED.many(connection, visits)
    spent = {
        visited.queue_pk: {"_pk": visited.queue_pk, "tokens": visited.tokens, "now": now}
        for visited in lanes
        if visited.rate is not None and visited.taken
    }
    if spent:
        _SPENT.many(connection, [spent[pk] for pk in sorted(spent)])


def _next_visit(connection: Connection, visited: _Lane, now: Micros) -> Micros:
    if visited.max_in_flight is not None and visited.running >= visited.max_in_flight:
        return now + _HEAL
    if visited.rate is not None and visited.tokens < 1:
        return now + math.ceil((1 - visited.tokens) / visited.rate * SECOND)
    if not visited.exhausted:
        return now
    following = _FOLLOWING.scalar(connection, lane=visited.pk)
    return now + _HEAL if following is None else max(now, int(following))


def _next_due(connection: Connection, request: ClaimRequest, now: Micros) -> Micros | None:
    due = _NEXT_DUE.scalar(connection, now=now, machine=request.machine)
    return None if due is None else int(due)
