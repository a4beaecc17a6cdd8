"""Keeping leases, noticing lost ones, taking back expired ones."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import ColumnElement, Connection, bindparam, case, delete, insert, select, update

from engine.clock import Micros
from engine.dialect import Among
from engine.errors import OpError
from engine.model import AttemptState, OpStatus
from engine.store import attempts
from engine.store.batches import batches
from engine.store.prepared import Prepared
from engine.store.propagate import Consequences
from engine.store.rows import error_json
from engine.store.runs import bury_firings
from engine.store.schema import op, worker
from engine.store.settle import wake_capped
from engine.store.types import WorkerInfo

#: Expired leases taken back in one transaction.
_SWEEP = 200


def op_of(token: str) -> int:
    """The op a token was made for."""
    return int(token.rpartition(":")[2])


def lost(connection: Connection, tokens: Sequence[str]) -> frozenset[str]:
    """Those of ``tokens`` that are no longer current."""
    current: set[str] = set()
    for batch in batches([op_of(token) for token in tokens]):
        current.update(filter(None, _TOKENS.scalars(connection, pks=batch)))
    return frozenset(tokens) - current


def heartbeat(
    connection: Connection, worker_id: str, tokens: Sequence[str], duration: Micros, now: Micros
) -> frozenset[str]:
    """Extend what is still held, conditional on the token and not on the expiry; those that are lost."""
    connection.execute(update(worker).where(worker.c.id == worker_id).values(seen_at=now))
    held: set[str] = set()
    wanted = set(tokens)
    for batch in batches(sorted(op_of(token) for token in tokens)):
        rows = _HELD.rows(connection, pks=batch)
        mine = [row.pk for row in rows if row.token in wanted]
        held.update(row.token for row in rows if row.token in wanted)
        _EXTEND.run(connection, pks=mine, until=now + duration)
    return frozenset(wanted - held)


def mark_started(connection: Connection, started: Sequence[tuple[str, Micros]]) -> None:
    """Note when claims' ops really began: from then on losing the lease counts."""
    if not started:
        return
    at_token = dict(started)
    rows = _HELD.rows(connection, pks=sorted(op_of(token) for token in at_token))
    attempts.note_started(connection, {row.pk: at_token[row.token] for row in rows if row.token in at_token})


_HELD = Prepared(select(op.c.pk, op.c.token).where(Among(op.c.pk, "pks")).order_by(op.c.pk).with_for_update())
_EXTEND = Prepared(update(op).where(Among(op.c.pk, "pks")).values(expires_at=bindparam("until")))
_TOKENS = Prepared(select(op.c.token).where(Among(op.c.pk, "pks")))


def abandon(connection: Connection, token: str, max_lost: int, reason: str, now: Micros) -> int:
    """Take back the lease of an op whose process is gone, if it is still current; how many."""
    mark_started(connection, [(token, now)])
    mine = (op.c.pk == op_of(token)) & (op.c.token == token)
    return _take_back(connection, mine, max_lost, reason, now)


def forgive(connection: Connection, token: str) -> None:
    """The last loss does not count: what the op had started went on without its worker."""
    mine = (op.c.pk == op_of(token)) & (op.c.token == token) & (op.c.lost > 0)
    connection.execute(update(op).where(mine).values(lost=op.c.lost - 1))


def sweep(connection: Connection, max_lost: int, now: Micros) -> int:
    """Take back expired leases, a bounded number at a time; how many."""
    return _take_back(connection, op.c.expires_at < now, max_lost, "the worker died or stood still", now)


def _take_back(connection: Connection, which: ColumnElement[bool], max_lost: int, reason: str, now: Micros) -> int:
    rows = connection.execute(
        select(op.c.pk, op.c.workflow_pk, op.c.lane_pk, op.c.queue_pk, op.c.lost, op.c.started_at)
        .where(op.c.status == OpStatus.RUNNING.value, which)
        # in the order of the index of what runs: by surrogate it would read all the ops
        .order_by(op.c.queue_pk)
        .limit(_SWEEP)
        .with_for_update(of=op, skip_locked=True)
    ).all()
    if not rows:
        return 0
    text = error_json(OpError("lease_lost", reason), now)
    attempts.end(connection, {row.pk: None for row in rows}, AttemptState.LEASE_LOST, text, now)
    changes = []
    for row in rows:
        losses = row.lost + (row.started_at is not None)
        planned = None
        if losses >= max_lost:
            final = OpError("lease_lost", f"{losses} workers or JS processes died or stood still under this op")
            planned = error_json(final, now)
        changes.append({"_pk": row.pk, "losses": losses, "planned": planned})
    connection.execute(
        update(op)
        .where(op.c.pk == bindparam("_pk"))
        .values(
            status=OpStatus.READY.value,
            ready_at=now,
            updated_at=now,
            # lost leases are counted apart from the attempts a policy bounds
            attempts=case((op.c.attempts > 0, op.c.attempts - 1), else_=0),
            lost=bindparam("losses"),
            planned_json=bindparam("planned"),
            token=None,
            worker=None,
            acquired_at=None,
            started_at=None,
            expires_at=None,
        ),
        changes,
    )
    consequences = Consequences(connection, now)
    for row in rows:
        consequences.became_ready(row.lane_pk, now)
    wake_capped(connection, {row.queue_pk for row in rows}, now)
    consequences.finish()
    return len(rows)


def register(connection: Connection, info: WorkerInfo) -> None:
    """Make a worker known to its neighbours."""
    connection.execute(
        insert(worker).values(
            id=info.id,
            name=info.name,
            machine=info.machine,
            process=info.process,
            hostname=info.hostname,
            started_at=info.started_at,
            seen_at=info.started_at,
        )
    )


def workers(connection: Connection, machine: str) -> tuple[WorkerInfo, ...]:
    """The workers registered on ``machine``."""
    rows = connection.execute(select(worker).where(worker.c.machine == machine).order_by(worker.c.id))
    return tuple(
        WorkerInfo(
            id=row.id,
            name=row.name,
            machine=row.machine,
            process=row.process,
            hostname=row.hostname,
            started_at=row.started_at,
        )
        for row in rows
    )


def bury(connection: Connection, worker_id: str, now: Micros) -> None:
    """A worker is certainly dead: its leases expire now instead of later."""
    connection.execute(
        update(op).where(op.c.status == OpStatus.RUNNING.value, op.c.worker == worker_id).values(expires_at=now - 1)
    )
    bury_firings(connection, worker_id, now)
    retire(connection, worker_id)


def retire(connection: Connection, worker_id: str) -> None:
    """Forget a worker that ended."""
    connection.execute(delete(worker).where(worker.c.id == worker_id))
