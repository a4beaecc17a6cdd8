"""The schedules of the engine DB: every method is one transaction, like those of the store it belongs to."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, Select, delete, select, update
from sqlalchemy.exc import DBAPIError

from engine.clock import Clock, Micros
from engine.dialect import Database, insert_or_ignore
from engine.errors import SubmissionRefused, UsageError
from engine.faults import did_you_mean
from engine.model import NewOp, NewWorkflow
from engine.schedules import After, NewSchedule, OpsTarget, Origin, Schedule, workflow_id
from engine.store import changes, firing
from engine.store.firing import Fired, Firing, Look, Round
from engine.store.rows import dumps
from engine.store.schedule_rows import SCHEDULE, is_blocked, schedule_from_row, spec_columns, stored_target
from engine.store.schema import schedule
from engine.timing import LONGEST_QUEUE, Step, after_pause, first_due, look_at

Place = Callable[[NewOp], NewOp]

#: Schedules fired in one transaction.
BATCH = 100

#: What spoils a transaction: ops that cannot stand, or a value that the database cannot hold.
_REFUSED = (SubmissionRefused, DBAPIError, ValueError, OverflowError)


class Schedules:
    """What is to be run when, and the firing of it."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        know_lanes: Callable[[Sequence[NewOp]], None],
        lane: Callable[[NewOp], tuple[int, int]],
    ) -> None:
        self._database = database
        self._clock = clock
        self._know_lanes = know_lanes
        self._lane = lane

    # What there is

    def all(self, site: str | None = None) -> tuple[Schedule, ...]:
        """The schedules, of one site or of all."""
        with self._database.read() as connection:
            return _all(connection, site)

    def get(self, site: str, name: str) -> Schedule:
        """One schedule. Raises UsageError where there is none of that name."""
        with self._database.read() as connection:
            row = connection.execute(_one(site, name)).one_or_none()
            if row is None:
                raise _unknown(connection, site, name)
            return schedule_from_row(row)

    def add(self, new: NewSchedule) -> None:
        """Store a schedule. Raises UsageError where the site has one of that name."""
        with self._database.write() as connection:
            if _row(connection, new.site, new.name) is not None:
                raise UsageError(f'site "{new.site}" has a schedule "{new.name}" already: delete that one first')
            _put(connection, new, self._clock.now())
            changes.announce(connection, self._database)

    def put(self, new: NewSchedule) -> bool:
        """Store a schedule, or make the one of that name so; whether anything changed.

        A pause stays. The next due time stays unless the rule is another one.
        """
        with self._database.write() as connection:
            changed = _put(connection, new, self._clock.now())
            changes.announce(connection, self._database)
            return changed

    def sync(self, site: str, wanted: Iterable[NewSchedule]) -> bool:
        """Bring the schedules of a site's manifest in line with it; whether anything changed."""
        asked = {new.name: new for new in wanted}
        with self._database.read() as connection:
            known = {row.name: row for row in connection.execute(SCHEDULE.where(schedule.c.site == site))}
        changed = [new for new in asked.values() if new.name not in known or not _same(known[new.name], new)]
        gone = [row for row in known.values() if row.origin == Origin.MANIFEST.value and row.name not in asked]
        if not changed and not gone:
            return False
        with self._database.write() as connection:
            for new in changed:
                _put(connection, new, self._clock.now())
            connection.execute(delete(schedule).where(schedule.c.pk.in_([row.pk for row in gone])))
            changes.announce(connection, self._database)
        return True

    def delete(self, site: str, name: str, origin: Origin) -> None:
        """Forget a schedule; its runs go on. Raises UsageError where there is none, or where another made it."""
        with self._database.write() as connection:
            row = _find(connection, site, name)
            if row.origin != origin.value:
                raise UsageError(f'schedule "{name}" of site "{site}" {_KEPT[Origin(row.origin)]}')
            connection.execute(delete(schedule).where(schedule.c.pk == row.pk))

    def pause(self, site: str, name: str) -> None:
        """Let no due time of a schedule become a workflow until it is resumed. Raises UsageError."""
        with self._database.write() as connection:
            row = _find(connection, site, name)
            waiting = row.firing is not None or (row.queued_json != "[]" and not is_blocked(row))
            columns = {"paused": True, "look_at": row.look_at if waiting else None}
            connection.execute(update(schedule).where(schedule.c.pk == row.pk).values(columns))

    def resume(self, site: str, name: str) -> None:
        """Go on with a schedule, from its next due time on. Raises UsageError."""
        with self._database.write() as connection:
            row = _find(connection, site, name)
            if not row.paused:
                return
            known, now, blocked = schedule_from_row(row), self._clock.now(), is_blocked(row)
            due = after_pause(known.rule, known.due_at, now, running=blocked or row.firing is not None)
            columns: dict[str, Any] = {"paused": False, "due_at": due, "updated_at": now}
            if row.firing is None:
                columns["look_at"] = look_at(Step(None, due, known.queued, 0), now, paused=False, blocked=blocked)
            connection.execute(update(schedule).where(schedule.c.pk == row.pk).values(columns))
            changes.announce(connection, self._database)

    # Firing

    def run(self, site: str, name: str, place: Place) -> str:
        """Make a run due now, be the schedule paused or not; the id that its workflow has or will have.

        A list of ops is stored at once, a verb is left to the next worker; both wait for the end of a run under way
        unless runs may overlap. ``place`` pins an op to its machine. Raises UsageError, SubmissionRefused.
        """
        with self._database.read() as connection:
            before = connection.execute(_one(site, name)).one_or_none()
        placed: dict[tuple[int, str], tuple[NewOp, ...]] = {}
        if before is not None and isinstance(target := stored_target(before.target_json), OpsTarget):
            placed[before.pk, before.target_json] = tuple(map(place, target.ops))
            self._know_lanes(placed[before.pk, before.target_json])
        with self._database.write() as connection:
            row = _find(connection, site, name)
            known, now = schedule_from_row(row), self._clock.now()
            if len(known.queued) >= LONGEST_QUEUE:
                raise UsageError(f'schedule "{name}" of site "{site}": {LONGEST_QUEUE} runs are waiting already')
            instant = max([now, *(taken + 1 for taken in (*known.queued, known.last_due_at or 0, known.firing or 0))])
            columns: dict[str, Any] = {"queued_json": dumps([*known.queued, instant])}
            if row.firing is None and not is_blocked(row):
                columns["look_at"] = now
            connection.execute(update(schedule).where(schedule.c.pk == row.pk).values(columns))
            Round(connection, Look(now=now, worker="", placed=placed, verbs=0), self._lane).run([row.pk])
            changes.announce(connection, self._database)
        return workflow_id(site, name, instant)

    def next_look(self, sites: Iterable[str], after: Micros) -> Micros | None:
        """When the timer has to look at a schedule of these sites again; later than ``after``."""
        with self._database.read() as connection:
            return firing.next_look(connection, sorted(sites), after)

    def held(self, sites: Iterable[str]) -> bool:
        """Whether a worker holds a due time of these sites."""
        query = select(schedule.c.pk).where(schedule.c.token.is_not(None), schedule.c.site.in_(sorted(sites)))
        with self._database.read() as connection:
            return connection.execute(query.limit(1)).first() is not None

    def due_sites(self, sites: Iterable[str], now: Micros) -> tuple[str, ...]:
        """Of these sites, those with a schedule to be looked at now."""
        with self._database.read() as connection:
            return firing.due_sites(connection, sorted(sites), now)

    def fire(self, sites: Iterable[str], worker: str, place: Place, verbs: int) -> Fired:
        """Take the next step of up to a batch of schedules that have come due.

        ``verbs`` of those that run verbs are handed to the worker, which has to end each with :meth:`submit` or
        :meth:`fail`.
        """
        now = self._clock.now()
        with self._database.read() as connection:
            rows = firing.due_rows(connection, sorted(sites), now, BATCH, verbs)
        placed = {
            (row.pk, row.target_json): tuple(map(place, target.ops))
            for row in rows
            if isinstance(target := stored_target(row.target_json), OpsTarget)
        }
        self._know_lanes([spec for ops in placed.values() for spec in ops])
        look = Look(now=now, worker=worker, placed=placed, verbs=verbs)
        pks = [row.pk for row in rows]
        try:
            return self._take(look, pks) if pks else Fired(at=now)
        except _REFUSED:
            fired = Fired(at=now)
            for pk in pks:
                fired.add(self._alone(replace(look, verbs=verbs - len(fired.verbs)), pk))
            return fired

    def _alone(self, look: Look, pk: int) -> Fired:
        """One of a batch that cannot be stored: give its due time up if it is the one at fault."""
        try:
            return self._take(look, [pk])
        except _REFUSED as refused:
            reason = str(getattr(refused, "orig", refused))
        try:
            return self._take(replace(look, spoiled=reason), [pk])
        except _REFUSED:
            # not even its next due time can be told, as with a zone that this machine does not know
            with self._database.write() as connection:
                firing.postpone(connection, pk, reason, self._clock.now())
            return Fired(seen=1)

    def _take(self, look: Look, pks: Sequence[int]) -> Fired:
        with self._database.write() as connection:
            fired = Round(connection, look, self._lane, Fired(at=look.now)).run(pks)
            if fired.made_ready:
                changes.announce(connection, self._database)
            return fired

    def submit(self, held: Firing, new: NewWorkflow) -> None:
        """Store what a verb emitted. Raises LeaseLost where another worker took over, SubmissionRefused."""
        new = replace(new, metadata={**new.metadata, **held.metadata})
        self._know_lanes(new.ops)
        with self._database.write() as connection:
            if firing.submit_held(connection, held, new, self._lane, self._clock.now()):
                changes.announce(connection, self._database)

    def fail(self, held: Firing, reason: str) -> bool:
        """A verb came to nothing: it is tried again after a pause, or given up; whether given up. Raises LeaseLost."""
        with self._database.write() as connection:
            return firing.fail_held(connection, held, reason, self._clock.now())

    def extend(self, tokens: Iterable[str]) -> None:
        """Hold firings for longer."""
        with self._database.write() as connection:
            firing.extend_held(connection, sorted(tokens), self._clock.now())

    def release(self, tokens: Iterable[str]) -> None:
        """Leave firings to other workers, or to the next one."""
        with self._database.write() as connection:
            firing.release_held(connection, sorted(tokens), self._clock.now())
            changes.announce(connection, self._database)


