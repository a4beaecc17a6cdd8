"""How far the hooks of one cycle got: a hook that ended is not called again, and its writes were kept with its end.

A cycle's rows are keyed by (stage, seq); an iteration's own hook (``on_finished``) uses the iteration's id as cycle id.
Every method is a short transaction of its own: a hook may wait for the network for a minute and must not hold the lock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.js.ports import DatabaseBusy, SqlValue
from engine.projection.archive import transaction
from engine.projection.monitor import create_tables
from engine.projection.session import Database

#: One statement of the engine's own, and its parameters.
Write = tuple[str, tuple[SqlValue, ...]]


@dataclass(frozen=True, slots=True)
class Journaled:
    """What is kept of a hook call that ended. ``ctx_json`` "": it is kept with a later one."""

    result_json: str
    ctx_json: str


@dataclass(frozen=True, slots=True)
class Ended:
    """A hook call that ended."""

    stage: str
    seq: int
    result_json: str


_ENTER = """INSERT INTO hook_journal (cycle_id, stage, seq, number, result_json, ctx_json) SELECT ?, ?, ?,
(SELECT COALESCE(MAX(number), 0) + 1 FROM hook_journal WHERE cycle_id = ?), ?, ? WHERE true
ON CONFLICT (cycle_id, stage, seq) DO NOTHING"""
_OVER = """SELECT 1 FROM monitor_cycles WHERE cycle_id = ? AND finished_at IS NOT NULL
UNION ALL SELECT 1 FROM monitor_iterations WHERE iteration_id = ? AND finished_at IS NOT NULL"""


class Journal:
    """The journal of one cycle (``cycle_id`` ``job/n/k``) or of an iteration. Methods raise DatabaseBusy."""

    def __init__(self, database: Database, cycle_id: str) -> None:
        self.database = database
        self.cycle_id = cycle_id
        create_tables(database)

    def stage(self, stage: str, seq: int = 0) -> Journaled | None:
        """What is kept of that call; None where it has not ended yet."""
        rows = self.database.run(
            "SELECT result_json, ctx_json FROM hook_journal WHERE cycle_id = ? AND stage = ? AND seq = ?",
            (self.cycle_id, stage, seq),
        )
        return Journaled(str(rows[0][0]), str(rows[0][1])) if rows else None

    def latest_ctx(self) -> str | None:
        """The ctx after the last hook of the cycle that ended; None where none has."""
        rows = self.database.run(
            "SELECT ctx_json FROM hook_journal WHERE cycle_id = ? ORDER BY number DESC LIMIT 1", (self.cycle_id,)
        )
        return str(rows[0][0]) if rows else None

    def finish(self, stage: str, seq: int, result_json: str, ctx_json: str, writes: Sequence[Write] = ()) -> None:
        """Keep the end of a call together with what it wrote. Raises DatabaseBusy where another run ended it."""
        self.finish_all([Ended(stage, seq, result_json)], ctx_json, writes)

    def finish_all(self, ended: Sequence[Ended], ctx_json: str, writes: Sequence[Write]) -> None:
        """Keep the ends of calls together with what they wrote and the ctx after the last of them."""
        with transaction(self.database):
            self._refuse_over()
            entered = 0
            for item in ended:
                ctx = ctx_json if item is ended[-1] else ""
                entered += self.database.run_counting(
                    _ENTER, (self.cycle_id, item.stage, item.seq, self.cycle_id, item.result_json, ctx)
                )
            if entered < len(ended):
                raise DatabaseBusy(f"another run of {self.cycle_id} got ahead of this one")
            for sql, parameters in writes:
                self.database.run(sql, parameters)

    def call(self, stage: str, seq: int, call: int) -> tuple[str, str] | None:
        """Hash and result of a numbered call made in a hook that has not ended; None where it was not made yet."""
        rows = self.database.run(
            "SELECT hash, result_json FROM monitor_calls WHERE cycle_id = ? AND stage = ? AND seq = ? AND call = ?",
            (self.cycle_id, stage, seq, call),
        )
        return (str(rows[0][0]), str(rows[0][1])) if rows else None

    def keep_call(self, stage: str, seq: int, call: int, digest: str, result_json: str) -> None:
        """Enter a numbered call, inside the transaction of its effect. Raises DatabaseBusy where the cycle is over."""
        self._refuse_over()
        self.database.run(
            "INSERT INTO monitor_calls (cycle_id, stage, seq, call, hash, result_json) VALUES (?, ?, ?, ?, ?, ?)",
            (self.cycle_id, stage, seq, call, digest, result_json),
        )

    def _refuse_over(self) -> None:
        """A run that lost its op finds the journal wiped: it must not call hooks anew, nor count again."""
        if self.database.run(_OVER, (self.cycle_id, self.cycle_id)):
            raise DatabaseBusy(f"{self.cycle_id} is over: another run of its op ended it")

    def forget(self) -> None:
        """Wipe what was kept of the cycle, once its last hook has ended and its op cannot run again."""
        with transaction(self.database):
            for table in ("hook_journal", "monitor_calls"):
                self.database.run(f"DELETE FROM {table} WHERE cycle_id = ?", (self.cycle_id,))
