"""What differs between SQLite and PostgreSQL: the only module that asks which database it talks to."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import (
    JSON,
    URL,
    BigInteger,
    ColumnElement,
    Connection,
    Dialect,
    Engine,
    Insert,
    Table,
    TableValuedAlias,
    Text,
    TypeDecorator,
    bindparam,
    cast,
    create_engine,
    event,
    func,
    insert,
    literal_column,
    select,
    text,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import make_url
from sqlalchemy.exc import (
    ArgumentError,
    DataError,
    DBAPIError,
    DisconnectionError,
    NoSuchModuleError,
    NotSupportedError,
    ProgrammingError,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.pool import QueuePool
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import NullType, String

from engine.clock import SECOND, Clock, SystemClock
from engine.errors import ConfigError, DatabaseRefused, DatabaseUnavailable
from engine.filelock import FileLock, LockTimeout

LOCK_SECONDS = 30.0
BUSY_MILLISECONDS = 10_000

_GONE = ("08", "57P", "53", "55P03", "40001", "40P01")


def database_url(target: str | Path) -> URL:
    """``target`` as a URL: a path means SQLite. Raises ConfigError."""
    target = str(target)
    if "://" not in target:
        return URL.create("sqlite", database=str(Path(target).expanduser().absolute()))
    try:
        url = make_url(target)
    except ArgumentError as error:
        raise ConfigError(f'"{target}" is neither a path nor a database URL') from error
    if url.get_backend_name() == "postgresql":
        return url.set(drivername="postgresql+psycopg")
    if url.get_backend_name() == "sqlite" and url.database:
        return URL.create("sqlite", database=str(Path(url.database).absolute()))
    raise ConfigError(f'"{target}": use a path, sqlite:///PATH or postgresql+psycopg://…')


def shown(url: URL) -> str:
    """``url`` for people: a plain path for SQLite, passwords hidden."""
    return str(url.database) if url.get_backend_name() == "sqlite" else url.render_as_string(hide_password=True)


class Database:
    """An engine with this project's rules for transactions.

    SQLite: WAL, ``synchronous=FULL``; write transactions begin IMMEDIATE under the file lock, reads are deferred.
    PostgreSQL: READ COMMITTED write transactions, reads on an autocommitting connection.
    """

    def __init__(self, url: URL) -> None:
        self.url = url
        self.is_sqlite = url.get_backend_name() == "sqlite"
        self.path = Path(str(url.database)) if self.is_sqlite else None
        self.engine = _sqlite_engine(url) if self.is_sqlite else _postgresql_engine(url)
        self._locks = threading.local()

    @contextlib.contextmanager
    def write(self) -> Iterator[Connection]:
        """One write transaction: committed at the end of the block, rolled back on any exception.

        Raises DatabaseUnavailable where the database is locked, full or gone.
        """
        with _translated(self.url), self._write_lock(), self.engine.connect() as connection, connection.begin():
            if self.is_sqlite:
                run_on_driver(connection, "BEGIN IMMEDIATE", ())
            yield connection

    @contextlib.contextmanager
    def read(self) -> Iterator[Connection]:
        """One consistent snapshot for reading."""
        with _translated(self.url), self.engine.connect() as connection, connection.begin():
            if self.is_sqlite:
                run_on_driver(connection, "BEGIN", ())
            yield connection

    def exists(self) -> bool:
        """Whether there is anything at the URL (a PostgreSQL database is taken to exist)."""
        return self.path is None or self.path.exists()

    def clock(self) -> Clock:
        """The clock of this database: local for SQLite, local plus the measured offset for PostgreSQL."""
        local = SystemClock()
        if self.is_sqlite:
            return local
        with self.read() as connection:
            before = local.now()
            server = connection.execute(text("SELECT extract(epoch FROM clock_timestamp())")).scalar_one()
            after = local.now()
        return SystemClock(int(float(server) * SECOND) - (before + after) // 2)

    def close(self) -> None:
        """Close all connections; on SQLite under the file lock, since the last one checkpoints."""
        with contextlib.suppress(DatabaseUnavailable), self._write_lock():
            self.engine.dispose()
        lock = getattr(self._locks, "lock", None)
        if lock is not None:
            lock.close()

    @contextlib.contextmanager
    def _write_lock(self) -> Iterator[None]:
        if self.path is None:
            yield
            return
        lock: FileLock | None = getattr(self._locks, "lock", None)
        if lock is None:
            lock = self._locks.lock = FileLock(self.path)
        try:
            lock.acquire(LOCK_SECONDS)
        except LockTimeout as error:
            raise DatabaseUnavailable(str(error)) from error
        except OSError as error:
            raise DatabaseUnavailable(f"{lock.path}: {error.strerror}") from error
        try:
            yield
        finally:
            lock.release()


def _sqlite_engine(url: URL) -> Engine:
    engine = create_engine(
        url, poolclass=QueuePool, pool_size=8, max_overflow=8, connect_args={"timeout": BUSY_MILLISECONDS / 1000}
    )

    @event.listens_for(engine, "connect")
    def prepare(connection: Any, _record: Any) -> None:
        connection.isolation_level = None
        cursor = connection.cursor()
        if cursor.execute("PRAGMA page_count").fetchone() == (0,):
            # it counts only while the file is empty, and would write to it ever after
            cursor.execute("PRAGMA auto_vacuum = INCREMENTAL")
        cursor.execute("PRAGMA journal_mode = WAL")
        cursor.execute("PRAGMA synchronous = FULL")
        cursor.execute("PRAGMA foreign_keys = OFF")
        cursor.execute("PRAGMA temp_store = MEMORY")
        cursor.execute("PRAGMA cache_size = -32000")
        cursor.close()

    return engine


#: A process that freezes inside a transaction (a sleeping laptop) must not hold its locks for ever.
_SESSION = "-c synchronous_commit=on -c idle_in_transaction_session_timeout=15s"


#: Seconds after which a pooled connection is asked whether it still stands: each time would be a message more.
_TRUSTED = 2.0


def _postgresql_engine(url: URL) -> Engine:
    try:
        engine = create_engine(
            url,
            pool_size=4,
            max_overflow=8,
            isolation_level="READ COMMITTED",
            connect_args={"connect_timeout": 10, "options": _SESSION},
        )
    except (NoSuchModuleError, ModuleNotFoundError) as error:
        raise ConfigError('PostgreSQL needs the extra: pip install "scraper[postgres]"') from error

    @event.listens_for(engine, "checkin")
    def note(_connection: Any, record: Any) -> None:
        record.info["idle since"] = time.monotonic()

    @event.listens_for(engine, "checkout")
    def ask(connection: Any, record: Any, _proxy: Any) -> None:
        if time.monotonic() - record.info.get("idle since", math.inf) > _TRUSTED:
            try:
                engine.dialect.do_ping(connection)
            except Exception as error:
                raise DisconnectionError from error

    return engine


@contextlib.contextmanager
def _translated(url: URL) -> Iterator[None]:
    try:
        yield
    except DBAPIError as error:
        raise translate(error, url) from error


def translate(error: DBAPIError, url: URL) -> Exception:
    """A driver's error as one of ours where it is about the database itself, else ``error``."""
    original = error.orig
    name = shown(url)
    state = getattr(original, "sqlstate", None)
    if state is not None or getattr(original, "pgconn", None) is not None or "psycopg" in type(original).__module__:
        unsent = isinstance(error, DataError | ProgrammingError | NotSupportedError)
        if error.connection_invalidated or (state is None and not unsent) or (state or "").startswith(_GONE):
            return DatabaseUnavailable(f"{name}: {_first_line(original)}")
        if state is not None and state.startswith(("28", "3D000")):
            return DatabaseRefused(f"{name}: {_first_line(original)}")
        return error
    code = getattr(original, "sqlite_errorname", "") or ""
    if code.startswith(("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_FULL", "SQLITE_IOERR")):
        return DatabaseUnavailable(f"{name}: {_first_line(original)}")
    if code.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM")):
        return DatabaseRefused(f"{name}: {_first_line(original)}")
    return error


