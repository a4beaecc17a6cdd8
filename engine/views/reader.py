"""Read models for people: what a workflow, an op and an engine DB look like from outside. They change nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import ColumnElement, Connection, func, select

from engine.clock import Micros
from engine.dialect import Database, database_url, shown
from engine.durations import format_duration
from engine.errors import DatabaseRefused, UsageError
from engine.faults import did_you_mean
from engine.model import OpStatus, RetryPolicy
from engine.store import attempts, migrate
from engine.store.operate import find_op
from engine.store.rows import retry_policy
from engine.store.schema import artifact, edge, log_line, op, queue, result, workflow
from engine.views.lists import shown_error
from engine.views.types import (
    ArtifactView,
    AttemptView,
    Counts,
    DependencyView,
    EngineView,
    FailureView,
    LogView,
    MigrationView,
    OpView,
    QueueView,
    WorkflowView,
)

#: Failed ops a workflow's view lists; the count is always complete.
MOST_FAILURES = 20


class Views:
    """The read models of one engine DB. Opening creates and migrates nothing."""

    def __init__(self, target: str) -> None:
        self._database = Database(database_url(target))
        self._name = shown(self._database.url)

    def close(self) -> None:
        """Close the connections."""
        self._database.close()

    def engine(self, now: Micros) -> EngineView:
        """The state of the database; ``now`` tells live leases from expired ones. Raises DatabaseRefused."""
        history = migrate.history(self._database)
        applied = [state.version for state in history if state.applied_at is not None]
        up_to_date = len(applied) == len(history)
        counts = None
        if up_to_date:
            with self._database.read() as connection:
                counts = _counts(connection, now)
        return EngineView(
            path=self._name,
            exists=self._database.exists(),
            initialized=bool(applied),
            current_version=max(applied, default=None),
            latest_known_migration=max(state.version for state in history),
            up_to_date=up_to_date,
            migrations=tuple(
                MigrationView(version=state.version, name=state.name, applied_at=state.applied_at) for state in history
            ),
            counts=counts,
        )

    def require(self) -> None:
        """Raise DatabaseRefused unless there is an engine DB with this code's schema."""
        if not self._database.exists():
            raise DatabaseRefused(f"there is no engine database at {self._name}")
        pending = [state.version for state in migrate.history(self._database) if state.applied_at is None]
        if pending:
            raise DatabaseRefused(f"{self._name} lacks migration {pending[0]}: run scraper engine migrate")

    @contextmanager
    def snapshot(self) -> Iterator[Connection]:
        """One consistent state, for the functions of ``lists`` and ``graph``. Raises DatabaseRefused."""
        self.require()
        with self.connection() as connection:
            yield connection

    @contextmanager
    def connection(self) -> Iterator[Connection]:
        """One consistent state of a database that was seen to be ours before."""
        with self._database.read() as connection:
            yield connection

    def workflow(self, workflow_id: str) -> WorkflowView:
        """A workflow. Raises UsageError, DatabaseRefused."""
        with self.snapshot() as connection:
            return _workflow(connection, find_workflow(connection, workflow_id))

    def op(self, op_id: str, workflow_id: str | None = None) -> OpView:
        """An op. Raises UsageError where the id is unknown or ambiguous, DatabaseRefused."""
        with self.snapshot() as connection:
            pk, _, _ = find_op(connection, op_id, workflow_id)
            return _op(connection, pk)


def _counts(connection: Connection, now: Micros) -> Counts:
    def count(table: Any, *where: ColumnElement[bool]) -> int:
        return connection.execute(select(func.count()).select_from(table).where(*where)).scalar_one()

    by_status = select(workflow.c.status, func.count().label("number")).group_by(workflow.c.status)
    running = op.c.status == OpStatus.RUNNING.value
    return Counts(
        workflows=count(workflow),
        workflow_status={row.status: row.number for row in connection.execute(by_status)},
        ops=_op_counts(connection),
        leases_active=count(op, running, op.c.expires_at > now),
        leases_expired=count(op, running, op.c.expires_at <= now),
        results=count(result),
        artifacts=count(artifact),
    )


def _op_counts(connection: Connection, *where: ColumnElement[bool]) -> dict[str, int]:
    """Ops by status; every status is there, in the order of an op's life."""
    counts = dict.fromkeys((status.value for status in OpStatus), 0)
    query = select(op.c.status, func.count()).where(*where).group_by(op.c.status)
    counts.update({status: number for status, number in connection.execute(query) if status in counts})
    return counts


def find_workflow(connection: Connection, workflow_id: str) -> int:
    """The surrogate of a workflow. Raises UsageError naming the nearest id."""
    pk: int | None = connection.scalar(select(workflow.c.pk).where(workflow.c.id == workflow_id))
    if pk is None:
        recent = connection.scalars(select(workflow.c.id).order_by(workflow.c.pk.desc()).limit(200))
        hint = did_you_mean(workflow_id, recent)
        raise UsageError(f'no workflow "{workflow_id}"' + (f"; {hint}" if hint else ""))
    return pk


def _workflow(connection: Connection, pk: int) -> WorkflowView:
    row = connection.execute(select(workflow).where(workflow.c.pk == pk)).one()
    return WorkflowView(
        id=row.id,
        site=row.site,
        name=row.name,
        status=row.status,
        input=json.loads(row.input_json),
        metadata=json.loads(row.metadata_json),
        created_at=row.created_at,
        updated_at=row.updated_at,
        ops=_op_counts(connection, op.c.workflow_pk == row.pk),
        queues=_queues(connection, row.pk),
        failures=_failures(connection, row.pk),
    )


