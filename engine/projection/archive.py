"""Crawls, snapshots and the results of hooks in a site DB, written as they happen and exactly once.

A hook writes in many small transactions while it runs. Each is fenced: it carries the number of its claim, and one of
an older claim, or of an op whose outcome is in the inbox already, changes nothing. Within a claim lines are counted, so
that a batch that comes twice is applied once. The last transaction holds the outcome in the inbox, as a script's does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum

from engine.clock import Clock
from engine.js.ports import SessionSpec, SqlValue
from engine.projection.session import Database, Inbox

Statement = tuple[str, tuple[SqlValue, ...]]


class Verdict(StrEnum):
    """What became of a write."""

    APPLIED = "applied"
    #: The same lines were applied before.
    REPEATED = "repeated"
    #: The op has passed on to a later claim, or has ended: nothing was written.
    STALE = "stale"


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """What one claim of an op wants to change, together or not at all."""

    spec: SessionSpec
    #: How often the op was claimed before: later claims have higher numbers.
    claim: int
    statements: Sequence[Statement]
    #: The last line of the hook's output this write goes back to; 0 = it goes back to none.
    line: int = 0
    #: The op's outcome: with it the op is over.
    outcome: bytes | None = None


def create_tables(database: Database) -> None:
    """Make the tables of crawls where they are missing."""
    if database.has_table("archive_results") and database.has_table("hook_progress"):
        return
    big = "INTEGER" if database.is_sqlite else "BIGINT"
    with transaction(database):
        for statement in _TABLES:
            database.run(statement.replace("BIG", big))
        for statement in _SQLITE_SEARCH if database.is_sqlite else _POSTGRESQL_SEARCH:
            database.run(statement)


def apply(database: Database, clock: Clock, writes: Sequence[Write]) -> list[Verdict]:
    """Apply writes in one transaction; one verdict each."""
    verdicts = []
    with transaction(database):
        for write in writes:
            verdict = _admit(database, clock, write)
            if verdict is Verdict.APPLIED:
                for sql, parameters in write.statements:
                    database.run(sql, parameters)
                _advance(database, clock, write)
            verdicts.append(verdict)
    return verdicts


def _admit(database: Database, clock: Clock, write: Write) -> Verdict:
    spec = write.spec
    rows = database.run(
        "SELECT claim, line FROM hook_progress WHERE engine = ? AND op = ?", (spec.engine_uuid, spec.op_key)
    )
    claim, line = (int(rows[0][0]), int(rows[0][1])) if rows else (-1, 0)  # type: ignore[arg-type]
    if claim > write.claim:
        return Verdict.STALE
    if database.run(
        "SELECT 1 FROM scraper_inbox WHERE engine = ? AND op = ? AND generation = ?",
        (spec.engine_uuid, spec.op_key, spec.generation),
    ) or not database.run("SELECT 1 FROM scraper_inbox_meta WHERE horizon < ?", (spec.claimed_at,)):
        return Verdict.STALE
    if write.line and claim == write.claim and line >= write.line:
        return Verdict.REPEATED
    return Verdict.APPLIED


def _advance(database: Database, clock: Clock, write: Write) -> None:
    spec = write.spec
    if write.outcome is None:
        database.run(
            "INSERT INTO hook_progress (engine, op, claim, line) VALUES (?, ?, ?, ?) ON CONFLICT (engine, op) DO UPDATE"
            " SET line = CASE WHEN hook_progress.claim = excluded.claim AND hook_progress.line > excluded.line "
            "THEN hook_progress.line ELSE excluded.line END, claim = excluded.claim",
            (spec.engine_uuid, spec.op_key, write.claim, write.line),
        )
        return
    database.run("DELETE FROM hook_progress WHERE engine = ? AND op = ?", (spec.engine_uuid, spec.op_key))
    database.run(
        "INSERT INTO scraper_inbox (engine, op, generation, outcome, claimed_at, committed_at)"
        " VALUES (?, ?, ?, ?, ?, ?)",
        (spec.engine_uuid, spec.op_key, spec.generation, write.outcome, spec.claimed_at, clock.now()),
    )


def outcome(database: Database, clock: Clock, spec: SessionSpec) -> bytes | None:
    """What the inbox holds about an op."""
    return Inbox(database, clock).outcome(spec)


@contextmanager
def transaction(database: Database) -> Iterator[None]:
    """One write transaction. Raises DatabaseBusy."""
    database.begin_write()
    try:
        yield
        database.commit()
    except BaseException:
        database.rollback()
        raise


_TABLES = (
    """CREATE TABLE IF NOT EXISTS crawls (id TEXT PRIMARY KEY, label TEXT NOT NULL, urls TEXT NOT NULL,
    max_depth INTEGER NOT NULL, status TEXT NOT NULL, created_by TEXT NOT NULL, config TEXT NOT NULL,
    output_dir TEXT NOT NULL, created_at TEXT NOT NULL, started_at TEXT, sealed_at TEXT, modified_at TEXT NOT NULL)""",
    """CREATE TABLE IF NOT EXISTS snapshots (id TEXT PRIMARY KEY, crawl_id TEXT NOT NULL, parent_snapshot_id TEXT,
    url TEXT NOT NULL, depth INTEGER NOT NULL, title TEXT NOT NULL, status TEXT NOT NULL, created_by TEXT NOT NULL,
    output_dir TEXT NOT NULL, created_at TEXT NOT NULL, started_at TEXT, sealed_at TEXT, modified_at TEXT NOT NULL,
    round INTEGER NOT NULL DEFAULT 1)""",
    """CREATE TABLE IF NOT EXISTS archive_results (id TEXT PRIMARY KEY, crawl_id TEXT NOT NULL, snapshot_id TEXT,
    plugin TEXT NOT NULL, hook_name TEXT NOT NULL, event TEXT NOT NULL, position INTEGER NOT NULL,
    step INTEGER NOT NULL, background INTEGER NOT NULL, status TEXT NOT NULL, attempts INTEGER NOT NULL,
    retry_at TEXT, start_ts TEXT, end_ts TEXT, exit_code INTEGER, error TEXT NOT NULL, cmd TEXT NOT NULL,
    pwd TEXT NOT NULL, machine TEXT NOT NULL, iface TEXT NOT NULL, output_str TEXT NOT NULL, output_json TEXT,
    output_files TEXT NOT NULL, output_count BIG NOT NULL, output_size BIG NOT NULL, output_mimetypes TEXT NOT NULL,
    warnings TEXT NOT NULL, modified_at TEXT NOT NULL)""",
    "CREATE INDEX IF NOT EXISTS archive_results_snapshot ON archive_results (snapshot_id)",
    "CREATE INDEX IF NOT EXISTS archive_results_crawl ON archive_results (crawl_id)",
    "CREATE INDEX IF NOT EXISTS snapshots_status ON snapshots (crawl_id, status)",
    "CREATE TABLE IF NOT EXISTS tags (name TEXT PRIMARY KEY, created_at TEXT NOT NULL)",
    """CREATE TABLE IF NOT EXISTS snapshot_tags (snapshot_id TEXT NOT NULL, tag TEXT NOT NULL,
    PRIMARY KEY (snapshot_id, tag))""",
    """CREATE TABLE IF NOT EXISTS hook_progress (engine TEXT NOT NULL, op TEXT NOT NULL, claim INTEGER NOT NULL,
    line BIG NOT NULL, PRIMARY KEY (engine, op))""",
)
_SQLITE_SEARCH = (
    "CREATE VIRTUAL TABLE IF NOT EXISTS snapshot_texts USING fts5 (snapshot_id UNINDEXED, url, title, body)",
)
_POSTGRESQL_SEARCH = (
    """CREATE TABLE IF NOT EXISTS snapshot_texts (snapshot_id TEXT PRIMARY KEY, url TEXT NOT NULL,
    title TEXT NOT NULL, body TEXT NOT NULL, words TSVECTOR GENERATED ALWAYS AS
    (to_tsvector('simple', url || ' ' || title || ' ' || body)) STORED)""",
    "CREATE INDEX IF NOT EXISTS snapshot_texts_words ON snapshot_texts USING GIN (words)",
)
