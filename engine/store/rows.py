"""Between rows and the model: once per type."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple

from sqlalchemy import Connection, select

from engine.clock import Micros, rfc3339
from engine.dialect import Among
from engine.errors import OpError
from engine.model import BackoffKind, JsonText, NewOp, Op, Record, RetryPolicy, Workflow, WorkflowStatus
from engine.store.prepared import Prepared
from engine.store.schema import op, queue, workflow

_NANOS = 1_000


def dumps(value: Any) -> JsonText:
    """Compact JSON that keeps non-ASCII text readable."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


@lru_cache(maxsize=256)
def retry_json(policy: RetryPolicy) -> JsonText:
    """A policy as the column ``retry_json`` holds it (durations in nanoseconds)."""
    return dumps(
        {
            "MaxAttempts": policy.max_attempts,
            "BackoffKind": policy.backoff.value,
            "InitialBackoff": policy.initial * _NANOS,
            "MaxBackoff": policy.maximum * _NANOS,
            "Multiplier": policy.multiplier,
            "Jitter": policy.jitter,
        }
    )


@lru_cache(maxsize=256)
def retry_policy(stored: JsonText) -> RetryPolicy:
    """The inverse of :func:`retry_json`."""
    fields = json.loads(stored)
    return RetryPolicy(
        max_attempts=fields["MaxAttempts"],
        backoff=BackoffKind(fields["BackoffKind"]),
        initial=fields["InitialBackoff"] // _NANOS,
        maximum=fields["MaxBackoff"] // _NANOS,
        multiplier=fields["Multiplier"],
        jitter=fields.get("Jitter", 0.0),
    )


def error_json(error: OpError, at: Micros) -> JsonText:
    """An error as results and attempts hold it."""
    return dumps(
        {
            "Code": error.code,
            "Message": error.message,
            "Retryable": error.retryable,
            "Details": error.details,
            "OccurredAt": rfc3339(at),
        }
    )


def stored_error(stored: JsonText) -> OpError:
    """The inverse of :func:`error_json`."""
    fields = json.loads(stored)
    return OpError(fields["Code"], fields["Message"], fields["Retryable"], details=fields["Details"])


def records_json(records: tuple[Record, ...]) -> JsonText:
    """Records as results hold them; their data is inserted as it is."""
    inner = ",".join(
        f'{{"Collection":{dumps(record.collection)},"Key":{dumps(record.key)},"Data":{record.data}}}'
        for record in records
    )
    return f"[{inner}]"


def spec_hash(spec: NewOp) -> str:
    """What makes two emissions of one id the same: kind, input, script and dependencies."""
    dependencies = sorted((dependency.op_id, dependency.kind.value) for dependency in spec.depends_on)
    identity = dumps([spec.kind, spec.site, spec.input, spec.metadata.get("script", ""), dependencies])
    return hashlib.sha256(identity.encode("utf-8", "surrogatepass")).hexdigest()[:32]


@lru_cache(maxsize=256)
def _metadata(stored: JsonText) -> Mapping[str, str]:
    return MappingProxyType(json.loads(stored))


#: What :func:`op_from_row` unpacks, in this order.
OP_COLUMNS = (
    *(op.c.pk, op.c.id, op.c.workflow_pk, op.c.kind, op.c.site, op.c.queue_pk, op.c.dedup_key, op.c.parent_id),
    *(op.c.input_json, op.c.metadata_json, op.c.retry_json, op.c.generation, op.c.created_at),
)


class Shared(NamedTuple):
    """What many ops have in common, by surrogate: read once for all of them."""

    workflows: Mapping[int, Workflow]
    #: Their keys.
    queues: Mapping[int, str]


def shared_by(connection: Connection, rows: Sequence[Any], queues: Mapping[int, str] | None = None) -> Shared:
    """The workflows and queues of ops; ``queues`` are the keys that are known already."""
    queues = queues or {}
    workflows = _WORKFLOWS.rows(connection, pks=sorted({row.workflow_pk for row in rows}))
    unknown = {row.queue_pk for row in rows} - queues.keys()
    more = _QUEUES.rows(connection, pks=sorted(unknown)) if unknown else ()
    return Shared({row.pk: _workflow(row) for row in workflows}, {**queues, **{row.pk: row.key for row in more}})


def op_from_row(row: Any, shared: Shared) -> Op:
    """A row that begins with :data:`OP_COLUMNS` as the model's Op."""
    pk, op_id, workflow_pk, kind, site, queue_pk, dedup_key, parent_id, *told = row[: len(OP_COLUMNS)]
    given, metadata, retry, generation, created_at = told
    return Op(
        pk,
        op_id,
        shared.workflows[workflow_pk],
        kind,
        site,
        shared.queues[queue_pk],
        dedup_key,
        parent_id,
        given,
        _metadata(metadata),
        retry_policy(retry),
        generation,
        created_at,
    )


def _workflow(row: Any) -> Workflow:
    return Workflow(
        id=row.id,
        site=row.site,
        name=row.name,
        status=WorkflowStatus(row.status),
        input=row.input_json,
        metadata=_metadata(row.metadata_json),
    )


_WORKFLOWS = Prepared(
    select(workflow.c.pk, workflow.c.id, workflow.c.site, workflow.c.name, workflow.c.status)
    .add_columns(workflow.c.input_json, workflow.c.metadata_json)
    .where(Among(workflow.c.pk, "pks"))
)
_QUEUES = Prepared(select(queue.c.pk, queue.c.key).where(Among(queue.c.pk, "pks")))
