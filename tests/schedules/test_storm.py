"""Workers killed at random while they fire verbs and lists of ops (SCHED-20): each due time becomes one workflow."""

from __future__ import annotations

import json
import random
import time
from contextlib import closing

import pytest

from engine.clock import SECOND
from engine.schedules import After, Every, NewSchedule, OpsTarget, Overlap, Schedule, VerbTarget, workflow_id
from engine.store.store import Store
from tests import warm
from tests.worker.lab import MANIFEST, SITE, Lab, js

KILLS = 40


@pytest.mark.chaos
@pytest.mark.timeout(1800)
def test_due_times_become_one_workflow_each_whichever_workers_are_killed(either_lab: Lab) -> None:
    lab = either_lab
    lab.write("site.yaml", MANIFEST)
    lab.write(
        "verbs/seed.js",
        '__verb__("seed", {});\n'
        'function seed(ctx) { ctx.emit({id: "told", kind: "js", metadata: {script: "told.js"}}); }',
    )
    lab.write("scripts/told.js", "module.exports = () => 1")
    listed = OpsTarget((js("told", "told.js", machine=""),), name="list")
    with closing(lab.store()) as store:
        for name, rule, target in (
            ("verb", Every(SECOND), VerbTarget("seed")),
            ("list", Every(SECOND // 2), listed),
            ("verb-after", After(SECOND // 5), VerbTarget("seed")),
            ("list-after", After(SECOND // 5), listed),
        ):
            overlap = Overlap.ALLOW if name == "list" else Overlap.QUEUE
            store.schedules.add(NewSchedule(site=SITE, name=name, rule=rule, target=target, overlap=overlap))
        storm(lab, store)
        for known in store.schedules.all():
            store.schedules.pause(SITE, known.name)
        lab.work()
        for known in store.schedules.all():
            print(f"{known.key}: {known.runs} runs, {known.skipped} times passed over")
            check(store, known)


def storm(lab: Lab, store: Store) -> None:
    """Two workers at a time; again and again, some time after a run has ended, one is killed and replaced."""
    chance = random.Random(7)
    arguments = (lab.engine_db, lab.folder)
    workers = [warm.start("tests.schedules.storm_worker:main", arguments) for _ in range(2)]
    try:
        for _ in range(KILLS):
            await_ends(store, ended(store) + 1)
            time.sleep(chance.uniform(0.0, 0.5))
            workers[0].kill()
            workers[0].wait()
            workers = [workers[1], warm.start("tests.schedules.storm_worker:main", arguments)]
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()


def ended(store: Store) -> int:
    with store.database.read() as connection:
        query = "SELECT count(*) FROM workflow WHERE status = 'succeeded'"
        return int(connection.exec_driver_sql(query).scalar_one())


def await_ends(store: Store, wanted: int) -> None:
    """Wait until so many runs have ended in all."""
    deadline = time.monotonic() + 120
    while ended(store) < wanted:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def check(store: Store, known: Schedule) -> None:
    """Runs are numbered without a gap, bear the names of their due times, and all their ops have succeeded."""
    with store.database.read() as connection:
        rows = connection.exec_driver_sql("SELECT id, metadata_json, status FROM workflow ORDER BY pk").all()
    told = [(row, json.loads(row.metadata_json)) for row in rows]
    mine = [(row, metadata) for row, metadata in told if metadata["schedule"] == known.key]
    assert known.runs > 0
    assert [int(metadata["scheduleRun"]) for _, metadata in mine] == list(range(1, known.runs + 1))
    assert {row.status for row, _ in mine} == {"succeeded"}
    assert known.error is None
    ids = [row.id for row, _ in mine]
    assert len(set(ids)) == len(ids)
    assert known.last_workflow == workflow_id(known.site, known.name, known.last_due_at or 0) == ids[-1]
    if not isinstance(known.rule, After) and not known.skipped:
        dues = [metadata["scheduledFor"] for _, metadata in mine]
        assert dues == sorted(dues)
