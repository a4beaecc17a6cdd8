"""Forgetting what is old, a bounded slice at a time, beside workers that go on working.

Only workflows that have ended lose anything, so nothing an open workflow waits for or depends on is touched. A slice is
one short transaction; a collection killed between two slices has simply deleted less.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from sqlalchemy import Connection, Exists, Select, delete, exists, func, select, text, update

from engine.clock import Micros
from engine.errors import UsageError
from engine.model import NULL, OpStatus, WorkflowStatus
from engine.store import validators
from engine.store.artifacts import GRACE, RENEWAL
from engine.store.schema import (
    artifact,
    attempt,
    blob,
    cookie_jar,
    edge,
    log_line,
    op,
    op_alias,
    result,
    turn,
    workflow,
)

#: Ops, artifacts or log lines of one transaction.
SLICE = 500
#: Pages given back to the file system in one transaction (SQLite).
_PAGES = 2_000

_ENDED = [WorkflowStatus.SUCCEEDED.value, WorkflowStatus.FAILED.value, WorkflowStatus.CANCELED.value]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cutoffs:
    """What ended before these instants is forgotten; None = kept."""

    workflows: Micros | None = None
    results: Micros | None = None
    artifacts: Micros | None = None
    logs: Micros | None = None


@dataclass(slots=True)
class Pruned:
    """How many rows went."""

    workflows: int = 0
    ops: int = 0
    results: int = 0
    artifacts: int = 0
    logs: int = 0
    bodies: int = 0
    validators: int = 0

    def add(self, other: Pruned) -> None:
        """Count a slice."""
        for one in fields(self):
            setattr(self, one.name, getattr(self, one.name) + getattr(other, one.name))

    def __bool__(self) -> bool:
        return any(getattr(self, one.name) for one in fields(self))


def prune(connection: Connection, cutoffs: Cutoffs, now: Micros) -> Pruned:
    """Forget one slice; an empty answer means that nothing more is old."""
    for slice_of, cutoff in (
        (_workflow_slice, cutoffs.workflows),
        (_result_slice, cutoffs.results),
        (_artifact_slice, cutoffs.artifacts),
        (_log_slice, cutoffs.logs),
        (_validator_slice, cutoffs.workflows),
    ):
        if cutoff is not None:
            pruned = slice_of(connection, cutoff)
            if pruned:
                return pruned
    return _bodies(connection, now)


def delete_workflow(connection: Connection, workflow_id: str) -> int:
    """Forget one workflow that has ended; how many ops. Raises UsageError."""
    row = connection.execute(select(workflow).where(workflow.c.id == workflow_id).with_for_update()).one_or_none()
    if row is None:
        raise UsageError(f'no workflow "{workflow_id}"')
    if row.status not in _ENDED:
        raise UsageError(f'workflow "{workflow_id}" is {row.status}: cancel it first')
    if connection.execute(select(_unfenced(row.pk))).scalar():
        raise UsageError(f'a worker still has to close ops of workflow "{workflow_id}": try again when one has run')
    ops = list(connection.scalars(select(op.c.pk).where(op.c.workflow_pk == row.pk)))
    for start in range(0, len(ops), SLICE):
        _forget_ops(connection, ops[start : start + SLICE])
    _forget_workflow(connection, row.pk)
    return len(ops)


def _workflow_slice(connection: Connection, cutoff: Micros) -> Pruned:
    """The oldest ended workflows, as many as have about :data:`SLICE` ops together; a larger one in parts."""
    old = (
        select(workflow.c.pk)
        .where(workflow.c.status.in_(_ENDED), workflow.c.updated_at < cutoff)
        .where(~_unfenced(workflow.c.pk))
        .order_by(workflow.c.pk)
        .limit(SLICE)
        .with_for_update(skip_locked=True)
    )
    pruned = Pruned()
    for pk in list(connection.scalars(old)):
        if pruned.ops >= SLICE:
            break
        ops = list(connection.scalars(select(op.c.pk).where(op.c.workflow_pk == pk).limit(SLICE)))
        _forget_ops(connection, ops)
        pruned.ops += len(ops)
        if len(ops) < SLICE:
            _forget_workflow(connection, pk)
            pruned.workflows += 1
    return pruned


def _unfenced(workflow_pk: object) -> Exists:
    """Whether an op's inbox key is still to be closed: without its row nobody would."""
    return exists().where(
        op.c.workflow_pk == workflow_pk, op.c.status == OpStatus.CANCELED.value, op.c.fence.is_not(None)
    )


