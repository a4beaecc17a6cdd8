"""The demo without a network: ops of scripts that emit scripts, rows, and a join that sees what failed."""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from engine.store.compat import decode_body
from tests.cli.console import Ran
from tests.sites.pages import Crawler, Row

ITEMS = "SELECT prefix, number, name, word, score, writes FROM items ORDER BY prefix, number"
SUMMARIES = "SELECT prefix, word, items, score FROM summaries ORDER BY prefix, word"
WORDS = ("amber", "birch", "cobalt", "dune", "ember")


class Demo(Crawler):
    """The verbs of js-demo."""

    def submit(self, verb: str, *flags: str) -> Ran:
        """Submit a verb, which needs no server."""
        return self._scraper("site", self.site, "run", verb, *flags)

    def report(self) -> Any:
        """What the summary wrote as its artifact."""
        with closing(sqlite3.connect(self.folder / "engine.db")) as database:
            ((body, kind),) = database.execute("SELECT body, content_type FROM artifacts WHERE name = 'report.json'")
        assert kind == "application/json"
        return json.loads(decode_body(body))


@pytest.fixture
def demo(tmp_path: Path) -> Demo:
    return Demo("js-demo", tmp_path)


def golden(prefix: str, numbers: Iterable[int], multiplier: float) -> list[Row]:
    """The items of those numbers, each written once."""
    return [(prefix, n, f"{prefix}-{n:04}", WORDS[n % 5], n * multiplier, 1) for n in numbers]


def summed(items: Iterable[Row]) -> list[Row]:
    """How many items each word has, and their score."""
    scores: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    for prefix, _, _, word, score, _ in items:
        scores[prefix, word].append(score)
    return [(*key, len(found), sum(found)) for key, found in sorted(scores.items())]


def words(items: Iterable[Row]) -> list[dict[str, Any]]:
    """The same as the summary's op returns it."""
    return [{"word": word, "items": count, "score": score} for _, word, count, score in summed(items)]


def test_items_and_their_summary_in_one_process(demo: Demo) -> None:
    ran = demo.submit("seed", "--count", "12", "--multiplier", "2.5", "--prefix", "alpha", "--wait")
    assert ran.code == 0, ran.err
    assert "\nTarget op: summary\n" in ran.out
    expected = golden("alpha", range(1, 13), 2.5)
    assert demo.rows(ITEMS) == expected
    assert demo.rows(SUMMARIES) == summed(expected)
    records = demo.rows("SELECT key, data FROM scraper_records WHERE collection = 'items' ORDER BY key")
    assert [(key, json.loads(data)) for key, data in records] == [
        (name, {"name": name, "word": word, "score": score}) for _, _, name, word, score, _ in expected
    ]
    assert demo.result("summary") == {
        "prefix": "alpha",
        "made": [row[2] for row in expected],
        "failed": {},
        "words": words(expected),
    }
    assert demo.report() == words(expected)
    assert demo.statuses() == dict.fromkeys(["seed", "summary", *(f"item:{n}" for n in range(1, 13))], "succeeded")


def test_items_submitted_here_and_worked_there_without_those_that_fail(demo: Demo) -> None:
    submitted = demo.submit("seed", "--count", "7", "--prefix", "beta", "--refuse", "2,5")
    assert submitted.code == 0, submitted.err
    assert demo.statuses() == {"seed": "ready"}
    assert demo.rows(ITEMS) == []
    worked = demo.work()
    assert worked.code == 1, "an op failed"
    expected = golden("beta", (1, 3, 4, 6, 7), 2)
    assert demo.rows(ITEMS) == expected
    assert demo.rows(SUMMARIES) == summed(expected)
    assert demo.result("summary") == {
        "prefix": "beta",
        "made": [row[2] for row in expected],
        "failed": {"item:2": "item_refused", "item:5": "item_refused"},
        "words": words(expected),
    }
    failed = {op for op, status in demo.statuses().items() if status == "failed"}
    assert failed == {"item:2", "item:5"}


def test_one_item_and_a_summary_on_their_own(demo: Demo) -> None:
    made = demo.submit("item", "--number", "10000", "--multiplier", "0.5", "--wait")
    assert made.code == 0, made.err
    expected = golden("demo", [10000], 0.5)
    assert demo.rows(ITEMS) == expected
    assert demo.rows(SUMMARIES) == []
    ran = demo.submit("summary", "--wait")
    assert ran.code == 0, ran.err
    assert demo.rows(ITEMS) == expected
    assert demo.rows(SUMMARIES) == summed(expected)
    assert demo.result("summary") == {"prefix": "demo", "made": [], "failed": {}, "words": words(expected)}
