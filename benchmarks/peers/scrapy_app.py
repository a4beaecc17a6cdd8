"""Scrapy with JOBDIR. ``scrapy_app.py crawl JSON`` prints what it measured.

The pipeline commits once per page at ``synchronous=FULL``: the cheapest way that loses no page Scrapy believes done.
"""

from __future__ import annotations

import json
import sqlite3
import sys
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import scrapy
from scrapy.crawler import CrawlerProcess
from scrapy.http import Response

TOLD = json.loads(sys.argv[2])
span: list[float] = []


class Items:
    """Writes items into SQLite."""

    def open_spider(self) -> None:
        """Connect."""
        self._database = sqlite3.connect(TOLD["database"], isolation_level=None)
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute("PRAGMA synchronous = FULL")
        self._database.execute(
            "CREATE TABLE items (id TEXT PRIMARY KEY, page INTEGER, title TEXT, price REAL, url TEXT)"
        )
        self._waiting: dict[int, list[dict[str, Any]]] = {}

    def process_item(self, item: dict[str, Any]) -> dict[str, Any]:
        """Keep the item until its page is complete, then commit the page."""
        page = self._waiting.setdefault(item["page"], [])
        page.append(item)
        if len(page) == TOLD["items"]:
            self._database.execute("BEGIN IMMEDIATE")
            self._database.executemany(
                "INSERT OR REPLACE INTO items VALUES (:id, :page, :title, :price, :url)",
                self._waiting.pop(item["page"]),
            )
            self._database.execute("COMMIT")
        return item

    def close_spider(self) -> None:
        """Disconnect."""
        assert not self._waiting
        self._database.close()


class Spider(scrapy.Spider):
    """Fetches every page."""

    name = "bench"

    async def start(self) -> AsyncIterator[scrapy.Request]:
        """All pages are known from the start."""
        span.append(time.monotonic())
        for page in range(TOLD["pages"]):
            yield scrapy.Request(f"{TOLD['base']}/page/{page}", cb_kwargs={"page": page})

    def parse(self, response: Response, page: int) -> Iterator[dict[str, Any]]:
        """The items of a page."""
        for item in response.css("article.item"):
            link = item.css("h3 a")
            yield {
                "id": item.attrib["data-id"],
                "page": page,
                "title": link.css("::text").get(),
                "price": float(item.css(".price::text").get("").replace("£", "")),
                "url": response.urljoin(link.attrib["href"]),
            }


process = CrawlerProcess(
    {
        "JOBDIR": TOLD["job"],
        "ITEM_PIPELINES": {Items: 100},
        "CONCURRENT_REQUESTS": TOLD["at_once"],
        "CONCURRENT_REQUESTS_PER_DOMAIN": TOLD["at_once"],
        "LOG_LEVEL": "ERROR",
        "TELNETCONSOLE_ENABLED": False,
    }
)
process.crawl(Spider)
process.start()
print(json.dumps({"seconds": time.monotonic() - span[0]}))
