"""Running a submit verb: its function in a JS child, its ops into the engine DB, all or nothing."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from engine.clock import SECOND, Micros, rfc3339
from engine.errors import OpError, SubmissionRefused
from engine.js.jobs import ChildBusy, VerbJob, VerbOutcome
from engine.js.pool import JsPool, ScriptFailed
from engine.js.ports import SessionSpec
from engine.js.spec import strings
from engine.model import LogLine, NewOp, NewWorkflow
from engine.plugins.site import Site
from engine.store.store import Store
from engine.store.types import Submitted
from engine.verbs import DEFAULT_SECTION, VerbSpec

#: How long a verb may run.
VERB_TIMEOUT = 30 * SECOND


@dataclass(frozen=True, slots=True)
class Submission:
    """A stored workflow and what the verb returned."""

    submitted: Submitted
    target_op: str | None
    verb_data: str
    #: What the verb logged.
    logs: tuple[LogLine, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where and when a verb runs."""

    engine_uuid: str
    #: The machine of the site's DB.
    home: str
    now: Micros


async def submit(
    store: Store,
    pool: JsPool,
    site: Site,
    verb: VerbSpec,
    values: Mapping[str, Mapping[str, Any]],
    workflow_id: str | None,
    machine: str,
) -> Submission:
    """Run the verb once and store what it emitted. Raises SubmissionRefused; then nothing of the workflow is stored."""
    chosen = workflow_id or f"{site.name}-{verb.name}-{time.time_ns()}"
    store.refuse_taken(chosen)
    store.put_policies(site.name, site.queue_policies, site.default_policy)
    place = Place(engine_uuid=store.uuid, home=store.home_of(site.name, machine), now=store.clock.now())
    stored: list[Submission] = []

    async def accept(new: NewWorkflow, outcome: VerbOutcome) -> None:
        stored.append(_submission(store.submit(new), outcome))

    try:
        await seed(pool, site, verb, values, chosen, place, accept)
    except SubmissionRefused:
        # what the verb wrote to the site DB is lost, but the workflow stands
        if not stored:
            raise
    return stored[0]


async def seed(
    pool: JsPool,
    site: Site,
    verb: VerbSpec,
    values: Mapping[str, Mapping[str, Any]],
    workflow_id: str,
    place: Place,
    accept: Callable[[NewWorkflow, VerbOutcome], Awaitable[None]],
    metadata: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Run a verb and hand the workflow it asks for to ``accept``. Raises SubmissionRefused and what that raises."""
    flat = {name: value for section in values.values() for name, value in section.items()}
    workflow = NewWorkflow(
        id=workflow_id,
        site=site.name,
        name=f"{site.name} {verb.name} submission",
        input=json.dumps(flat, ensure_ascii=False),
        metadata={"submitVerb": verb.full_path, **metadata},
    )

    async def take(outcome: VerbOutcome) -> None:
        await accept(replace(_named(workflow, outcome), ops=_placed(site, place.home, outcome)), outcome)

    try:
        await pool.verb(_job(place, site, verb, values, workflow), take)
    except ScriptFailed as failed:
        raise _refused(verb, failed.error) from failed
    except OpError as error:
        raise _refused(verb, error) from error
    except ChildBusy as busy:
        raise SubmissionRefused("site_db_busy", f"the site database is busy: {busy}") from busy


def _refused(verb: VerbSpec, error: OpError) -> SubmissionRefused:
    details = error.details if isinstance(error.details, dict) else {}
    where = f"{details['script']}:{details['line']}:{details['column']}: " if "line" in details else ""
    where = "" if error.message.startswith(where) else where
    return SubmissionRefused(error.code, f'verb "{verb.name}" failed: {where}{error.message}')


def _job(
    place: Place, site: Site, verb: VerbSpec, values: Mapping[str, Mapping[str, Any]], workflow: NewWorkflow
) -> VerbJob:
    now = place.now
    assert site.verbs_root is not None
    path = site.verbs_root / verb.source_file
    entry = path.relative_to(site.root).as_posix() if path.is_relative_to(site.root) else verb.source_file
    context = {
        "site": site.name,
        "now": rfc3339(now),
        "values": json.loads(workflow.input),
        "sections": {DEFAULT_SECTION: {}, **{slug: dict(section) for slug, section in values.items()}},
        "command": {
            "name": verb.name,
            "fullPath": verb.full_path,
            "function": verb.function,
            "module": f"/{verb.source_file}",
            "sourceFile": verb.source_file,
        },
        "workflow": {
            "id": workflow.id,
            "site": site.name,
            "name": workflow.name,
            "status": "pending",
            "input": json.loads(workflow.input),
            "metadata": dict(workflow.metadata),
        },
    }
    spec = SessionSpec(
        engine_uuid=place.engine_uuid,
        op_key=f"verb:{workflow.id}:{now}",
        generation=0,
        claimed_at=now,
        workflow_id=workflow.id,
        op_id=f"{workflow.id}:submit",
    )
    return VerbJob(
        site=site,
        spec=spec,
        function=verb.function,
        entry=entry,
        ctx=context,
        timeout=VERB_TIMEOUT,
        heap_mb=site.js.heap_mb,
    )


def _named(workflow: NewWorkflow, outcome: VerbOutcome) -> NewWorkflow:
    """What a method of ``ctx`` set wins over the return value."""
    returned = _returned(outcome)
    settings = outcome.settings
    name = settings.get("workflowName") or returned.get("workflowName") or workflow.name
    told = settings["workflowMetadata"] if "workflowMetadata" in settings else returned.get("workflowMetadata")
    metadata = dict(workflow.metadata)
    if isinstance(told, dict):
        metadata |= strings(told, "workflow metadata")
    return replace(workflow, name=str(name), metadata=metadata)


def _returned(outcome: VerbOutcome) -> dict[str, Any]:
    value = json.loads(outcome.result.data)
    return value if isinstance(value, dict) else {}


def _placed(site: Site, home: str, outcome: VerbOutcome) -> tuple[NewOp, ...]:
    return tuple(
        replace(op, machine=site.machine_for(op.kind, home) if op.site == site.name else "")
        for op in outcome.result.emitted
    )


def _submission(submitted: Submitted, outcome: VerbOutcome) -> Submission:
    returned = _returned(outcome)
    target = outcome.settings.get("targetOpID") or returned.get("targetOpID")
    data = json.dumps(returned["data"], ensure_ascii=False) if "data" in returned else outcome.result.data
    return Submission(submitted, None if target is None else str(target), data, outcome.result.logs)