def insert_or_ignore(connection: Connection, table: Table) -> Any:
    """An INSERT that leaves rows alone whose key is taken."""
    return ignoring_conflicts(table)(connection.dialect)


def ignoring_conflicts(table: Table) -> Callable[[Dialect], Any]:
    """:func:`insert_or_ignore` for any dialect."""

    def statement(dialect: Dialect) -> Any:
        dialect_insert: Any = sqlite.insert if dialect.name == "sqlite" else postgresql.insert
        return dialect_insert(table).on_conflict_do_nothing()

    return statement


class DriverRows(NamedTuple):
    """What a statement gave: the names of the columns, and all rows. Both are empty for a statement without rows."""

    names: Sequence[str]
    rows: Sequence[Sequence[Any]]


def run_on_driver(connection: Connection, sql: str, parameters: Any) -> DriverRows:
    """Execute ``sql`` on the driver's own cursor, in the connection's transaction. Raises what SQLAlchemy raises."""
    cursor = connection.connection.cursor()
    try:
        cursor.execute(sql, parameters)
        if cursor.description is None:
            return DriverRows((), ())
        return DriverRows([column[0] for column in cursor.description], cursor.fetchall())
    except Exception as error:
        raise _as_sqlalchemy_does(connection, sql, parameters, error) from error


