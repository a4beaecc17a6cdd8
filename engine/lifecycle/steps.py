"""The steps of a job's ops that need its site DB or its hooks, by name; they run in a JS child.

Each may be repeated: what it did is found in the site DB, and what it answers is the same.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Protocol

from engine.clock import SECOND, Clock
from engine.errors import OpError, SiteError, UsageError
from engine.js.charset import decode_body
from engine.js.ports import Ask, CycleAnswer, EngineReads, SessionSpec
from engine.lifecycle.catalog import TESTS, Version, discover, find, jobs_root, read_version, shared_root
from engine.lifecycle.chain import Cycle, Plan
from engine.lifecycle.cycle import CycleRun, Fetched, Outcome
from engine.lifecycle.extensions import Extension
from engine.lifecycle.hooks import Hooks, find_hooks
from engine.lifecycle.job import Job
from engine.lifecycle.journal import Journal
from engine.lifecycle.ledger import Ledger
from engine.lifecycle.request import first_request
from engine.lifecycle.scripts import CycleContext, JobScripts, scope_of
from engine.model import LogLine
from engine.plugins.site import Site
from engine.projection.session import Database

#: Versions whose jobs a process remembers.
_VERSIONS = 100
_GIVEN_UP = "the cycle was given up: its op failed or was canceled"


class Databases(Protocol):
    """The site DBs of this process."""

    def database(self, site: Site) -> Database:
        """The site's DB."""
        ...


class Steps:
    """Answers the steps of one child process."""

    def __init__(
        self, databases: Databases, reads: EngineReads | None, clock: Clock, settings: Mapping[str, Any]
    ) -> None:
        self._databases = databases
        self._reads = reads
        self._clock = clock
        #: ``env``: what hooks may read of the environment; ``version``: the engine's.
        self._jobs = settings.get("jobs", {})
        self._browser = settings.get("browser")
        #: Jobs by the hash of their files.
        self._versions: dict[str, tuple[Version, Job]] = {}

    def run(self, site: Site, spec: SessionSpec, task: Mapping[str, Any], ask: Ask) -> CycleAnswer:
        """Do a step, or what is left of it. Raises OpError, DatabaseBusy."""
        return _Step(self, site, spec, task, ask).run()

    def database(self, site: Site) -> Database:
        """The site's DB."""
        return self._databases.database(site)

    def scripts(self, site: Site, job: Job, version: Version, folder: Path) -> JobScripts:
        """The scripts of a version."""
        return JobScripts(
            site=site.name,
            job_id=job.id,
            job_name=job.name,
            files=version.files,
            folder=folder,
            shared=shared_root(site),
            hook_seconds=job.hook_timeout / SECOND,
            heap_bytes=site.js.heap_mb << 20,
            env=self._jobs.get("env", {}),
            user_agent=site.http.user_agent or "scraper",
            engine_version=self._jobs.get("version", ""),
        )

    @cached_property
    def extensions(self) -> tuple[Extension, ...]:
        """What hooks have besides the bindings of their own."""
        if self._browser is None:
            return ()
        from engine.browser.settings import BrowserSettings
        from engine.lifecycle.browser import browser_extension

        return (browser_extension(BrowserSettings(**self._browser)),)

    def found(self, scripts: JobScripts) -> frozenset[str]:
        """The hooks that scripts define. Raises OpError ``job_scripts_invalid``."""
        return find_hooks(scripts, self._clock, self.extensions)

    def pinned(self, ledger: Ledger, version: str) -> tuple[Version, Job]:
        """A version that an iteration used, and its job. Raises OpError where there is none any more."""
        known = self._versions.get(version)
        if known is None:
            files = ledger.version(version) or ledger.last_version()
            if files is None:
                raise OpError("unknown_version", f"the site database has no version {version} of the job any more")
            known = files, files.job(Path("jobs"))
            if len(self._versions) >= _VERSIONS:
                self._versions.clear()
            self._versions[files.hash] = known
        return known

    def opened(self, scripts: JobScripts, ask: Ask) -> Hooks:
        """The hooks of scripts; to be closed."""
        hooks = Hooks(scripts, self._clock, ask, self.extensions)
        hooks.alive = lambda: ask("alive", {})
        return hooks

    def body(self, sha256: str, content_type: str) -> str:
        """A stored body as text. Raises OpError."""
        if self._reads is None:
            return ""
        try:
            return decode_body(self._reads.blob(sha256), content_type)
        except KeyError:
            raise OpError("artifact_pruned", "the body of the fetch was pruned") from None

    def dependency(self, spec: SessionSpec, op_id: str) -> dict[str, Any]:
        """The result of an op of the workflow; empty where it has none."""
        found = None if self._reads is None else self._reads.dependency(spec.workflow_id, op_id)
        plain = {} if found is None else json.loads(found)
        return plain if isinstance(plain, dict) else {}

    @property
    def clock(self) -> Clock:
        """The engine's clock."""
        return self._clock


