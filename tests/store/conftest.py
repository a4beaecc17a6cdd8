"""One empty store per test, on either dialect; the migrations run once."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from engine.store.schema import metadata
from engine.store.store import Store
from tests.fakes import FakeClock

_KEPT = {"meta", "migration"}
_names = itertools.count(1)


@pytest.fixture(scope="session")
def migrated_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty engine DB in SQLite, to be copied."""
    path = tmp_path_factory.mktemp("template") / "engine.db"
    Store.open(path).close()
    return path


@pytest.fixture(scope="session")
def migrated_database(pg_admin_url: str) -> str:
    """An engine DB in PostgreSQL, to be emptied before each test."""
    name = f"store{next(_names)}"
    with psycopg.connect(pg_admin_url, autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name} TEMPLATE template0")
    url = pg_admin_url.replace("/postgres?", f"/{name}?", 1)
    Store.open(url).close()
    return url


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request: pytest.FixtureRequest, tmp_path: Path, clock: FakeClock) -> Iterator[Store]:
    """An empty engine DB under the fake clock."""
    if request.param == "sqlite":
        target = str(shutil.copy(request.getfixturevalue("migrated_file"), tmp_path / "engine.db"))
    else:
        target = str(request.getfixturevalue("migrated_database"))
        tables = ", ".join(f'"{name}"' for name in metadata.tables if name not in _KEPT)
        with psycopg.connect(target, autocommit=True) as connection:
            connection.execute(f"TRUNCATE {tables}".encode())
    opened = Store.open(target, clock=clock, max_lost=3)
    yield opened
    opened.close()
