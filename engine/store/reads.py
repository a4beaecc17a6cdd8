"""What site scripts may read of the engine DB, inside the JS children.

Straight through the drivers: a child starts in half the time without SQLAlchemy, and every ``ctx.dep`` is a read.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Protocol, TypeVar

from engine.clock import rfc3339
from engine.errors import DatabaseUnavailable
from engine.js.ports import Rows, SqlRefused, SqlValue
from engine.model import JsonText, OpStatus
from engine.placeholders import qmark_to_format
from engine.store.compat import decode_body

T = TypeVar("T")

_READS = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, getattr(sqlite3, "SQLITE_RECURSIVE", 33)}
_BUSY_SECONDS = 10.0
_dumps = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode

_RESULT = """SELECT o.pk, o.id, o.status, r.data_json, r.records_json, r.emitted_ids_json, r.error_json, r.completed_at
    FROM op o JOIN workflow w ON w.pk = o.workflow_pk JOIN result r ON r.op_pk = o.pk WHERE w.id = ? AND """
_DIRECT = f"{_RESULT} o.id = ?"
_ALIASED = f"""{_RESULT} o.pk IN (SELECT a.op_pk FROM op_alias a JOIN workflow v ON v.pk = a.workflow_pk
    WHERE v.id = ? AND a.alias = ?)"""
_STANDING = """SELECT o.id FROM op o JOIN workflow w ON w.pk = o.workflow_pk
    WHERE w.id = ? AND o.kind = ? AND o.dedup_key = ? AND o.dedup_key <> ''"""
_BLOB = "SELECT body FROM blob WHERE sha256 = ?"
_ARTIFACTS = """SELECT id, name, kind, content_type, metadata_json, sha256, size FROM artifact WHERE op_pk = ?"""
_LINES = "SELECT at, message FROM log_line WHERE op_pk = ? ORDER BY pk"


class _Source(Protocol):
    """One connection that cannot write."""

    def snapshot(self, read: Callable[[_Source], T]) -> T:
        """What ``read`` finds in one consistent state. Raises DatabaseUnavailable."""
        ...

    def rows(self, sql: str, *params: SqlValue) -> list[tuple[Any, ...]]:
        """A query of our own."""
        ...

    def query(self, sql: str, params: Sequence[SqlValue]) -> Rows:
        """A script's query. Raises SqlRefused."""
        ...

    def close(self) -> None: ...


class ScriptReads:
    """The read-only port of one child process on the engine DB."""

    def __init__(self, source: _Source) -> None:
        self._source = source

    def close(self) -> None:
        """Close the connection."""
        self._source.close()

    def dependency(self, workflow_id: str, op_id: str) -> JsonText | None:
        """The result of an op of the workflow as ``ctx.dep`` shows it; None where there is no result."""

        def read(source: _Source) -> JsonText | None:
            found = source.rows(_DIRECT, workflow_id, op_id)
            found = found or source.rows(_ALIASED, workflow_id, workflow_id, op_id)
            return _dependency(source, *found[0]) if found else None

        return self._source.snapshot(read)

    def standing(self, workflow_id: str, kind: str, dedup_key: str) -> str | None:
        """The id of the op that holds a dedup key, if any does."""
        found = self._source.snapshot(lambda source: source.rows(_STANDING, workflow_id, kind, dedup_key))
        return str(found[0][0]) if found else None

    def blob(self, sha256: str) -> bytes:
        """The bytes of an artifact. Raises KeyError."""
        found = self._source.snapshot(lambda source: source.rows(_BLOB, sha256))
        if not found:
            raise KeyError(sha256)
        return decode_body(bytes(found[0][0]))

    def query(self, sql: str, params: Sequence[SqlValue]) -> Rows:
        """A read through the views. Raises SqlRefused for anything that is not one."""
        return self._source.query(sql, params)


class _Sqlite:
    """Opened for reading only, so that closing it checkpoints nothing."""

    def __init__(self, path: str) -> None:
        self._connection = sqlite3.connect(
            f"file:{_quoted(path)}?mode=ro",
            uri=True,
            timeout=_BUSY_SECONDS,
            isolation_level=None,
            check_same_thread=False,
        )

    def close(self) -> None:
        self._connection.close()

    def snapshot(self, read: Callable[[_Source], T]) -> T:
        try:
            self._connection.execute("BEGIN")
            try:
                return read(self)
            finally:
                self._connection.execute("ROLLBACK")
        except sqlite3.Error as error:
            raise DatabaseUnavailable(str(error)) from error

    def rows(self, sql: str, *params: SqlValue) -> list[tuple[Any, ...]]:
        return self._connection.execute(sql, params).fetchall()

    def query(self, sql: str, params: Sequence[SqlValue]) -> Rows:
        self._connection.set_authorizer(_only_reads)
        try:
            return _rows(self._connection.execute(sql, list(params)))
        except sqlite3.Error as error:
            message = "scraper-db is read-only" if "not authorized" in str(error) else str(error)
            raise SqlRefused(message) from error
        finally:
            self._connection.set_authorizer(None)


