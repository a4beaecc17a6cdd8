"""Saved pages over real HTTP on loopback, and the command line that crawls them."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from engine.resources import resource
from tests.cli.console import Ran, scraper

Row = tuple[Any, ...]
Pages = Mapping[str, str] | Callable[[str], str | None]


def saved(site: str, name: str) -> str:
    """A saved page of a site."""
    return (resource("sites") / site / "fixtures" / name).read_text(encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Served:
    """A running server: where it is, and the paths (with their query) it was asked for."""

    url: str
    asked: list[str]


class _Server(ThreadingHTTPServer):
    daemon_threads = True


@contextlib.contextmanager
def serve(pages: Pages) -> Iterator[Served]:
    """Serve ``pages``, by path with its query, on a free loopback port; anything else is a 404."""
    find = pages if callable(pages) else pages.get
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            asked.append(self.path)
            page = find(self.path)
            body = (page or "<h1>not found</h1>").encode()
            self.send_response(404 if page is None else 200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Quiet: the tests look at what was asked."""

    with _Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield Served(f"http://127.0.0.1:{server.server_address[1]}", asked)
        finally:
            server.shutdown()
            thread.join()


@dataclass(frozen=True, slots=True)
class Crawler:
    """The verbs of one site, run from the console in a folder of their own."""

    site: str
    folder: Path

    def run(self, verb: str, served: Served, *flags: str) -> Ran:
        """Submit a verb."""
        return self._scraper("site", self.site, "run", verb, "--base-url", served.url, *flags)

    def work(self) -> Ran:
        """A worker process, until there is nothing left to do."""
        return self._scraper("worker", "run", "--until-idle", "--fail-on-error")

    def rows(self, sql: str) -> list[Row]:
        """What a query of the site database finds."""
        with closing(sqlite3.connect(self.folder / "sites" / f"{self.site}.db")) as database:
            return list(database.execute(sql))

    def statuses(self) -> dict[str, str]:
        """The state of every op."""
        with closing(sqlite3.connect(self.folder / "engine.db")) as database:
            return dict(database.execute("SELECT id, status FROM ops"))

    def result(self, op: str) -> Any:
        """The data an op of the only workflow returned."""
        with closing(sqlite3.connect(self.folder / "engine.db")) as database:
            (data,) = database.execute("SELECT data_json FROM results WHERE op_id = ?", (op,)).fetchone()
        return json.loads(data)

    def _scraper(self, *arguments: str) -> Ran:
        return scraper(
            self.folder,
            *("--sites-manifest-dir", str(resource("sites")), *arguments),
            *("--engine-db", "engine.db", "--sites-dir", "sites"),
            SCRAPER_WORKER_MAX_WORKERS="8",
            SCRAPER_WORKER_JS_PROCESSES="1",
            SCRAPER_WORKER_POLL_INTERVAL="20ms",
        )