def _forget_ops(connection: Connection, ops: Sequence[int]) -> None:
    if not ops:
        return
    for table in (artifact, log_line, attempt, result, op_alias, turn):
        connection.execute(delete(table).where(table.c.op_pk.in_(ops)))
    connection.execute(delete(edge).where(edge.c.op_pk.in_(ops)))
    connection.execute(delete(op).where(op.c.pk.in_(ops)))


def _forget_workflow(connection: Connection, pk: int) -> None:
    connection.execute(delete(cookie_jar).where(cookie_jar.c.workflow_pk == pk))
    connection.execute(delete(op_alias).where(op_alias.c.workflow_pk == pk))
    connection.execute(delete(workflow).where(workflow.c.pk == pk))


def _ended_ops(cutoff: Micros) -> Select[tuple[int]]:
    return (
        select(op.c.pk)
        .join(workflow, workflow.c.pk == op.c.workflow_pk)
        .where(workflow.c.status.in_(_ENDED), workflow.c.updated_at < cutoff)
    )


def _result_slice(connection: Connection, cutoff: Micros) -> Pruned:
    """Data and records of old ops; that they ended, and how, stays."""
    bulky = (result.c.data_json != NULL) | (result.c.records_json != "[]")
    old = list(connection.scalars(_ended_ops(cutoff).join(result, result.c.op_pk == op.c.pk).where(bulky).limit(SLICE)))
    if old:
        emptied = {"data_json": NULL, "records_json": "[]"}
        connection.execute(update(result).where(result.c.op_pk.in_(old)).values(emptied))
    return Pruned(results=len(old))


def _artifact_slice(connection: Connection, cutoff: Micros) -> Pruned:
    old = list(
        connection.scalars(
            select(artifact.c.pk)
            .join(workflow, workflow.c.pk == artifact.c.workflow_pk)
            .where(workflow.c.status.in_(_ENDED), workflow.c.updated_at < cutoff)
            .limit(SLICE)
        )
    )
    if old:
        connection.execute(delete(artifact).where(artifact.c.pk.in_(old)))
    return Pruned(artifacts=len(old))


def _log_slice(connection: Connection, cutoff: Micros) -> Pruned:
    lines = _ended_ops(cutoff).with_only_columns(log_line.c.pk).join(log_line, log_line.c.op_pk == op.c.pk)
    old = list(connection.scalars(lines.limit(SLICE)))
    if old:
        connection.execute(delete(log_line).where(log_line.c.pk.in_(old)))
    return Pruned(logs=len(old))


def _validator_slice(connection: Connection, cutoff: Micros) -> Pruned:
    """What pages are recognised by that no workflow has asked for since."""
    return Pruned(validators=validators.prune(connection, cutoff, SLICE))


def _bodies(connection: Connection, now: Micros) -> Pruned:
    """Bodies that no artifact names any more, nor one that a live op may still bring from its site's inbox."""
    live = oldest_live(connection)
    before = now - GRACE if live is None else min(now - GRACE, live - RENEWAL)
    unnamed = (
        select(blob.c.sha256)
        .where(blob.c.created_at < before)
        .where(~exists().where(artifact.c.sha256 == blob.c.sha256))
        .limit(SLICE)
    )
    old = list(connection.scalars(unnamed))
    if old:
        connection.execute(delete(blob).where(blob.c.sha256.in_(old), blob.c.created_at < before))
    return Pruned(bodies=len(old))


def oldest_live(connection: Connection, site: str | None = None) -> Micros | None:
    """When the oldest claim was made that a site's inbox (None: any) may still be asked about; None without one."""
    live = [OpStatus.PENDING.value, OpStatus.READY.value, OpStatus.RUNNING.value]
    query = (
        select(func.min(func.coalesce(attempt.c.claimed_at, op.c.acquired_at)))
        .select_from(op)
        .outerjoin(attempt, attempt.c.op_pk == op.c.pk)
        .where(op.c.status.in_(live) | op.c.fence.is_not(None))
    )
    if site is not None:
        query = query.where(op.c.site == site)
    found: Micros | None = connection.scalar(query)
    return found


def shrink(connection: Connection) -> int:
    """Give a slice of free pages back to the file system (SQLite); how many are left."""
    driver: Any = connection.connection.driver_connection
    driver.execute(f"PRAGMA incremental_vacuum({_PAGES})").fetchall()
    return int(connection.execute(text("PRAGMA freelist_count")).scalar_one())


def size(connection: Connection, *, sqlite: bool) -> int:
    """The bytes the database occupies."""
    if sqlite:
        pages = int(connection.execute(text("PRAGMA page_count")).scalar_one())
        return pages * int(connection.execute(text("PRAGMA page_size")).scalar_one())
    return int(connection.execute(select(func.pg_database_size(func.current_database()))).scalar_one())
