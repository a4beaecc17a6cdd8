"""Lists for people: workflows, ops, queues, workers, artifacts, and the bytes of one artifact."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Select, func, select

from engine.clock import Micros
from engine.errors import UsageError
from engine.model import OpStatus
from engine.store.compat import decode_body
from engine.store.operate import find_op
from engine.store.rows import stored_error
from engine.store.schema import artifact, blob, log_line, op, queue, result, site, worker, workflow
from engine.views.types import ErrorView, LogView


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which rows a list shows, newest first. ``since`` is the earliest creation (for workflows and ops)."""

    site: str | None = None
    status: str | None = None
    since: Micros | None = None
    limit: int = 50
    offset: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowLine:
    """A workflow in a list; ``ops`` counts those that have ended and all of them."""

    id: str
    site: str
    name: str
    status: str
    ops_done: int
    ops_total: int
    failed: int
    created_at: Micros
    updated_at: Micros


@dataclass(frozen=True, slots=True, kw_only=True)
class OpLine:
    """An op in a list."""

    id: str
    workflow_id: str
    site: str
    kind: str
    queue: str
    status: str
    attempts: int
    created_at: Micros
    updated_at: Micros
    error: ErrorView | None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueLine:
    """A queue: its policy and how many of its ops are in each state."""

    site: str
    queue: str
    paused: bool
    max_in_flight: int | None
    rate: float | None
    burst: float
    #: "delayed" are those that are ready later.
    ops: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerLine:
    """A worker that has not said goodbye."""

    id: str
    name: str
    machine: str
    hostname: str
    running: int
    started_at: Micros
    seen_at: Micros


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactLine:
    """A stored artifact and the op it belongs to."""

    id: str
    workflow_id: str
    op_id: str
    name: str
    kind: str
    content_type: str
    size: int
    sha256: str
    created_at: Micros


def workflows(connection: Connection, chosen: Filter) -> tuple[WorkflowLine, ...]:
    """The newest workflows."""
    query = _page(select(workflow).order_by(workflow.c.pk.desc()), chosen)
    query = _where(query, workflow, chosen)
    return tuple(
        WorkflowLine(
            id=row.id,
            site=row.site,
            name=row.name,
            status=row.status,
            ops_done=row.succeeded + row.failed + row.dropped,
            ops_total=row.pending + row.active + row.succeeded + row.failed + row.dropped,
            failed=row.failed,
            created_at=row.created_at,
            updated_at=row.updated_at,
        )
        for row in connection.execute(query)
    )


def ops(connection: Connection, workflow_pk: int, chosen: Filter) -> tuple[OpLine, ...]:
    """The ops of a workflow in the order they were made."""
    query = (
        select(op, queue.c.key, result.c.error_json, workflow.c.id.label("workflow_id"))
        .join(workflow, workflow.c.pk == op.c.workflow_pk)
        .outerjoin(queue, queue.c.pk == op.c.queue_pk)
        .outerjoin(result, result.c.op_pk == op.c.pk)
        .where(op.c.workflow_pk == workflow_pk, op.c.status != "unborn")
        .order_by(op.c.pk)
    )
    return tuple(
        OpLine(
            id=row.id,
            workflow_id=row.workflow_id,
            site=row.site,
            kind=row.kind,
            queue=row.key or "",
            status=row.status,
            attempts=row.claims,
            created_at=row.created_at,
            updated_at=row.updated_at,
            error=None if row.error_json is None else shown_error(row.error_json),
        )
        for row in connection.execute(_where(_page(query, chosen), op, chosen))
    )


def queues(connection: Connection, now: Micros, site_name: str | None) -> tuple[QueueLine, ...]:
    """Every queue with its policy, and what waits and runs in it."""
    counts: dict[int, dict[str, int]] = {}
    live = [OpStatus.READY.value, OpStatus.RUNNING.value, OpStatus.PENDING.value]
    delayed = (op.c.status == OpStatus.READY.value) & (op.c.ready_at > now)
    grouped = (
        select(op.c.queue_pk, op.c.status, delayed.label("later"), func.count().label("number"))
        .where(op.c.status.in_(live))
        .group_by(op.c.queue_pk, op.c.status, delayed)
    )
    for row in connection.execute(grouped):
        state = "delayed" if row.later else row.status
        of_queue = counts.setdefault(row.queue_pk, {})
        of_queue[state] = of_queue.get(state, 0) + row.number
    query = select(queue).order_by(queue.c.site, queue.c.key)
    if site_name is not None:
        query = query.where(queue.c.site == site_name)
    states = ("pending", "ready", "delayed", "running")
    return tuple(
        QueueLine(
            site=row.site,
            queue=row.key,
            paused=row.paused,
            max_in_flight=row.max_in_flight,
            rate=row.rate,
            burst=row.burst,
            ops={state: counts.get(row.pk, {}).get(state, 0) for state in states},
        )
        for row in connection.execute(query)
    )


