"""What an operator does to lifecycle jobs: run, start, stop; what they found and what they announced."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import select

from engine.clock import Clock, rfc3339
from engine.config import Settings
from engine.errors import OpError, UsageError
from engine.js.ports import DatabaseBusy, SiteSession
from engine.lifecycle.catalog import Found
from engine.lifecycle.chain import BEGIN, FINISHED, Plan, begin_op, delivery_op
from engine.lifecycle.job import Job
from engine.machine import machine_id
from engine.model import NewOp, NewWorkflow, OpStatus, WorkflowStatus
from engine.plugins.site import Site
from engine.projection.databases import OpenDatabases
from engine.projection.monitor import create_tables
from engine.projection.session import Database
from engine.schedules import After, NewSchedule, OpsTarget, Origin, Schedule
from engine.store import schema
from engine.store.store import Store


def schedule_name(job_id: str) -> str:
    """The name of a job's schedule."""
    return f"job:{job_id}"


def run_job(settings: Settings, store: Store, site: Site, job: Job) -> str:
    """Submit one iteration; the id of its workflow.

    Where the job is started and an iteration is under way, this one waits for its end. Raises UsageError where one
    that was run by hand is.
    """
    store.put_policies(site.name, site.queue_policies, site.default_policy)
    _refuse_overlap(store, site, job)
    if _started(store, site, job) is not None:
        return store.schedules.run(site.name, schedule_name(job.id), lambda op: _placed(settings, store, site, op))
    begin = _placed(settings, store, site, begin_op(site.name, job.id, scheduled=False))
    chosen = f"{site.name}-{job.id}-{time.time_ns()}"
    store.submit(_workflow(chosen, site, job, begin))
    return chosen


def _refuse_overlap(store: Store, site: Site, job: Job) -> None:
    """A schedule waits for its own run only. Raises UsageError where an iteration is under way that is none of one."""
    standing = _under_way(store, site, job) if _started(store, site, job) is None else None
    if standing is not None:
        raise UsageError(
            f'an iteration of "{job.name}" is under way: let it end (scraper workflow watch {standing}),'
            f" or end it (scraper workflow cancel {standing})"
        )


def _under_way(store: Store, site: Site, job: Job) -> str | None:
    """The workflow of an iteration that has not ended; deliveries that are tried again do not count."""
    workflows, ops = schema.workflow.c, schema.op.c
    ends = select(ops.pk).where(
        ops.workflow_pk == workflows.pk,
        ops.id.in_((BEGIN, FINISHED)),
        ops.status.in_((OpStatus.PENDING, OpStatus.READY, OpStatus.RUNNING)),
    )
    query = select(workflows.id).where(
        workflows.site == site.name,
        workflows.name == _title(site, job),
        workflows.status.in_((WorkflowStatus.PENDING, WorkflowStatus.RUNNING)),
        ends.exists(),
    )
    with store.database.read() as connection:
        found = connection.scalar(query.limit(1))
    return None if found is None else str(found)


def start_job(settings: Settings, store: Store, site: Site, job: Job) -> bool:
    """Let the job run at once, and again and again; whether anything changed. Raises UsageError."""
    if not job.enabled:
        raise UsageError(f'the job "{job.name}" is disabled: set enabled: true in its job.yaml')
    store.put_policies(site.name, site.queue_policies, site.default_policy)
    _refuse_overlap(store, site, job)
    workflow = _workflow("", site, job, begin_op(site.name, job.id, scheduled=True))
    return store.schedules.put(
        NewSchedule(
            site=site.name,
            name=schedule_name(job.id),
            rule=After(job.interval),
            target=OpsTarget(workflow.ops, workflow.name, workflow.input, workflow.metadata),
            origin=Origin.JOB,
            first_due=0,
        )
    )


def stop_job(store: Store, site: Site, job: Job) -> None:
    """Let no further iteration begin; one under way ends. Raises UsageError where the job is not started."""
    if _started(store, site, job) is None:
        raise UsageError(f'the job "{job.name}" of site "{site.name}" is not started')
    store.schedules.delete(site.name, schedule_name(job.id), Origin.JOB)


def _started(store: Store, site: Site, job: Job) -> Schedule | None:
    wanted = schedule_name(job.id)
    return next((one for one in store.schedules.all(site.name) if one.name == wanted), None)


def _workflow(chosen: str, site: Site, job: Job, begin: NewOp) -> NewWorkflow:
    return NewWorkflow(
        id=chosen,
        site=site.name,
        name=_title(site, job),
        input=json.dumps({"job": job.id}),
        metadata={"job": job.id},
        ops=(begin,),
    )


def _title(site: Site, job: Job) -> str:
    return f"{site.name} job {job.id}"


def _placed(settings: Settings, store: Store, site: Site, op: NewOp) -> NewOp:
    home = store.home_of(site.name, machine_id(settings.sites_dir))
    return replace(op, machine=site.machine_for(op.kind, home))


@dataclass(frozen=True, slots=True)
class Line:
    """One job as lists show it."""

    found: Found
    schedule: Schedule | None
    #: Status, start and end of the last iteration, and how its cycles ended.
    last: dict[str, Any] | None
    records: int


def list_jobs(settings: Settings, store: Store, site: Site, found: tuple[Found, ...]) -> list[Line]:
    """The jobs of a site with what became of them."""
    started = {one.name: one for one in store.schedules.all(site.name)}
    with _database(settings, store.clock, site) as database:
        return [
            Line(one, started.get(schedule_name(one.job.id)), _last(database, one.job.id), _count(database, one.job.id))
            if one.job is not None
            else Line(one, None, None, 0)
            for one in found
        ]