def _queues(connection: Connection, workflow_pk: int) -> tuple[QueueView, ...]:
    query = (
        select(queue.c.site, queue.c.key, op.c.status, func.count().label("number"))
        .join(queue, queue.c.pk == op.c.queue_pk)
        .where(op.c.workflow_pk == workflow_pk)
        .group_by(queue.c.site, queue.c.key, op.c.status)
        .order_by(queue.c.site, queue.c.key)
    )
    found: dict[tuple[str, str], dict[str, int]] = {}
    for row in connection.execute(query):
        found.setdefault((row.site, row.key), {})[row.status] = row.number
    return tuple(QueueView(site=site, queue=key, ops=ops) for (site, key), ops in found.items())


def _failures(connection: Connection, workflow_pk: int) -> tuple[FailureView, ...]:
    query = (
        select(op.c.id, op.c.kind, op.c.status, result.c.error_json)
        .join(result, result.c.op_pk == op.c.pk)
        .where(op.c.workflow_pk == workflow_pk, result.c.error_json.is_not(None))
        .where(op.c.status.in_([OpStatus.FAILED.value, OpStatus.CANCELED.value]))
        .order_by(op.c.status.desc(), result.c.completed_at, op.c.pk)
        .limit(MOST_FAILURES)
    )
    return tuple(
        FailureView(op_id=row.id, kind=row.kind, status=row.status, error=shown_error(row.error_json))
        for row in connection.execute(query)
    )


def _op(connection: Connection, pk: int) -> OpView:
    query = (
        select(op, workflow.c.id.label("workflow_id"), queue.c.key, result.c.data_json, result.c.records_json)
        .add_columns(result.c.emitted_ids_json, result.c.error_json)
        .join(workflow, workflow.c.pk == op.c.workflow_pk)
        .outerjoin(queue, queue.c.pk == op.c.queue_pk)
        .outerjoin(result, result.c.op_pk == op.c.pk)
        .where(op.c.pk == pk)
    )
    row = connection.execute(query).one()
    return OpView(
        id=row.id,
        workflow_id=row.workflow_id,
        site=row.site,
        kind=row.kind,
        queue=row.key or "",
        status=row.status,
        parent_id=row.parent_id,
        dedup_key=row.dedup_key,
        input=json.loads(row.input_json),
        metadata=json.loads(row.metadata_json),
        retry=retry_view(retry_policy(row.retry_json)),
        created_at=row.created_at,
        updated_at=row.updated_at,
        ready_at=row.ready_at if row.status == OpStatus.READY else None,
        data=None if row.data_json is None else json.loads(row.data_json),
        records=0 if row.records_json is None else len(json.loads(row.records_json)),
        emitted_ids=() if row.emitted_ids_json is None else tuple(json.loads(row.emitted_ids_json)),
        error=None if row.error_json is None else shown_error(row.error_json),
        dependencies=_dependencies(connection, pk),
        attempts=_attempts(connection, pk),
        artifacts=_artifacts(connection, pk),
        logs=_logs(connection, pk),
    )


def retry_view(policy: RetryPolicy) -> dict[str, Any]:
    """A retry policy as scripts write it."""
    return {
        "maxAttempts": policy.max_attempts,
        "backoffKind": policy.backoff.value,
        "initialBackoff": format_duration(policy.initial),
        "maxBackoff": format_duration(policy.maximum),
        "multiplier": policy.multiplier,
        "jitter": policy.jitter,
    }


def _dependencies(connection: Connection, pk: int) -> tuple[DependencyView, ...]:
    query = (
        select(op.c.id, op.c.status, edge.c.kind)
        .join(edge, edge.c.target_pk == op.c.pk)
        .where(edge.c.op_pk == pk)
        .order_by(op.c.pk)
    )
    return tuple(
        DependencyView(
            op_id=row.id,
            required=row.kind == "success",
            status="unknown" if row.status == "unborn" else row.status,
        )
        for row in connection.execute(query)
    )


def _attempts(connection: Connection, pk: int) -> tuple[AttemptView, ...]:
    query = select(attempts.ALL).where(attempts.ALL.c.op_pk == pk).order_by(attempts.ALL.c.number)
    return tuple(
        AttemptView(
            number=row.number,
            state=row.state,
            worker=row.worker,
            claimed_at=row.claimed_at,
            started_at=row.started_at,
            ended_at=row.ended_at,
            error=None if row.error_json is None else shown_error(row.error_json),
        )
        for row in connection.execute(query)
    )


def _artifacts(connection: Connection, pk: int) -> tuple[ArtifactView, ...]:
    query = select(artifact).where(artifact.c.op_pk == pk).order_by(artifact.c.id)
    return tuple(
        ArtifactView(
            id=row.id,
            name=row.name,
            kind=row.kind,
            content_type=row.content_type,
            size=row.size,
            sha256=row.sha256,
            metadata=json.loads(row.metadata_json),
        )
        for row in connection.execute(query)
    )


def _logs(connection: Connection, pk: int) -> tuple[LogView, ...]:
    query = select(log_line).where(log_line.c.op_pk == pk).order_by(log_line.c.pk)
    return tuple(LogView(logged_at=row.at, level=row.level, message=row.message) for row in connection.execute(query))
