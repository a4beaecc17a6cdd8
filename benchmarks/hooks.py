"""What a hook costs beside the process it is: alone, supervised, as a durable op; many at once."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from benchmarks.frame import ROOT, Bench, Benchmark, Contestant, Goal, Sample
from engine.app import WorkerOptions, open_store, run_worker
from engine.clock import SystemClock, rfc3339
from engine.config import HookSettings, ManifestDirectory, Settings
from engine.crawls import add_crawl
from engine.hooks.graph import CrawlSpec
from engine.hooks.layout import Place
from engine.hooks.records import HookRecord
from engine.hooks.supervise import Job, Watch
from engine.js.ports import SessionSpec, SiteSession
from engine.liveness import own_identity
from engine.plugins.registry import discover
from engine.plugins.site import Site
from engine.projection import archive
from engine.projection import archive_rows as rows
from engine.projection.archive import Write
from engine.projection.databases import OpenDatabases
from engine.worker.options import Silent

NAME = "hooks"
#: What each hook of the contention benchmark writes.
_FILES = 50
TITLE = "a no-op shell hook: plain subprocess, supervised, and as a durable op"
_CRAWL = """
import sys
from pathlib import Path
from benchmarks.hooks import crawl
print(crawl(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]))
"""


def benchmark(bench: Bench) -> Benchmark:
    """The overhead of one hook, then of many."""
    count, snapshots, background = bench.size(200, 30), bench.size(20, 4), bench.size(60, 10)
    writing = bench.size(60, 10)
    return Benchmark(
        title=TITLE,
        figure="ms per hook",
        unit="ms",
        rounds=min(2, bench.rounds),
        sizes={
            "hooks": count,
            "snapshots in parallel": snapshots,
            "background hooks": background,
            "hooks that write files": writing,
            "files of each": _FILES,
        },
        contestants=[
            Contestant("subprocess", lambda: plain(bench, count)),
            Contestant("supervised", lambda: supervised(bench, count)),
            Contestant("one snapshot", lambda: durable(bench, 1, min(count, 89))),
            Contestant("snapshots in parallel", lambda: durable(bench, snapshots, 10)),
            Contestant("background hooks", lambda: in_background(bench, background)),
            Contestant("rows", lambda: row_cost(bench, bench.size(2_000, 200))),
            Contestant("files, one hook after another", lambda: contention(bench, writing, "")),
            Contestant("files, all hooks at once", lambda: contention(bench, writing, "bg")),
        ],
        goals=[
            Goal("supervised", None, "<=", 5.0, figure="ms over subprocess"),
            Goal("background hooks", None, "<=", 150.0, figure="peak MB"),
        ],
    )


def plain(bench: Bench, count: int) -> Sample:
    """``subprocess`` and nothing else."""
    with bench.scratch() as folder:
        return {"ms per hook": _plain(folder, count)}


def _plain(folder: Path, count: int) -> float:
    hook = _hook(folder / "p" / "on_Snapshot__10_p.sh", "exit 0")
    times = []
    for _ in range(count):
        began = time.perf_counter()
        subprocess.run([str(hook)], check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        times.append(time.perf_counter() - began)
    return statistics.median(times) * 1000


def supervised(bench: Bench, count: int) -> Sample:
    """A session, files, a pid record, the exit code on disk: everything but the databases."""
    with bench.scratch() as folder:
        base = _plain(folder, count)
        hook, place = folder / "p" / "on_Snapshot__10_p.sh", Place(folder / "snap")
        job = Job(
            words=[str(hook)],
            cwd=place.plugin("p"),
            environment={"PATH": os.environ["PATH"]},
            traces=place.traces("p", hook.name),
            mark="bench;",
            op="op",
            claim=0,
            machine="m",
            owner=own_identity(),
            timeout=60.0,
            grace=10.0,
        )

        async def take(_records: Sequence[HookRecord]) -> None:
            return

        async def run() -> list[float]:
            times = []
            for _ in range(count):
                began = time.perf_counter()
                await Watch(job, take).run()
                times.append(time.perf_counter() - began)
            return times

        own = statistics.median(asyncio.run(run())) * 1000
        return {"ms per hook": own, "ms over subprocess": own - base}


def durable(bench: Bench, snapshots: int, hooks: int) -> Sample:
    """A crawl of that many snapshots with that many foreground hooks each."""
    with bench.scratch() as folder:
        seconds = _measured(folder, snapshots, hooks, "")
        number = snapshots * hooks
        return {"ms per hook": seconds * 1000 / number, "hooks/s": number / seconds}


def in_background(bench: Bench, hooks: int) -> Sample:
    """One snapshot whose background hooks all wait for the last foreground one."""
    with bench.scratch() as folder:
        process = subprocess.Popen(
            [sys.executable, "-c", _CRAWL, str(folder), "1", str(hooks), "bg"], cwd=ROOT, stdout=subprocess.PIPE
        )
        peak = 0
        watched = psutil.Process(process.pid)
        while process.poll() is None:
            with contextlib.suppress(psutil.Error):
                peak = max(peak, watched.memory_info().rss)
            time.sleep(0.02)
        out, _ = process.communicate()
        return {"ms per hook": float(out) * 1000 / hooks, "peak MB": peak / (1 << 20)}


def row_cost(bench: Bench, count: int) -> Sample:
    """The three writes of a hook's row (queued, started, ended with its outcome), each in a transaction of its own."""
    with bench.scratch() as folder:
        settings = _settings(folder)
        site = _site(folder, settings)
        clock = SystemClock()
        with contextlib.closing(OpenDatabases(settings.sites_dir, None, clock)) as databases:
            databases.migrate(site, _no_scripts)
            database = databases.database(site)
            archive.create_tables(database)
            began = time.perf_counter()
            for number in range(count):
                for write in _writes(str(number), clock):
                    archive.apply(database, clock, [write])
            seconds = time.perf_counter() - began
        return {"ms per hook": seconds * 1000 / count, "ms per row": seconds * 1000 / (3 * count)}


