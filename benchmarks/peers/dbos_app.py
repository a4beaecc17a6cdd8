"""DBOS on SQLite or PostgreSQL. ``dbos_app.py COMMAND JSON`` prints what it measured."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from typing import Any

from dbos import DBOS

COMMAND, TOLD = sys.argv[1], json.loads(sys.argv[2])
URL = TOLD["database"]
times: list[float] = []
lock = threading.Lock()

DBOS(config={"name": "bench", "system_database_url": URL, "log_level": "ERROR"})


@DBOS.workflow()
def noop() -> None:
    with lock:
        times.append(time.monotonic())


@DBOS.workflow()
def fan(run: int) -> None:
    """One workflow that fans out to children on the queue and joins them."""
    times.append(time.monotonic())
    handles = [DBOS.enqueue_workflow("bench", leaf, number) for number in range(TOLD["width"])]
    for handle in handles:
        handle.get_result()
    times.append(time.monotonic())


@DBOS.workflow()
def leaf(number: int) -> int:
    return number


def fill() -> dict[str, Any]:
    """Queue workflows while nobody listens to their queue."""
    DBOS.listen_queues(["another"])
    DBOS.launch()
    DBOS.register_queue("bench")
    for _ in range(TOLD["count"]):
        DBOS.enqueue_workflow("bench", noop)
    DBOS.destroy()
    return {}


def throughput() -> dict[str, Any]:
    """Workflows are all queued before the executor looks at the queue."""
    subprocess.run([sys.executable, __file__, "fill", sys.argv[2]], check=True, stdout=subprocess.DEVNULL)
    DBOS.launch()
    DBOS.register_queue("bench")
    while DBOS.list_workflows(status=["ENQUEUED", "PENDING"], limit=1, load_input=False, load_output=False):
        time.sleep(0.02)
    done = time.monotonic()
    assert len(times) == TOLD["count"]
    DBOS.destroy()
    return {"rate": TOLD["count"] / (done - times[0])}


def fanout() -> dict[str, Any]:
    """Five times (1 -> many -> join)."""
    DBOS.launch()
    DBOS.register_queue("bench")
    handles = []
    for run in range(TOLD["runs"]):
        handles.append(DBOS.start_workflow(fan, run))
    for handle in handles:
        handle.get_result()
    DBOS.destroy()
    return {"seconds": max(times) - min(times)}


print(json.dumps({"fill": fill, "throughput": throughput, "fanout": fanout}[COMMAND]()))
