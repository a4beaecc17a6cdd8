"""A crawl of the books catalogue that is killed and started again, and what must be true afterwards."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from engine.dialect import Database, database_url
from engine.resources import resource

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Crawl:
    """Where a crawl keeps its state."""

    engine_db: str
    folder: Path

    @property
    def sites_dir(self) -> Path:
        return self.folder / "sites"

    def submit(self, base_url: str, max_pages: int = 0) -> None:
        """Seed the crawl."""
        subprocess.run(
            [
                *(sys.executable, "-m", "cli.main", "--sites-manifest-dir", str(resource("sites"))),
                *("site", "books", "run", "crawl", "--base-url", base_url, "--max-pages", str(max_pages)),
                *("--engine-db", self.engine_db, "--sites-dir", str(self.sites_dir), "--workflow-id", "crawl"),
            ],
            check=True,
            cwd=ROOT,
            env=os.environ | {"SCRAPER_MACHINE_ID": "m1"},
            capture_output=True,
        )

    def start(self, point: str = "none") -> subprocess.Popen[bytes]:
        """A worker that dies at ``point``, once for this crawl."""
        return subprocess.Popen(
            [
                *(sys.executable, "-m", "tests.crash.worker_main", self.engine_db, str(self.sites_dir)),
                *(str(resource("sites")), str(self.folder / f"marker-{point}"), point),
            ],
            cwd=ROOT,
            env=os.environ | {"SCRAPER_MACHINE_ID": "m1"},
        )

    def statuses(self) -> Counter[str]:
        """How many ops are in which state."""
        return Counter(status for _, status in self._ops())

    def running(self) -> int:
        """How many ops are under lease."""
        return self.statuses()["running"]

    def _ops(self) -> list[tuple[str, str]]:
        with self._engine() as database, database.read() as connection:
            rows = connection.exec_driver_sql("SELECT id, status FROM ops").all()
        return [(str(row[0]), str(row[1])) for row in rows]

    def attempts(self) -> Counter[str]:
        """How many claims ended in which way."""
        with self._engine() as database, database.read() as connection:
            return Counter(str(row[0]) for row in connection.exec_driver_sql("SELECT state FROM attempt"))

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
