"""What a cycle of a lifecycle job costs: by configuration alone, with hooks, and as an iteration of its own."""

from __future__ import annotations

import json
import sqlite3
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from benchmarks.frame import Bench, Benchmark, Contestant, Sample
from benchmarks.ours import Place, place
from benchmarks.pages import ITEMS, SIZE
from benchmarks.processes import Failed, started
from engine.lifecycle.chain import begin_op
from engine.model import NewWorkflow
from engine.store.store import Store

NAME = "jobs"
TITLE = f"cycles of a job over local pages of {SIZE // 1000} kB with {ITEMS} items each"
SITE = "watch"
#: Cycles at once.
WORKERS = 16

_HOOKS = "function after_extract(items, ctx) { ctx.shared.count = items.length; return items }"
_DEFER = "async function on_success(ctx) { await store_incr('cycles') }"


def benchmark(bench: Bench) -> Benchmark:
    """One worker with one child; each page is fetched once, all its items are new."""
    pages = bench.size(500, 10)
    served: list[str] = []

    def base() -> str:
        if not served:
            script = Path(__file__).with_name("pages.py")
            server = bench.lasting.enter_context(started([sys.executable, str(script), str(pages)]))
            assert server.stdout is not None
            served.append(server.stdout.readline().strip())
        return served[0]

    return Benchmark(
        title=TITLE,
        figure="rate",
        unit="cycles/s",
        rounds=1,
        sizes={"cycles": pages, "cycles at once": WORKERS},
        contestants=[
            Contestant("configuration alone", lambda: cycles(bench, base(), pages, hooks=())),
            Contestant("with hooks", lambda: cycles(bench, base(), pages, hooks=(_HOOKS, _DEFER))),
            Contestant("an iteration each", lambda: iterations(bench, base(), pages // 10)),
        ],
    )


def cycles(bench: Bench, base: str, pages: int, hooks: Sequence[str]) -> Sample:
    """One iteration over all pages."""
    with place(bench, "sqlite") as here:
        _write(here, "job", [f"{base}/page/{number}" for number in range(pages)], hooks)
        _submit(here, "job", "w")
        return _work(here, pages)


def iterations(bench: Bench, base: str, pages: int) -> Sample:
    """As many jobs as pages, one iteration of each: what a scheduler with many jobs does."""
    with place(bench, "sqlite") as here:
        for number in range(pages):
            _write(here, f"job{number}", [f"{base}/page/{number}"], ())
            _submit(here, f"job{number}", f"w{number}")
        return _work(here, pages)


def _write(here: Place, name: str, urls: Sequence[str], hooks: Sequence[str]) -> None:
    folder = here.folder / "plugins" / SITE / "jobs" / name
    folder.mkdir(parents=True)
    (folder.parents[1] / "site.yaml").write_text(f"name: {SITE}\ndatabaseFileName: {SITE}.db\njobsRoot: jobs\n")
    job = {
        "name": name,
        "urls": urls,
        "workers": WORKERS,
        "selector": "article.item",
        "fields": ["id:@data-id", "title:h3 a", "price:.price", "link:h3 a@href"],
        "engine": {"stagger_ms": 0},
    }
    (folder / "job.yaml").write_text(json.dumps(job))
    for file, text in zip(("hooks.js", "defer.js"), hooks, strict=False):
        (folder / file).write_text(text)


def _submit(here: Place, job: str, workflow: str) -> None:
    with closing(Store.open(here.engine_db)) as store:
        begin = replace(begin_op(SITE, job), machine="bench")
        store.submit(NewWorkflow(id=workflow, site=SITE, name=job, ops=(begin,)))


def _work(here: Place, pages: int) -> Sample:
    ran = here.work(max_workers=2 * WORKERS, js_processes=1, manifests=str(here.folder / "plugins"))

    with closing(sqlite3.connect(here.folder / "sites" / f"{SITE}.db")) as database:
        (found,) = database.execute("SELECT COUNT(*) FROM monitor_records").fetchone()
    if found != pages * ITEMS:
        raise Failed(f"{found} of {pages * ITEMS} items were stored")
    return {
        "rate": pages / ran.said["seconds"],
        "cpu ms/cycle": ran.cpu_seconds / pages * 1000,
        "peak mb": ran.peak_mb,
    }
