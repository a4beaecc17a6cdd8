"""A site DB in PostgreSQL: the same rules, kept by an advisory lock and savepoints."""

from __future__ import annotations

import json
import re
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import date
from decimal import Decimal
from typing import Any

from engine.errors import ConfigError, DatabaseRefused
from engine.js.ports import DatabaseBusy, Rows, SqlRefused, SqlValue
from engine.placeholders import qmark_to_format
from engine.projection.sqlite import GUARDED, has_content, is_control

try:
    import psycopg
    from psycopg import sql as composed
except ModuleNotFoundError as missing:  # pragma: no cover - the extra is not installed
    raise ConfigError('PostgreSQL needs the extra: pip install "scraper[postgres]"') from missing

LOCK_MILLISECONDS = 10_000
_IDLE_MILLISECONDS = 120_000

#: Trying again would not help.
_NOT_OURS = re.compile(
    r"authentication failed|no pg_hba\.conf entry|no password supplied|role .* does not exist|Servname", re.IGNORECASE
)
_CHANGES = re.compile(r"\b(insert|update|delete|merge|truncate|drop|alter)\b", re.IGNORECASE)
_TOKEN = re.compile(
    r"""\b[eE]'(?:[^'\\]|''|\\.)*' | '(?:[^']|'')*' | "(?:[^"]|"")*"   # strings and names
      | (?<![\w$])\$(?P<tag>[^\W\d]\w*)?\$.*?\$(?(tag)(?P=tag))\$   # bodies of functions
      | --[^\n]* | /\*.*?\*/ | .""",
    re.DOTALL | re.VERBOSE,
)