_KEPT = {
    Origin.MANIFEST: "is in site.yaml: take it out there, or pause it",
    Origin.JOB: "belongs to a job: stop the job, or pause the schedule",
    Origin.OPERATOR: "was made with scraper schedule add: scraper schedule delete takes it away",
}


def _all(connection: Connection, site: str | None) -> tuple[Schedule, ...]:
    query = SCHEDULE.order_by(schedule.c.site, schedule.c.name)
    rows = connection.execute(query if site is None else query.where(schedule.c.site == site))
    return tuple(schedule_from_row(row) for row in rows)


def _one(site: str, name: str) -> Select[Any]:
    return SCHEDULE.where(schedule.c.site == site, schedule.c.name == name)


def _row(connection: Connection, site: str, name: str) -> Any:
    return connection.execute(_one(site, name).with_for_update(of=schedule)).one_or_none()


def _find(connection: Connection, site: str, name: str) -> Any:
    row = _row(connection, site, name)
    if row is None:
        raise _unknown(connection, site, name)
    return row


def _unknown(connection: Connection, site: str, name: str) -> UsageError:
    names = connection.scalars(select(schedule.c.name).where(schedule.c.site == site)).all()
    hint = did_you_mean(name, list(names)) or "scraper schedule list shows them"
    return UsageError(f'site "{site}" has no schedule "{name}": {hint}')


