"""A migrated site DB on either dialect, and ways to open it more than once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from engine.plugins.site import Site
from engine.projection.migrate import migrate
from engine.projection.postgresql import PostgresqlDatabase
from engine.projection.session import Database
from engine.projection.sqlite import SqliteDatabase
from tests.fakes import FakeClock

Connect = Callable[[], Database]


@pytest.fixture(params=["sqlite", "postgresql"])
def connect(request: pytest.FixtureRequest, tmp_path: Path, clock: FakeClock) -> Iterator[Connect]:
    """Opens one more connection on the test's site DB, which has a table ``counter`` with one row ``n = 0``."""
    opened: list[Database] = []
    url = str(request.getfixturevalue("pg_url")) if request.param == "postgresql" else ""

    def open_one() -> Database:
        opened.append(PostgresqlDatabase(url) if url else SqliteDatabase(tmp_path / "shop.db"))
        return opened[-1]

    migrations = tmp_path / "migrations"
    migrations.mkdir()
    (migrations / "001_counter.sql").write_text(
        "CREATE TABLE counter (n INTEGER NOT NULL); INSERT INTO counter VALUES (0);"
    )
    site = Site(
        name="shop",
        root=tmp_path,
        manifest=tmp_path / "site.yaml",
        database_file="shop.db",
        dialect="postgresql" if url else "sqlite",
        sql_migrations_root=migrations,
    )
    migrate(open_one(), site, lambda path, session: None, clock)
    yield open_one
    for database in opened:
        database.close()
