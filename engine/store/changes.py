"""Noticing that another process changed the engine DB."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from typing import Any, Protocol

from sqlalchemy import Connection, func, select
from sqlalchemy.exc import DBAPIError

from engine.dialect import Database, translate
from engine.errors import DatabaseUnavailable
from engine.store.prepared import Prepared

_POLL_SECONDS = 0.02
#: How long after a write to the log its commit may still be on the way to the disk.
_RECENT_NS = 1_000_000_000
_CHANNEL = "scraper_ready"


class ChangeSource(Protocol):
    """A connection that listens."""

    def wait(self, seconds: float) -> bool:
        """Block until somebody committed something of interest, or ``seconds``. Raises DatabaseUnavailable."""
        ...

    def close(self) -> None: ...


def listen(database: Database) -> ChangeSource:
    """A source for one thread."""
    return _DataVersion(database) if database.is_sqlite else _Notifications(database)


def announce(connection: Connection, database: Database) -> None:
    """Tell listeners, when this transaction commits, that ops became ready. SQLite's listeners see every commit."""
    if not database.is_sqlite:
        _NOTIFY.run(connection)


_NOTIFY = Prepared(select(func.pg_notify(_CHANNEL, "")))


class _DataVersion:
    """Polls ``PRAGMA data_version``, which sees the commits of other connections, while the log is being written."""

    def __init__(self, database: Database) -> None:
        self._connection = sqlite3.connect(f"file:{database.path}?mode=ro", uri=True, check_same_thread=False)
        self._log = f"{database.path}-wal"
        self._written: tuple[int, int] | None = None
        self._seen = self._version()

    def _version(self) -> int:
        try:
            return int(self._connection.execute("PRAGMA data_version").fetchone()[0])
        except sqlite3.Error as error:
            raise DatabaseUnavailable(str(error)) from error

    def wait(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if self._is_written():
                version = self._version()
                if version != self._seen:
                    self._seen = version
                    return True
            time.sleep(_POLL_SECONDS)
        return False

    def _is_written(self) -> bool:
        """Whether somebody writes to the log, or did a moment ago: an idle database costs one look at the file."""
        try:
            status = os.stat(self._log)
        except OSError:
            return True
        written = (status.st_mtime_ns, status.st_size)
        changed, self._written = written != self._written, written
        return changed or time.time_ns() - status.st_mtime_ns < _RECENT_NS

    def close(self) -> None:
        self._connection.close()


class _Notifications:
    """``LISTEN`` on a connection of its own."""

    def __init__(self, database: Database) -> None:
        self._database = database
        try:
            self._fairy = database.engine.raw_connection()
            driver: Any = self._fairy.driver_connection
            self._fairy.detach()
            self._connection = driver
            self._connection.autocommit = True
            self._connection.execute(f"LISTEN {_CHANNEL}")
        except Exception as error:
            raise self._translated(error) from error

    def wait(self, seconds: float) -> bool:
        try:
            return any(True for _ in self._connection.notifies(timeout=seconds, stop_after=1))
        except Exception as error:
            raise self._translated(error) from error

    def _translated(self, error: Exception) -> Exception:
        if isinstance(error, DBAPIError):
            return translate(error, self._database.url)
        return translate(DBAPIError("LISTEN", None, error), self._database.url)

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self._connection.close()
