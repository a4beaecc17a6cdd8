"""Checking, testing and rehearsing a lifecycle job: nothing of the site's databases is changed."""

from __future__ import annotations

import json
import re
import sqlite3
import tempfile
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from engine.app import WorkerOptions, job_step, open_store, run_worker
from engine.config import Settings
from engine.errors import SiteError
from engine.faults import Fault
from engine.lifecycle.catalog import TESTS, Found, check, read_version
from engine.lifecycle.chain import begin_op
from engine.lifecycle.job import Job
from engine.machine import machine_id
from engine.model import NewWorkflow
from engine.plugins.registry import Registry
from engine.plugins.site import Site
from engine.store.reads import open_reads
from engine.worker.options import Silent

_LOOK_SECONDS = 60.0
#: Of silence, while tests run; each of them has a time limit of its own.
_TEST_SECONDS = 3600.0
_WORKFLOW = "debug"


@dataclass(frozen=True, slots=True)
class Checked:
    """What is wrong with a job, and the hooks it has."""

    faults: tuple[Fault, ...]
    hooks: tuple[str, ...] = ()


def check_job(settings: Settings, site: Site, found: Found) -> Checked:
    """Read, judge and load a job; no hook is called."""
    faults = check(found)
    if found.job is None:
        return Checked(faults)
    try:
        version = read_version(site, found.folder)
        if not version.has_scripts:
            return Checked(faults)
        looked = job_step(settings, site, {"step": "look", "folder": str(found.folder)}, _LOOK_SECONDS)
    except SiteError as error:
        return Checked((*faults, _fault(found.folder, str(error))))
    return Checked(faults, tuple(looked["hooks"]))


def _fault(folder: Path, message: str) -> Fault:
    """What the loading of scripts said, with the place it told."""
    place = re.match(r"([\w/.-]+\.js):(\d+):(\d+): (.*)", message, re.DOTALL)
    if place is None:
        return Fault(folder, 0, message)
    return Fault(folder / place[1], int(place[2]), place[4], column=int(place[3]))


def run_job_tests(settings: Settings, site: Site, found: Found, pattern: str) -> list[dict[str, Any]]:
    """How the tests of a job went: ``name``, ``ok``, ``error``, ``duration_ms``, ``logs``. Raises SiteError."""
    version = read_version(site, found.folder, TESTS)
    if not any(name in version.files for name in ("hooks.js", "defer.js", TESTS)):
        return []
    task = {"step": "test", "folder": str(found.folder), "pattern": pattern}
    tests: list[dict[str, Any]] = job_step(settings, site, task, _TEST_SECONDS)
    return tests


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """One cycle up to before_store."""

    status: str
    error: str
    items: list[dict[str, Any]]
    stages: list[dict[str, Any]]
    logs: tuple[str, ...]


def rehearse_job(settings: Settings, registry: Registry, site: Site, job: Job) -> Rehearsal:
    """Run one cycle up to before_store on copies of the databases. Raises SiteError.

    Hooks see what the job has stored; what all jobs share is empty.
    """
    with tempfile.TemporaryDirectory(prefix="scraper-debug-") as name:
        folder = Path(name)
        if site.dialect == "sqlite":
            _copy(settings.sites_dir / site.database_file, folder / site.database_file)
        alone = replace(site, dialect="sqlite")
        chosen = replace(settings, engine_db=str(folder / "engine.db"), sites_dir=folder)
        with closing(open_store(chosen)) as store:
            begin = begin_op(site.name, job.id, debug=True)
            home = store.home_of(site.name, machine_id(folder))
            store.submit(
                NewWorkflow(
                    id=_WORKFLOW,
                    site=site.name,
                    name=_WORKFLOW,
                    ops=(replace(begin, machine=alone.machine_for(begin.kind, home)),),
                )
            )
        options = WorkerOptions(until_workflow=_WORKFLOW, js_processes=1)
        run_worker(chosen, replace(registry, sites={site.name: alone}), options, Silent())
        return _outcome(str(folder / "engine.db"))


def _copy(source: Path, target: Path) -> None:
    """The database as it is at this instant."""
    if not source.is_file():
        return
    with closing(sqlite3.connect(f"file:{source}?mode=ro", uri=True)) as old, closing(sqlite3.connect(target)) as new:
        old.backup(new)


def _outcome(engine_db: str) -> Rehearsal:
    reads = open_reads(engine_db)
    try:
        ended = {op: reads.dependency(_WORKFLOW, op) for op in ("begin", "c1/fetch", "c1/process")}
    finally:
        reads.close()
    results = {op: json.loads(text) for op, text in ended.items() if text is not None}
    logs = tuple(
        line["message"]
        for result in results.values()
        for artifact in result["artifacts"]
        if artifact["kind"] == "execution-log"
        for line in json.loads(artifact["text"])
    )
    for result in results.values():
        if "error" in result:
            raise SiteError(str(result["error"]["message"]))
    told = results["c1/process"]["data"]
    return Rehearsal(told["status"], told["error"], told["items"], told["stages"], logs)
