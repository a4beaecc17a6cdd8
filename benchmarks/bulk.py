"""An engine DB with a past: finished and waiting ops, written by the database itself in a few statements."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass

from sqlalchemy import Connection, text

from benchmarks.ours import SITE, Place
from engine.clock import Micros
from engine.model import NewOp, NewWorkflow
from engine.store.graph import UNBORN
from engine.store.store import Store

_TABLES = ("workflow", "op")


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """What is loaded. Waiting ops depend on an op of their workflow that nobody has emitted yet."""

    workflows: int
    finished: int
    waiting: int = 0
    ended_at: Micros


def load(here: Place, past: Past) -> None:
    """Fill an empty engine DB; each op has its attempt and its result."""
    with closing(Store.open(here.engine_db)) as store:
        store.submit(NewWorkflow(id="first", site=SITE, name="bench", ops=(NewOp(id="a", kind="noop", site=SITE),)))
        with store.database.write() as connection:
            _fill(connection, past, sqlite=store.database.is_sqlite)
        if not store.database.is_sqlite:
            # what autovacuum would do before long; nobody analyses a user's SQLite file, so that is not done here
            with store.database.engine.connect() as connection:
                connection.execution_options(isolation_level="AUTOCOMMIT").execute(text("VACUUM ANALYZE"))


def _fill(connection: Connection, past: Past, *, sqlite: bool) -> None:
    per = past.finished // past.workflows
    waits = past.waiting // past.workflows
    status = "'running'" if waits else "'succeeded'"
    _insert(
        connection,
        sqlite,
        past.workflows,
        "INSERT INTO workflow (pk, id, site, name, status, input_json, metadata_json, canceled, pending, active, "
        f"succeeded, failed, dropped, created_at, updated_at) SELECT 1000 + i, 'past' || i, '{SITE}', 'bench', "
        f"{status}, '{{}}', '{{}}', {'0' if sqlite else 'false'}, {waits}, 0, {per}, 0, 0, "
        f"{past.ended_at}, {past.ended_at} FROM n",
    )
    columns = (
        "pk, workflow_pk, id, kind, site, queue_pk, lane_pk, dedup_key, input_json, metadata_json, retry_json, "
        "spec_hash, status, unmet, not_before, ready_at, created_at, updated_at, attempts, claims"
    )
    shared = f"'noop', '{SITE}', o.queue_pk, o.lane_pk, '', 'null', '{{}}', o.retry_json, o.spec_hash"
    at = past.ended_at
    finished = past.workflows * per
    _insert(
        connection,
        sqlite,
        finished,
        f"INSERT INTO op ({columns}) SELECT 1000 + i, 1000 + 1 + (i - 1) / {per}, 'op' || i, {shared}, 'succeeded', "
        f"0, 0, {at}, {at}, {at}, 1, 1 FROM n, op o WHERE o.pk = 1",
    )
    _insert(
        connection,
        sqlite,
        finished,
        "INSERT INTO attempt (op_pk, number, generation, token, worker, claimed_at, started_at, ended_at, state) "
        f"SELECT 1000 + i, 1, 0, 'past:' || i, 'past', {at}, {at}, {at}, 'succeeded' FROM n",
    )
    _insert(
        connection,
        sqlite,
        finished,
        "INSERT INTO result (op_pk, data_json, records_json, emitted_ids_json, completed_at) "
        f"SELECT 1000 + i, 'null', '[]', '[]', {at} FROM n",
    )
    if waits:
        _wait(connection, sqlite, past, columns, shared, waits, finished)
    if not sqlite:
        for table in _TABLES:
            connection.execute(
                text(f"SELECT setval(pg_get_serial_sequence('{table}', 'pk'), (SELECT max(pk) FROM {table}))")
            )


def _wait(
    connection: Connection, sqlite: bool, past: Past, columns: str, shared: str, waits: int, finished: int
) -> None:
    blockers, first = 1000 + finished, 1000 + finished + past.workflows
    at = past.ended_at
    _insert(
        connection,
        sqlite,
        past.workflows,
        f"INSERT INTO op ({columns}) SELECT {blockers} + i, 1000 + i, 'blocker', {shared}, '{UNBORN}', "
        f"0, 0, 0, {at}, {at}, 0, 0 FROM n, op o WHERE o.pk = 1",
    )
    _insert(
        connection,
        sqlite,
        past.workflows * waits,
        f"INSERT INTO op ({columns}) SELECT {first} + i, 1000 + 1 + (i - 1) / {waits}, 'waits' || i, {shared}, "
        f"'pending', 1, 0, 0, {at}, {at}, 0, 0 FROM n, op o WHERE o.pk = 1",
    )
    _insert(
        connection,
        sqlite,
        past.workflows * waits,
        "INSERT INTO edge (op_pk, target_pk, kind, satisfied) "
        f"SELECT {first} + i, {blockers} + 1 + (i - 1) / {waits}, 'success', {'0' if sqlite else 'false'} FROM n",
    )


def _insert(connection: Connection, sqlite: bool, count: int, statement: str) -> None:
    numbers = (
        f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count})"
        if sqlite
        else f"WITH n(i) AS (SELECT generate_series(1, {count}))"
    )
    head, _, tail = statement.partition(" SELECT ")
    rows = f"{numbers} SELECT {tail}"
    connection.execute(text(f"{head} {rows}"))
