"""From enqueueing in one process to the start in an idle worker, and what idling costs."""

from __future__ import annotations

import json
import random
import signal
import statistics
import time
from contextlib import closing

import psutil

from benchmarks.frame import Bench, Benchmark, Contestant, Goal, Sample
from benchmarks.ours import SITE, place, worker_command
from benchmarks.processes import started
from engine.model import NewOp, NewWorkflow
from engine.store.store import Store

NAME = "latency"
TITLE = "enqueue to start on an idle worker, from another process"


def benchmark(bench: Bench) -> Benchmark:
    """Ours on both databases beside the queues."""
    pauses = [random.Random(number).uniform(0.15, 0.35) for number in range(bench.size(30, 4))]
    idle = bench.size(10, 1)
    return Benchmark(
        title=TITLE,
        figure="p50",
        unit="ms",
        rounds=min(2, bench.rounds),
        sizes={"ops": len(pauses), "pause": "150 to 350 ms", "idle seconds": idle},
        contestants=[
            Contestant("ours on SQLite", lambda: ours(bench, "sqlite", pauses, idle)),
            Contestant("huey", lambda: huey(bench, pauses)),
            Contestant("ours on PostgreSQL", lambda: ours(bench, "postgresql", pauses, idle)),
            Contestant("pgqueuer", lambda: postgres_peer(bench, "pgqueuer", pauses)),
            Contestant("procrastinate", lambda: postgres_peer(bench, "procrastinate", pauses)),
        ],
        goals=[
            Goal("ours on PostgreSQL", "pgqueuer", "<=", 1.0),
            Goal("ours on SQLite", None, "<=", 20.0),
            Goal("ours on SQLite", None, "<=", 1.0, figure="idle % of a core"),
            Goal("ours on PostgreSQL", None, "<=", 1.0, figure="idle % of a core"),
        ],
    )


def ours(bench: Bench, dialect: str, pauses: list[float], idle: int) -> Sample:
    """The worker's own options, one workflow per op."""
    with place(bench, dialect) as here, closing(Store.open(here.engine_db)) as store:
        with started(worker_command(here.told(max_workers=4, until_idle=False))) as process:
            while not store.workers("bench"):
                time.sleep(0.05)
            time.sleep(1.5)
            watched = psutil.Process(process.pid)
            before = sum(watched.cpu_times()[:2])
            time.sleep(idle)
            used = sum(watched.cpu_times()[:2]) - before
            for number, pause in enumerate(pauses):
                time.sleep(pause)
                note = NewOp(id="note", kind="note", site=SITE, input=str(time.monotonic()))
                store.submit(NewWorkflow(id=f"w{number}", site=SITE, name="bench", ops=(note,)))
            time.sleep(1.0)
            process.send_signal(signal.SIGTERM)
            out, _ = process.communicate(timeout=60)
        latencies = json.loads(out.strip().splitlines()[-1])["latencies"]
    assert len(latencies) == len(pauses)
    return _sample(latencies) | {"idle % of a core": 100 * used / idle}


def huey(bench: Bench, pauses: list[float]) -> Sample:
    """The consumer's default polling."""
    with bench.scratch() as folder:
        told = {"database": str(folder / "huey.db"), "ready": str(folder / "ready")}
        told_more = {"count": len(pauses), "pauses": pauses}
        return _sample(bench.peers.run("huey", "latency", told | told_more).said["latencies"])


def postgres_peer(bench: Bench, peer: str, pauses: list[float]) -> Sample:
    """pgqueuer or procrastinate, with their defaults."""
    with bench.scratch() as folder, bench.postgres.database() as url:
        told = {"database": url, "ready": str(folder / "ready"), "count": len(pauses), "pauses": pauses, "width": 0}
        return _sample(bench.peers.run(peer, "latency", told).said["latencies"])


def _sample(latencies: list[float]) -> dict[str, float]:
    ordered = sorted(latencies)
    return {"p50": 1000 * statistics.median(ordered), "p90": 1000 * ordered[int(len(ordered) * 0.9) - 1]}
