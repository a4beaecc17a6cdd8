"""The composition root: settings in, working things out. The only module that constructs everything."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import platform
import random
import secrets
import signal
import socket
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from engine.browser.scratch import end_forgotten
from engine.browser.settings import browser_settings
from engine.clock import SECOND, Clock, SystemClock
from engine.config import Settings
from engine.dialect import database_url, shown
from engine.errors import OpError, SiteError, UsageError
from engine.garbage import patient_collector
from engine.js.jobs import ChildBusy, CycleJob
from engine.js.pool import JsPool, PoolSettings, ScriptFailed
from engine.js.ports import SessionSpec
from engine.jschild import ENVIRONMENT
from engine.liveness import own_identity
from engine.machine import machine_id
from engine.plugins.registry import Registry
from engine.plugins.site import Site
from engine.replay import Replay, replay, replay_job
from engine.runners.base import Runner
from engine.runners.browser import browser_runner
from engine.runners.cycle import CycleRunner
from engine.runners.hook import hook_runner
from engine.runners.hook_hands import own_address
from engine.runners.http import HttpRunner, HttpRunnerSettings
from engine.runners.http_wire import Wire
from engine.runners.js import JsRunner
from engine.scheduled import ScheduledVerbs
from engine.store.store import Store
from engine.store.types import WorkerInfo
from engine.submission import submit
from engine.verbs import VerbSpec, read_declarations
from engine.views.runs import stored_run
from engine.worker.committer import Committer
from engine.worker.database import DatabaseThread
from engine.worker.execute import Homes, Workbench
from engine.worker.heartbeat import Heartbeat
from engine.worker.options import Observer, WorkerOptions, WorkerReport
from engine.worker.timer import Timer
from engine.worker.wake import Wake
from engine.worker.worker import Worker

__all__ = [
    "MigrationReport",
    "RehomeReport",
    "SubmitReport",
    "WorkerOptions",
    "WorkerReport",
    "job_step",
    "migrate_site",
    "open_store",
    "rehome_site",
    "replay_op",
    "run_worker",
    "scan_verbs",
    "site_database",
    "submit_verb",
]

#: How the names of variables begin that hooks of jobs may read.
JOB_PREFIX = "SCRAPER_"
#: The command of a JS child.
CHILD = (sys.executable, "-m", "engine.jschild")


@dataclass(frozen=True, slots=True)
class SubmitReport:
    """What a submission did."""

    site: str
    verb: str
    full_path: str
    workflow_id: str
    engine_db: str
    site_db: str
    submitted: int
    target_op: str | None
    verb_data_json: str
    warning: str | None
    #: What the verb logged, line by line.
    logs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RehomeReport:
    """What moving a site DB's home did; ``previous`` is None where it had none."""

    site: str
    home: str
    previous: str | None
    moved_ops: int
    site_db: str
    #: Whether the database is already here.
    site_db_exists: bool


@dataclass(frozen=True, slots=True)
class MigrationReport:
    """What migrating a site DB did."""

    site: str
    db: str
    applied: tuple[str, ...]
    version: int


def open_store(settings: Settings) -> Store:
    """The engine DB of the settings. Raises ConfigError, DatabaseRefused, DatabaseUnavailable."""
    return Store.open(settings.engine_db, default_policy=settings.default_policy, max_lost=settings.leases.max_lost)


def scan_verbs(site: Site) -> tuple[VerbSpec, ...]:
    """The verbs a site declares. Raises SiteError."""

    async def scan() -> list[dict[str, Any]]:
        async with _pool({"sites_dir": "."}, size=1) as pool:
            return await pool.scan(site)

    root = str(site.verbs_root.relative_to(site.root)) if site.verbs_root is not None else ""
    return read_declarations(asyncio.run(scan()), f"{site.root}/{root}")


def submit_verb(
    settings: Settings,
    registry: Registry,
    site_name: str,
    verb: VerbSpec,
    values: Mapping[str, Mapping[str, Any]],
    workflow_id: str | None,
) -> SubmitReport:
    """Run a verb and store its workflow. Raises SubmissionRefused and what opening the databases raises."""
    site = registry.site(site_name)
    with contextlib.closing(open_store(settings)) as store:

        async def run() -> SubmitReport:
            async with _pool(_told(settings, store), size=1) as pool:
                machine = machine_id(settings.sites_dir)
                done = await submit(store, pool, site, verb, values, workflow_id, machine)
            return SubmitReport(
                site=site.name,
                verb=verb.name,
                full_path=verb.full_path,
                workflow_id=done.submitted.workflow.id,
                engine_db=store.name,
                site_db=site_database(settings, site),
                submitted=len(done.submitted.op_ids),
                target_op=done.target_op,
                verb_data_json=done.verb_data,
                warning=done.submitted.warning,
                logs=tuple(line.message for line in done.logs),
            )

        return asyncio.run(run())