def run_many_on_driver(connection: Connection, sql: str, parameters: Sequence[Any]) -> None:
    """Execute ``sql`` once for each of ``parameters``, as :func:`run_on_driver` does."""
    try:
        connection.connection.cursor().executemany(sql, parameters)
    except Exception as error:
        raise _as_sqlalchemy_does(connection, sql, parameters, error) from error


def _as_sqlalchemy_does(connection: Connection, sql: str, parameters: Any, error: Exception) -> BaseException:
    base: type[Exception] = connection.dialect.loaded_dbapi.Error
    if not isinstance(error, base):
        return error
    lost = connection.dialect.is_disconnect(error, connection.connection.driver_connection, None)  # type: ignore[arg-type]
    if lost:
        connection.invalidate(error)
    dialect = connection.dialect
    return DBAPIError.instance(sql, parameters, error, base, connection_invalidated=lost, dialect=dialect)


def takes_lists(dialect: Dialect) -> bool:
    """Whether an INSERT of many rows is best one statement with a list for each column: each execution is a message."""
    return dialect.name == "postgresql"


def insert_of_lists(table: Any, columns: Sequence[str]) -> Insert:
    """Such a statement: the lists are bound to the columns' names."""
    lists = [cast(bindparam(name, type_=_ArrayText()), postgresql.ARRAY(table.c[name].type)) for name in columns]
    rows = func.unnest(*lists).table_valued(*columns, name="given").render_derived()
    return insert(table).from_select(list(columns), select(*rows.c))


class _ArrayText(TypeDecorator[Sequence[Any]]):
    """A list as PostgreSQL writes arrays: the driver would do that value by value, in Python."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Sequence[Any] | None, dialect: Dialect) -> Any:
        return _array_text(value or ())


def _array_text(values: Sequence[Any]) -> str:
    return "{" + ",".join([_element_text(value) for value in values]) + "}"


def _element_text(value: object) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return str(value)


class Among(FunctionElement[Any]):
    """``column`` is one of the keys bound to ``name``: a single parameter, so that the statement has one text."""

    # not Boolean: on SQLite that would be compared with 1, which no index serves
    type = NullType()
    name = "among"
    inherit_cache = True

    def __init__(self, column: ColumnElement[Any], name: str) -> None:
        super().__init__(column, bindparam(name, type_=_Keys()))


class _Keys(TypeDecorator[Sequence[Any]]):
    """Surrogates or names as one value: the text of a JSON array, or of an array."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Sequence[Any] | None, dialect: Dialect) -> Any:
        return json.dumps(value) if dialect.name == "sqlite" else _array_text(value or ())


