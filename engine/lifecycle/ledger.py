"""What a site DB knows of a job's iterations: every method is one transaction, and repeating it changes nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from engine.clock import Clock
from engine.js.ports import DatabaseBusy, SessionSpec
from engine.lifecycle.catalog import Version
from engine.lifecycle.chain import Cycle
from engine.lifecycle.identity import Identity
from engine.lifecycle.job import Job
from engine.lifecycle.telemetry import Telemetry
from engine.lifecycle.verdicts import Item
from engine.projection.archive import transaction
from engine.projection.monitor import create_tables
from engine.projection.session import Database

#: Of older iterations only the records stay, and announcements that have not arrived.
KEPT_ITERATIONS = 1000
_GIVEN_UP = "the cycle was given up: its ops failed or were canceled"


@dataclass(frozen=True, slots=True)
class Begun:
    """An iteration that has its number, and the first cycle of each of its workers."""

    iteration_id: str
    number: int
    version: str
    cycles: tuple[Cycle, ...]


@dataclass(frozen=True, slots=True)
class State:
    """How far a cycle got. ``status`` is ``running`` until its pipeline has ended."""

    status: str
    error: str
    #: What its ops tell each other.
    told: dict[str, Any] | None
    started_at: int
    #: Its lifecycle hooks have run.
    over: bool


@dataclass(frozen=True, slots=True)
class Draft:
    """An announcement that is promised by the store transaction, its text still to be frozen."""

    id: str
    channel: str
    target: str
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Frozen:
    """What becomes of a draft: its text, None where it is called off, and the status it then has."""

    id: str
    text: str | None
    status: str


class Ledger:
    """The rows of one job. Methods raise DatabaseBusy."""

    def __init__(self, database: Database, clock: Clock, job_id: str) -> None:
        self.database = database
        self._clock = clock
        self._job = job_id
        create_tables(database)

    def begun(self, spec: SessionSpec) -> Begun | None:
        """The iteration that a workflow has begun already."""
        rows = self.database.run(
            "SELECT iteration_id, number, version FROM monitor_iterations WHERE engine = ? AND workflow_id = ?",
            (spec.engine_uuid, spec.workflow_id),
        )
        if not rows:
            return None
        iteration, number, version = str(rows[0][0]), int(str(rows[0][1])), str(rows[0][2])
        cycles = self.database.run(
            "SELECT cycle_id, worker_id, url FROM monitor_cycles WHERE iteration_id = ? AND after_cycle = ''"
            " ORDER BY worker_id",
            (iteration,),
        )
        return Begun(iteration, number, version, tuple(_cycle(row) for row in cycles))

    def begin(self, spec: SessionSpec, job: Job, version: Version) -> Begun:
        """Give the workflow its iteration, pinned to ``version``, and its first cycles their pages."""
        now, pages = self._clock.now(), job.pages
        with transaction(self.database):
            standing = self.begun(spec)
            if standing is not None:
                return standing
            latest = self.database.run("SELECT MAX(number) FROM monitor_iterations WHERE job_id = ?", (self._job,))
            number = int(str(latest[0][0] or 0)) + 1
            iteration = f"{self._job}/{number}"
            cycles = tuple(Cycle(k, k, url) for k, url in enumerate(pages[: job.workers], 1))
            self.database.run(
                "INSERT INTO monitor_iterations (iteration_id, job_id, number, engine, workflow_id, version, urls_json,"
                " next_url, status, started_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, 'running', ?)",
                (
                    iteration,
                    self._job,
                    number,
                    spec.engine_uuid,
                    spec.workflow_id,
                    version.hash,
                    json.dumps(pages),
                    len(cycles),
                    now,
                ),
            )
            self.database.run(
                "INSERT INTO monitor_versions (job_id, version, files_json, used_at) VALUES (?, ?, ?, ?)"
                " ON CONFLICT (job_id, version) DO UPDATE SET used_at = excluded.used_at",
                (self._job, version.hash, json.dumps(dict(version.files)), now),
            )
            for cycle in cycles:
                self._enter(iteration, cycle, "", now)
        return Begun(iteration, number, version.hash, cycles)

    def _enter(self, iteration: str, cycle: Cycle, after: str, now: int) -> None:
        self.database.run(
            "INSERT INTO monitor_cycles (cycle_id, iteration_id, job_id, worker_id, url, after_cycle, status, error,"
            " started_at) VALUES (?, ?, ?, ?, ?, ?, 'running', '', ?)",
            (f"{iteration}/{cycle.number}", iteration, self._job, cycle.worker, cycle.url, after, now),
        )

    def next_page(self, iteration: str, done: Cycle) -> Cycle | None:
        """The cycle that the worker of ``done`` goes on with: the first page nobody has taken."""
        after = f"{iteration}/{done.number}"
        with transaction(self.database):
            taken = self.database.run(
                "SELECT cycle_id, worker_id, url FROM monitor_cycles WHERE iteration_id = ? AND after_cycle = ?",
                (iteration, after),
            )
            if taken:
                return _cycle(taken[0])
            rows = self.database.run(
                "SELECT urls_json, next_url FROM monitor_iterations WHERE iteration_id = ?", (iteration,)
            )
            pages, place = json.loads(str(rows[0][0])), int(str(rows[0][1]))
            if place >= len(pages):
                return None
            cycle = Cycle(place + 1, done.worker, pages[place])
            self._enter(iteration, cycle, after, self._clock.now())
            self.database.run(
                "UPDATE monitor_iterations SET next_url = ? WHERE iteration_id = ?", (place + 1, iteration)
            )
        return cycle

    def version(self, version: str) -> Version | None:
        """The files of a version."""
        rows = self.database.run(
            "SELECT files_json FROM monitor_versions WHERE job_id = ? AND version = ?", (self._job, version)
        )
        return Version(json.loads(str(rows[0][0]))) if rows else None

    def last_version(self) -> Version | None:
        """The files of the version that was used last."""
        rows = self.database.run(
            "SELECT files_json FROM monitor_versions WHERE job_id = ? ORDER BY used_at DESC LIMIT 1", (self._job,)
        )
        return Version(json.loads(str(rows[0][0]))) if rows else None

    def state(self, cycle_id: str) -> State:
        """How far a cycle got."""
        rows = self.database.run(
            "SELECT status, error, telemetry_json, started_at, finished_at FROM monitor_cycles WHERE cycle_id = ?",
            (cycle_id,),
        )
        if not rows:
            return State("running", "", None, self._clock.now(), over=False)
        status, error, told, started, ended = rows[0]
        known = None if told is None else json.loads(str(told))
        return State(str(status), str(error), known, int(str(started)), over=ended is not None)

    def note(
        self, cycle_id: str, telemetry: Mapping[str, Any], started_at: int, status: str = "running", error: str = ""
    ) -> None:
        """Keep how far a cycle got; one that is over stays as it is."""
        with transaction(self.database):
            self._note(cycle_id, telemetry, started_at, status, error)

    def _note(self, cycle_id: str, told: Mapping[str, Any], started_at: int, status: str, error: str) -> None:
        self.database.run(
            "UPDATE monitor_cycles SET telemetry_json = ?, started_at = ?, status = ?, error = ?"
            " WHERE cycle_id = ? AND finished_at IS NULL",
            (json.dumps(told), started_at, status, error.replace("\0", ""), cycle_id),
        )

    def committed(self, cycle_id: str) -> list[Item] | None:
        """The items that a cycle stored as new, in input order; None where it has stored nothing yet."""
        rows = self.database.run("SELECT new_ids_json FROM monitor_commits WHERE cycle_id = ?", (cycle_id,))
        if not rows:
            return None
        found = self.database.run(
            "SELECT id, fields_json, matches_json FROM monitor_records WHERE cycle_id = ?", (cycle_id,)
        )
        by_id = {int(str(row[0])): (str(row[1]), str(row[2])) for row in found}
        # a record that was deleted by hand in the meantime is no longer announced
        known = [by_id[number] for number in json.loads(str(rows[0][0])) if number in by_id]
        return [{"fields": json.loads(fields), "matches": json.loads(found)} for fields, found in known]

    def store(
        self,
        cycle_id: str,
        items: Sequence[Item],
        identities: Sequence[Identity],
        drafts: Sequence[Draft],
        announce: Callable[[Sequence[Item]], Sequence[Frozen]] | None = None,
    ) -> list[Item]:
        """Insert what was never seen and promise its announcements, all or nothing; the new items in input order.

        With ``announce`` their texts are frozen in the same transaction.
        """
        now = self._clock.now()
        ids: list[int] = []
        with transaction(self.database):
            standing = self.committed(cycle_id)
            if standing is not None:
                return standing
            if self.state(cycle_id).over:
                # nobody would announce it any more
                raise DatabaseBusy(f"{cycle_id} is over: another run of its op ended it")
            for item, identity in zip(items, identities, strict=True):
                fresh = self.database.run_counting(
                    "INSERT INTO monitor_seen (job_id, hash, cycle_id) VALUES (?, ?, ?)"
                    " ON CONFLICT (job_id, hash) DO NOTHING",
                    (self._job, identity.hash, cycle_id),
                )
                if not fresh:
                    continue
                entered = self.database.run(
                    "INSERT INTO monitor_records (job_id, hash, fields_json, matches_json, cycle_id, created_at)"
                    " VALUES (?, ?, ?, ?, ?, ?) RETURNING id",
                    (
                        self._job,
                        identity.hash,
                        _json(item["fields"]),
                        _json(item["matches"]),
                        cycle_id,
                        now,
                    ),
                )
                ids.append(int(str(entered[0][0])))
            self.database.run(
                "INSERT INTO monitor_commits (cycle_id, job_id, new_ids_json, committed_at) VALUES (?, ?, ?, ?)",
                (cycle_id, self._job, json.dumps(ids), now),
            )
            for draft in drafts if ids else ():
                self._promise(cycle_id, draft, now)
            new = self.committed(cycle_id) or []
            if new and announce is not None:
                self._freeze(announce(new))
        return new

    def _promise(self, cycle_id: str, draft: Draft, now: int) -> None:
        self.database.run(
            "INSERT INTO monitor_outbox (id, job_id, cycle_id, channel, target, headers_json, status, attempts,"
            " last_error, created_at, updated_at) VALUES (?, ?, ?, ?, ?, ?, 'draft', 0, '', ?, ?)",
            (draft.id, self._job, cycle_id, draft.channel, draft.target, _json(dict(draft.headers)), now, now),
        )

    def drafts(self, cycle_id: str) -> bool:
        """Whether announcements are promised of a cycle that have no text yet."""
        query = "SELECT 1 FROM monitor_outbox WHERE cycle_id = ? AND status = 'draft'"
        return bool(self.database.run(query, (cycle_id,)))

    def freeze(self, texts: Sequence[Frozen]) -> None:
        """Give promised announcements the text they keep for ever; one without is called off."""
        with transaction(self.database):
            self._freeze(texts)

    def _freeze(self, texts: Sequence[Frozen]) -> None:
        now = self._clock.now()
        for one in texts:
            if one.text is None:
                self.database.run("DELETE FROM monitor_outbox WHERE id = ? AND status = 'draft'", (one.id,))
            else:
                self.database.run(
                    "UPDATE monitor_outbox SET payload_json = ?, status = ?, updated_at = ?"
                    " WHERE id = ? AND status = 'draft'",
                    (one.text, one.status, now, one.id),
                )

    def pending(self, cycle_id: str, ids: Sequence[str] = (), *, untried: bool = False) -> list[dict[str, Any]]:
        """The announcements of a cycle that are to be delivered; ``ids`` alone where given, in whatever state."""
        if ids:
            marks = ", ".join("?" * len(ids))
            where, parameters = f"id IN ({marks}) AND payload_json IS NOT NULL", tuple(ids)
        else:
            where, parameters = "cycle_id = ? AND status = 'pending'", (cycle_id,)
            where += " AND attempts = 0" if untried else ""
        rows = self.database.run(
            f"SELECT id, channel, target, headers_json, payload_json, attempts, status FROM monitor_outbox"
            f" WHERE {where} ORDER BY created_at, id",
            parameters,
        )
        names = ("id", "channel", "target", "headers", "payload", "attempts", "status")
        found = [dict(zip(names, row, strict=True)) for row in rows]
        return [{**one, "headers": json.loads(str(one["headers"]))} for one in found]

    def only_said(self, cycle_id: str) -> list[tuple[str, str]]:
        """The notifications of a cycle that went nowhere but into a log: id and payload."""
        rows = self.database.run(
            "SELECT id, payload_json FROM monitor_outbox WHERE cycle_id = ? AND channel = 'notification'"
            " AND status = 'sent' AND attempts = 0 ORDER BY created_at, id",
            (cycle_id,),
        )
        return [(str(name), str(payload)) for name, payload in rows]

    def said(self, name: str) -> None:
        """A notification that goes nowhere but into the log is there."""
        with transaction(self.database):
            self._delivered(name, "sent", "", 0)

    def delivered(self, cycle_id: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Note how tries of deliveries went: ``sent``, ``pending`` (there will be another) or ``failed``.

        A failure changes nothing where another run has settled it since: ``attempts`` is how many tries it knew of. A
        cycle that is not over gets to know how the first try of its webhook went.
        """
        with transaction(self.database):
            for row in rows:
                if row["status"] == "sent" or not self._settled_since(row["id"], row["attempts"]):
                    self._delivered(row["id"], row["status"], row["error"], 1)
            sent = next((row for row in rows if row["id"] == cycle_id), None)
            state = self.state(cycle_id)
            if sent is None or state.told is None or state.over:
                return
            telemetry = Telemetry.load(state.told["telemetry"])
            status: Literal["success", "error"] = "success" if sent["status"] == "sent" else "error"
            telemetry.replace("webhook", status, sent["duration_ms"], sent["error"])
            told = {**state.told, "telemetry": telemetry.dump()}
            self._note(cycle_id, told, state.started_at, state.status, state.error)

    def _settled_since(self, name: str, attempts: int) -> bool:
        rows = self.database.run(
            "SELECT 1 FROM monitor_outbox WHERE id = ? AND status IN ('sent', 'failed') AND attempts <> ?",
            (name, attempts),
        )
        return bool(rows)

    def _delivered(self, name: str, status: str, error: str, attempts: int) -> None:
        self.database.run(
            "UPDATE monitor_outbox SET status = ?, last_error = ?, attempts = attempts + ?, updated_at = ?"
            " WHERE id = ?",
            (status, error.replace("\0", ""), attempts, self._clock.now(), name),
        )

    def conclude(self, cycle_id: str, status: str, error: str, telemetry: Mapping[str, Any]) -> None:
        """The cycle is over."""
        with transaction(self.database):
            self.database.run(
                "UPDATE monitor_cycles SET status = ?, error = ?, telemetry_json = ?, finished_at = ?"
                " WHERE cycle_id = ? AND finished_at IS NULL",
                (status, error.replace("\0", ""), json.dumps(telemetry), self._clock.now(), cycle_id),
            )

    def open_cycles(self, iteration: str) -> list[Cycle]:
        """The cycles of an iteration that have not come to an end."""
        rows = self.database.run(
            "SELECT cycle_id, worker_id, url FROM monitor_cycles WHERE iteration_id = ? AND finished_at IS NULL",
            (iteration,),
        )
        return [_cycle(row) for row in rows]

    def give_up(self, cycle_id: str, state: State) -> None:
        """The cycle is over with its iteration: its own ops did not end it."""
        self.conclude(cycle_id, "error", f"{_GIVEN_UP}: {state.error}" if state.error else _GIVEN_UP, state.told or {})

    def given_up(self, iteration: str) -> list[str]:
        """The cycles that ended with the iteration."""
        rows = self.database.run(
            "SELECT cycle_id FROM monitor_cycles WHERE iteration_id = ? AND error LIKE ?", (iteration, f"{_GIVEN_UP}%")
        )
        return [str(row[0]) for row in rows]

    def finished(self, iteration: str) -> bool:
        """Whether the iteration is over."""
        rows = self.database.run(
            "SELECT 1 FROM monitor_iterations WHERE iteration_id = ? AND finished_at IS NOT NULL", (iteration,)
        )
        return bool(rows)

    def finish(self, iteration: str) -> None:
        """The iteration is over: what its hooks shared is forgotten, and versions that nobody is pinned to."""
        with transaction(self.database):
            self.database.run(
                "UPDATE monitor_iterations SET status = 'finished', finished_at = ?"
                " WHERE iteration_id = ? AND finished_at IS NULL",
                (self._clock.now(), iteration),
            )
            self.database.run("DELETE FROM monitor_batch WHERE iteration_id = ?", (iteration,))
            self.database.run(
                "DELETE FROM monitor_versions WHERE job_id = ? AND version NOT IN"
                " (SELECT version FROM monitor_iterations WHERE job_id = ? AND finished_at IS NULL)"
                " AND used_at < (SELECT MAX(used_at) FROM monitor_versions WHERE job_id = ?)",
                (self._job, self._job, self._job),
            )
            self._prune(int(iteration.rpartition("/")[2]) - KEPT_ITERATIONS)

    def _prune(self, last: int) -> None:
        """Forget iterations up to a number, canceled ones too, and announcements of theirs that have arrived."""
        old = "SELECT iteration_id FROM monitor_iterations WHERE job_id = ? AND number <= ?"
        cycles = f"SELECT cycle_id FROM monitor_cycles WHERE iteration_id IN ({old})"
        where = (self._job, last)
        self.database.run(f"DELETE FROM monitor_outbox WHERE status = 'sent' AND cycle_id IN ({cycles})", where)
        for table in ("monitor_commits", "hook_journal", "monitor_calls"):
            self.database.run(f"DELETE FROM {table} WHERE cycle_id IN ({cycles})", where)
        for table in ("monitor_batch", "monitor_cycles"):
            self.database.run(f"DELETE FROM {table} WHERE iteration_id IN ({old})", where)
        self.database.run("DELETE FROM monitor_iterations WHERE job_id = ? AND number <= ?", where)


def _cycle(row: tuple[Any, ...]) -> Cycle:
    return Cycle(int(str(row[0]).rpartition("/")[2]), int(str(row[1])), str(row[2]))


def _json(value: Any) -> str:
    """As people read it in the table; halves of surrogate pairs, which no database can hold, are replaced."""
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace").decode()