def _same(row: Any, new: NewSchedule) -> bool:
    return all(getattr(row, name) == value for name, value in spec_columns(new).items())


def _put(connection: Connection, new: NewSchedule, now: Micros) -> bool:
    row = _row(connection, new.site, new.name)
    if row is None:
        due = first_due(new.rule, now) if new.first_due is None else max(new.first_due, now)
        columns = {"site": new.site, "name": new.name, "due_at": due, "look_at": due} | spec_columns(new)
        made = insert_or_ignore(connection, schedule).values(**columns, created_at=now, updated_at=now)
        if connection.execute(made).rowcount:
            return True
        row = _row(connection, new.site, new.name)
    if _same(row, new):
        return False
    columns = spec_columns(new) | {"updated_at": now}
    if columns["rule_json"] != row.rule_json:
        columns |= _other_rule(row, new, now)
    connection.execute(update(schedule).where(schedule.c.pk == row.pk).values(columns))
    return True


def _other_rule(row: Any, new: NewSchedule, now: Micros) -> dict[str, Any]:
    """The due time under a rule that has changed."""
    busy = is_blocked(row) or row.firing is not None
    if not isinstance(new.rule, After):
        due = first_due(new.rule, now)
    elif busy:
        due = None
    else:
        due = now + new.rule.delay if row.due_at is None else min(row.due_at, now + new.rule.delay)
    if row.firing is not None:
        return {"due_at": due}
    queued = tuple(json.loads(row.queued_json))
    return {
        "due_at": due,
        "look_at": look_at(Step(None, due, queued, 0), now, paused=row.paused, blocked=is_blocked(row)),
    }
