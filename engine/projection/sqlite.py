"""A site DB in a SQLite file: connections, locks, and what a script's SQL may do."""

from __future__ import annotations

import re
import sqlite3
import time
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path

from engine.filelock import FileLock, LockTimeout
from engine.js.ports import DatabaseBusy, Rows, SqlRefused, SqlValue

BUSY_SECONDS = 10.0
#: Tables only the engine writes.
GUARDED = frozenset(
    {
        "scraper_inbox",
        "scraper_inbox_meta",
        "schema_migrations",
        "hook_journal",
        "monitor_calls",
        "monitor_commits",
        "monitor_cycles",
        "monitor_iterations",
    }
)

_DENIED = frozenset({22, 24, 25, 32})  # TRANSACTION, ATTACH, DETACH, SAVEPOINT
_WRITES = frozenset({sqlite3.SQLITE_INSERT, sqlite3.SQLITE_UPDATE, sqlite3.SQLITE_DELETE, sqlite3.SQLITE_DROP_TABLE})
_CONTROL = ("begin", "start", "commit", "end", "abort", "rollback", "savepoint", "release", "prepare transaction")


class SqliteDatabase:
    """One connection on one site DB file. Used from one thread at a time."""

    is_sqlite = True

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self.lock = FileLock(path)
        self.waited = 0.0
        self._locked = False
        self._guard = _Guard()
        #: Texts the engine itself has run: what is prepared for these is nothing a script may use.
        self._own: set[str] = set()
        self.connection = sqlite3.connect(
            path, isolation_level=None, check_same_thread=False, timeout=BUSY_SECONDS, cached_statements=256
        )
        self.connection.set_authorizer(self._guard)
        try:
            with self.lock.held(BUSY_SECONDS):
                self.connection.execute("PRAGMA journal_mode = WAL")
        except LockTimeout as error:
            self.connection.close()
            self.lock.close()
            raise DatabaseBusy(str(error)) from error
        self.connection.execute("PRAGMA synchronous = FULL")

    @property
    def name(self) -> str:
        """The database for people."""
        return str(self.path)

    def close(self) -> None:
        """Close under the lock: the last connection checkpoints."""
        try:
            with self.lock.held(BUSY_SECONDS):
                self.connection.close()
        except LockTimeout:
            self.connection.close()
        self.lock.close()

    @property
    def in_transaction(self) -> bool:
        return self.connection.in_transaction

    def begin_read(self) -> None:
        """Start a snapshot that may still be upgraded."""
        self._control("BEGIN")

    def begin_write(self) -> None:
        """Take the lock and start writing. Raises DatabaseBusy."""
        self.take_lock()
        try:
            self._control("BEGIN IMMEDIATE")
        except sqlite3.Error as error:
            self.drop_lock()
            raise DatabaseBusy(f"{self.path}: {error}") from error

    def take_lock(self) -> None:
        """Wait for the lock of all writers. Raises DatabaseBusy."""
        if self._locked:
            return
        began = time.monotonic()
        try:
            self.lock.acquire(BUSY_SECONDS)
        except LockTimeout as error:
            raise DatabaseBusy(str(error)) from error
        finally:
            self.waited += time.monotonic() - began
        self._locked = True

    def drop_lock(self) -> None:
        """Let the next writer in."""
        if self._locked:
            self._locked = False
            self.lock.release()

    def commit(self) -> None:
        """Commit and let the next writer in. Raises DatabaseBusy where the disk is full or the file locked."""
        try:
            self._control("COMMIT")
        except sqlite3.OperationalError as error:
            self.rollback()
            raise DatabaseBusy(f"{self.path}: {error}") from error
        self.drop_lock()

    def rollback(self) -> None:
        """Forget everything since the begin."""
        try:
            if self.connection.in_transaction:
                self._control("ROLLBACK")
        finally:
            self.drop_lock()

    def _control(self, statement: str) -> None:
        self.connection.execute(self._trusted(statement))

    def _trusted(self, statement: str) -> str:
        """A statement of the engine's own, about to be run unchecked."""
        self._own.add(statement)
        self._guard.is_up = False
        return statement

    def _checked(self, statement: str) -> str:
        """A script's statement, about to be run: as a text that was never prepared unchecked."""
        self._guard.is_up = True
        while statement in self._own:
            statement += " "
        return statement

    def query(self, sql: str, params: Sequence[SqlValue]) -> Rows:
        """A script's query. Raises SqlRefused, DatabaseBusy."""
        try:
            cursor = self.connection.execute(self._checked(sql), params)
            columns = tuple(column[0] for column in cursor.description or ())
            return Rows(columns, cursor.fetchall())
        except (sqlite3.Error, sqlite3.Warning, OverflowError) as error:
            raise self._refusal(error) from error

    def execute(self, sql: str, params: Sequence[SqlValue]) -> int:
        """A script's statements; the rows the last of them changed. Raises SqlRefused, DatabaseBusy."""
        changed = 0
        statements = split(sql)
        try:
            for statement in statements:
                if is_control(statement):
                    continue
                cursor = self.connection.execute(self._checked(statement), params if len(statements) == 1 else ())
                if cursor.description is not None:
                    cursor.fetchall()
                changed = max(cursor.rowcount, 0)
        except (sqlite3.Error, sqlite3.Warning, OverflowError) as error:
            raise self._refusal(error) from error
        return changed

    def last_insert_id(self) -> int | None:
        """The rowid of the last insert."""
        return int(self.connection.execute("SELECT last_insert_rowid()").fetchone()[0]) or None

    def has_table(self, table: str) -> bool:
        """Whether there is a table or view of that name."""
        query = "SELECT 1 FROM sqlite_master WHERE type IN ('table', 'view') AND name = ?"
        return self.connection.execute(query, [table]).fetchone() is not None

    def has_column(self, table: str, column: str) -> bool:
        """Whether the table has the column."""
        query = "SELECT 1 FROM pragma_table_info(?) WHERE name = ?"
        return self.connection.execute(query, [table, column]).fetchone() is not None

    def run(self, sql: str, params: Sequence[SqlValue] = ()) -> list[tuple[SqlValue, ...]]:
        """One statement of the engine's own."""
        return self.connection.execute(self._trusted(sql), list(params)).fetchall()

    def run_many(self, sql: str, rows: Sequence[Sequence[SqlValue]]) -> None:
        """One statement of the engine's own for many rows."""
        self.connection.executemany(self._trusted(sql), [list(row) for row in rows])

    def run_counting(self, sql: str, params: Sequence[SqlValue]) -> int:
        """One statement of the engine's own; the rows it changed."""
        return self.connection.execute(self._trusted(sql), list(params)).rowcount

    def is_duplicate(self, error: Exception) -> bool:
        """Whether a key was taken."""
        return isinstance(error, sqlite3.IntegrityError)

    def interrupt(self) -> None:
        """End a running statement, from another thread."""
        self.connection.interrupt()

    def _refusal(self, error: Exception) -> Exception:
        name = getattr(error, "sqlite_errorname", "") or ""
        if name.startswith(("SQLITE_BUSY", "SQLITE_FULL", "SQLITE_IOERR", "SQLITE_LOCKED")):
            return DatabaseBusy(f"{self.path}: {error}")
        return SqlRefused(_explained(str(error)))