class _Step:
    def __init__(self, steps: Steps, site: Site, spec: SessionSpec, task: Mapping[str, Any], ask: Ask) -> None:
        self._steps = steps
        self._site = site
        self._spec = spec
        self._task = task
        self._ask = ask
        self._answer = CycleAnswer()

    def run(self) -> CycleAnswer:
        steps: Mapping[str, Callable[[], Any]] = {
            "begin": self._begin,
            "request": self._request,
            "process": self._process,
            "conclude": self._conclude,
            "next": self._next,
            "finished": self._finished,
            "outbox": self._outbox,
            "delivered": self._delivered,
            "look": self._look,
            "test": self._test,
        }
        self._answer.value = steps[self._task["step"]]()
        return self._answer

    def _say(self, level: str, message: str) -> None:
        self._answer.logs.append(LogLine(at=self._steps.clock.now(), level=level, message=message))

    # for the author

    def _look(self) -> dict[str, Any]:
        """The hooks of a job as it is now."""
        folder = Path(self._task["folder"])
        version = read_version(self._site, folder)
        scripts = self._steps.scripts(self._site, version.job(folder), version, folder)
        return {"hooks": sorted(self._steps.found(scripts)), "version": version.hash}

    def _test(self) -> list[dict[str, Any]]:
        """The tests of a job as it is now."""
        from engine.lifecycle.testing import run_tests

        folder = Path(self._task["folder"])
        version = read_version(self._site, folder, TESTS)
        scripts = self._steps.scripts(self._site, version.job(folder), version, folder)
        done = run_tests(
            scripts,
            self._steps.clock,
            pattern=str(self._task["pattern"]),
            make_database=self._empty_database,
            extensions=self._steps.extensions,
        )
        return [{**asdict(one), "ok": one.ok} for one in done]

    def _empty_database(self, path: Path) -> Database:
        """A site DB of its own, with the site's tables where plain SQL makes them."""
        from engine.projection.migrate import migrate
        from engine.projection.sqlite import SqliteDatabase

        database = SqliteDatabase(path)
        if self._site.dialect == "sqlite" and self._site.js_migrations_root is None:
            migrate(database, self._site, lambda _name, _session: None, self._steps.clock)
        return database

    # iterations

    def _begin(self) -> dict[str, Any]:
        name = str(self._task["job"])
        ledger = self._ledger(name)
        standing = ledger.begun(self._spec)
        if standing is None:
            version, job, folder = self._chosen(ledger, name)
            if self._task.get("scheduled") and not job.enabled:
                return {"disabled": True, "interval": job.interval}
            standing = ledger.begin(self._spec, job, version)
        else:
            version, job, folder = self._pinned(ledger, standing.version)
        hooks = self._steps.found(self._steps.scripts(self._site, job, version, folder))
        if self._task.get("debug"):
            job = replace(job, urls=(job.pages[0],), workers=1)
        plan = Plan.of(
            self._site.name,
            job,
            standing.iteration_id,
            standing.version,
            sorted(hooks),
            folder=folder.name,
            scheduled=bool(self._task.get("scheduled")),
        )
        agent = self._site.http.user_agent
        return {
            "plan": plan.dump(),
            "number": standing.number,
            "stagger": job.stagger,
            "cycles": [asdict(cycle) for cycle in standing.cycles],
            "requests": {url: first_request(job, url, agent) for url in dict.fromkeys(job.pages)},
            "fetching": _fetching(job),
        }

    def _chosen(self, ledger: Ledger, name: str) -> tuple[Version, Job, Path]:
        """The job as it is now; where that cannot be used, as it was used last."""
        try:
            return self._current(name)
        except (SiteError, UsageError, OpError) as error:
            last = ledger.last_version()
            message = error.message if isinstance(error, OpError) else str(error)
            if last is None or (not any(found.job is None for found in discover(self._site)) and _gone(error)):
                raise OpError("invalid_job", message) from error
            self._say("error", f"the job is broken; its last good version keeps running:\n{message}")
            folder = _folder_of(self._site, last)
            return last, last.job(folder), folder

    def _current(self, name: str) -> tuple[Version, Job, Path]:
        found = find(self._site, name)
        version = read_version(self._site, found.folder)
        job = version.job(found.folder)
        self._steps.found(self._steps.scripts(self._site, job, version, found.folder))
        return version, job, found.folder

    def _pinned(self, ledger: Ledger, version: str, folder: str = "") -> tuple[Version, Job, Path]:
        files, job = self._steps.pinned(ledger, version)
        return files, job, jobs_root(self._site) / folder if folder else _folder_of(self._site, files)

    def _next(self) -> dict[str, Any] | None:
        plan, cycle = self._given()
        ledger = self._ledger(plan.job_id)
        following = ledger.next_page(plan.iteration_id, cycle)
        if following is None:
            return None
        _, job = self._steps.pinned(ledger, plan.version)
        return {
            "cycle": asdict(following),
            "request": first_request(job, following.url, self._site.http.user_agent),
            "fetching": _fetching(job),
        }

    def _finished(self) -> dict[str, Any]:
        plan = Plan.load(self._task["plan"])
        ledger = self._ledger(plan.job_id)
        version, job, folder = self._pinned(ledger, plan.version, plan.folder)
        if not ledger.finished(plan.iteration_id):
            for cycle_id in ledger.open_cycles(plan.iteration_id):
                state = ledger.state(cycle_id)
                ledger.conclude(cycle_id, "error", state.error or _GIVEN_UP, state.told or {})
            journal = Journal(ledger.database, plan.iteration_id)
            if "on_finished" in plan.hooks:
                hooks = self._steps.opened(self._steps.scripts(self._site, job, version, folder), self._ask)
                try:
                    context = CycleContext(
                        cycle_id=plan.iteration_id, iteration_id=plan.iteration_id, worker_id=0, journal=journal
                    )
                    hooks.call("on_finished", [], context)
                finally:
                    self._answer.logs += hooks.take_logs()
                    hooks.close()
            ledger.finish(plan.iteration_id)
        if plan.hooks:
            Journal(ledger.database, plan.iteration_id).forget()
            self._ask("kv.forget", {"scope": scope_of(plan.site, plan.iteration_id)})
        return {"late": self._notices(ledger, plan.iteration_id, job)}

    # cycles

    def _given(self) -> tuple[Plan, Cycle]:
        return Plan.load(self._task["plan"]), Cycle(**self._task["cycle"])

    def _ledger(self, job_id: str) -> Ledger:
        return Ledger(self._steps.database(self._site), self._steps.clock, job_id)

    def _cycle_run(self) -> CycleRun:
        plan, cycle = self._given()
        ledger = self._ledger(plan.job_id)
        version, job, folder = self._pinned(ledger, plan.version, plan.folder)

        def open_hooks() -> Hooks:
            scripts = self._steps.scripts(self._site, job, version, folder)
            hooks = self._steps.opened(scripts, self._ask)
            if blame := self._task.get("blame"):
                hooks.blame(str(blame))
            return hooks

        return CycleRun(
            job=job,
            plan=plan,
            cycle=cycle,
            ledger=ledger,
            clock=self._steps.clock,
            open_hooks=open_hooks,
            ask=self._ask,
            folder=folder,
        )

    def _request(self) -> dict[str, Any]:
        run = self._cycle_run()
        run.started_at = int(self._task["started_at"])
        try:
            answer = run.request(self._task["request"])
        finally:
            run.close()
            self._answer.logs += run.logs
        run.note()
        body = answer.get("envelope", {}).get("response", {}).pop("body", None)
        if body is not None:
            self._answer.bodies = [str(body).encode("utf-8", "replace")]
        return answer

    def _process(self) -> dict[str, Any]:
        run = self._cycle_run()
        if run.state.over:
            return self._ended(run)
        fetched = self._fetched(run)
        try:
            if self._task.get("debug"):
                return self._rehearsed(run, fetched)
            if run.state.status == "running":
                outcome = run.process(fetched)
                if run.plan.concludes:
                    run.note(outcome)
            else:
                outcome = Outcome(run.state.status, run.state.error)
            if not run.plan.concludes:
                return self._end(run, outcome)
        finally:
            run.close()
            self._answer.logs += run.logs
        return {"status": outcome.status, "error": outcome.error}

    def _rehearsed(self, run: CycleRun, fetched: Fetched) -> dict[str, Any]:
        """The items that would be stored, and how the stages went."""
        outcome, items = run.rehearse(fetched)
        shown = {"status": outcome.status, "error": outcome.error, "items": items}
        return {**shown, "stages": run.telemetry.dump()["stages"]}

    def _fetched(self, run: CycleRun) -> Fetched:
        result = self._steps.dependency(self._spec, f"c{run.cycle.number}/fetch")
        data = result.get("data")
        if not isinstance(data, dict):
            return Fetched(envelope=None, body=str, lost=self._lost(run, "fetch"))
        run.started_at = int(data["started_at"])
        sha256, content_type = data.get("body"), str(data.get("content_type", ""))
        read = lru_cache(maxsize=1)(lambda: self._steps.body(sha256, content_type) if sha256 else "")
        return Fetched(
            envelope=data.get("envelope"),
            body=read,
            skip=bool(data.get("skip")),
            duration_ms=float(data.get("duration_ms", 0.0)),
            validators=data.get("validators"),
        )

    def _lost(self, run: CycleRun, op: str) -> str:
        """Why an op of the cycle came to nothing."""
        error = self._steps.dependency(self._spec, f"c{run.cycle.number}/{op}").get("error")
        said = error.get("message") if isinstance(error, dict) else None
        return str(said or _GIVEN_UP)

    def _conclude(self) -> dict[str, Any]:
        run = self._cycle_run()
        if run.state.over:
            run.wipe()
            return self._ended(run)
        try:
            fetched = self._fetched(run)
            run.context.last_fetch = fetched.full if fetched.envelope is not None else None
            if run.state.status == "running":
                # its op was given up; what was stored is announced all the same
                run.announce()
                outcome = Outcome("error", self._lost(run, "process"))
            else:
                outcome = Outcome(run.state.status, run.state.error)
            return self._end(run, outcome)
        finally:
            run.close()
            self._answer.logs += run.logs

    def _end(self, run: CycleRun, outcome: Outcome) -> dict[str, Any]:
        run.conclude(outcome)
        return self._ended(run)

    def _ended(self, run: CycleRun) -> dict[str, Any]:
        """What follows from the end of a cycle, now or in an earlier run of its op."""
        state = run.ledger.state(run.cycle_id)
        late = self._notices(run.ledger, run.cycle_id, run.job)
        validators = self._fetched(run).validators if state.status == "success" else None
        return {"status": state.status, "error": state.error, "late": late, "validators": validators}

    # announcements

    def _notices(self, ledger: Ledger, cycle_id: str, job: Job) -> list[str]:
        """What nobody has tried to deliver yet; a notification that no command shows is said in the log instead."""
        late = []
        for row in ledger.pending(cycle_id, untried=True):
            if row["channel"] == "notification" and (job.notification is None or not job.notification.command):
                message = json.loads(str(row["payload"]))
                self._say("info", f"notification: {message['title']}\n{message['body']}")
                ledger.said(str(row["id"]))
            else:
                late.append(str(row["id"]))
        return late

    def _outbox(self) -> dict[str, Any]:
        ledger = self._ledger(str(self._task["job"]))
        ids: Sequence[str] = self._task["ids"]
        rows = ledger.pending(str(self._task["cycle_id"]), ids, untried=False)
        if not rows:
            return {"rows": []}
        _, job = self._steps.pinned(ledger, str(self._task["version"]))
        return {
            "rows": rows,
            "secret": job.webhook.secret if job.webhook is not None else None,
            "command": list(job.notification.command) if job.notification is not None else [],
        }

    def _delivered(self) -> None:
        ledger = self._ledger(str(self._task["job"]))
        ledger.delivered(str(self._task["cycle_id"]), self._task["rows"])


def _folder_of(site: Site, version: Version) -> Path:
    """Where the job's folder is now: by its id."""
    job = version.job(jobs_root(site) / "job")
    for found in discover(site):
        if found.job is not None and found.job.id == job.id:
            return found.folder
    return jobs_root(site) / job.id


def _gone(error: Exception) -> bool:
    """Whether there is no such job any more, rather than a broken one."""
    return isinstance(error, UsageError)


def _fetching(job: Job) -> dict[str, Any]:
    """What a worker needs to know to fetch for the job."""
    proxies = job.proxies
    return {
        "proxies": None if proxies is None else {"rotate": proxies.rotate, "urls": list(proxies.urls)},
        "max_attempts": job.fetch_retry.max_attempts,
        "backoff": job.fetch_retry.backoff,
    }
