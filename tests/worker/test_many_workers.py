"""Many worker processes on one engine DB: each op runs once, and each queue keeps its policy (WRK-14)."""

from __future__ import annotations

import json
from contextlib import closing
from itertools import pairwise

import pytest

from engine.clock import SECOND
from engine.model import NewOp
from tests import warm
from tests.worker.lab import Lab

CAP, CAPPED = 3, 120
RATE, BURST, PACED = 50, 60, 360
POLICIES = f"""queuePolicies:
  - queue: capped
    maxInFlight: {CAP}
  - queue: paced
    maxInFlight: 100
    rateLimit: {{kind: token_bucket, ratePerSecond: {RATE}, burst: {BURST}}}
"""


def noop(name: str, queue: str = "") -> NewOp:
    """An op that does nothing."""
    return NewOp(id=name, kind="noop", site="shop", queue=queue)


def work(lab: Lab, workers: int) -> list[str]:
    """Let so many processes work until idle; the ids of the ops that ran, in order."""
    log = lab.folder / "ran.log"
    options = json.dumps({"max_workers": 64})
    arguments = (lab.engine_db, lab.folder, log, options)
    processes = [warm.start("tests.worker.noop_process:main", arguments) for _ in range(workers)]
    try:
        assert [process.wait() for process in processes] == [0] * workers
    finally:
        for process in processes:
            process.kill()
    return log.read_text().split()


def attempts(lab: Lab, queue: str) -> list[tuple[int, int]]:
    """When the attempts of a queue's ops began and ended, in order."""
    query = (
        "SELECT a.claimed_at, a.ended_at FROM attempt a JOIN op o ON o.pk = a.op_pk JOIN queue q ON q.pk = o.queue_pk"
        f" WHERE q.key = '{queue}' ORDER BY a.claimed_at, a.op_pk"
    )
    with closing(lab.store()) as store, store.database.read() as connection:
        return [(int(row[0]), int(row[1])) for row in connection.exec_driver_sql(query)]


def peak(spans: list[tuple[int, int]]) -> int:
    """How many spans overlap at most; one may begin in the instant another ends."""
    edges = sorted([(end, -1) for _, end in spans] + [(start, 1) for start, _ in spans])
    level = highest = 0
    for _, step in edges:
        level += step
        highest = max(highest, level)
    return highest


@pytest.mark.parametrize(
    ("engine_url", "workers", "free"),
    [("sqlite", 2, 10_000), ("sqlite", 8, 10_000), ("postgresql", 8, 2_000)],
    indirect=["engine_url"],
)
def test_many_workers_run_each_op_once_under_the_queues_policies(either_lab: Lab, workers: int, free: int) -> None:
    lab = either_lab
    lab.write("site.yaml", lab.manifest.read_text() + POLICIES)
    ops = [
        *(noop(f"capped{n}", "capped") for n in range(CAPPED)),
        *(noop(f"paced{n}", "paced") for n in range(PACED)),
        *(noop(f"free{n}") for n in range(free)),
    ]
    lab.submit(*ops)
    ran = work(lab, workers)
    assert sorted(ran) == sorted(op.id for op in ops)
    assert set(lab.statuses().values()) == {"succeeded"}
    spans = {queue: attempts(lab, queue) for queue in ("", "capped", "paced")}
    assert {queue: len(found) for queue, found in spans.items()} == {"": free, "capped": CAPPED, "paced": PACED}
    assert peak(spans["capped"]) == CAP
    paced = [claimed for claimed, _ in spans["paced"]]
    for place, first in enumerate(paced):
        for count, moment in enumerate(paced[place:], start=1):
            assert count <= BURST + RATE * (moment - first) / SECOND + 1
    # a stall of the whole machine costs what a full bucket cannot hold: longer gaps count as long as it fills
    working = sum(min(later - earlier, BURST * SECOND // RATE) for earlier, later in pairwise(paced))
    assert len(paced) * SECOND / working >= 45
