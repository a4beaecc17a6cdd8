"""Runs the benchmarks, prints the figures and writes them as JSON: ``python -m benchmarks [--quick] [--only NAME]``."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

from benchmarks import (
    collect,
    crawl,
    fanout,
    flat,
    hooks,
    isolates,
    jobs,
    latency,
    memory,
    noop,
    schedules,
    submit,
    workers,
)
from benchmarks.frame import STATE, Bench, Benchmark, Run, judged, play
from benchmarks.machine import disk_probe, machine, versions
from benchmarks.peers import Peers
from benchmarks.postgres import Postgres
from benchmarks.table import show

BENCHMARKS: tuple[ModuleType, ...] = (
    noop,
    submit,
    flat,
    fanout,
    isolates,
    crawl,
    latency,
    memory,
    workers,
    collect,
    hooks,
    schedules,
    jobs,
)
RESULTS = Path(__file__).resolve().parent / "results"


def main() -> None:
    """Run what was asked for."""
    names = [module.NAME for module in BENCHMARKS]
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, one round: does it run at all?")
    parser.add_argument("--only", action="append", choices=names, metavar="NAME", help=f"one of {', '.join(names)}")
    parser.add_argument(
        "--rounds", type=int, default=0, metavar="N", help="runs of each contestant (default 3; quick 1)"
    )
    options = parser.parse_args()
    chosen = [module for module in BENCHMARKS if not options.only or module.NAME in options.only]
    began = time.monotonic()
    with ExitStack() as lasting:
        # a run that was killed leaves its server's files behind
        postgres = Postgres(STATE / f"postgresql-{os.getpid()}")
        lasting.callback(postgres.close)
        bench = Bench(options.quick, Peers(STATE), postgres, lasting, options.rounds or (1 if options.quick else 3))
        report: dict[str, Any] = {
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
            "quick": options.quick,
            "rounds": bench.rounds,
            "machine": machine(),
            "versions": versions() | {"postgresql": postgres.version} | bench.peers.versions(),
            "benchmarks": {},
        }
        _say(json.dumps(report["machine"] | {"versions": report["versions"]}))
        for module in chosen:
            report["benchmarks"][module.NAME] = _measure(module, bench)
        report["seconds"] = round(time.monotonic() - began, 1)
    show(report)
    _say(f"{report['seconds']:.0f} s, written to {_write(report)}")


def _measure(module: ModuleType, bench: Bench) -> dict[str, Any]:
    benchmark: Benchmark = module.benchmark(bench)
    if bench.quick:
        quick = [contestant for contestant in benchmark.contestants if contestant.quick]
        benchmark = replace(benchmark, contestants=quick)
    _say(f"{module.NAME}: {benchmark.title}")
    probe = disk_probe(STATE / "scratch")
    began = time.monotonic()
    runs = play(benchmark, _say)
    return {
        "title": benchmark.title,
        "unit": benchmark.unit,
        "figure": benchmark.figure,
        "sizes": dict(benchmark.sizes),
        "disk": probe,
        "seconds": round(time.monotonic() - began, 1),
        "contestants": {name: _told(run) for name, run in runs.items()},
        "goals": [_goal(goal, benchmark, runs) for goal in benchmark.goals],
    }


def _told(run: Run) -> dict[str, Any]:
    return {"problem": run.problem, "medians": run.medians(), "samples": [dict(sample) for sample in run.samples]}


def _goal(goal: Any, benchmark: Benchmark, runs: Mapping[str, Run]) -> dict[str, Any]:
    reached, enough = judged(goal, benchmark, runs)
    return {
        "ours": goal.ours,
        "other": goal.other,
        "figure": goal.figure or benchmark.figure,
        "sense": goal.sense,
        "bound": goal.bound,
        "note": goal.note,
        "reached": reached,
        "enough": enough,
    }


def _write(report: Mapping[str, Any]) -> Path:
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{datetime.now(UTC):%Y-%m-%dT%H%M%S}{'-quick' if report['quick'] else ''}.json"
    path.write_text(json.dumps(report, indent=1) + "\n")
    return path


def _say(line: object) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
