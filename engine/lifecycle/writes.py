"""What hooks write while they run: kept back until they have ended, or kept at once under a number.

``store_set`` and its like only take effect together with the end of the hook. A counter, and SQL that changes, take
effect at once, in one transaction with their number and result, and give that result when the hook is run again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from typing import Any

from engine.clock import Clock
from engine.counting import NotANumber, Number, advance
from engine.js.hostcall import HostError
from engine.js.ports import Rows, SqlRefused, SqlValue
from engine.lifecycle.journal import Journal, Write
from engine.projection.archive import transaction
from engine.projection.session import Database
from engine.projection.sqlite import changes


class Table:
    """Texts under keys of one owner: those of a job (``monitor_kv``), or of an iteration (``monitor_batch``)."""

    def __init__(self, database: Database, table: str, owner_column: str, value_column: str, owner: str) -> None:
        self._database = database
        self._owner = owner
        self._where = f"WHERE {owner_column} = ? AND key = ?"
        self._select = f"SELECT {value_column} FROM {table} {self._where}"
        self._delete = f"DELETE FROM {table} {self._where}"
        self._upsert = (
            f"INSERT INTO {table} ({owner_column}, key, {value_column}) VALUES (?, ?, ?) "
            f"ON CONFLICT ({owner_column}, key) DO UPDATE SET {value_column} = excluded.{value_column}"
        )
        #: Kept back: None is a deletion.
        self.changed: dict[str, str | None] = {}

    def get(self, key: str) -> str | None:
        """What stands under the key, seen by the hook that changed it."""
        if key in self.changed:
            return self.changed[key]
        rows = self._database.run(self._select, (self._owner, key))
        return str(rows[0][0]) if rows else None

    def write(self, key: str, value: str | None) -> Write:
        """The statement that makes a change."""
        if value is None:
            return self._delete, (self._owner, key)
        return self._upsert, (self._owner, key, value)

    def writes(self) -> list[Write]:
        """The statements of all that was kept back."""
        return [self.write(key, value) for key, value in self.changed.items()]


class HookWrites:
    """The writes of one hook call, or of several that end together. Raises HostError, SqlRefused, DatabaseBusy."""

    def __init__(self, journal: Journal, clock: Clock, job_id: str, iteration_id: str) -> None:
        self._journal = journal
        self._database = journal.database
        self._clock = clock
        self._job_id = job_id
        self.store = Table(self._database, "monitor_kv", "job_id", "value", job_id)
        self.batch = Table(self._database, "monitor_batch", "iteration_id", "value_json", iteration_id)
        self._announcements: list[Write] = []
        self.begin("", 0)

    def begin(self, stage: str, seq: int) -> None:
        """Numbers from now on are those of this call."""
        self._stage, self._seq, self._numbered, self._announced = stage, seq, 0, 0

    def pending(self) -> list[Write]:
        """What is to be written together with the end of the hook."""
        return [*self.store.writes(), *self.batch.writes(), *self._announcements]

    def settled(self) -> None:
        """What was pending is written."""
        self.store.changed.clear()
        self.batch.changed.clear()
        self._announcements.clear()

    def number(self) -> str:
        """The name of the next call whose effect is kept at once, in the cycle."""
        self._numbered += 1
        return f"{self._stage}:{self._seq}:{self._numbered}"

    def incr(self, table: Table, key: str, default: Number, delta: Number) -> dict[str, Any]:
        """Add to a counter at once: ``{"value"}``, with ``fault`` where no number stands there."""

        def effect() -> dict[str, Any]:
            try:
                value = advance(table.get(key), default, delta)
            except NotANumber as error:
                return {"value": default, "fault": str(error)}
            self._database.run(*table.write(key, json.dumps(value)))
            return {"value": value}

        result: dict[str, Any] = self._once(["incr", key, default, delta], effect)
        if "fault" not in result:
            # what was kept back is part of the counter now
            table.changed.pop(key, None)
        return result

    def execute(self, sql: str, parameters: Sequence[SqlValue]) -> int:
        """Run SQL that changes, at once; the rows it changed."""
        return int(self._once(["exec", sql, _shown(parameters)], lambda: self._database.execute(sql, parameters)))

    def query(self, sql: str, parameters: Sequence[SqlValue]) -> Rows:
        """Read; or change and read what ``RETURNING`` gives, once."""
        if not changes(sql):
            self._database.begin_read()
            try:
                return self._database.query(sql, parameters)
            finally:
                self._database.rollback()

        def effect() -> Any:
            rows = self._database.query(sql, parameters)
            return [rows.columns, [_shown(row) for row in rows.rows]]

        columns, rows = self._once(["query", sql, _shown(parameters)], effect)
        return Rows(tuple(columns), [tuple(_hidden(row)) for row in rows])

    def announce(self, title: str, body: str, timeout_ms: Number) -> None:
        """Put a notification into the outbox, with the end of the hook."""
        self._announced += 1
        now = self._clock.now()
        payload = json.dumps({"title": title, "body": body, "timeout": timeout_ms}, ensure_ascii=False)
        self._announcements.append(
            (
                "INSERT INTO monitor_outbox (id, job_id, cycle_id, channel, target, headers_json, payload_json, status,"
                " attempts, next_attempt_at, last_error, created_at, updated_at)"
                " VALUES (?, ?, ?, 'notification', '', '{}', ?, 'pending', 0, ?, '', ?, ?) ON CONFLICT (id) DO NOTHING",
                (
                    f"{self._journal.cycle_id}/{self._stage}/{self._seq}/notify{self._announced}",
                    self._job_id,
                    self._journal.cycle_id,
                    payload,
                    now,
                    now,
                    now,
                ),
            )
        )

    def _once(self, what: list[Any], effect: Callable[[], Any]) -> Any:
        self._numbered += 1
        stage, seq, call = self._stage, self._seq, self._numbered
        digest = hashlib.sha256(json.dumps(what).encode()).hexdigest()
        kept = self._journal.call(stage, seq, call)
        if kept is None:
            with transaction(self._database):
                kept = self._journal.call(stage, seq, call)
                if kept is None:
                    result = effect()
                    if not self._database.in_transaction:
                        raise SqlRefused("the statement ended its transaction (INSERT OR ROLLBACK?)")
                    kept = digest, json.dumps(result)
                    self._journal.keep_call(stage, seq, call, *kept)
        if kept[0] != digest:
            raise HostError(
                f"call {call} of {stage} is not the one it was when the hook was interrupted: {what[0]} {what[1][:80]}",
                code="changed",
            )
        return json.loads(kept[1])


def _shown(values: Sequence[Any]) -> list[Any]:
    return [{"$bytes": value.decode("latin-1")} if isinstance(value, bytes) else value for value in values]


def _hidden(values: Sequence[Any]) -> list[SqlValue]:
    return [value["$bytes"].encode("latin-1") if isinstance(value, dict) else value for value in values]