@compiles(Among, "sqlite")
def _among_json(element: Among, compiler: Any, **options: Any) -> str:
    column, keys = element.clauses
    return (
        f"{compiler.process(column, **options)} IN (SELECT value FROM json_each({compiler.process(keys, **options)}))"
    )


@compiles(Among, "postgresql")
def _among_array(element: Among, compiler: Any, **options: Any) -> str:
    column, keys = element.clauses
    kind = "TEXT" if isinstance(column.type, String) else "BIGINT"
    return f"{compiler.process(column, **options)} = ANY (CAST({compiler.process(keys, **options)} AS {kind}[]))"


class _EachPair(FunctionElement[Any]):
    """The members of a JSON object."""

    name = "each_pair"
    inherit_cache = True


@compiles(_EachPair, "sqlite")
def _each_member(element: _EachPair, compiler: Any, **options: Any) -> str:
    return f"json_each({compiler.process(element.clauses, **options)})"


@compiles(_EachPair, "postgresql")
def _each_member_text(element: _EachPair, compiler: Any, **options: Any) -> str:
    return f"json_each_text(CAST({compiler.process(element.clauses, **options)} AS JSON))"


class _Pairs(TypeDecorator[Mapping[int, Any]]):
    """Numbers, or lists of them, by surrogate as one value."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Mapping[int, Any] | None, dialect: Dialect) -> Any:
        return json.dumps(value)


def each_pair(name: str) -> TableValuedAlias:
    """The mapping from surrogates to numbers, or lists of them, that is bound to ``name``, as a table.

    Its columns ``key`` and ``value`` are to be cast, or read with :func:`number_at`.
    """
    return _EachPair(bindparam(name, type_=_Pairs())).table_valued("key", "value")


class number_at(FunctionElement[int]):
    """The number at a place of a list, see :func:`each_pair`."""

    type = BigInteger()
    name = "number_at"
    inherit_cache = True

    def __init__(self, values: ColumnElement[Any], place: int) -> None:
        super().__init__(values, literal_column(str(place)))


@compiles(number_at, "sqlite")
def _number_at_path(element: number_at, compiler: Any, **options: Any) -> str:
    values, place = (compiler.process(part, **options) for part in element.clauses)
    return f"json_extract({values}, '$[{place}]')"


@compiles(number_at, "postgresql")
def _number_at_arrow(element: number_at, compiler: Any, **options: Any) -> str:
    values, place = (compiler.process(part, **options) for part in element.clauses)
    return f"CAST(CAST({values} AS JSON) ->> {place} AS BIGINT)"


def json_strings(connection: Connection, column: ColumnElement[str]) -> TableValuedAlias:
    """The strings of a column that holds a JSON array, to be joined to its row: a table with the column ``value``."""
    if connection.dialect.name == "sqlite":
        return func.json_each(column).table_valued("value")
    return func.json_array_elements_text(cast(column, JSON)).table_valued("value")


def _first_line(error: BaseException | None) -> str:
    return re.split(r"[\r\n]", str(error), maxsplit=1)[0]


def is_unique_violation(error: DBAPIError) -> bool:
    """Whether a unique or primary key refused the row."""
    original = error.orig
    return getattr(original, "sqlstate", None) == "23505" or getattr(original, "sqlite_errorname", "") in (
        "SQLITE_CONSTRAINT_UNIQUE",
        "SQLITE_CONSTRAINT_PRIMARYKEY",
    )


def require_writable(path: Path) -> None:
    """Refuse a SQLite file that cannot be written, before anything is tried. Raises DatabaseRefused."""
    folder = path.parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DatabaseRefused(f"{folder}: {error.strerror}") from error
    if path.is_dir():
        raise DatabaseRefused(f"{path} is a directory, not a database file")
    if path.exists() and not os.access(path, os.W_OK, effective_ids=True):
        raise DatabaseRefused(f"{path} is read-only")
    if not os.access(folder, os.W_OK, effective_ids=True):
        raise DatabaseRefused(f"{folder} is not writable")