def _last(database: Database | None, job_id: str) -> dict[str, Any] | None:
    if database is None:
        return None
    rows = database.run(
        "SELECT iteration_id, number, status, started_at, finished_at, workflow_id FROM monitor_iterations"
        " WHERE job_id = ? ORDER BY number DESC LIMIT 1",
        (job_id,),
    )
    if not rows:
        return None
    iteration, number, status, started, ended, workflow = rows[0]
    cycles = database.run(
        "SELECT status, COUNT(*) FROM monitor_cycles WHERE iteration_id = ? GROUP BY status", (iteration,)
    )
    return {
        "iteration": str(iteration),
        "number": int(str(number)),
        "status": str(status),
        "startedAt": rfc3339(int(str(started))),
        "finishedAt": None if ended is None else rfc3339(int(str(ended))),
        "workflow": str(workflow),
        "cycles": {str(name): int(str(count)) for name, count in cycles},
    }


def _count(database: Database | None, job_id: str) -> int:
    if database is None:
        return 0
    return int(str(database.run("SELECT COUNT(*) FROM monitor_records WHERE job_id = ?", (job_id,))[0][0]))


def records(
    settings: Settings, clock: Clock, site: Site, job: Job, limit: int, cycle: str = ""
) -> list[dict[str, Any]]:
    """What a job has stored, newest first; with ``cycle`` only what that cycle or iteration did."""
    with _database(settings, clock, site) as database:
        if database is None:
            return []
        where, parameters = "job_id = ?", (job.id,)
        if cycle:
            where, parameters = f"{where} AND (cycle_id = ? OR cycle_id LIKE ?)", (job.id, cycle, f"{cycle}/%")  # type: ignore[assignment]
        rows = database.run(
            f"SELECT id, hash, fields_json, matches_json, cycle_id, created_at FROM monitor_records WHERE {where}"
            f" ORDER BY id DESC LIMIT {int(limit)}",
            parameters,
        )
    return [
        {
            "id": int(str(number)),
            "fields": json.loads(str(fields)),
            "matches": json.loads(str(matches)),
            "hash": str(digest),
            "cycle": str(cycle_id),
            "createdAt": rfc3339(int(str(created))),
        }
        for number, digest, fields, matches, cycle_id, created in rows
    ]


def iteration_of(settings: Settings, store: Store, site: Site, workflow: str) -> str | None:
    """The iteration that a workflow ran, None where it has not begun one."""
    with _database(settings, store.clock, site) as database:
        if database is None:
            return None
        rows = database.run(
            "SELECT iteration_id FROM monitor_iterations WHERE engine = ? AND workflow_id = ?", (store.uuid, workflow)
        )
    return str(rows[0][0]) if rows else None


def deliveries(settings: Settings, clock: Clock, site: Site, job: Job, limit: int) -> list[dict[str, Any]]:
    """What a job has announced or is to announce, newest first."""
    with _database(settings, clock, site) as database:
        if database is None:
            return []
        rows = database.run(
            "SELECT id, channel, target, status, attempts, last_error, payload_json, created_at, updated_at"
            f" FROM monitor_outbox WHERE job_id = ? ORDER BY created_at DESC, id DESC LIMIT {int(limit)}",
            (job.id,),
        )
    return [
        {
            "id": str(name),
            "channel": str(channel),
            "target": str(target),
            "status": str(status),
            "attempts": int(str(attempts)),
            "error": str(error),
            "payload": None if payload is None else json.loads(str(payload)),
            "createdAt": rfc3339(int(str(created))),
            "updatedAt": rfc3339(int(str(updated))),
        }
        for name, channel, target, status, attempts, error, payload, created, updated in rows
    ]


def redeliver(settings: Settings, store: Store, site: Site, job: Job, name: str) -> str:
    """Send an announcement once more, under its id and byte for byte; the workflow. Raises UsageError."""
    with _database(settings, store.clock, site) as database:
        rows = (
            []
            if database is None
            else database.run(
                "SELECT cycle_id, channel, payload_json FROM monitor_outbox WHERE job_id = ? AND id = ?", (job.id, name)
            )
        )
    if not rows:
        raise UsageError(f'the job "{job.name}" has no delivery "{name}": see job deliveries {job.id}')
    if rows[0][2] is None:
        raise UsageError(f'the delivery "{name}" has no text yet: its cycle has not got that far')
    plan = Plan.of(site.name, job, str(rows[0][0]), "", ())
    store.put_policies(site.name, site.queue_policies, site.default_policy)
    op = _placed(settings, store, site, delivery_op(plan, "deliver", str(rows[0][0]), [name]))
    chosen = f"{site.name}-{job.id}-delivery-{time.time_ns()}"
    store.submit(replace(_workflow(chosen, site, job, op), name=f"{site.name} delivery {name}"))
    return chosen


@contextmanager
def _database(settings: Settings, clock: Clock, site: Site) -> Iterator[Database | None]:
    """The site's DB with the tables of jobs; None where it does not exist yet."""
    if site.dialect == "sqlite" and not (settings.sites_dir / site.database_file).is_file():
        yield None
        return
    with closing(OpenDatabases(settings.sites_dir, settings.site_database_url, clock)) as databases:
        try:
            databases.migrate(site, _no_scripts)
            database = databases.database(site)
            create_tables(database)
        except DatabaseBusy as error:
            raise UsageError(f"the site database is busy: {error}") from error
        yield database


def _no_scripts(name: str, _session: SiteSession) -> None:
    raise OpError("site_error", f"the migration {name} is JavaScript: run scraper site migrate first")
