"""The link board: rows as the saved pages have them, page after page along the More link."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path
from urllib.parse import quote, urljoin, urlsplit, urlunsplit

import pytest

from tests.sites.pages import Crawler, Row, saved, serve

PAGES = {"/": saved("hackernews", "page-1.html")} | {
    f"/?p={number}": saved("hackernews", f"page-{number}.html") for number in (2, 3)
}
STORIES = "SELECT id, rank, title, url, site, points, author, comments, page FROM stories ORDER BY rank"

_STORY = re.compile(
    r'<tr class="athing submission" id="(?P<id>\d+)">.*?class="rank">(?P<rank>\d+)\.'
    r'.*?"titleline"><a href="(?P<href>[^"]*)"[^>]*>(?P<title>.*?)</a>(?P<rest>.*?)<tr class="spacer"',
    re.DOTALL,
)


def _found(pattern: str, text: str) -> str | None:
    match = re.search(pattern, text)
    return None if match is None else unescape(match[1])


def _url(base: str, href: str) -> str:
    parts = urlsplit(urljoin(base, unescape(href)))
    return urlunsplit(parts._replace(netloc=parts.netloc.encode("idna").decode(), path=quote(parts.path, safe="/%")))


def golden(base: str, page: int, text: str) -> list[Row]:
    """The stories of a page, read without any HTML parser."""
    rows: list[Row] = []
    for story in _STORY.finditer(text):
        rest = story["rest"]
        points = _found(r'class="score"[^>]*>(\d+) point', rest)
        comments = _found(r">(\d+)&nbsp;comment", rest) or ("0" if ">discuss<" in rest else None)
        rows.append(
            (
                int(story["id"]),
                int(story["rank"]),
                unescape(story["title"]),
                _url(base, story["href"]),
                _found(r'class="sitestr">(.*?)<', rest),
                None if points is None else int(points),
                _found(r'class="hnuser">(.*?)<', rest),
                None if comments is None else int(comments),
                page,
            )
        )
    return rows


def all_golden(base: str) -> list[Row]:
    return [row for page, (path, text) in enumerate(PAGES.items(), 1) for row in golden(base + path, page, text)]


@pytest.fixture
def crawler(tmp_path: Path) -> Crawler:
    return Crawler("hackernews", tmp_path)


def test_the_saved_pages_have_what_real_ones_have() -> None:
    rows = all_golden("http://board.example")
    assert [row[1] for row in rows] == list(range(1, 91))
    assert len({row[0] for row in rows}) == 90
    assert sum(row[5] is None and row[6] is None and row[7] is None for row in rows) == 6  # job posts
    assert any(row[7] == 0 for row in rows)
    assert any("item?id=" in row[3] for row in rows)
    assert any(row[4] is None for row in rows)
    assert not all(row[2].isascii() for row in rows)


def test_three_pages_in_one_process(crawler: Crawler) -> None:
    with serve(PAGES) as served:
        ran = crawler.run("seed", served, "--max-pages", "3", "--wait")
        assert ran.code == 0, ran.err
        assert crawler.rows(STORIES) == all_golden(served.url)
        assert served.asked == list(PAGES)
    assert set(crawler.statuses().values()) == {"succeeded"}
    assert len(crawler.statuses()) == 7


def test_three_pages_submitted_here_and_worked_there(crawler: Crawler) -> None:
    with serve(PAGES) as served:
        submitted = crawler.run("seed", served, "--max-pages", "3")
        assert submitted.code == 0, submitted.err
        assert served.asked == []
        worked = crawler.work()
        assert worked.code == 0, worked.err
        assert crawler.rows(STORIES) == all_golden(served.url)


def test_the_crawl_ends_where_there_is_no_more_link(crawler: Crawler) -> None:
    last = PAGES["/?p=2"].replace('class="morelink"', "")
    with serve(PAGES | {"/?p=2": last}) as served:
        ran = crawler.run("seed", served, "--max-pages", "9", "--wait")
        assert ran.code == 0, ran.err
        assert served.asked == ["/", "/?p=2"]
    assert crawler.rows("SELECT count(*) FROM stories") == [(60,)]


def test_the_front_page_alone_updates_the_stories_it_shows(crawler: Crawler) -> None:
    shown = {"/": re.sub(r">\d+ points?<", ">1 point<", PAGES["/"])}
    with serve(shown.get) as served:
        assert crawler.run("seed", served, "--wait").code == 0
        assert {row[5] for row in crawler.rows(STORIES)} == {1, None}
        shown |= PAGES
        ran = crawler.run("extract-frontpage", served, "--wait")
        assert ran.code == 0, ran.err
        assert crawler.rows(STORIES) == golden(served.url + "/", 1, PAGES["/"])
        assert served.asked == ["/", "/"]
