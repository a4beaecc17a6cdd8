"""Between rows and the model: once per type."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from engine.clock import Micros, rfc3339
from engine.errors import OpError
from engine.model import BackoffKind, JsonText, NewOp, Op, Record, RetryPolicy, Workflow, WorkflowStatus
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


@lru_cache(maxsize=256)
def _workflow(workflow_id: str, site: str, name: str, status: str, given: JsonText, metadata: JsonText) -> Workflow:
    return Workflow(
        id=workflow_id,
        site=site,
        name=name,
        status=WorkflowStatus(status),
        input=given,
        metadata=_metadata(metadata),
    )


#: An op with what a claim hands out of its queue and workflow, in the order that :func:`op_from_row` unpacks.
OP_COLUMNS = (
    *(op.c.pk, op.c.id, op.c.kind, op.c.site, queue.c.key.label("queue_key"), op.c.dedup_key, op.c.parent_id),
    *(op.c.input_json, op.c.metadata_json, op.c.retry_json, op.c.generation, op.c.created_at),
    workflow.c.id.label("workflow_id"),
    *(column.label(f"workflow_{column.name}") for column in (workflow.c.site, workflow.c.name, workflow.c.status)),
    *(column.label(f"workflow_{column.name}") for column in (workflow.c.input_json, workflow.c.metadata_json)),
)


def op_from_row(row: Any) -> Op:
    """A row that begins with :data:`OP_COLUMNS` as the model's Op."""
    pk, op_id, kind, site, key, dedup_key, parent_id, given, metadata, retry, generation, created_at, *of_workflow = (
        row[: len(OP_COLUMNS)]
    )
    return Op(
        pk,
        op_id,
        _workflow(*of_workflow),
        kind,
        site,
        key,
        dedup_key,
        parent_id,
        given,
        _metadata(metadata),
        retry_policy(retry),
        generation,
        created_at,
    )
