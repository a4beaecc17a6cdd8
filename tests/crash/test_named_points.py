"""A worker or a JS child killed at a named point: started again, everything has taken effect exactly once."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.demo import Catalogue, serve_books
from tests.crash.crawl import Crawl

SMALL = Catalogue(pages=2, per_page=3)

WORKER_POINTS = [
    "after-claim",
    "inside-script",
    "after-site-commit",
    "inside-engine-commit",
    "after-engine-commit",
]


@pytest.mark.parametrize("point", WORKER_POINTS)
def test_a_killed_worker_loses_and_doubles_nothing(engine_url: str, tmp_path: Path, point: str) -> None:
    crawl = Crawl(engine_url, tmp_path)
    with serve_books(SMALL) as base_url:
        crawl.submit(base_url)
        first = crawl.start(point)
        assert first.wait(60) == -9
        second = crawl.start(point)
        assert second.wait(60) == 0
    crawl.assert_exactly_once(SMALL.pages, SMALL.per_page)


@pytest.mark.parametrize("point", ["child-inside-script", "child-after-site-commit"])
def test_the_op_of_a_killed_child_runs_again(engine_url: str, tmp_path: Path, point: str) -> None:
    crawl = Crawl(engine_url, tmp_path)
    with serve_books(SMALL) as base_url:
        crawl.submit(base_url)
        assert crawl.start(point).wait(60) == 0
    crawl.assert_exactly_once(SMALL.pages, SMALL.per_page)
    assert crawl.attempts()["lease_lost"] == 1