def _writes(name: str, clock: SystemClock) -> list[Write]:
    at = rfc3339(clock.now())
    key = SessionSpec(engine_uuid="e", op_key=name, generation=0, claimed_at=clock.now(), workflow_id="c", op_id=name)
    place = {"plugin": "p", "hook": "h", "event": "Snapshot", "position": 0, "step": 1, "background": False}
    queued = rows.queue_result(name, crawl_id="c", snapshot_id="s", directory="/d", at=at, **place)  # type: ignore[arg-type]
    started = rows.start_result(name, attempt=1, command=["x"], machine="m", iface="", at=at)
    ended = rows.end_result(
        name,
        status="succeeded",
        exit_code=0,
        error="",
        files={},
        count=0,
        size=0,
        mimetypes=(),
        warnings=(),
        retry_at=None,
        at=at,
    )
    return [
        Write(spec=key, claim=0, statements=[queued]),
        Write(spec=key, claim=0, statements=[started]),
        Write(spec=key, claim=0, statements=[ended], outcome=b"{}"),
    ]


def contention(bench: Bench, hooks: int, ground: str) -> Sample:
    """Hooks that write many small files, listed when each ends: one after another, or all at once."""
    with bench.scratch() as folder:
        seconds = _measured(folder, 1, hooks, f"files {ground}".strip())
        return {"ms per hook": seconds * 1000 / hooks, "files/s": hooks * _FILES / seconds}


def _measured(folder: Path, snapshots: int, hooks: int, ground: str) -> float:
    words = [sys.executable, "-c", _CRAWL, str(folder), str(snapshots), str(hooks), ground]
    done = subprocess.run(words, cwd=ROOT, check=True, capture_output=True, text=True)
    return float(done.stdout)


def crawl(folder: Path, snapshots: int, hooks: int, ground: str) -> float:
    """Run a crawl; the seconds from its first hook's start to its last hook's end."""
    root = folder / "sites" / "bench"
    background, files = ground.endswith("bg"), ground.startswith("files")
    script = f"while [ ! -e {folder}/go ]; do sleep 0.05; done" if background else "exit 0"
    if files:
        script = f"{script.replace('exit 0', ':')}; for n in $(seq {_FILES}); do echo $n > $n.txt; done"
    for number in range(hooks):
        name = f"p{number:02d}/on_Snapshot__{10 + number}_p.{'bg.' if background else ''}sh"
        _hook(root / "hooks" / name, script)
    if background:
        _hook(root / "hooks" / "z/on_Snapshot__99_z.sh", f"touch {folder}/go")
    settings = _settings(folder)
    _site(folder, settings)
    registry = discover(settings)
    spec = CrawlSpec(urls=tuple(f"http://bench.test/{n}" for n in range(snapshots)), data_dir=str(folder / "archive"))
    with contextlib.closing(open_store(settings)) as store:
        add_crawl(settings, store, registry.site("bench"), spec, "c")
    run_worker(settings, registry, WorkerOptions(until_idle=True, max_workers=max(4, snapshots)), Silent())
    with contextlib.closing(sqlite3.connect(settings.sites_dir / "bench.db")) as database:
        query = "SELECT (julianday(max(end_ts)) - julianday(min(start_ts))) * 86400.0, count(*) FROM archive_results"
        seconds, number = database.execute(query).fetchone()
    assert number == snapshots * (hooks + background)
    return float(seconds)


def _settings(folder: Path) -> Settings:
    return Settings(
        engine_db=str(folder / "engine.db"),
        sites_dir=folder / "state",
        manifest_dirs=(ManifestDirectory(folder / "sites", "flag"),),
        hooks=HookSettings(data_dir=folder / "archive"),
    )


def _site(folder: Path, settings: Settings) -> Site:
    root = folder / "sites" / "bench"
    (root / "hooks").mkdir(parents=True, exist_ok=True)
    (root / "site.yaml").write_text("name: bench\ndatabaseFileName: bench.db\nhookDirs: [hooks]\n")
    return discover(settings).site("bench")


def _no_scripts(name: str, _session: SiteSession) -> None:
    raise AssertionError(f"the migration {name} is a script")


def _hook(path: Path, script: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path
