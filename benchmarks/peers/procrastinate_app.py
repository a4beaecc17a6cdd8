"""procrastinate. ``procrastinate_app.py COMMAND JSON`` prints what it measured."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import procrastinate

COMMAND, TOLD = sys.argv[1], json.loads(sys.argv[2])
app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=TOLD["database"]))
times: list[float] = []
finished = asyncio.Event()


@app.task()
async def noop() -> None:
    times.append(time.monotonic())


@app.task()
async def note(sent: float) -> None:
    times.append(time.monotonic() - sent)
    if len(times) == TOLD["count"]:
        finished.set()


@app.task()
async def seed(run: int) -> None:
    """One op that fans out."""
    times.append(time.monotonic())
    await leaf.batch_defer_async(*({"run": run} for _ in range(TOLD["width"])))


@app.task()
async def leaf(run: int) -> None:
    """A hand-made join: the leaf that counts to the width defers it, counter and job in one transaction."""
    async with app.connector.pool.connection() as connection, connection.transaction():
        cursor = await connection.execute("UPDATE joins SET n = n + 1 WHERE run = %s RETURNING n", [run])
        row = await cursor.fetchone()
    if row is not None and row[0] == TOLD["width"]:
        await join.defer_async(run=run)


@app.task()
async def join(run: int) -> None:
    times.append(time.monotonic())


async def throughput() -> dict[str, Any]:
    """Jobs are all queued before the worker starts."""
    count = TOLD["count"]
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        for start in range(0, count, 1_000):
            await noop.batch_defer_async(*({} for _ in range(min(1_000, count - start))))
        await app.run_worker_async(wait=False, concurrency=TOLD["batch"], install_signal_handlers=False)
    assert len(times) == count
    return {"rate": (count - 1) / (times[-1] - times[0])}


async def fanout() -> dict[str, Any]:
    """Five times (1 -> many -> join)."""
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        async with app.connector.pool.connection() as connection:
            await connection.execute("CREATE TABLE joins (run integer PRIMARY KEY, n integer NOT NULL)")
            for run in range(TOLD["runs"]):
                await connection.execute("INSERT INTO joins VALUES (%s, 0)", [run])
        for run in range(TOLD["runs"]):
            await seed.defer_async(run=run)
        await app.run_worker_async(wait=False, concurrency=TOLD["batch"], install_signal_handlers=False)
    assert len(times) == 2 * TOLD["runs"]
    return {"seconds": times[-1] - times[0]}


async def work() -> dict[str, Any]:
    """An idle worker, asked now and then."""
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        worker = asyncio.create_task(app.run_worker_async(install_signal_handlers=False))
        asyncio.get_running_loop().call_later(1.0, Path(TOLD["ready"]).touch)
        await finished.wait()
        await asyncio.sleep(0.2)
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)
    return {"latencies": times}


async def send() -> None:
    """Ask now and then."""
    async with app.open_async():
        for pause in TOLD["pauses"]:
            await asyncio.sleep(pause)
            await note.defer_async(sent=time.monotonic())


def latency() -> dict[str, Any]:
    """Jobs sent from this process to a worker in another."""
    with subprocess.Popen([sys.executable, __file__, "work", sys.argv[2]], stdout=subprocess.PIPE, text=True) as other:
        while not Path(TOLD["ready"]).exists():
            time.sleep(0.01)
        asyncio.run(send())
        assert other.stdout is not None
        said: dict[str, Any] = json.loads(other.stdout.read().splitlines()[-1])
        return said


RUNS = {"throughput": throughput, "fanout": fanout, "work": work}
print(json.dumps(latency() if COMMAND == "latency" else asyncio.run(RUNS[COMMAND]())))
