"""A crawl of local pages into SQLite, as safe from a crash as each crawler offers."""

from __future__ import annotations

import json
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

from benchmarks.frame import Bench, Benchmark, Contestant, Goal, Sample
from benchmarks.ours import FROZEN, SITE, place
from benchmarks.pages import ITEMS, SIZE
from benchmarks.processes import Failed, Ran, started
from engine.model import NewOp

NAME = "crawl"
TITLE = f"a crawl of local pages of {SIZE // 1000} kB with {ITEMS} items each into SQLite"
#: Requests in flight.
AT_ONCE = 16
#: One more than there are cores: one of them waits for the disk.
JS_PROCESSES = 3


def benchmark(bench: Bench) -> Benchmark:
    """Ours beside Scrapy with JOBDIR, and Crawlee on SQL storage and in memory."""
    pages = bench.size(2_000, 60)
    served: list[str] = []

    def base() -> str:
        if not served:
            server = bench.lasting.enter_context(
                started([sys.executable, str(Path(__file__).with_name("pages.py")), str(pages)])
            )
            assert server.stdout is not None
            served.append(server.stdout.readline().strip())
        return served[0]

    return Benchmark(
        title=TITLE,
        figure="rate",
        unit="pages/s",
        rounds=min(2, bench.rounds),
        sizes={"pages": pages, "requests at once": AT_ONCE},
        contestants=[
            Contestant("ours", lambda: ours(bench, SITE, base(), pages)),
            Contestant("ours, frozen", lambda: ours(bench, FROZEN, base(), pages)),
            Contestant("Scrapy", lambda: scrapy(bench, base(), pages)),
            Contestant("Crawlee, SQL", lambda: crawlee(bench, "sql", base(), pages)),
            Contestant("Crawlee, in memory", lambda: crawlee(bench, "memory", base(), pages)),
        ],
        goals=[
            Goal("ours", "Scrapy", ">=", 1.3),
            Goal("ours", "Crawlee, SQL", ">=", 2.5),
            Goal("ours, frozen", "Crawlee, in memory", ">=", 1.0),
        ],
    )


def ours(bench: Bench, site: str, base: str, pages: int) -> Sample:
    """One worker; the clock starts with the op that emits all the others."""
    seed = NewOp(
        id="seed",
        kind="js",
        site=site,
        metadata={"script": "seed"},
        input=json.dumps({"base": base, "pages": pages}),
        machine="bench",
    )
    with place(bench, "sqlite") as here:
        here.submit([seed], site=site)
        ran = here.work(max_workers=AT_ONCE, js_processes=JS_PROCESSES)
        _require_items(here.folder / "sites" / f"{site}.db", pages)
    return _sample(ran, pages)


def scrapy(bench: Bench, base: str, pages: int) -> Sample:
    """Scrapy with its request queue on disk."""
    with bench.scratch() as folder:
        told = {"base": base, "pages": pages, "items": ITEMS, "at_once": AT_ONCE, "job": str(folder / "job")}
        database = folder / "items.db"
        ran = bench.peers.run("scrapy", "crawl", {**told, "database": str(database)})
        _require_items(database, pages)
    return _sample(ran, pages)


def crawlee(bench: Bench, storage: str, base: str, pages: int) -> Sample:
    """Crawlee with parsel; its items go into its own dataset."""
    with bench.scratch() as folder:
        told = {"base": base, "pages": pages, "at_once": AT_ONCE, "database": str(folder / "crawlee.db")}
        ran = bench.peers.run("crawlee", storage, told)
    if ran.said["finished"] != pages or ran.said["items"] != pages * ITEMS:
        raise Failed(f"not everything was crawled: {ran.said}")
    return _sample(ran, pages)


def _sample(ran: Ran, pages: int) -> Sample:
    return {"rate": pages / ran.said["seconds"], "cpu s": ran.cpu_seconds, "peak MB": ran.peak_mb}


def _require_items(path: Path, pages: int) -> None:
    with closing(sqlite3.connect(path)) as database:
        (found,) = database.execute("SELECT count(*) FROM items").fetchone()
    if found != pages * ITEMS:
        raise Failed(f"{found} items of {pages * ITEMS} are stored")
