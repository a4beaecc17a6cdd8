"""huey on SQLite. ``huey_app.py COMMAND JSON`` prints what it measured."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from huey import SqliteHuey

COMMAND, TOLD = sys.argv[1], json.loads(sys.argv[2])
queue = SqliteHuey("bench", filename=TOLD["database"])
times: list[float] = []
finished = threading.Event()


@queue.task()
def noop() -> None:
    times.append(time.monotonic())
    if len(times) == TOLD["count"]:
        finished.set()


@queue.task()
def note(sent: float) -> None:
    times.append(time.monotonic() - sent)
    if len(times) == TOLD["count"]:
        finished.set()


def throughput() -> dict[str, Any]:
    """Tasks are all queued before the consumer starts."""
    for _ in range(TOLD["count"]):
        noop()
    consumer = queue.create_consumer(workers=1, worker_type="thread", periodic=False)
    consumer.start()
    finished.wait()
    consumer.stop(graceful=True)
    return {"rate": (TOLD["count"] - 1) / (times[-1] - times[0])}


def work() -> dict[str, Any]:
    """An idle consumer, asked now and then."""
    consumer = queue.create_consumer(workers=1, worker_type="thread", periodic=False)
    consumer.start()
    Path(TOLD["ready"]).touch()
    finished.wait()
    consumer.stop(graceful=True)
    return {"latencies": times}


def latency() -> dict[str, Any]:
    """Tasks sent from this process to a consumer in another."""
    with subprocess.Popen(
        [sys.executable, __file__, "work", sys.argv[2]], stdout=subprocess.PIPE, text=True
    ) as consumer:
        while not Path(TOLD["ready"]).exists():
            time.sleep(0.01)
        for pause in TOLD["pauses"]:
            time.sleep(pause)
            note(time.monotonic())
        assert consumer.stdout is not None
        said: dict[str, Any] = json.loads(consumer.stdout.read().splitlines()[-1])
        return said


print(json.dumps({"throughput": throughput, "work": work, "latency": latency}[COMMAND]()))
