"""A site DB as a test sees it: every statement is its own transaction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from engine.js.ports import Rows, SqlRefused, SqlValue
from engine.model import Record
from engine.projection.sqlite import SqliteDatabase


class AutocommitSession:
    """The session of a test: it opens the database at its first statement, after ``migrate`` has made it."""

    wrote = False
    waited = 0.0

    def __init__(self, path: Path, migrate: Callable[[], Any]) -> None:
        self._path = path
        self._migrate = migrate
        self._opened: SqliteDatabase | None = None

    def _database(self) -> SqliteDatabase:
        if self._opened is None:
            if not self._path.exists():
                self._migrate()
            self._opened = SqliteDatabase(self._path)
        return self._opened

    def query(self, sql: str, params: Sequence[SqlValue]) -> Rows:
        """Read what is committed."""
        return self._database().query(sql, params)

    def execute(self, sql: str, params: Sequence[SqlValue]) -> int:
        """Write and commit."""
        database = self._database()
        database.begin_write()
        try:
            changed = database.execute(sql, params)
            database.commit()
        finally:
            database.rollback()
        return changed

    def last_insert_id(self) -> int | None:
        """The rowid of the last insert of the test."""
        return self._database().last_insert_id()

    def has_table(self, table: str) -> bool:
        """Whether there is such a table or view."""
        return self._database().has_table(table)

    def has_column(self, table: str, column: str) -> bool:
        """Whether the table has the column."""
        return self._database().has_column(table, column)

    def write_record(self, record: Record) -> None:
        """A test emits nothing and writes no records."""
        raise SqlRefused("a test writes no records")

    def check(self) -> None:
        """Nothing is kept back that could not be kept."""

    def commit(self, outcome: bytes) -> None:
        """Everything is committed already."""

    def rollback(self) -> None:
        """There is nothing to take back."""

    def kill(self) -> None:
        """End a statement that is running too long."""
        if self._opened is not None:
            self._opened.interrupt()

    def close(self) -> None:
        """Close the connection."""
        if self._opened is not None:
            self._opened.close()
