"""Two workers on one crawl, killed at random instants again and again: everything takes effect exactly once."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from engine.demo import Catalogue, serve_books
from tests.crash.crawl import Crawl, await_running
from tests.warm import Warm

#: 1,000 ops: a fetch and an extraction for each of 10 list pages and 490 books.
THOUSAND = Catalogue(pages=10, per_page=49)


def storm(crawl: Crawl, catalogue: Catalogue, kills: int, seed: int) -> int:
    """Kill one of two workers ``kills`` times, each time with at least one op running; how many landed."""
    draw = random.Random(seed)
    landed = 0
    workers: list[Warm] = []
    try:
        while True:
            workers = [worker for worker in workers if worker.poll() is None]
            while len(workers) < 2 and crawl.open_ops():
                workers.append(crawl.start())
            if not workers:
                return landed
            if landed >= kills:
                for worker in workers:
                    worker.wait(300)
                continue
            if await_running(crawl, draw.uniform(0.0, 0.4), workers):
                victim = draw.choice(workers)
                if victim.poll() is None:
                    victim.kill()
                    victim.wait()
                    landed += 1
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()


@pytest.mark.timeout(600)
def test_random_kills_over_a_thousand_ops(engine_url: str, tmp_path: Path) -> None:
    crawl = Crawl(engine_url, tmp_path)
    with serve_books(THOUSAND) as base_url:
        crawl.submit(base_url)
        landed = storm(crawl, THOUSAND, kills=20, seed=7)
    crawl.assert_exactly_once(THOUSAND.pages, THOUSAND.per_page)
    assert landed == 20


@pytest.mark.chaos
@pytest.mark.timeout(3600)
def test_a_long_storm_of_random_kills(engine_url: str, tmp_path: Path) -> None:
    kills = int(os.environ.get("CHAOS_KILLS", "200"))
    landed = 0
    rounds = 0
    while landed < kills:
        folder = tmp_path / f"round-{rounds}"
        folder.mkdir()
        target = str(folder / "engine.db") if "://" not in engine_url else engine_url
        crawl = Crawl(target, folder, workflow=f"crawl-{rounds}")
        with serve_books(THOUSAND) as base_url:
            crawl.submit(base_url)
            landed += storm(crawl, THOUSAND, kills=min(25, kills - landed), seed=rounds)
        crawl.assert_exactly_once(THOUSAND.pages, THOUSAND.per_page)
        rounds += 1
    print(f"\n{landed} kills in {rounds} crawls of 1,000 ops: nothing lost, nothing doubled, nothing stuck")
