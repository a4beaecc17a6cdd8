"""Ops with an empty script, beside bare V8 isolates that are created, used once and closed."""

from __future__ import annotations

import json
import sys
import time
from contextlib import ExitStack

from benchmarks.frame import Bench, Benchmark, Contestant, Goal, Sample
from benchmarks.ours import FROZEN, SITE, place
from benchmarks.processes import started
from engine.model import NewOp

NAME = "isolates"
TITLE = "JS ops with an empty script, two child processes"
PROCESSES = 2


def benchmark(bench: Bench) -> Benchmark:
    """Both run two processes that do nothing but JavaScript."""
    count = bench.size(1_500, 200)
    return Benchmark(
        title=TITLE,
        figure="rate",
        unit="ops/s",
        rounds=min(2, bench.rounds),
        sizes={"ops": count, "processes": PROCESSES},
        contestants=[
            Contestant("ours", lambda: ours(bench, SITE, count)),
            Contestant("ours, frozen", lambda: ours(bench, FROZEN, count)),
            Contestant("bare isolates", lambda: bare(count)),
        ],
        goals=[Goal("ours", "bare isolates", ">=", 0.8), Goal("ours, frozen", "ours", ">=", 4.0)],
    )


def ours(bench: Bench, site: str, count: int) -> Sample:
    """One worker on SQLite."""
    script = {"script": "empty"}
    with place(bench, "sqlite") as here:
        ops = (
            NewOp(id=f"js{number}", kind="js", site=site, metadata=script, machine="bench") for number in range(count)
        )
        here.submit(ops, site=site)
        ran = here.work(max_workers=8, js_processes=PROCESSES)
    return {"rate": count / ran.said["seconds"], "cpu s": ran.cpu_seconds, "peak MB": ran.peak_mb}


def bare(count: int) -> Sample:
    """Isolates of mini-racer, the evaluation of a constant in each."""
    command = [sys.executable, __file__, str(count // PROCESSES)]
    with ExitStack() as stack:
        processes = [stack.enter_context(started(command)) for _ in range(PROCESSES)]
        spans = [json.loads(process.communicate()[0]) for process in processes]
    return {"rate": count / (max(end for _, end in spans) - min(start for start, _ in spans))}


def _isolates(count: int) -> tuple[float, float]:
    from py_mini_racer import MiniRacer

    for number in range(count + 1):
        if number == 1:
            began = time.monotonic()
        racer = MiniRacer()
        racer.eval("1")
        racer.close()
    return began, time.monotonic()


if __name__ == "__main__":
    print(json.dumps(_isolates(int(sys.argv[1]))))
