"""Schedules fired by real workers: verbs of a manifest, a worker killed in the middle, two workers side by side
(SCHED-12, SCHED-20 to SCHED-24)."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from engine import app
from engine.authoring.check import check_site
from engine.clock import SECOND
from engine.model import EMPTY_RESULT, Dependency, NewOp, Result
from engine.runners.base import RunContext
from engine.schedules import After, Every, NewSchedule, OpsTarget, Schedule
from engine.store.store import Store
from engine.worker.options import Silent, WorkerOptions
from tests import warm
from tests.worker.lab import MANIFEST, SITE, Lab

ROOT = Path(__file__).resolve().parents[2]

VERB = """
__verb__("seed", {fields: {pages: {type: "int", default: 1}, word: {}, tags: {type: "stringList"}}});
function seed(ctx) {
  ctx.emit({id: "told", kind: "js", metadata: {script: "told.js"},
            input: {values: ctx.values, metadata: ctx.workflow.metadata}});
  return {workflowName: "nightly " + ctx.values.word};
}
"""
SCHEDULE = """
  - name: nightly
    verb: seed
    values: {pages: 3, word: "7", tags: [a, b]}
    after: 1h
"""


@pytest.fixture
def seeded(lab: Lab) -> Lab:
    """A site whose verb is run on a schedule that is due at once, and then an hour after its end."""
    write(lab, SCHEDULE)
    return lab


def write(lab: Lab, schedules: str) -> None:
    lab.write("site.yaml", f"{MANIFEST}schedules:{schedules}")
    lab.write("verbs/seed.js", VERB)
    lab.write("scripts/told.js", "module.exports = (ctx) => ({data: ctx.input})")


def workflows(lab: Lab) -> list[dict[str, str]]:
    return lab.engine("SELECT id, name, status FROM workflows ORDER BY id")


def test_a_worker_runs_the_verbs_of_a_manifest_when_they_are_due(seeded: Lab) -> None:
    seeded.work()
    (made,) = workflows(seeded)
    assert (made["name"], made["status"]) == ("nightly 7", "succeeded")
    told = seeded.result("told", made["id"])["data"]
    assert told["values"] == {"pages": 3, "word": "7", "tags": ["a", "b"]}
    with closing(seeded.store()) as store:
        known = store.schedules.get(SITE, "nightly")
        assert told["metadata"]["schedule"] == "shop/nightly"
        assert made["id"] == known.last_workflow
        assert known.due_at is not None
        assert known.due_at - store.clock.now() > 3500 * SECOND
    seeded.work()
    assert len(workflows(seeded)) == 1, "it is not due again"


def test_a_worker_of_one_workflow_leaves_schedules_to_others(seeded: Lab) -> None:
    seeded.work(until_workflow="w", max_cycles=2)
    assert workflows(seeded) == []


def test_an_idle_worker_does_not_poll_its_schedules(lab: Lab) -> None:
    """SCHED-27: it looks when it starts, when something changed, and every few seconds."""
    with closing(lab.store()) as store:
        store.schedules.put(NewSchedule(site=SITE, name="s", rule=Every(3600 * SECOND), target=OpsTarget((), name="x")))
        looks: list[str] = []

        @event.listens_for(store.database.engine, "before_cursor_execute")
        def note(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
            if "FROM schedule" in statement:
                looks.append(statement)

        began = time.monotonic()
        lab.watch(Silent(), store=store, until_idle=False, max_cycles=8)
        assert 1 <= len(looks) <= 4 + (time.monotonic() - began) / 2


def test_a_verb_that_fails_is_reported_where_schedules_are_listed(seeded: Lab) -> None:
    """Nothing of its workflow is stored; the next try is a matter of seconds, not of the schedule."""
    write(seeded, SCHEDULE.replace("verb: seed", "verb: sead") + SCHEDULE.replace("nightly", "n2").replace("3", "x"))
    seeded.work()
    assert workflows(seeded) == []
    with closing(seeded.store()) as store:
        errors = {known.name: str(known.error) for known in store.schedules.all()}
        retried = store.schedules.get(SITE, "nightly").firing
    assert 'did you mean "seed"' in errors["nightly"]
    assert "pages" in errors["n2"]
    assert retried is not None


def test_site_check_knows_verbs_and_values_of_schedules(lab: Lab) -> None:
    """SCHED-12."""
    write(
        lab, SCHEDULE + "  - {name: x, verb: sead, every: 1h}\n  - {name: y, verb: seed, every: 1h, values: {page: 1}}"
    )
    faults = check_site(lab.registry.site(SITE))
    assert [(fault.line, fault.message.partition(":")[0]) for fault in faults] == [
        (12, "site.schedules[1].verb"),
        (13, "site.schedules[2].values"),
    ]
    assert 'did you mean "seed"' in str(faults[0])
    assert 'did you mean "pages"' in str(faults[1])


@pytest.mark.parametrize("instant", ["before", "after"])
def test_a_worker_killed_around_the_submission_of_a_verb_fires_once(seeded: Lab, instant: str) -> None:
    arguments = (seeded.engine_db, str(seeded.folder), instant)
    code, _, err = warm.run("tests.schedules.dying_worker:main", arguments, cwd=ROOT, env=dict(os.environ))
    assert code == -signal.SIGKILL, err
    with closing(seeded.store()) as store:
        known = store.schedules.get(SITE, "nightly")
    assert len(workflows(seeded)) == (instant == "after")
    assert (known.firing is None) == (instant == "after")
    # a neighbour proves the death and takes over; that lapses by itself only half a minute later
    seeded.work()
    (made,) = workflows(seeded)
    assert made["status"] == "succeeded"
    with closing(seeded.store()) as store:
        assert store.schedules.get(SITE, "nightly").runs == 1


INTERVAL = 50_000  # microseconds
JOBS, ITERATIONS = 3, 30


class NoOp:
    """Does nothing."""

    async def run(self, ctx: RunContext) -> Result:
        ctx.started()
        return EMPTY_RESULT

    async def resolve(self, ctx: RunContext) -> Result | None:
        return None

    async def aclose(self) -> None: ...


def test_two_workers_run_the_iterations_of_three_jobs_one_after_another_and_all_of_them(
    either_lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next iteration is due after the end of the last one; none overlaps, none is missed, none is doubled."""
    monkeypatch.setitem(vars(app), "_runners", lambda *_: {"noop": NoOp()})
    begin = NewOp(id="begin", kind="noop", site=SITE)
    finished = NewOp(id="finished", kind="noop", site=SITE, depends_on=(Dependency("begin"),))
    with closing(either_lab.store()) as store, closing(either_lab.store()) as other:
        for number in range(JOBS):
            target = OpsTarget((begin, finished), name=f"job {number}")
            new = NewSchedule(site=SITE, name=f"job{number}", rule=After(INTERVAL), target=target, first_due=0)
            store.schedules.put(new)
        asyncio.run(work_side_by_side(either_lab, [store, other]))
        for known in store.schedules.all():
            assert known.runs >= ITERATIONS
            check_iterations(store, known)
        with store.database.read() as connection:
            names = connection.exec_driver_sql("SELECT DISTINCT worker FROM attempt").all()
        assert len(names) == 2, "both took part"


