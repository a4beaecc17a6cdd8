"""Crawlee on its SQL storage (SQLite), or in memory. ``crawlee_app.py sql|memory JSON`` prints what it measured."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
import warnings
from typing import Any

from crawlee import ConcurrencySettings, service_locator
from crawlee.crawlers import ParselCrawler, ParselCrawlingContext
from crawlee.storage_clients import MemoryStorageClient, SqlStorageClient

COMMAND, TOLD = sys.argv[1], json.loads(sys.argv[2])


async def crawl() -> dict[str, Any]:
    """Fetch every page, push its items into the dataset."""
    if COMMAND == "sql":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            service_locator.set_storage_client(
                SqlStorageClient(connection_string=f"sqlite+aiosqlite:///{TOLD['database']}")
            )
    else:
        service_locator.set_storage_client(MemoryStorageClient())
    at_once = TOLD["at_once"]
    crawler = ParselCrawler(
        concurrency_settings=ConcurrencySettings(
            min_concurrency=at_once, desired_concurrency=at_once, max_concurrency=at_once
        ),
        configure_logging=False,
    )

    @crawler.router.default_handler
    async def handle(context: ParselCrawlingContext) -> None:
        page = int(context.request.url.rpartition("/")[2])
        await context.push_data(
            [
                {
                    "id": item.attrib["data-id"],
                    "page": page,
                    "title": item.css("h3 a::text").get(),
                    "price": float(item.css(".price::text").get("").replace("£", "")),
                    "url": f"{TOLD['base']}{item.css('h3 a').attrib['href']}",
                }
                for item in context.selector.css("article.item")
            ]
        )

    began = time.monotonic()
    statistics = await crawler.run([f"{TOLD['base']}/page/{page}" for page in range(TOLD["pages"])])
    seconds = time.monotonic() - began
    stored = await crawler.get_data(limit=1)
    return {"seconds": seconds, "finished": statistics.requests_finished, "items": stored.total}


logging.disable(logging.WARNING)
print(json.dumps(asyncio.run(crawl())))
