"""pgqueuer. ``pgqueuer_app.py COMMAND JSON`` prints what it measured."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import asyncpg
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries

COMMAND, TOLD = sys.argv[1], json.loads(sys.argv[2])
COUNT = TOLD["count"]


async def consumer() -> tuple[PgQueuer, Queries]:
    """A consumer with a connection of its own."""
    connection = await asyncpg.connect(TOLD["database"])
    return PgQueuer.from_asyncpg_connection(connection), Queries(AsyncpgDriver(connection))


async def throughput() -> dict[str, Any]:
    """Jobs are all queued before the consumer starts; its batches are as large as our groups."""
    queue, queries = await consumer()
    await queries.install()
    times: list[float] = []

    @queue.entrypoint("noop")
    async def noop(job: Job) -> None:
        times.append(time.monotonic())
        if len(times) == COUNT:
            queue.shutdown.set()

    for start in range(0, COUNT, 1_000):
        size = min(1_000, COUNT - start)
        await queries.enqueue(["noop"] * size, [None] * size, [0] * size)
    await queue.qm.run(batch_size=TOLD["batch"])
    # what is left in the buffer of the last batch is written on the way out
    return {
        "rate": (COUNT - 1) / (time.monotonic() - times[0]),
        "rate_to_last_start": (COUNT - 1) / (times[-1] - times[0]),
    }


async def work() -> dict[str, Any]:
    """An idle consumer, asked now and then."""
    queue, queries = await consumer()
    await queries.install()
    latencies: list[float] = []

    @queue.entrypoint("note")
    async def note(job: Job) -> None:
        assert job.payload is not None
        latencies.append(time.monotonic() - float(job.payload))
        if len(latencies) == COUNT:
            queue.shutdown.set()

    asyncio.get_running_loop().call_later(1.0, Path(TOLD["ready"]).touch)
    await queue.qm.run()
    return {"latencies": latencies}


async def send() -> None:
    """Ask now and then."""
    _, queries = await consumer()
    for pause in TOLD["pauses"]:
        await asyncio.sleep(pause)
        await queries.enqueue("note", str(time.monotonic()).encode())


def latency() -> dict[str, Any]:
    """Jobs sent from this process to a consumer in another."""
    with subprocess.Popen([sys.executable, __file__, "work", sys.argv[2]], stdout=subprocess.PIPE, text=True) as other:
        while not Path(TOLD["ready"]).exists():
            time.sleep(0.01)
        asyncio.run(send())
        assert other.stdout is not None
        said: dict[str, Any] = json.loads(other.stdout.read().splitlines()[-1])
        return said


RUNS = {"throughput": throughput, "work": work}
print(json.dumps(latency() if COMMAND == "latency" else asyncio.run(RUNS[COMMAND]())))
