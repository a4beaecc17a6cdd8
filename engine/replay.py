"""Running a finished op's script once more, on what it had, without leaving a trace: what would come of it now?"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from engine.clock import Micros
from engine.errors import DatabaseUnavailable, OpError, UsageError
from engine.js.jobs import ChildBusy, ScriptJob
from engine.js.pool import JsPool, ScriptFailed
from engine.model import JsonText, NewOp, Result
from engine.plugins.site import Site
from engine.runners.base import RunContext
from engine.runners.js import script_job
from engine.views.reader import retry_view
from engine.views.runs import Outcome, Run, artifact_fields, dependency_fields, sorted_artifacts


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """A stored run beside the same run of today."""

    op_id: str
    workflow_id: str
    site: str
    script: str
    attempt: int
    #: What ``ctx.now`` was, both times.
    now_at: Micros
    stored: Outcome
    replayed: Outcome


def replay_job(run: Run, site: Site, engine_uuid: str, source: str | None) -> ScriptJob:
    """The op's script, or ``source`` in its place, on what the stored run had.

    Raises UsageError for an op that has no script.
    """
    if run.op.kind != "js":
        raise UsageError(f'op "{run.op.id}" is of kind {run.op.kind}; only an op of kind js can be replayed')
    try:
        return replace(script_job(_context(run, site, engine_uuid)), source=source)
    except OpError as error:
        raise UsageError(error.message) from error


async def replay(pool: JsPool, run: Run, job: ScriptJob) -> Replay:
    """What the job makes of it, beside what is stored. Raises DatabaseUnavailable where the site DB is busy."""
    error, result = await _rehearse(pool, job)
    return Replay(
        op_id=run.op.id,
        workflow_id=run.op.workflow.id,
        site=job.site.name,
        script=job.entry,
        attempt=run.number,
        now_at=run.lease.acquired_at,
        stored=replace(run.outcome, emitted=_stored_ops(run.outcome.emitted, result)),
        replayed=_outcome(run, result, error),
    )


async def _rehearse(pool: JsPool, job: ScriptJob) -> tuple[OpError | None, Result]:
    try:
        return None, await pool.rehearse(job)
    except ScriptFailed as failed:
        return failed.error, failed.evidence
    except OpError as failure:
        return failure, Result()
    except ChildBusy as busy:
        raise DatabaseUnavailable(f"the site database is busy: {busy}") from busy


def _context(run: Run, site: Site, engine_uuid: str) -> RunContext:
    async def nothing(_result: Result) -> None: ...

    async def no_cookies() -> JsonText | None: ...

    return RunContext(
        op=run.op,
        lease=run.lease,
        site=site,
        engine_uuid=engine_uuid,
        started=lambda: None,
        prepare=nothing,
        cookies=no_cookies,
    )


def _outcome(run: Run, result: Result, error: OpError | None) -> Outcome:
    artifacts = {item.id: item for item in result.artifacts}
    known = {spec["id"]: spec for spec in run.outcome.emitted}
    return Outcome(
        data=json.loads(result.data),
        records=[
            {"collection": one.collection, "key": one.key, "data": json.loads(one.data)} for one in result.records
        ],
        emitted=[_alike(_op_fields(spec, run.aliases), known.get(spec.id)) for spec in result.emitted],
        artifacts=sorted_artifacts(
            artifact_fields(item.name, item.kind, item.content_type, item.sha256, item.size)
            for item in artifacts.values()
        ),
        error=None if error is None else _error_fields(error),
        log=[f"{line.level}: {line.message}" for line in result.logs],
    )


def _error_fields(error: OpError) -> dict[str, Any]:
    return {"code": error.code, "message": error.message, "retryable": error.retryable, "details": error.details}


def _op_fields(spec: NewOp, aliases: Mapping[str, str]) -> dict[str, Any]:
    return {
        "id": spec.id,
        "workflowID": spec.workflow_id,
        "parentID": spec.parent_id,
        "kind": spec.kind,
        "site": spec.site,
        "queue": spec.queue,
        "dedupKey": spec.dedup_key,
        "input": json.loads(spec.input),
        "metadata": dict(spec.metadata),
        "retry": retry_view(spec.retry),
        "dependsOn": dependency_fields(((edge.op_id, edge.kind.value) for edge in spec.depends_on), aliases),
    }


def _stored_ops(stored: list[dict[str, Any]], result: Result) -> list[dict[str, Any]]:
    parents = {spec.id: spec.parent_id for spec in result.emitted}
    return [
        _shared(fields)
        if "parentID" in fields and parents.get(fields["id"], fields["parentID"]) != fields["parentID"]
        else fields
        for fields in stored
    ]


def _alike(fields: dict[str, Any], stored: dict[str, Any] | None) -> dict[str, Any]:
    """``fields`` as far as the engine knows them of an op that somebody else had emitted before."""
    if stored is None:
        return fields
    if "sameAs" in stored:
        same = all(fields[name] == stored[name] for name in ("kind", "dedupKey"))
        return stored if same else fields
    if "deleted" in stored:
        return stored
    return fields if fields["parentID"] == stored["parentID"] else _shared(fields)


def _shared(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: fields[name] for name in ("id", "kind", "site", "input", "dependsOn")}