class PostgresqlDatabase:
    """One connection on one site's PostgreSQL database. Used from one thread at a time."""

    is_sqlite = False

    def __init__(self, url: str) -> None:
        self._url = url.replace("postgresql+psycopg://", "postgresql://", 1)
        self._key = zlib.crc32(b"scraper-site-db")
        self.waited = 0.0
        self._connection = self._connect()

    def _connect(self) -> psycopg.Connection[Any]:
        options = (
            f"-c lock_timeout={LOCK_MILLISECONDS} -c idle_in_transaction_session_timeout={_IDLE_MILLISECONDS}"
            " -c synchronous_commit=on"
        )
        try:
            return psycopg.connect(self._url, autocommit=True, options=options, connect_timeout=10)
        except psycopg.OperationalError as error:
            if re.search(r'database ".*" does not exist', str(error)) and self._create():
                return psycopg.connect(self._url, autocommit=True, options=options, connect_timeout=10)
            if _NOT_OURS.search(str(error)):
                raise DatabaseRefused(f"{self.name}: {_first_line(error)}") from error
            raise DatabaseBusy(f"{self.name}: {_first_line(error)}") from error
        except psycopg.ProgrammingError as error:
            raise ConfigError(f"siteDatabaseURL is not a PostgreSQL URL: {_first_line(error)}") from error

    def _create(self) -> bool:
        info = psycopg.conninfo.conninfo_to_dict(self._url)
        name = str(info["dbname"])
        maintenance = psycopg.conninfo.make_conninfo(self._url, dbname="postgres")
        with suppress(psycopg.errors.DuplicateDatabase), psycopg.connect(maintenance, autocommit=True) as admin:
            admin.execute(composed.SQL("CREATE DATABASE {}").format(composed.Identifier(name)))
        return True

    @property
    def name(self) -> str:
        """The database for people, without its password."""
        info = psycopg.conninfo.conninfo_to_dict(self._url)
        return f"postgresql://{info.get('host', '')}/{info.get('dbname', '')}"

    @property
    def in_transaction(self) -> bool:
        return self._connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def begin_read(self) -> None:
        """Start a transaction that sees one snapshot."""
        self._begin("BEGIN ISOLATION LEVEL REPEATABLE READ")

    def begin_write(self) -> None:
        """Start a transaction under the lock of all writers. Raises DatabaseBusy."""
        self._begin("BEGIN ISOLATION LEVEL READ COMMITTED")
        self.take_lock()

    def _begin(self, statement: str) -> None:
        try:
            self._connection.execute(statement.encode())
        except psycopg.OperationalError:
            # the server was restarted: nothing of this transaction exists yet
            with suppress(psycopg.Error):
                self._connection.close()
            self._connection = self._connect()
            self._connection.execute(statement.encode())

    def take_lock(self) -> None:
        """Wait for the lock of all writers. Raises DatabaseBusy."""
        began = time.monotonic()
        try:
            self._connection.execute("SELECT pg_advisory_xact_lock(%s)", [self._key])
        except psycopg.Error as error:
            self.rollback()
            raise DatabaseBusy(f"{self.name}: {error}") from error
        finally:
            self.waited += time.monotonic() - began

    def commit(self) -> None:
        """Commit. Raises DatabaseBusy where that is not certain."""
        try:
            self._connection.execute("COMMIT")
        except psycopg.Error as error:
            self.rollback()
            raise DatabaseBusy(f"{self.name}: {error}") from error

    def rollback(self) -> None:
        """Forget everything since the begin."""
        if self.in_transaction:
            with suppress(psycopg.Error):
                self._connection.execute("ROLLBACK")

    def query(self, sql: str, params: Sequence[SqlValue]) -> Rows:
        """A script's query. Raises SqlRefused, DatabaseBusy."""
        if is_control(sql, nested=True) or (_CHANGES.search(sql) and any(name in sql for name in GUARDED)):
            raise SqlRefused("scripts may not control transactions or write the engine's own tables")
        with self._statement():
            cursor = self._one(sql, params)
            columns = tuple(column.name for column in cursor.description or ())
            rows = cursor.fetchall() if cursor.description else []
            return Rows(columns, [tuple(_plain(value) for value in row) for row in rows])

    def execute(self, sql: str, params: Sequence[SqlValue]) -> int:
        """A script's statements; the rows the last of them changed. Raises SqlRefused, DatabaseBusy."""
        if any(name in sql for name in GUARDED):
            raise SqlRefused("scripts may not write the engine's own tables")
        statements = split(sql)
        changed = 0
        with self._statement():
            for statement in statements:
                if not is_control(statement, nested=True):
                    cursor = self._one(statement, params if len(statements) == 1 else [])
                    changed = max(cursor.rowcount, 0) if cursor.description is None else 0
        return changed

    def _one(self, sql: str, params: Sequence[SqlValue]) -> psycopg.Cursor[Any]:
        """Run a single statement. Whatever the text hides, a pipeline takes no second one: a COMMIT cannot slip in."""
        if params:
            return self._connection.execute(qmark_to_format(sql).encode(), [_bound(value) for value in params])
        with self._connection.pipeline():
            return self._connection.execute(sql.encode())

    def last_insert_id(self) -> int | None:
        """The last value of a sequence in this session."""
        try:
            with self._statement():
                row = self._connection.execute("SELECT lastval()").fetchone()
        except SqlRefused:
            return None
        return None if row is None else int(row[0])

    def has_table(self, table: str) -> bool:
        """Whether there is a table or view of that name."""
        return bool(self.run("SELECT to_regclass(quote_ident(?)) IS NOT NULL", [table])[0][0])

    def has_column(self, table: str, column: str) -> bool:
        """Whether the table has the column."""
        query = "SELECT 1 FROM information_schema.columns WHERE table_name = ? AND column_name = ?"
        return bool(self.run(query, [table, column]))

    def run(self, sql: str, params: Sequence[SqlValue] = ()) -> list[tuple[SqlValue, ...]]:
        """One statement of the engine's own."""
        cursor = self._connection.execute(qmark_to_format(sql).encode(), list(params) or None)
        if cursor.description is None:
            return []
        return [tuple(_plain(value) for value in row) for row in cursor.fetchall()]

    def run_many(self, sql: str, rows: Sequence[Sequence[SqlValue]]) -> None:
        """One statement of the engine's own for many rows."""
        with self._connection.cursor() as cursor:
            cursor.executemany(qmark_to_format(sql).encode(), [list(row) for row in rows])

    def run_counting(self, sql: str, params: Sequence[SqlValue]) -> int:
        """One statement of the engine's own; the rows it changed."""
        return self._connection.execute(qmark_to_format(sql).encode(), list(params)).rowcount

    def is_duplicate(self, error: Exception) -> bool:
        """Whether a key was taken."""
        return isinstance(error, psycopg.errors.UniqueViolation)

    def interrupt(self) -> None:
        """End a running statement, from another thread."""
        with suppress(psycopg.Error):
            self._connection.cancel_safe(timeout=2.0)

    @contextmanager
    def _statement(self) -> Iterator[None]:
        """A failing statement must not poison the transaction: the script may catch its error."""
        self._connection.execute("SAVEPOINT script")
        try:
            yield
            self._connection.execute("RELEASE SAVEPOINT script")
        except (
            psycopg.errors.LockNotAvailable,
            psycopg.errors.SerializationFailure,
            psycopg.OperationalError,
        ) as error:
            self.rollback()
            raise DatabaseBusy(f"{self.name}: {error}") from error
        except psycopg.Error as error:
            with suppress(psycopg.Error):
                self._connection.execute("ROLLBACK TO SAVEPOINT script")
            raise SqlRefused(str(error).splitlines()[0]) from error


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0]


def _bound(value: SqlValue) -> SqlValue:
    """A literal of no type yet: PostgreSQL reads it as the column wants it, a boolean or a number."""
    return str(int(value)) if isinstance(value, bool) else value


def _plain(value: Any) -> SqlValue:
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, memoryview):
        return bytes(value)
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, date):
        return value.isoformat()
    return value if isinstance(value, int | float | str | bytes) or value is None else str(value)


def split(sql: str) -> list[str]:
    """Statements one by one; blank ones left out."""
    statements, current, depth = [], "", 0
    for token in _TOKEN.finditer(sql):
        current += token[0]
        depth += (token[0] == "(") - (token[0] == ")")
        if token[0] == ";" and depth <= 0:
            statements.append(current)
            current, depth = "", 0
    return [statement for statement in (*statements, current) if has_content(statement)]
