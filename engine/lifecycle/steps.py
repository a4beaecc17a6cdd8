"""The steps of a job's ops that need its site DB or its hooks, by name; they run in a JS child.

Each may be repeated: what it did is found in the site DB, and what it answers is the same.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from engine.clock import Clock
from engine.errors import OpError, SiteError, UsageError
from engine.js.ports import Ask, CycleAnswer, EngineReads, SessionSpec
from engine.lifecycle.catalog import Version, discover, find, jobs_root, read_version
from engine.lifecycle.chain import Cycle, Plan
from engine.lifecycle.cycle import CycleRun, Fetched, Outcome
from engine.lifecycle.hooks import Hooks
from engine.lifecycle.job import Job
from engine.lifecycle.journal import Journal
from engine.lifecycle.ledger import Ledger
from engine.lifecycle.means import Databases, Means
from engine.lifecycle.request import first_request
from engine.lifecycle.scripts import CycleContext, scope_of
from engine.model import LogLine
from engine.plugins.site import Site

_LOST = "the cycle's op was given up: it failed or was canceled"


class Steps:
    """Answers the steps of one child process."""

    def __init__(
        self, databases: Databases, reads: EngineReads | None, clock: Clock, settings: Mapping[str, Any]
    ) -> None:
        self._means = Means(databases, reads, clock, settings)

    def run(self, site: Site, spec: SessionSpec, task: Mapping[str, Any], ask: Ask) -> CycleAnswer:
        """Do a step, or what is left of it. Raises OpError, DatabaseBusy."""
        if task["step"] in ("look", "test"):
            from engine.lifecycle import trial

            asked = trial.look if task["step"] == "look" else trial.run
            return CycleAnswer(asked(self._means, site, task))
        return _Step(self._means, site, spec, task, ask).run()


class _Step:
    def __init__(self, means: Means, site: Site, spec: SessionSpec, task: Mapping[str, Any], ask: Ask) -> None:
        self._means = means
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
        }
        self._answer.value = steps[self._task["step"]]()
        return self._answer

    def _say(self, level: str, message: str) -> None:
        self._answer.logs.append(LogLine(at=self._means.clock.now(), level=level, message=message))

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
        hooks = self._means.found(self._means.scripts(self._site, job, version, folder))
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
        self._means.found(self._means.scripts(self._site, job, version, found.folder))
        return version, job, found.folder

    def _pinned(self, ledger: Ledger, version: str, folder: str = "") -> tuple[Version, Job, Path]:
        files, job = self._means.pinned(ledger, version)
        return files, job, jobs_root(self._site) / folder if folder else _folder_of(self._site, files)

    def _next(self) -> dict[str, Any] | None:
        plan, cycle = self._given()
        ledger = self._ledger(plan.job_id)
        following = ledger.next_page(plan.iteration_id, cycle)
        if following is None:
            return None
        _, job = self._means.pinned(ledger, plan.version)
        return {
            "cycle": asdict(following),
            "request": first_request(job, following.url, self._site.http.user_agent),
            "fetching": _fetching(job),
        }

    def _finished(self) -> dict[str, Any]:
        plan = Plan.load(self._task["plan"])
        ledger = self._ledger(plan.job_id)
        _, job, _ = self._pinned(ledger, plan.version, plan.folder)
        if ledger.finished(plan.iteration_id):
            self._say_again(ledger, plan.iteration_id)
        else:
            for cycle in ledger.open_cycles(plan.iteration_id):
                self._give_up(plan, cycle)
            if "on_finished" in plan.hooks:
                self._call_finished(plan, ledger)
            ledger.finish(plan.iteration_id)
        if plan.hooks:
            Journal(ledger.database, plan.iteration_id).forget()
            self._ask("kv.forget", {"scope": scope_of(plan.site, plan.iteration_id)})
        owners = (plan.iteration_id, *ledger.given_up(plan.iteration_id))
        return {"late": [name for owner in owners for name in self._notices(ledger, owner, job)]}

    def _give_up(self, plan: Plan, cycle: Cycle) -> None:
        """End a cycle whose ops never did; what it stored is announced all the same."""
        run = self._cycle_run(plan, cycle)
        try:
            run.announce()
            run.ledger.give_up(run.cycle_id, run.state)
            run.wipe()
        finally:
            run.close()
            self._answer.logs += run.logs

    def _call_finished(self, plan: Plan, ledger: Ledger) -> None:
        journal = Journal(ledger.database, plan.iteration_id)
        hooks = self._hooks(*self._pinned(ledger, plan.version, plan.folder))
        try:
            context = CycleContext(
                cycle_id=plan.iteration_id, iteration_id=plan.iteration_id, worker_id=0, journal=journal
            )
            hooks.call("on_finished", [], context)
        finally:
            self._answer.logs += hooks.take_logs()
            hooks.close()

    def _hooks(self, version: Version, job: Job, folder: Path) -> Hooks:
        """The hooks; where one of them took an earlier child along, the next that is called has thrown."""
        hooks = self._means.opened(self._means.scripts(self._site, job, version, folder), self._ask)
        if blame := self._task.get("blame"):
            hooks.blame(str(blame))
        return hooks

    # cycles

    def _given(self) -> tuple[Plan, Cycle]:
        return Plan.load(self._task["plan"]), Cycle(**self._task["cycle"])

    def _ledger(self, job_id: str) -> Ledger:
        return Ledger(self._means.database(self._site), self._means.clock, job_id)

    def _cycle_run(self, plan: Plan, cycle: Cycle) -> CycleRun:
        ledger = self._ledger(plan.job_id)
        version, job, folder = self._pinned(ledger, plan.version, plan.folder)
        return CycleRun(
            job=job,
            plan=plan,
            cycle=cycle,
            ledger=ledger,
            clock=self._means.clock,
            open_hooks=lambda: self._hooks(version, job, folder),
            ask=self._ask,
            folder=folder,
        )

    def _request(self) -> dict[str, Any]:
        run = self._cycle_run(*self._given())
        if run.state.over:
            # an operator tries again what ended long ago
            return {"skip": True}
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
        run = self._cycle_run(*self._given())
        if run.state.status != "running":
            self._say_again(run.ledger, run.cycle_id)
        if run.state.over:
            run.wipe()
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
        result = self._means.dependency(self._spec, f"c{run.cycle.number}/fetch")
        data = result.get("data")
        if not isinstance(data, dict):
            return Fetched(envelope=None, body=str, lost=self._lost(run, "fetch"))
        run.started_at = int(data["started_at"])
        sha256, content_type = data.get("body"), str(data.get("content_type", ""))
        read = lru_cache(maxsize=1)(lambda: self._means.body(sha256, content_type) if sha256 else "")
        return Fetched(
            envelope=data.get("envelope"),
            body=read,
            skip=bool(data.get("skip")),
            duration_ms=float(data.get("duration_ms", 0.0)),
            validators=data.get("validators"),
        )

    def _lost(self, run: CycleRun, op: str) -> str:
        """Why an op of the cycle came to nothing."""
        error = self._means.dependency(self._spec, f"c{run.cycle.number}/{op}").get("error")
        said = error.get("message") if isinstance(error, dict) else None
        return str(said or _LOST)

    def _conclude(self) -> dict[str, Any]:
        run = self._cycle_run(*self._given())
        if run.state.over:
            self._say_again(run.ledger, run.cycle_id, run.notification_id)
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
                self._say_notification(str(row["payload"]))
                ledger.said(str(row["id"]))
            else:
                late.append(str(row["id"]))
        return late

    def _say_again(self, ledger: Ledger, cycle_id: str, *others: str) -> None:
        """What an earlier run of this op said, whose log is lost; ``others`` were said by another op."""
        for name, payload in ledger.only_said(cycle_id):
            if name not in others:
                self._say_notification(payload)

    def _say_notification(self, payload: str) -> None:
        message = json.loads(payload)
        self._say("info", f"notification: {message['title']}\n{message['body']}")

    def _outbox(self) -> dict[str, Any]:
        ledger = self._ledger(str(self._task["job"]))
        ids: Sequence[str] = self._task["ids"]
        rows = ledger.pending(str(self._task["cycle_id"]), ids, untried=False)
        if not rows:
            return {"rows": []}
        _, job = self._means.pinned(ledger, str(self._task["version"]))
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