def replay_op(
    settings: Settings, registry: Registry, op_id: str, workflow_id: str | None, source: str | None
) -> Replay:
    """Run a finished op's script again and keep nothing. Raises UsageError, SiteError, DatabaseUnavailable."""
    with contextlib.closing(open_store(settings)) as store:
        run = stored_run(store, op_id, workflow_id, settings.leases.duration)
        site = registry.site(run.op.site)
        job = replay_job(run, site, store.uuid, source)
        if site.dialect == "sqlite" and not (settings.sites_dir / site.database_file).exists():
            raise UsageError(
                f"there is no site database {settings.sites_dir / site.database_file}: "
                f"say where it is with --sites-dir, or create it: scraper site migrate {site.name}"
            )

        async def rehearse() -> Replay:
            async with _pool(_told(settings, store), size=1, settings=settings) as pool:
                return await replay(pool, run, job)

        return asyncio.run(rehearse())


def job_step(settings: Settings, site: Site, task: Mapping[str, Any], seconds: float) -> Any:
    """What a step of a job that needs no database comes to. Raises SiteError."""

    async def refuse(name: str, _arguments: Mapping[str, Any]) -> Any:
        raise OpError("runner_error", f"there is no {name} here")

    async def ask() -> Any:
        spec = SessionSpec(engine_uuid="", op_key="", generation=0, claimed_at=0, workflow_id="", op_id="")
        job = CycleJob(site=site, spec=spec, task=task, timeout=round(seconds * SECOND), migrate=False)
        async with _pool(_told(settings, None), size=1, settings=settings) as pool:
            return (await pool.cycle(job, refuse)).header["value"]

    try:
        return asyncio.run(ask())
    except OpError as error:
        raise SiteError(error.message) from error


def migrate_site(settings: Settings, site: Site) -> MigrationReport:
    """Bring a site's DB up to date. Raises SiteError."""

    async def migrate() -> MigrationReport:
        async with _pool(_told(settings, None), size=1) as pool:
            report = await pool.migrate(site)
        return MigrationReport(site.name, report.database, report.applied, report.version)

    try:
        return asyncio.run(migrate())
    except (OpError, ScriptFailed, ChildBusy) as error:
        raise SiteError(error.message if isinstance(error, OpError) else str(error)) from error


def rehome_site(settings: Settings, site: Site, machine: str, *, force: bool) -> RehomeReport:
    """Make ``machine`` ("" = this one) the home of a site's SQLite DB. Raises UsageError."""
    if site.dialect != "sqlite":
        raise UsageError(f'site "{site.name}" has no home: its database is in PostgreSQL')
    home = machine or machine_id(settings.sites_dir)
    with contextlib.closing(open_store(settings)) as store:
        rehomed = store.rehome(site.name, home, force=force)
    database = site_database(settings, site)
    return RehomeReport(site.name, home, rehomed.previous, rehomed.moved, database, Path(database).exists())


def run_worker(
    settings: Settings,
    registry: Registry,
    options: WorkerOptions,
    observer: Observer,
    *,
    store: Store | None = None,
    child: Sequence[str] = CHILD,
    wire: Wire | None = None,
) -> WorkerReport:
    """Work until the options or a signal end it. Raises what opening the engine DB raises.

    ``wire`` stands in for the network.
    """
    options = replace(
        options,
        machine_id=options.machine_id or machine_id(settings.sites_dir),
        js_processes=options.js_processes or os.cpu_count() or 1,
    )
    opened = store or open_store(settings)
    with contextlib.closing(opened):
        for site in registry.sites.values():
            opened.put_policies(site.name, site.queue_policies, site.default_policy)
            opened.schedules.sync(site.name, site.schedules)
        with patient_collector():
            return asyncio.run(_work(settings, registry, options, observer, opened, child, wire))