class _Postgresql:
    """Read-only transactions; connected anew when the server closed the connection."""

    def __init__(self, url: str) -> None:
        import psycopg

        self._psycopg = psycopg
        self._url = url
        self._connection: Any = None

    def _connected(self) -> Any:
        if self._connection is None or self._connection.closed:
            self._connection = self._psycopg.connect(self._url, autocommit=True, connect_timeout=10)
        return self._connection

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def snapshot(self, read: Callable[[_Source], T]) -> T:
        for attempt in (1, 2):
            try:
                self._begin("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
                try:
                    return read(self)
                finally:
                    self._rollback()
            except self._psycopg.OperationalError as error:
                self.close()
                if attempt == 2:
                    raise DatabaseUnavailable(str(error).splitlines()[0]) from error
        raise AssertionError

    def _begin(self, statement: str) -> None:
        self._connected().execute(statement)

    def _rollback(self) -> None:
        with suppress(self._psycopg.Error):
            self._connection.execute("ROLLBACK")

    def rows(self, sql: str, *params: SqlValue) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = self._connection.execute(sql.replace("?", "%s"), params).fetchall()
        return found

    def query(self, sql: str, params: Sequence[SqlValue]) -> Rows:
        try:
            return self.snapshot(lambda _: _rows(self._connection.execute(qmark_to_format(sql), tuple(params))))
        except self._psycopg.Error as error:
            raise SqlRefused(str(error).splitlines()[0]) from error


def _quoted(path: str) -> str:
    from urllib.parse import quote

    return quote(path)


def _only_reads(action: int, *_: object) -> int:
    return sqlite3.SQLITE_OK if action in _READS else sqlite3.SQLITE_DENY


def _rows(cursor: Any) -> Rows:
    if cursor.description is None:
        raise SqlRefused("scraper-db is read-only")
    columns = tuple(column[0] for column in cursor.description)
    return Rows(columns, [tuple(_plain(value) for value in row) for row in cursor.fetchall()])


def _plain(value: Any) -> SqlValue:
    if isinstance(value, bytes | memoryview):
        return decode_body(bytes(value))
    if isinstance(value, bool):
        return int(value)
    return value if isinstance(value, int | float | str) or value is None else str(value)


def _dependency(
    source: _Source,
    pk: int,
    op_id: str,
    status: str,
    data: JsonText,
    records: JsonText,
    emitted: JsonText,
    error: JsonText | None,
    completed_at: int,
) -> JsonText:
    members = [
        f'"opID":{_dumps(op_id)}',
        f'"data":{data}',
        f'"records":{_lower_records(records)}',
        f'"artifacts":{_dumps(_artifacts(source, pk, op_id))}',
        f'"emittedIDs":{emitted}',
        f'"completedAt":"{rfc3339(completed_at)}"',
    ]
    if error is not None and status in (OpStatus.FAILED, OpStatus.READY, OpStatus.RUNNING, OpStatus.CANCELED):
        stored = json.loads(error)
        members.append(f'"error":{_dumps({name[0].lower() + name[1:]: stored[name] for name in stored})}')
    return "{" + ",".join(members) + "}"


def _lower_records(stored: JsonText) -> JsonText:
    if stored == "[]":
        return stored
    return _dumps([{name.lower(): value for name, value in record.items()} for record in json.loads(stored)])


def _artifacts(source: _Source, op_pk: int, op_id: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [
        {
            "id": artifact_id,
            "name": name,
            "kind": kind,
            "contentType": content_type,
            "metadata": json.loads(metadata),
            "sha256": sha256,
            "size": size,
        }
        for artifact_id, name, kind, content_type, metadata, sha256, size in source.rows(_ARTIFACTS, op_pk)
    ]
    lines = [{"timestamp": rfc3339(at), "message": message} for at, message in source.rows(_LINES, op_pk)]
    if lines:
        text = _dumps(lines)
        found.append(
            {
                "id": f"{op_id}:execution-log",
                "name": "execution-log",
                "kind": "execution-log",
                "contentType": "application/json",
                "metadata": {},
                "text": text,
                "size": len(text.encode()),
            }
        )
    return sorted(found, key=lambda item: str(item["id"]))


def open_reads(target: str) -> ScriptReads:
    """The port for a child process on the engine DB at a path or URL, which exists. Raises DatabaseUnavailable."""
    scheme, found, rest = target.partition("://")
    if found and scheme.startswith("postgresql"):
        return ScriptReads(_Postgresql(f"postgresql://{rest}"))
    try:
        return ScriptReads(_Sqlite(rest.removeprefix("/") if found else target))
    except sqlite3.Error as error:
        raise DatabaseUnavailable(f"{target}: {error}") from error
