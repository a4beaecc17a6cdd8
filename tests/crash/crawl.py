"""A crawl of the books catalogue that is killed and started again, and what must be true afterwards."""

from __future__ import annotations

import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from engine.app import scan_verbs, submit_verb
from engine.config import ManifestDirectory, Settings
from engine.dialect import Database, database_url
from engine.plugins.registry import discover
from engine.resources import resource
from engine.verbs import VerbSpec
from tests import warm
from tests.warm import Warm


@cache
def verbs_of_books(manifest: Path) -> dict[str, VerbSpec]:
    """The verbs of the site, read once."""
    registry = discover(Settings(manifest_dirs=(ManifestDirectory(manifest, "flag"),)))
    return {verb.name: verb for verb in scan_verbs(registry.site("books"))}


@dataclass(frozen=True, slots=True)
class Crawl:
    """Where a crawl keeps its state."""

    engine_db: str
    folder: Path
    workflow: str = "crawl"

    @property
    def sites_dir(self) -> Path:
        return self.folder / "sites"

    def submit(self, base_url: str, max_pages: int = 0) -> None:
        """Seed the crawl."""
        settings = Settings(
            engine_db=self.engine_db,
            sites_dir=self.sites_dir,
            manifest_dirs=(ManifestDirectory(resource("sites"), "flag"),),
        )
        verb = verbs_of_books(resource("sites"))["crawl"]
        values = {"default": {"base_url": base_url, "max_pages": max_pages}}
        submit_verb(settings, discover(settings), "books", verb, values, self.workflow)

    def start(self, point: str = "none") -> Warm:
        """A worker that dies at ``point``, once for this crawl."""
        marker = self.folder / f"marker-{point}"
        arguments = (self.engine_db, self.sites_dir, resource("sites"), marker, point)
        return warm.start("tests.crash.worker_main:main", arguments)

    def open_ops(self) -> int:
        """How many ops have not ended."""
        statuses = self.statuses()
        return statuses["pending"] + statuses["ready"] + statuses["running"]

    def statuses(self) -> Counter[str]:
        """How many ops are in which state."""
        return Counter(status for _, status in self._ops())

    @contextmanager
    def looking(self) -> Iterator[Callable[[], int]]:
        """A cheap way to ask how many ops are under lease."""
        with self._engine() as database, database.engine.connect() as connection:
            fast = connection.execution_options(isolation_level="AUTOCOMMIT")
            yield lambda: int(fast.exec_driver_sql("SELECT count(*) FROM op WHERE status = 'running'").scalar_one())

    def _ops(self) -> list[tuple[str, str]]:
        with self._engine() as database, database.read() as connection:
            rows = connection.exec_driver_sql(f"SELECT id, status FROM ops WHERE workflow_id = '{self.workflow}'").all()
        return [(str(row[0]), str(row[1])) for row in rows]

    def attempts(self) -> Counter[str]:
        """How many claims ended in which way."""
        with self._engine() as database, database.read() as connection:
            return Counter(str(row[0]) for row in connection.exec_driver_sql("SELECT state FROM attempts"))

    @contextmanager
    def _engine(self) -> Iterator[Database]:
        database = Database(database_url(self.engine_db))
        try:
            yield database
        finally:
            database.close()

    def assert_exactly_once(self, pages: int, per_page: int) -> None:
        """Every op succeeded, every book is there, every counter was bumped once per book."""
        books = pages * per_page
        assert self.statuses() == Counter(succeeded=2 * (pages + books))
        with closing(sqlite3.connect(self.sites_dir / "books.db")) as site:
            assert site.execute("SELECT count(*) FROM books").fetchone() == (books,)
            assert site.execute("SELECT n FROM visits WHERE name = 'item'").fetchone() == (books,)
            assert site.execute("SELECT count(*), min(n), max(n) FROM item_visits").fetchone() == (books, 1, 1)
            assert site.execute("SELECT count(*) FROM scraper_records").fetchone() == (pages,)


def await_running(crawl: Crawl, seconds: float, workers: Sequence[Warm]) -> bool:
    """Let the crawl go on for ``seconds``, then until an op is running; False where all workers ended first."""
    with crawl.looking() as running:
        deadline = time.monotonic() + seconds
        while any(worker.poll() is None for worker in workers):
            if running() and time.monotonic() >= deadline:
                return True
            time.sleep(0.01)
    return False