async def _work(
    settings: Settings,
    registry: Registry,
    options: WorkerOptions,
    observer: Observer,
    store: Store,
    child: Sequence[str],
    wire: Wire | None,
) -> WorkerReport:
    me = WorkerInfo(
        id=f"{options.worker_id}-{os.getpid()}-{secrets.token_hex(3)}",
        name=options.worker_id,
        machine=options.machine_id,
        process=own_identity(),
        hostname=socket.gethostname(),
        started_at=store.clock.now(),
    )
    async with contextlib.AsyncExitStack() as stack:
        database, beats = DatabaseThread("scraper-db", observer), DatabaseThread("scraper-beat", observer)
        stack.callback(database.close)
        stack.callback(beats.close)
        await database.until_done(store.register_worker, me)
        system = f"{platform.system()} {platform.release()} {platform.machine()}"
        meeting = (options.machine_id, me.hostname, system, own_address())
        await database.until_done(store.meet, *meeting)
        # those of workers that were killed before they could end them
        await asyncio.to_thread(end_forgotten)
        portable = frozenset(site.name for site in registry.sites.values() if site.dialect == "postgresql")
        pool = await stack.enter_async_context(_pool(_told(settings, store), options.js_processes, settings, child))
        runners = _runners(settings, pool, wire, store.clock)
        for runner in runners.values():
            stack.push_async_callback(runner.aclose)
        wake = Wake(store)
        stack.callback(wake.close)
        worker = Worker(
            instance=me.id,
            options=options,
            bench=Workbench(
                store=store,
                database=database,
                committer=Committer(store, database, wake.ring),
                runners=runners,
                sites=registry.sites,
                homes=Homes(store, database, options.machine_id),
                rng=random.Random(),
            ),
            heartbeat=Heartbeat(store, beats, me, options.lease_duration, observer, portable),
            wake=wake,
            observer=observer,
            timer=_timer(options, registry, store, database, me.id, wake, observer, pool),
            patience=settings.hooks.grace / SECOND,
        )
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, worker.stop)
            stack.callback(loop.remove_signal_handler, number)
        report = await worker.run()
        with contextlib.suppress(Exception):
            # a machine whose worker was stopped is not dead at once
            await asyncio.wait_for(database.until_done(store.meet, *meeting), 5.0)
            await asyncio.wait_for(database.until_done(store.retire_worker, me.id), 5.0)
    report.worker_id, report.engine_db, report.sites_dir = options.worker_id, store.name, str(settings.sites_dir)
    return report


def _timer(
    options: WorkerOptions,
    registry: Registry,
    store: Store,
    database: DatabaseThread,
    worker_id: str,
    wake: Wake,
    observer: Observer,
    pool: JsPool,
) -> Timer | None:
    """The schedules of the worker's sites; none for a worker that somebody's own work only waits for."""
    if options.until_workflow is not None or options.until is not None:
        return None
    return Timer(
        store=store,
        database=database,
        sites={name: site for name, site in registry.sites.items() if options.sites is None or name in options.sites},
        worker_id=worker_id,
        machine=options.machine_id,
        wake=wake,
        run_verb=ScheduledVerbs(store, pool, options.machine_id),
        observer=observer,
    )


def _runners(settings: Settings, pool: JsPool, wire: Wire | None, clock: Clock) -> dict[str, Runner]:
    """The op kinds of this scraper: one line each."""
    http = HttpRunnerSettings(
        timeout=settings.http.timeout,
        proxy=settings.http.proxy or None,
        max_bytes=settings.http.max_bytes,
        max_redirects=settings.http.max_redirects,
        obey_robots=settings.http.robots == "obey",
    )
    fetching = HttpRunner(http, wire=wire)
    return {
        "js": JsRunner(pool),
        "http/fetch": fetching,
        "cycle": CycleRunner(pool, fetching.client, clock),
        "browser/fetch": browser_runner(settings, fetching.client, clock),
        "hook": hook_runner(settings, clock),
    }


@contextlib.asynccontextmanager
async def _pool(
    told: Mapping[str, Any], size: int, settings: Settings | None = None, child: Sequence[str] = CHILD
) -> AsyncIterator[JsPool]:
    environment = {**os.environ, ENVIRONMENT: json.dumps(told)}
    resident = (settings.js.resident_mb if settings is not None else 512) << 20
    pool = JsPool(PoolSettings(command=child, environment=environment, size=size, resident_bytes=resident))
    try:
        yield pool
    finally:
        await pool.aclose()


def _told(settings: Settings, store: Store | None) -> dict[str, Any]:
    """What a child needs to know to open its databases."""
    clock = store.clock if store is not None else None
    return {
        "engine_url": None if store is None else store.url,
        "sites_dir": str(Path(settings.sites_dir).absolute()),
        "site_database_url": settings.site_database_url,
        "clock_offset": clock.offset if isinstance(clock, SystemClock) else 0,
        "browser": browser_settings(settings.browser).to_dict(),
        "jobs": {"env": _readable(settings), "version": version("scraper")},
    }


def _readable(settings: Settings) -> dict[str, str]:
    """What hooks of jobs may read of the environment, by the name without its prefix."""
    allowed = {name for name in settings.jobs.environment if name.startswith(JOB_PREFIX)}
    return {name.removeprefix(JOB_PREFIX): os.environ[name] for name in sorted(allowed & os.environ.keys())}


def site_database(settings: Settings, site: Site) -> str:
    """Where a site's DB is, for people."""
    if site.dialect == "sqlite":
        return str(settings.sites_dir / site.database_file)
    template = settings.site_database_url
    return "" if template is None else shown(database_url(template.replace("{site}", site.name.replace("-", "_"))))
