"""One execution's transaction on a site DB, and the inbox that makes its effect happen exactly once.

The inbox row is inserted in the script's own transaction. Its key is (engine DB, op surrogate, generation): not the
attempt, so that a frozen predecessor and its successor collide and one of them rolls back whole.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Protocol

from engine.clock import Clock, Micros, rfc3339
from engine.js.ports import AlreadyApplied, DatabaseBusy, Rows, SessionSpec, SqlRefused, SqlValue, StaleClaim
from engine.model import Record
from engine.projection.sqlite import changes

#: Between two tries to end a running statement.
_INTERRUPT_SECONDS = 0.01


class Database(Protocol):
    """A connection on a site DB of either dialect."""

    waited: float

    @property
    def name(self) -> str: ...
    @property
    def is_sqlite(self) -> bool: ...
    @property
    def in_transaction(self) -> bool: ...
    def begin_read(self) -> None: ...
    def begin_write(self) -> None: ...
    def take_lock(self) -> None: ...
    def commit(self) -> None: ...
    def rollback(self) -> None: ...
    def query(self, sql: str, params: Sequence[SqlValue]) -> Rows: ...
    def execute(self, sql: str, params: Sequence[SqlValue]) -> int: ...
    def last_insert_id(self) -> int | None: ...
    def has_table(self, table: str) -> bool: ...
    def has_column(self, table: str, column: str) -> bool: ...
    def run(self, sql: str, params: Sequence[SqlValue] = ()) -> list[tuple[SqlValue, ...]]: ...
    def run_many(self, sql: str, rows: Sequence[Sequence[SqlValue]]) -> None: ...
    def run_counting(self, sql: str, params: Sequence[SqlValue]) -> int: ...
    def is_duplicate(self, error: Exception) -> bool: ...
    def interrupt(self) -> None: ...
    def close(self) -> None: ...


_RECORD = """INSERT INTO scraper_records (collection, key, data, workflow_id, op_id, updated_at)
VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (collection, key) DO UPDATE SET data = excluded.data, workflow_id = excluded.workflow_id,
op_id = excluded.op_id, updated_at = excluded.updated_at"""

_INBOX = """INSERT INTO scraper_inbox (engine, op, generation, outcome, claimed_at, committed_at)
SELECT ?, ?, ?, ?, ?, ? WHERE ? > (SELECT horizon FROM scraper_inbox_meta)"""


class Session:
    """A transaction that begins with the first call and ends with :meth:`commit` or :meth:`rollback`.

    A reader works on a snapshot and takes the lock when it first writes; a writer takes it at its first call.
    """

    def __init__(self, database: Database, spec: SessionSpec, clock: Clock, *, writer: bool) -> None:
        self._database = database
        self._spec = spec
        self._clock = clock
        self._writer = writer
        self._records: list[Record] = []
        self._began = False
        self._writing = False
        self._wrote = False
        self._broken: str | None = None
        self._dead = False
        self._mutex = threading.RLock()
        self._waited_before = database.waited

    @property
    def waited(self) -> float:
        """Seconds spent waiting for the lock."""
        return self._database.waited - self._waited_before

    @property
    def wrote(self) -> bool:
        """Whether there is anything to commit."""
        return self._wrote or bool(self._records)

    def query(self, sql: str, params: Sequence[SqlValue]) -> Rows:
        """Read, or write and read what ``RETURNING`` gives; after the first write, one's own writes too."""
        with self._mutex:
            self._alive()
            if changes(sql):
                self._begin_writing()
                self._wrote = True
            else:
                self._begin()
            with self._still_open():
                return self._database.query(sql, params)

    def execute(self, sql: str, params: Sequence[SqlValue]) -> int:
        """Write."""
        with self._mutex:
            self._alive()
            self._begin_writing()
            self._wrote = True
            with self._still_open():
                return self._database.execute(sql, params)

    def last_insert_id(self) -> int | None:
        """The row id of the last insert of this session."""
        with self._mutex:
            self._alive()
            return self._database.last_insert_id() if self._wrote else None

    def has_table(self, table: str) -> bool:
        """Whether there is such a table or view."""
        with self._mutex:
            self._alive()
            self._begin()
            return self._database.has_table(table)

    def has_column(self, table: str, column: str) -> bool:
        """Whether the table has the column."""
        with self._mutex:
            self._alive()
            self._begin()
            return self._database.has_column(table, column)

    def write_record(self, record: Record) -> None:
        """Keep an upsert for the commit."""
        self._records.append(record)

    def check(self) -> None:
        """Raise SqlRefused where nothing of this session can be kept any more."""
        with self._mutex:
            self._alive()

    def commit(self, outcome: bytes) -> None:
        """Apply records, insert the inbox row, commit: all or nothing."""
        with self._mutex:
            self._alive()
            try:
                self._begin_writing()
                self._write_records()
                self._enter(outcome)
                self._database.commit()
            except BaseException:
                self._end()
                raise
            self._began = False

    def _write_records(self) -> None:
        moment = rfc3339(self._clock.now())
        latest = {(item.collection, item.key): item.data for item in self._records}
        rows = [
            (collection, key, data, self._spec.workflow_id, self._spec.op_id, moment)
            for (collection, key), data in latest.items()
        ]
        if rows:
            try:
                self._database.run_many(_RECORD, rows)
            except Exception as error:
                raise DatabaseBusy(f"{self._database.name}: {error}") from error

    def _enter(self, outcome: bytes) -> None:
        spec = self._spec
        values: list[SqlValue] = [spec.engine_uuid, spec.op_key, spec.generation, outcome, spec.claimed_at]
        try:
            entered = self._database.run_counting(_INBOX, [*values, self._clock.now(), spec.claimed_at])
        except Exception as error:
            if self._database.is_duplicate(error):
                raise AlreadyApplied(spec.op_id) from error
            raise DatabaseBusy(f"{self._database.name}: {error}") from error
        if entered == 0:
            raise StaleClaim(spec.op_id)

    def rollback(self) -> None:
        """Leave no trace."""
        with self._mutex:
            self._end()

    def kill(self) -> None:
        """Whatever still runs for this session writes nothing any more."""
        self._dead = True
        # a statement that has not quite begun does not notice an interrupt
        while not self._mutex.acquire(timeout=_INTERRUPT_SECONDS):
            self._database.interrupt()
        try:
            self._end()
        finally:
            self._mutex.release()

    def _end(self) -> None:
        self._dead = True
        with suppress(Exception):
            self._database.rollback()

    def _alive(self) -> None:
        if self._dead:
            raise SqlRefused("the execution this belongs to is over")
        if self._broken is not None:
            raise SqlRefused(self._broken)

    @contextmanager
    def _still_open(self) -> Iterator[None]:
        """A statement that failed may have ended the transaction: what came next would be committed on its own."""
        try:
            yield
        finally:
            if not self._database.in_transaction:
                self._broken = "a statement ended the op's transaction (INSERT OR ROLLBACK?): nothing of it can be kept"

    def _begin(self) -> None:
        if self._began:
            return
        if self._writer:
            self._begin_writing()
        else:
            self._database.begin_read()
            self._began = True

    def _begin_writing(self) -> None:
        if self._writing:
            return
        if self._began:
            self._database.take_lock()
        else:
            self._database.begin_write()
        self._began = self._writing = True


