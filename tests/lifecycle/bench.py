"""Iterations without a worker: the real steps on a real site DB and real V8, the fetches made up by the test."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from engine.js.ports import CycleAnswer, SessionSpec
from engine.lifecycle.chain import Cycle, Plan
from engine.lifecycle.steps import Steps
from engine.lifecycle.verdicts import envelope, failed
from engine.plugins.site import Site
from engine.projection.session import Database
from engine.projection.sqlite import SqliteDatabase
from tests.fakes import FakeClock

PAGE = "".join(f'<li class="i"><b>{name}</b><a href="/{name}">x</a></li>' for name in ("one", "two"))

#: What a page is: its text, or a status and a text, or an error message.
Page = str | tuple[int, str] | Exception


class Crash(BaseException):
    """The process is gone."""


class Bench:
    """A site with one job. It is its own databases and its own view of the engine DB."""

    def __init__(self, folder: Path, database: Database | None = None) -> None:
        self.folder = folder
        self.clock = FakeClock()
        self._database = database or SqliteDatabase(folder / "site.db")
        if isinstance(self._database, SqliteDatabase):
            self._database.connection.execute("PRAGMA synchronous = OFF")
        self.site = Site(
            name="shop", root=folder, manifest=folder / "site.yaml", database_file="site.db", jobs_root=folder / "jobs"
        )
        self.pages: dict[str, Page] = {"http://s/page": PAGE}
        self.logs: list[str] = []
        self.posted: list[tuple[str, str]] = []
        self.requests: list[dict[str, Any]] = []
        self.conclusions: list[dict[str, Any]] = []
        self._results: dict[tuple[str, str], Any] = {}
        self._bodies: dict[str, bytes] = {}
        self._number = 0
        #: Whether the sink takes what is posted.
        self.sink_works = True

    def database(self, site: Site) -> Database:
        """As the steps want it."""
        return self._database

    def dependency(self, workflow_id: str, op_id: str) -> str | None:
        """As the steps want it."""
        found = self._results.get((workflow_id, op_id))
        return None if found is None else json.dumps(found)

    def blob(self, sha256: str) -> bytes:
        """As the steps want it."""
        return self._bodies[sha256]

    def job(self, hooks: str | None = None, defer: str | None = None, name: str = "Job", **keys: Any) -> None:
        """Write the job."""
        told = {"name": name, "url": "http://s/page", "selector": ".i", "fields": ["name:b", "link:a@href"]} | keys
        folder = self.folder / "jobs" / "job"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "job.yaml").write_text(yaml.safe_dump(told), "utf-8")
        for file, text in (("hooks.js", hooks), ("defer.js", defer)):
            (folder / file).unlink(missing_ok=True)
            if text is not None:
                (folder / file).write_text(text, "utf-8")

    def step(self, workflow: str, step: str, **task: Any) -> CycleAnswer:
        """One step, in a process that does nothing else."""
        spec = SessionSpec(engine_uuid="e", op_key="1", generation=0, claimed_at=1, workflow_id=workflow, op_id=step)
        steps = Steps(self, self, self.clock, {})  # type: ignore[arg-type]
        answer = steps.run(self.site, spec, {"step": step, **task}, lambda _name, _arguments: None)
        self.logs += [line.message for line in answer.logs]
        return answer

    def iterate(self, until_done: Callable[[Callable[[], Any]], Any] = lambda step: step(), job: str = "job") -> str:
        """One iteration from its begin to its end; its id. ``until_done`` repeats a step until it has ended."""
        self._number += 1
        workflow = f"w{self._number}"
        begun = until_done(lambda: self.step(workflow, "begin", job=job)).value
        plan = Plan.load(begun["plan"])
        waiting = [(Cycle(**one), begun["requests"][one["url"]]) for one in begun["cycles"]]
        while waiting:
            cycle, request = waiting.pop(0)
            self._cycle(workflow, plan, cycle, request, until_done)
            if plan.goes_on:
                given = {"plan": plan.dump(), "cycle": _plain(cycle)}
                following = until_done(lambda given=given: self.step(workflow, "next", **given)).value  # type: ignore[misc]
                if following is not None:
                    waiting.append((Cycle(**following["cycle"]), following["request"]))
        done = until_done(lambda: self.step(workflow, "finished", plan=plan.dump())).value
        assert done == {"late": []}
        return plan.iteration_id

    def _cycle(
        self, workflow: str, plan: Plan, cycle: Cycle, request: dict[str, Any], until_done: Callable[..., Any]
    ) -> None:
        given = {"plan": plan.dump(), "cycle": _plain(cycle)}
        self.fetch(workflow, given, request, until_done)
        ended = until_done(lambda: self.step(workflow, "process", **given)).value
        if plan.delivers:
            self._deliver(workflow, plan, cycle, until_done)
        if plan.concludes:
            ended = until_done(lambda: self.step(workflow, "conclude", **given)).value
        self.conclusions.append(ended)
        assert ended["late"] == []

    def fetch(
        self, workflow: str, given: Mapping[str, Any], request: dict[str, Any], until_done: Callable[..., Any]
    ) -> None:
        """What the fetch op does, with pages of the test's."""
        told: dict[str, Any] = {"started_at": self.clock.now(), "duration_ms": 1.0}
        found: dict[str, Any] | None = None
        if {"before_fetch", "override_fetch"} & set(given["plan"]["hooks"]):
            started = {"request": request, "started_at": self.clock.now()}
            answer = until_done(lambda: self.step(workflow, "request", **given, **started))
            if answer.value.get("skip"):
                self._keep(workflow, given, told | {"skip": True})
                return
            request, found = answer.value["request"], answer.value.get("envelope")
            if answer.bodies:
                told |= self._body(answer.bodies[0])
        if found is None:
            self.requests.append(request)
            page = self.pages[request["url"]]
            if isinstance(page, Exception):
                found = failed(request, str(page), "connect")
            else:
                status, text = page if isinstance(page, tuple) else (200, page)
                response = {"status": status, "url": request["url"], "headers": {}, "time_ms": 1, "size": len(text)}
                found = envelope(request, response)
                told |= self._body(text.encode())
        self._keep(workflow, given, told | {"envelope": found, "validators": {"etag": "x"}})

    def _body(self, body: bytes) -> dict[str, Any]:
        digest = hashlib.sha256(body).hexdigest()
        self._bodies[digest] = body
        return {"body": digest, "content_type": "text/html; charset=utf-8"}

    def _keep(self, workflow: str, given: Mapping[str, Any], data: dict[str, Any]) -> None:
        self._results[workflow, f"c{given['cycle']['number']}/fetch"] = {"data": data}

    def _deliver(self, workflow: str, plan: Plan, cycle: Cycle, until_done: Callable[..., Any]) -> None:
        given = {
            "job": plan.job_id,
            "cycle_id": plan.cycle_id(cycle.number),
            "ids": [],
            "version": plan.version,
        }

        def once() -> None:
            self.clock.advance(5000)
            rows = self.step(workflow, "outbox", **given).value["rows"]
            told = []
            for row in rows:
                self.posted.append((row["id"], row["payload"]))
                error = "" if self.sink_works else "the webhook answered 500"
                status = "sent" if self.sink_works else "pending"
                tried = {"duration_ms": 2.0, "attempts": row["attempts"]}
                told.append({"id": row["id"], "status": status, "error": error, **tried})
            if told:
                self.step(workflow, "delivered", **given, rows=told)

        until_done(once)

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """A read of the site DB."""
        return self._database.run(sql)

    def names(self) -> list[str]:
        """The ``name`` of every record, oldest first."""
        return [
            json.loads(str(row[0]))["name"] for row in self.rows("SELECT fields_json FROM monitor_records ORDER BY id")
        ]

    def outcomes(self) -> list[tuple[Any, ...]]:
        """Status and error of every cycle."""
        return self.rows("SELECT status, error FROM monitor_cycles ORDER BY started_at, cycle_id")

    def stages(self, cycle: str = "job/1/1") -> dict[str, dict[str, Any]]:
        """The telemetry of a cycle, by stage."""
        told = self.rows(f"SELECT telemetry_json FROM monitor_cycles WHERE cycle_id = '{cycle}'")[0][0]
        return {stage["name"]: stage for stage in json.loads(str(told))["telemetry"]["stages"]}

    def close(self) -> None:
        """Close the database."""
        self._database.close()


def _plain(cycle: Cycle) -> dict[str, Any]:
    return {"number": cycle.number, "worker": cycle.worker, "url": cycle.url}
