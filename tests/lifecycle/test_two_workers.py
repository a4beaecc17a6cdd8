"""Two workers on one engine DB carry out started jobs: no iteration overlaps another of its job, none is missed."""

from __future__ import annotations

import itertools
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from engine.app import open_store
from engine.jobs import start_job, stop_job
from tests import warm
from tests.lifecycle.lab import SITE, Lab, open_lab

EACH = 10


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    monkeypatch.setattr("engine.jobs.machine_id", lambda _: "m1")
    with open_lab(tmp_path) as made:
        yield made


def finished(lab: Lab) -> dict[str, int]:
    query = "SELECT job_id, COUNT(*) FROM monitor_iterations WHERE finished_at IS NOT NULL GROUP BY job_id"
    try:
        return dict(lab.site(query))
    except sqlite3.OperationalError:
        return {}


@pytest.mark.timeout(600)
def test_two_workers_run_thirty_iterations_of_three_jobs_one_after_another(lab: Lab) -> None:
    """JOB-210"""
    jobs = [lab.job(name, interval=1) for name in ("a", "b", "c")]
    site = lab.registry.site(SITE)
    with closing(open_store(lab.settings)) as store:
        for job in jobs:
            start_job(lab.settings, store, site, job)
        workers = [warm.start("tests.lifecycle.worker_main:main", (str(lab.folder), "m1", "on")) for _ in range(2)]
        try:
            while min((finished(lab).get(job.id, 0) for job in jobs), default=0) < EACH:
                assert [worker.poll() for worker in workers] == [None, None]
                time.sleep(0.1)
            for job in jobs:
                stop_job(store, site, job)
        finally:
            for worker in workers:
                worker.terminate()
            for worker in workers:
                worker.wait(60)
    lab.work()
    for job in jobs:
        rows = lab.site(
            "SELECT number, started_at, finished_at FROM monitor_iterations WHERE job_id = ? ORDER BY number", job.id
        )
        assert [row[0] for row in rows] == list(range(1, len(rows) + 1))
        for (_, _, ended), (_, started, _) in itertools.pairwise(rows):
            assert started - ended >= 1_000_000
    workflows = lab.site("SELECT COUNT(*), COUNT(DISTINCT workflow_id) FROM monitor_iterations")
    with closing(open_store(lab.settings)) as store, store.database.read() as connection:
        assert connection.exec_driver_sql("SELECT COUNT(*) FROM workflow").scalar_one() == workflows[0][0]
    assert workflows[0][0] == workflows[0][1] >= 3 * EACH
    assert {status for status, _ in lab.cycles().values()} == {"success"}