def workers(connection: Connection) -> tuple[WorkerLine, ...]:
    """The registered workers."""
    held = select(op.c.worker, func.count()).where(op.c.status == OpStatus.RUNNING.value).group_by(op.c.worker)
    running: dict[str, int] = {str(name): int(number) for name, number in connection.execute(held)}
    return tuple(
        WorkerLine(
            id=row.id,
            name=row.name,
            machine=row.machine,
            hostname=row.hostname,
            running=running.get(row.id, 0),
            started_at=row.started_at,
            seen_at=row.seen_at,
        )
        for row in connection.execute(select(worker).order_by(worker.c.started_at, worker.c.id))
    )


def artifacts(connection: Connection, workflow_pk: int, op_pk: int | None, chosen: Filter) -> tuple[ArtifactLine, ...]:
    """The artifacts of a workflow, or of one op of it."""
    query = (
        select(artifact, workflow.c.id.label("workflow_id"), op.c.id.label("op_id"))
        .join(workflow, workflow.c.pk == artifact.c.workflow_pk)
        .join(op, op.c.pk == artifact.c.op_pk)
        .where(artifact.c.workflow_pk == workflow_pk)
        .order_by(artifact.c.pk)
    )
    if op_pk is not None:
        query = query.where(artifact.c.op_pk == op_pk)
    return tuple(
        ArtifactLine(
            id=row.id,
            workflow_id=row.workflow_id,
            op_id=row.op_id,
            name=row.name,
            kind=row.kind,
            content_type=row.content_type,
            size=row.size,
            sha256=row.sha256,
            created_at=row.created_at,
        )
        for row in connection.execute(_page(query, chosen))
    )


def artifact_body(connection: Connection, artifact_id: str, workflow_id: str | None) -> bytes:
    """The bytes of an artifact. Raises UsageError where the id is unknown or several workflows have it."""
    query = (
        select(workflow.c.id, artifact.c.sha256)
        .join(workflow, workflow.c.pk == artifact.c.workflow_pk)
        .where(artifact.c.id == artifact_id)
        .limit(5)
    )
    if workflow_id is not None:
        query = query.where(workflow.c.id == workflow_id)
    rows = connection.execute(query).all()
    if not rows:
        raise UsageError(f'no artifact "{artifact_id}"' + (f' in workflow "{workflow_id}"' if workflow_id else ""))
    if len(rows) > 1:
        names = ", ".join(row.id for row in rows)
        raise UsageError(f'artifact "{artifact_id}" exists in several workflows ({names}): say which with --workflow')
    stored = connection.execute(select(blob.c.body).where(blob.c.sha256 == rows[0].sha256)).scalar_one()
    return decode_body(bytes(stored))


def logs(connection: Connection, op_id: str, workflow_id: str | None) -> tuple[LogView, ...]:
    """What an op's script logged, over all its attempts. Raises UsageError."""
    pk, _, _ = find_op(connection, op_id, workflow_id)
    query = select(log_line).where(log_line.c.op_pk == pk).order_by(log_line.c.pk)
    return tuple(LogView(logged_at=row.at, level=row.level, message=row.message) for row in connection.execute(query))


def homes(connection: Connection) -> dict[str, str]:
    """The machine of every site's SQLite DB."""
    return {row.name: row.home for row in connection.execute(select(site))}


def shown_error(stored: str) -> ErrorView:
    """A stored error as people see it."""
    error = stored_error(stored)
    return ErrorView(code=error.code, message=error.message, retryable=error.retryable, details=error.details)


def _page(query: Select[Any], chosen: Filter) -> Select[Any]:
    return query.limit(chosen.limit).offset(chosen.offset)


def _where(query: Select[Any], table: Any, chosen: Filter) -> Select[Any]:
    if chosen.site is not None:
        query = query.where(table.c.site == chosen.site)
    if chosen.status is not None:
        query = query.where(table.c.status == chosen.status)
    if chosen.since is not None:
        query = query.where(table.c.created_at >= chosen.since)
    return query
