"""The news board: rows as the saved pages have them, a fan-out over the pages, a join over the topics."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from html import unescape
from pathlib import Path
from urllib.parse import urljoin

import pytest

from tests.sites.pages import Crawler, Row, saved, serve

PAGES = {path: saved("slashdot", f"page-{number}.html") for number, path in enumerate(("/", "/?page=1", "/?page=2"))}
STORIES = (
    "SELECT id, title, url, source, department, author, posted_at, comments, topic, page FROM stories ORDER BY page, id"
)
TOPICS = "SELECT topic, stories, comments FROM topics ORDER BY topic"

_ARTICLE = re.compile(r'<article id="firehose-(\d+)"(.*?)</article>', re.DOTALL)


def _maybe(pattern: str, text: str) -> str | None:
    match = re.search(pattern, text, re.DOTALL)
    return None if match is None else unescape(match[1])


def _text(pattern: str, text: str) -> str:
    found = _maybe(pattern, text)
    assert found is not None
    return found


def golden(base: str, page: int, text: str) -> list[Row]:
    """The stories of a page, read without any HTML parser."""
    rows: list[Row] = []
    for number, article in _ARTICLE.findall(text):
        comments = _maybe(r'#comments"[^>]*>(\d+)<', article)
        byline = _text(r"Posted by\s+(.*?)\s*<time", re.sub(r"</?a\b[^>]*>", "", article))
        rows.append(
            (
                int(number),
                _text(r'class="story-title"[^>]*> <a [^>]*>(.*?)</a>', article),
                urljoin(base, _text(r'class="story-title"[^>]*> <a href="(.*?)"', article)),
                _maybe(r'class="story-sourcelnk" href="(.*?)"', article),
                _maybe(r"from the <em>(.*?)</em> dept\.", article),
                byline.replace("\xa0", " "),
                _text(r'datetime="(.*?)"', article),
                None if comments is None else int(comments),
                _text(r'<img [^>]*title="(.*?)"', article),
                page,
            )
        )
    return rows


def all_golden(base: str) -> list[Row]:
    return [row for page, (path, text) in enumerate(PAGES.items()) for row in golden(base + path, page, text)]


def by_topic(stories: Sequence[Row]) -> list[Row]:
    """How many stories and comments each topic has."""
    count: Counter[str] = Counter()
    comments: Counter[str] = Counter()
    for story in stories:
        count[story[8]] += 1
        comments[story[8]] += story[7] or 0
    return [(topic, count[topic], comments[topic]) for topic in sorted(count)]


@pytest.fixture
def crawler(tmp_path: Path) -> Crawler:
    return Crawler("slashdot", tmp_path)


def test_the_saved_pages_have_what_real_ones_have() -> None:
    rows = all_golden("http://board.example")
    assert len({row[0] for row in rows}) == len(rows) == 90
    for optional in (3, 4, 7):
        assert 0 < sum(row[optional] is None for row in rows) < 45
    assert any(row[5] == "Anonymous Coward" for row in rows)
    assert {row[8] for row in rows} >= {"AT&T", "España"}
    assert all("fhitem-sponsored" in page for page in PAGES.values())


def test_three_pages_in_one_process(crawler: Crawler) -> None:
    with serve(PAGES) as served:
        ran = crawler.run("seed", served, "--max-pages", "3", "--wait")
        assert ran.code == 0, ran.err
        expected = all_golden(served.url)
        assert crawler.rows(STORIES) == expected
        assert served.asked[0] == "/"
        assert sorted(served.asked) == sorted(PAGES)
    assert crawler.rows(TOPICS) == by_topic(expected)
    records = crawler.rows("SELECT key, data FROM scraper_records WHERE collection = 'topics' ORDER BY key")
    assert [(key, json.loads(data)) for key, data in records] == [
        (topic, {"stories": stories, "comments": comments}) for topic, stories, comments in by_topic(expected)
    ]
    assert set(crawler.statuses().values()) == {"succeeded"}
    assert len(crawler.statuses()) == 8


def test_three_pages_submitted_here_and_worked_there(crawler: Crawler) -> None:
    with serve(PAGES) as served:
        submitted = crawler.run("seed", served, "--max-pages", "3")
        assert submitted.code == 0, submitted.err
        assert served.asked == []
        worked = crawler.work()
        assert worked.code == 0, worked.err
        expected = all_golden(served.url)
    assert crawler.rows(STORIES) == expected
    assert crawler.rows(TOPICS) == by_topic(expected)


def test_the_front_page_alone(crawler: Crawler) -> None:
    with serve(PAGES) as served:
        ran = crawler.run("extract-frontpage", served, "--wait")
        assert ran.code == 0, ran.err
        assert crawler.rows(STORIES) == golden(served.url + "/", 0, PAGES["/"])
        assert served.asked == ["/"]
    assert crawler.rows(TOPICS) == []


def test_a_page_that_is_gone_keeps_nothing_but_itself_from_the_summary(crawler: Crawler) -> None:
    kept = {path: page for path, page in PAGES.items() if path != "/?page=1"}
    with serve(kept) as served:
        ran = crawler.run("seed", served, "--max-pages", "9", "--wait")
        assert ran.code == 1
        assert sorted(served.asked) == sorted(PAGES), "no more than the pager has"
        expected = [row for row in all_golden(served.url) if row[9] != 1]
    assert crawler.rows(STORIES) == expected
    assert crawler.rows(TOPICS) == by_topic(expected)
    assert crawler.result("summary") == {"topics": len(by_topic(expected)), "missing": ["extract:1"]}
    statuses = crawler.statuses()
    assert statuses.pop("fetch:1") == "failed"
    assert statuses.pop("extract:1") != "succeeded"
    assert set(statuses.values()) == {"succeeded"}
