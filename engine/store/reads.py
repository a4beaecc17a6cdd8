"""What site scripts may read of the engine DB, inside the JS children."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, select
from sqlalchemy.exc import DBAPIError

from engine.clock import rfc3339
from engine.dialect import Database, database_url, qmark_to_format
from engine.js.ports import Rows, SqlRefused, SqlValue
from engine.model import JsonText, OpStatus
from engine.store.compat import decode_body
from engine.store.rows import dumps
from engine.store.schema import artifact, blob, log_line, op, op_alias, result, workflow

_READS = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, getattr(sqlite3, "SQLITE_RECURSIVE", 33)}


class ScriptReads:
    """The read-only port of one child process on the engine DB."""

    def __init__(self, url: str) -> None:
        self._database = Database(database_url(url))

    def close(self) -> None:
        """Close the connections."""
        self._database.close()

    def dependency(self, workflow_id: str, op_id: str) -> JsonText | None:
        """The result of an op of the workflow as ``ctx.dep`` shows it; None where there is no result."""
        with self._database.read() as connection:
            found = _find(connection, workflow_id, op_id)
            if found is None:
                return None
            return _dependency(connection, found)

    def standing(self, workflow_id: str, kind: str, dedup_key: str) -> str | None:
        """The id of the op that holds a dedup key, if any does."""
        query = (
            select(op.c.id)
            .join(workflow, workflow.c.pk == op.c.workflow_pk)
            .where(workflow.c.id == workflow_id, op.c.kind == kind, op.c.dedup_key == dedup_key, op.c.dedup_key != "")
        )
        with self._database.read() as connection:
            return connection.scalar(query)

    def blob(self, sha256: str) -> bytes:
        """The bytes of an artifact. Raises KeyError."""
        with self._database.read() as connection:
            stored = connection.scalar(select(blob.c.body).where(blob.c.sha256 == sha256))
        if stored is None:
            raise KeyError(sha256)
        return decode_body(bytes(stored))

    def query(self, sql: str, params: Sequence[SqlValue]) -> Rows:
        """A read through the views. Raises SqlRefused for anything that is not one."""
        run = self._query_sqlite if self._database.is_sqlite else self._query_postgresql
        return run(sql, params)

    def _query_sqlite(self, sql: str, params: Sequence[SqlValue]) -> Rows:
        fairy = self._database.engine.raw_connection()
        driver: Any = fairy.driver_connection
        driver.set_authorizer(_only_reads)
        try:
            cursor = driver.execute(sql, list(params))
            return _rows(cursor)
        except sqlite3.Error as error:
            message = "scraper-db is read-only" if "not authorized" in str(error) else str(error)
            raise SqlRefused(message) from error
        finally:
            driver.set_authorizer(None)
            fairy.close()

    def _query_postgresql(self, sql: str, params: Sequence[SqlValue]) -> Rows:
        try:
            with self._database.engine.connect() as connection:
                connection.exec_driver_sql("SET TRANSACTION READ ONLY")
                cursor = connection.exec_driver_sql(qmark_to_format(sql), tuple(params))
                if not cursor.returns_rows:
                    raise SqlRefused("scraper-db is read-only")
                columns = tuple(cursor.keys())
                return Rows(columns, [tuple(_plain(value) for value in row) for row in cursor])
        except DBAPIError as error:
            raise SqlRefused(str(error.orig).splitlines()[0]) from error


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


def _find(connection: Connection, workflow_id: str, op_id: str) -> Any:
    aliased = (
        select(op_alias.c.op_pk)
        .join(workflow, workflow.c.pk == op_alias.c.workflow_pk)
        .where(workflow.c.id == workflow_id, op_alias.c.alias == op_id)
    )
    query = (
        select(op.c.pk, op.c.id, op.c.status, result)
        .join(workflow, workflow.c.pk == op.c.workflow_pk)
        .join(result, result.c.op_pk == op.c.pk)
        .where(workflow.c.id == workflow_id)
    )
    direct = connection.execute(query.where(op.c.id == op_id)).first()
    return direct if direct is not None else connection.execute(query.where(op.c.pk.in_(aliased))).first()


def _dependency(connection: Connection, row: Any) -> JsonText:
    members = [
        f'"opID":{dumps(row.id)}',
        f'"data":{row.data_json}',
        f'"records":{_lower_records(row.records_json)}',
        f'"artifacts":{dumps(_artifacts(connection, row))}',
        f'"emittedIDs":{row.emitted_ids_json}',
        f'"completedAt":"{rfc3339(row.completed_at)}"',
    ]
    if row.error_json is not None and row.status in (
        OpStatus.FAILED,
        OpStatus.READY,
        OpStatus.RUNNING,
        OpStatus.CANCELED,
    ):
        stored = json.loads(row.error_json)
        error = {name[0].lower() + name[1:]: stored[name] for name in stored}
        members.append(f'"error":{dumps(error)}')
    return "{" + ",".join(members) + "}"


def _lower_records(stored: JsonText) -> JsonText:
    if stored == "[]":
        return stored
    return dumps([{name.lower(): value for name, value in record.items()} for record in json.loads(stored)])


def _artifacts(connection: Connection, row: Any) -> list[dict[str, Any]]:
    found = [
        {
            "id": item.id,
            "name": item.name,
            "kind": item.kind,
            "contentType": item.content_type,
            "metadata": json.loads(item.metadata_json),
            "sha256": item.sha256,
            "size": item.size,
        }
        for item in connection.execute(select(artifact).where(artifact.c.op_pk == row.pk))
    ]
    lines = [
        {"timestamp": rfc3339(line.at), "message": line.message}
        for line in connection.execute(select(log_line).where(log_line.c.op_pk == row.pk).order_by(log_line.c.pk))
    ]
    if lines:
        text = dumps(lines)
        found.append(
            {
                "id": f"{row.id}:execution-log",
                "name": "execution-log",
                "kind": "execution-log",
                "contentType": "application/json",
                "metadata": {},
                "text": text,
                "size": len(text.encode()),
            }
        )
    return sorted(found, key=lambda item: str(item["id"]))


def open_reads(url: str) -> ScriptReads:
    """The port for a child process."""
    return ScriptReads(url)
