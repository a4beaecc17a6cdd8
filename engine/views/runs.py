"""A finished run of an op as it is stored: what it was given, and everything it left."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, select

from engine.clock import Micros
from engine.errors import UsageError
from engine.model import AttemptState, Lease, Op, OpStatus
from engine.store.operate import find_op
from engine.store.rows import OP_COLUMNS, op_from_row, retry_policy, shared_by, stored_error
from engine.store.schema import artifact, attempt, edge, log_line, op, op_alias, queue, result, workflow
from engine.store.store import Store
from engine.views.reader import retry_view

_FINISHED = (OpStatus.SUCCEEDED, OpStatus.FAILED, OpStatus.CANCELED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a run left, made of JSON values; whatever differs from run to run by nature is not in it."""

    data: Any
    records: list[dict[str, Any]]
    emitted: list[dict[str, Any]]
    artifacts: list[dict[str, Any]]
    error: dict[str, Any] | None
    #: ``level: message``.
    log: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A stored run. ``aliases``: ids of the workflow that were deduplicated away, and what stands for them."""

    op: Op
    lease: Lease
    number: int
    outcome: Outcome
    aliases: Mapping[str, str]


def stored_run(store: Store, op_id: str, workflow_id: str | None, lease_duration: Micros) -> Run:
    """The successful run of a finished op, or its last one. Raises UsageError where there is none."""
    with store.database.read() as connection:
        pk, workflow_name, status = find_op(connection, op_id, workflow_id)
        if status not in _FINISHED:
            raise UsageError(f'op "{op_id}" of workflow "{workflow_name}" is {status}; only a finished op has a result')
        run = _last_attempt(connection, pk)
        if run is None:
            raise UsageError(f'op "{op_id}" of workflow "{workflow_name}" is {status} and was never run')
        row = connection.execute(select(*OP_COLUMNS).where(op.c.pk == pk)).one()
        aliases = _aliases(connection, row.workflow_pk)
        return Run(
            op=op_from_row(row, shared_by(connection, [row])),
            lease=Lease(
                op_pk=pk,
                token=run.token,
                worker_id=run.worker,
                acquired_at=run.claimed_at,
                expires_at=run.claimed_at + lease_duration,
                attempt=run.number,
                earlier_claims=0,
            ),
            number=run.number,
            outcome=_outcome(connection, row, run, aliases),
            aliases=aliases,
        )


def _last_attempt(connection: Connection, pk: int) -> Any:
    succeeded = attempt.c.state == AttemptState.SUCCEEDED.value
    query = select(attempt).where(attempt.c.op_pk == pk).order_by(succeeded.desc(), attempt.c.number.desc()).limit(1)
    return connection.execute(query).first()


def _aliases(connection: Connection, workflow_pk: int) -> dict[str, str]:
    query = (
        select(op_alias.c.alias, op.c.id)
        .join(op, op.c.pk == op_alias.c.op_pk)
        .where(op_alias.c.workflow_pk == workflow_pk)
    )
    return {row.alias: row.id for row in connection.execute(query)}


def _outcome(connection: Connection, row: Any, run: Any, aliases: Mapping[str, str]) -> Outcome:
    kept = connection.execute(select(result).where(result.c.op_pk == row.pk)).first()
    emitted = () if kept is None else json.loads(kept.emitted_ids_json)
    records = () if kept is None else json.loads(kept.records_json)
    return Outcome(
        data=None if kept is None else json.loads(kept.data_json),
        records=[{name.lower(): value for name, value in record.items()} for record in records],
        emitted=[_emitted(connection, row, op_id, aliases) for op_id in emitted],
        artifacts=_artifacts(connection, row.pk, run),
        error=None if kept is None or kept.error_json is None else _error(kept.error_json),
        log=_log(connection, row.pk, run),
    )


def _error(stored: str) -> dict[str, Any]:
    error = stored_error(stored)
    return {"code": error.code, "message": error.message, "retryable": error.retryable, "details": error.details}


def _artifacts(connection: Connection, pk: int, run: Any) -> list[dict[str, Any]]:
    # an earlier attempt may have left others; what one attempt leaves is stored at the instant of its end
    query = select(artifact).where(artifact.c.op_pk == pk, artifact.c.created_at == run.ended_at)
    return sorted_artifacts(
        artifact_fields(row.name, row.kind, row.content_type, row.sha256, row.size) for row in connection.execute(query)
    )


def artifact_fields(name: str, kind: str, content_type: str, sha256: str, size: int) -> dict[str, Any]:
    """An artifact without its id and body."""
    return {"name": name, "kind": kind, "contentType": content_type, "sha256": sha256, "size": size}


def sorted_artifacts(found: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Artifacts in an order of their own: the engine keeps none."""
    return sorted(found, key=lambda item: (item["name"], item["sha256"]))


def _log(connection: Connection, pk: int, run: Any) -> list[str]:
    query = select(log_line).where(log_line.c.op_pk == pk, log_line.c.token == run.token).order_by(log_line.c.pk)
    return [f"{row.level}: {row.message}" for row in connection.execute(query)]


def _emitted(connection: Connection, emitter: Any, op_id: str, aliases: Mapping[str, str]) -> dict[str, Any]:
    """An emitted op; ``sameAs`` where another with its dedup key stood already."""
    query = (
        select(op, queue.c.key.label("queue_key"), workflow.c.id.label("workflow_id"))
        .join(workflow, workflow.c.pk == op.c.workflow_pk)
        .outerjoin(queue, queue.c.pk == op.c.queue_pk)
        .where(op.c.id == aliases.get(op_id, op_id), op.c.status != "unborn")
    )
    row = connection.execute(query.where(op.c.workflow_pk == emitter.workflow_pk)).first()
    if row is None:
        row = connection.execute(query.where(op.c.parent_id == emitter.id).order_by(op.c.pk).limit(1)).first()
    if row is None:
        return {"id": op_id, "deleted": True}
    if op_id in aliases:
        return {"id": op_id, "kind": row.kind, "dedupKey": row.dedup_key, "sameAs": row.id}
    edges = select(op.c.id, edge.c.kind).join(edge, edge.c.target_pk == op.c.pk).where(edge.c.op_pk == row.pk)
    return {
        "id": row.id,
        "workflowID": "" if row.workflow_pk == emitter.workflow_pk else row.workflow_id,
        "parentID": row.parent_id,
        "kind": row.kind,
        "site": row.site,
        "queue": row.queue_key or "",
        "dedupKey": row.dedup_key,
        "input": json.loads(row.input_json),
        "metadata": json.loads(row.metadata_json),
        "retry": retry_view(retry_policy(row.retry_json)),
        "dependsOn": dependency_fields(((found.id, found.kind) for found in connection.execute(edges)), aliases),
    }


def dependency_fields(edges: Iterable[tuple[str, str]], aliases: Mapping[str, str]) -> list[dict[str, str]]:
    """Dependencies by the ids of the ops that stand, sorted; a required one wins over another on the same op."""
    found: dict[str, str] = {}
    for op_id, kind in edges:
        standing = aliases.get(op_id, op_id)
        found[standing] = "success" if "success" in (kind, found.get(standing)) else kind
    return [{"opID": op_id, "on": kind} for op_id, kind in sorted(found.items())]