class _Guard:
    """Refuses what scripts may not do, where one of their statements is prepared.

    It is never taken away: that would make SQLite prepare every statement anew.
    """

    def __init__(self) -> None:
        self.is_up = False

    def __call__(self, action: int, first: str | None, *_: object) -> int:
        if self.is_up and (action in _DENIED or (action in _WRITES and first in GUARDED)):
            return sqlite3.SQLITE_DENY
        return sqlite3.SQLITE_OK


def _explained(message: str) -> str:
    if "not authorized" in message or "prohibited" in message:
        return f"{message}: scripts may not attach databases, control transactions or write the engine's own tables"
    return message


@lru_cache(maxsize=256)
def is_control(statement: str, *, nested: bool = False) -> bool:
    """Whether a statement begins, ends or divides a transaction. ``nested``: comments may hold comments."""
    words = " ".join(_content(statement, nested).lower().rstrip("; \n").split()[:2])
    return any(words == control or words.startswith(f"{control} ") for control in _CONTROL)


_CHANGING = re.compile(r"\b(insert|update|delete|replace|merge|create|drop|alter|truncate)\b", re.IGNORECASE)


@lru_cache(maxsize=256)
def changes(sql: str) -> bool:
    """Whether a statement that is asked as a query writes: ``INSERT … RETURNING``, also below a ``WITH``."""
    content = _content(sql, nested=True)
    first = re.match(r"\w*", content)
    word = first[0].lower() if first else ""
    return bool(_CHANGING.fullmatch(word)) or (word == "with" and bool(_CHANGING.search(content)))


@lru_cache(maxsize=256)
def split(sql: str) -> tuple[str, ...]:
    """Statements one by one, triggers and all; blank ones left out. Raises SqlRefused."""
    if "\0" in sql:
        raise SqlRefused("the SQL contains a null character")
    statements: list[str] = []
    current = ""
    for piece in _pieces(sql):
        current += piece
        if sqlite3.complete_statement(current):
            statements.append(current)
            current = ""
    statements.append(current)
    return tuple(statement for statement in statements if has_content(statement))


def _pieces(sql: str) -> Iterator[str]:
    at = 0
    while at < len(sql):
        end = sql.find(";", at)
        if end < 0:
            yield sql[at:]
            return
        yield sql[at : end + 1]
        at = end + 1


def has_content(statement: str) -> bool:
    """Whether there is anything but blanks and comments."""
    return bool(_content(statement, nested=False))


def _content(statement: str, nested: bool) -> str:
    """A statement from its first word on."""
    rest = statement
    while rest := rest.strip().lstrip(";").strip():
        if rest.startswith("--"):
            rest = rest.partition("\n")[2]
        elif rest.startswith("/*"):
            rest = _after_comment(rest, nested)
        else:
            break
    return rest


def _after_comment(text: str, nested: bool) -> str:
    depth = 0
    for edge in re.finditer(r"/\*|\*/", text):
        if edge[0] == "*/":
            depth -= 1
        elif nested or depth == 0:
            depth += 1
        if depth == 0:
            return text[edge.end() :]
    return ""
