"""The views through which site scripts see the engine DB, with the table and column names they were written for.

An artifact's body shows as a private marker followed by its stored frame; whoever reads for a script decodes it with
:func:`decode_body`.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import zstandard

if TYPE_CHECKING:
    from sqlalchemy import Connection

BODY_MARKER = b"\x00scraper-zstd\x00"


class _Compressors(threading.local):
    """One for each thread: to make one takes longer than to compress a page."""

    def __init__(self) -> None:
        self.own = zstandard.ZstdCompressor(level=3)


_compressors = _Compressors()


def encode_body(body: bytes) -> bytes:
    """Bytes as the ``blob`` table stores them."""
    return BODY_MARKER + _compressors.own.compress(body)


def decode_body(stored: bytes) -> bytes:
    """The inverse of :func:`encode_body`; other bytes come back unchanged."""
    if not stored.startswith(BODY_MARKER):
        return stored
    return zstandard.ZstdDecompressor().decompress(stored[len(BODY_MARKER) :])


def create_views(connection: Connection, *, sqlite: bool) -> None:
    """Create the views anew, after every change of the schema."""
    for name, query in _views(sqlite).items():
        connection.exec_driver_sql(f"DROP VIEW IF EXISTS {name}")
        connection.exec_driver_sql(f"CREATE VIEW {name} AS {query}")


def _views(sqlite: bool) -> dict[str, str]:
    def time(column: str) -> str:
        if sqlite:
            return (
                f"CASE WHEN {column} IS NULL THEN NULL ELSE"
                f" strftime('%Y-%m-%dT%H:%M:%S', {column} / 1000000, 'unixepoch')"
                f" || printf('.%06dZ', {column} % 1000000) END"
            )
        return f"to_char(to_timestamp({column} / 1000000.0) AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')"

    number = "CASE WHEN e.kind = 'success' THEN 1 ELSE 0 END"
    object_ = "json_object" if sqlite else "json_build_object"
    return {
        "schema_migrations": f"SELECT version, name, {time('applied_at')} AS applied_at FROM migration",
        "workflows": f"""SELECT id, site, name, status, input_json, metadata_json,
            {time("created_at")} AS created_at, {time("updated_at")} AS updated_at FROM workflow""",
        "ops": f"""SELECT o.id, w.id AS workflow_id, o.parent_id, o.site, o.kind, q.key AS queue_key, o.dedup_key,
            o.input_json, o.retry_json, o.metadata_json, o.status,
            CAST({object_}('Attempt', o.attempts) AS TEXT) AS retry_state_json,
            CASE WHEN o.status = 'ready' AND o.attempts > 0 THEN {time("o.ready_at")} END AS next_attempt_at,
            {time("o.created_at")} AS created_at, {time("o.updated_at")} AS updated_at
            FROM op o JOIN workflow w ON w.pk = o.workflow_pk LEFT JOIN queue q ON q.pk = o.queue_pk
            WHERE o.status <> 'unborn'""",
        "op_dependencies": f"""SELECT w.id AS workflow_id, o.id AS op_id, t.id AS depends_on_op_id, {number} AS required
            FROM edge e JOIN op o ON o.pk = e.op_pk JOIN op t ON t.pk = e.target_pk
            JOIN workflow w ON w.pk = o.workflow_pk""",
        "leases": f"""SELECT id AS op_id, worker AS worker_id, token, {time("acquired_at")} AS acquired_at,
            {time("expires_at")} AS expires_at FROM op WHERE status = 'running'""",
        "attempts": f"""SELECT o.id AS op_id, w.id AS workflow_id, a.number, a.state, a.worker AS worker_id,
            {time("a.claimed_at")} AS claimed_at, {time("a.started_at")} AS started_at,
            {time("a.ended_at")} AS ended_at, coalesce(a.error_json, 'null') AS error_json
            FROM (SELECT op_pk, number, state, worker, claimed_at, started_at, ended_at, error_json FROM attempt
            UNION ALL SELECT pk, claims, 'running', worker, acquired_at, started_at, NULL, NULL FROM op
            WHERE token IS NOT NULL) a JOIN op o ON o.pk = a.op_pk JOIN workflow w ON w.pk = o.workflow_pk""",
        "queue_limit_state": f"""SELECT site, key AS queue_key, tokens, {time("refilled_at")} AS last_refill_at
            FROM queue WHERE tokens IS NOT NULL""",
        "schedules": f"""SELECT site, name, verb, rule_json, paused, {time("due_at")} AS due_at, runs, skipped,
            {time("last_due_at")} AS last_due_at, last_workflow AS last_workflow_id, error FROM schedule""",
        "results": f"""SELECT o.id AS op_id, w.id AS workflow_id, r.data_json, r.records_json, 'null' AS emitted_json,
            r.emitted_ids_json, coalesce(r.error_json, 'null') AS error_json, {time("r.completed_at")} AS completed_at
            FROM result r JOIN op o ON o.pk = r.op_pk JOIN workflow w ON w.pk = o.workflow_pk""",
        "artifacts": f"""SELECT a.id, w.id AS workflow_id, o.id AS op_id, a.name, a.kind, a.content_type,
            a.metadata_json, b.body, {time("a.created_at")} AS created_at
            FROM artifact a JOIN op o ON o.pk = a.op_pk JOIN workflow w ON w.pk = a.workflow_pk
            JOIN blob b ON b.sha256 = a.sha256""",
    }