class Inbox:
    """What became of ops, as far as a site DB knows."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    def outcome(self, spec: SessionSpec) -> bytes | None:
        """The outcome under the key; None where there is none, or only a fence."""
        rows = self._database.run(
            "SELECT outcome FROM scraper_inbox WHERE engine = ? AND op = ? AND generation = ?", _key(spec)
        )
        return None if not rows or rows[0][0] is None else bytes(rows[0][0])  # type: ignore[arg-type]

    def fence(self, spec: SessionSpec) -> bytes | None:
        """Close the key for good; the outcome that stood there before, if any. Raises DatabaseBusy."""
        self._database.begin_write()
        try:
            standing = self.outcome(spec)
            if standing is None:
                values = [*_key(spec), spec.claimed_at, self._clock.now()]
                self._database.run(
                    "INSERT INTO scraper_inbox (engine, op, generation, claimed_at, committed_at) "
                    "VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING RETURNING op",
                    values,
                )
            self._database.commit()
        except BaseException:
            self._database.rollback()
            raise
        return standing

    def collect(self, before: Micros) -> int:
        """Forget rows older than ``before`` and refuse claims as old from now on, in one transaction; how many."""
        self._database.begin_write()
        try:
            self._database.run_counting("UPDATE scraper_inbox_meta SET horizon = ? WHERE horizon < ?", [before, before])
            count = self._database.run_counting("DELETE FROM scraper_inbox WHERE claimed_at <= ?", [before])
            self._database.commit()
        except BaseException:
            self._database.rollback()
            raise
        return count


def _key(spec: SessionSpec) -> list[SqlValue]:
    return [spec.engine_uuid, spec.op_key, spec.generation]