async def work_side_by_side(lab: Lab, stores: list[Store]) -> None:
    """Two workers in this process until every job has had its iterations."""
    settings, registry = lab.settings, lab.registry
    workers = [
        asyncio.create_task(app._work(settings, registry, options, Silent(), store, app.CHILD, None))
        for store, options in zip(
            stores,
            (WorkerOptions(worker_id=name, machine_id="m1", js_processes=1) for name in ("w1", "w2")),
            strict=True,
        )
    ]
    while min(known.runs for known in stores[0].schedules.all()) < ITERATIONS:
        done, _ = await asyncio.wait(workers, timeout=0.1)
        assert not done
    for worker in workers:
        worker.cancel()
    await asyncio.gather(*workers, return_exceptions=True)


def check_iterations(store: Store, known: Schedule) -> None:
    query = f"""SELECT metadata_json, created_at, updated_at, status FROM workflow
        WHERE id LIKE '{known.key}@%' ORDER BY created_at, pk"""
    with store.database.read() as connection:
        rows = connection.exec_driver_sql(query.replace("%", "%%") if not store.database.is_sqlite else query).all()
    assert [int(json.loads(row.metadata_json)["scheduleRun"]) for row in rows] == list(range(1, known.runs + 1))
    for before, after in pairwise(rows):
        assert before.status == "succeeded"
        assert after.created_at - before.updated_at >= INTERVAL
