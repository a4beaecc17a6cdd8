"""Turning due times into workflows: each exactly once, however many workers look.

The ops of a list are stored in the transaction that moves the schedule on. A verb runs first, under a token in the
schedule's row, and what it emitted is stored in the transaction that gives the token up; whoever comes with an old
token changes nothing. Rows of schedules are locked before lanes, here as in ``propagate``.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sqlalchemy import Connection, Update, bindparam, select, update

from engine.clock import SECOND, Micros
from engine.errors import LeaseLost
from engine.model import NewOp, NewWorkflow
from engine.schedules import After, OpsTarget, Overlap, Schedule, VerbTarget, run_metadata, workflow_id
from engine.store.prepared import Prepared
from engine.store.schedule_rows import FREE, SCHEDULE, held_columns, is_over, schedule_from_row, step_columns
from engine.store.schema import schedule, workflow
from engine.store.submit import submit_all
from engine.timing import Step, decide

#: For how long a worker may not be heard of before another one takes over the due time it holds.
HOLD: Micros = 30 * SECOND
#: Failures and lost holders after which a due time is given up.
TRIES = 5
#: The pause after the first failure; it doubles.
PAUSE: Micros = 5 * SECOND
#: When a schedule is looked at again that made no sense here.
LATER: Micros = 60 * SECOND

Lanes = Callable[[NewOp], tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Firing:
    """A due time of a verb, held by one worker under a token until it has become a workflow."""

    schedule: Schedule
    due: Micros
    token: str

    @property
    def workflow_id(self) -> str:
        return workflow_id(self.schedule.site, self.schedule.name, self.due)

    @property
    def metadata(self) -> dict[str, str]:
        return run_metadata(self.schedule, self.due)


@dataclass(slots=True)
class Fired:
    """What one look at the due schedules did."""

    workflows: list[str] = field(default_factory=list)
    #: Verbs to be run by who looked.
    verbs: list[Firing] = field(default_factory=list)
    #: Schedules whose due time came to nothing, and why.
    refused: list[tuple[str, str]] = field(default_factory=list)
    made_ready: int = 0
    #: The instant of the look.
    at: Micros = 0
    #: Rows looked at.
    seen: int = 0

    def add(self, other: Fired) -> None:
        """Count what another look did."""
        self.workflows += other.workflows
        self.verbs += other.verbs
        self.refused += other.refused
        self.made_ready += other.made_ready
        self.seen += other.seen


_DUE = (
    SCHEDULE.where(schedule.c.look_at <= bindparam("now"), schedule.c.site.in_(bindparam("sites", expanding=True)))
    .order_by(schedule.c.look_at, schedule.c.pk)
    .limit(bindparam("count"))
)
_DUE_OPS = _DUE.where(schedule.c.verb.is_(None))
_LOCKED = SCHEDULE.where(schedule.c.pk.in_(bindparam("pks", expanding=True)), schedule.c.look_at <= bindparam("now"))
_LOCKED = _LOCKED.order_by(schedule.c.pk).with_for_update(of=schedule, skip_locked=True)
_NEXT_LOOK = (
    select(schedule.c.look_at)
    .where(schedule.c.look_at > bindparam("after"), schedule.c.site.in_(bindparam("sites", expanding=True)))
    .order_by(schedule.c.look_at)
    .limit(1)
)


_STANDING = select(workflow.c.id).where(workflow.c.id.in_(bindparam("ids", expanding=True)))
_MADE = select(workflow.c.id, workflow.c.pk, workflow.c.status).where(
    workflow.c.id.in_(bindparam("ids", expanding=True))
)
_MOVED = (
    *("due_at", "queued_json", "look_at", "skipped", "updated_at", "firing", "token", "worker", "tries"),
    *("running_pk", "runs", "last_due_at", "last_workflow", "error"),
)
_MOVE_ON = Prepared(
    update(schedule).where(schedule.c.pk == bindparam("_pk")).values({name: bindparam(name) for name in _MOVED})
)


def next_look(connection: Connection, sites: Sequence[str], after: Micros) -> Micros | None:
    """The first instant later than ``after`` at which a schedule of these sites is to be looked at."""
    found = connection.scalar(_NEXT_LOOK, {"sites": list(sites), "after": after})
    return None if found is None else int(found)


def due_sites(connection: Connection, sites: Sequence[str], now: Micros) -> tuple[str, ...]:
    """Of these sites, those with a schedule to be looked at now."""
    query = select(schedule.c.site).where(schedule.c.look_at <= now, schedule.c.site.in_(sites)).distinct()
    return tuple(connection.scalars(query))


def due_rows(connection: Connection, sites: Sequence[str], now: Micros, limit: int, verbs: int) -> Sequence[Any]:
    """The rows to be looked at now; those of verbs only while ``verbs`` can be run."""
    query = _DUE if verbs > 0 else _DUE_OPS
    return connection.execute(query, {"sites": list(sites), "now": now, "count": limit}).all()


@dataclass(frozen=True, slots=True)
class Run:
    """A due time that becomes a workflow in this transaction, and the row of its schedule."""

    row: Any
    known: Schedule
    due: Micros
    step: Step
    new: NewWorkflow


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """Who looks at the schedules that have come due, and with what at hand."""

    now: Micros
    worker: str
    #: The ops of targets, placed; by the target as it was read before the transaction.
    placed: Mapping[tuple[int, str], tuple[NewOp, ...]]
    #: Verbs that the worker can run.
    verbs: int
    #: Why the firing cannot stand, from an earlier try with it alone.
    spoiled: str = ""


@dataclass(slots=True)
class Round:
    """One transaction over schedules that have come due."""

    connection: Connection
    look: Look
    lanes: Lanes
    fired: Fired = field(default_factory=Fired)

    @property
    def now(self) -> Micros:
        return self.look.now

    def run(self, pks: Sequence[int]) -> Fired:
        """Take the steps of these schedules, as far as they are still due. Raises SubmissionRefused for any."""
        rows = self.connection.execute(_LOCKED, {"pks": list(pks), "now": self.now}).all()
        runs = [run for row in rows if (run := self._step(row, schedule_from_row(row))) is not None]
        self.fired.made_ready = store_runs(self.connection, runs, self.lanes, self.now)
        self.fired.workflows = [run.new.id for run in runs]
        self.fired.seen = len(rows)
        return self.fired

    def _step(self, row: Any, known: Schedule) -> Run | None:
        blocked = known.running is not None
        step = decide(known, self.now, blocked=blocked)
        if row.firing is not None:
            # a holder that is gone, or a pause that is over
            step = Step(row.firing, known.due_at, known.queued, 0)
        columns = step_columns(row, step, self.now, blocked=blocked)
        if not blocked and row.running_pk is not None:
            columns["running_pk"] = None
        if step.fire is None:
            _write(self.connection, row.pk, columns)
        elif self.look.spoiled:
            self._give_up(row, known, step, columns, self.look.spoiled)
        elif isinstance(known.target, VerbTarget):
            self._hold(row, known, step, columns)
        elif (row.pk, row.target_json) in self.look.placed:
            return Run(row, known, step.fire, step, self._workflow(row, known, known.target, step.fire))
        return None

    def _give_up(self, row: Any, known: Schedule, step: Step, columns: dict[str, Any], reason: str) -> None:
        _write(self.connection, row.pk, columns | _given_up(known, step, reason, self.now))
        self.fired.refused.append((known.key, reason))

    def _hold(self, row: Any, known: Schedule, step: Step, columns: dict[str, Any]) -> None:
        assert step.fire is not None
        tries = row.tries + (row.token is not None)
        if tries >= TRIES:
            self._give_up(row, known, step, columns, f"given up: {tries} workers died or stood still under it")
            return
        if self.look.verbs <= len(self.fired.verbs):
            return
        firing = Firing(known, step.fire, uuid.uuid4().hex)
        held = held_columns(firing.token, self.look.worker, self.now + HOLD, firing.due, tries)
        _write(self.connection, row.pk, columns | held)
        self.fired.verbs.append(firing)

    def _workflow(self, row: Any, known: Schedule, target: OpsTarget, due: Micros) -> NewWorkflow:
        return NewWorkflow(
            id=workflow_id(known.site, known.name, due),
            site=known.site,
            name=target.name,
            input=target.input,
            metadata={**target.metadata, **run_metadata(known, due)},
            ops=self.look.placed[row.pk, row.target_json],
        )


def store_runs(connection: Connection, runs: Sequence[Run], lanes: Lanes, now: Micros) -> int:
    """Store the workflows of due times and move their schedules on; how many ops are ready.

    Raises SubmissionRefused for any of them.
    """
    if not runs:
        return 0
    ids = [run.new.id for run in runs]
    standing = set(connection.scalars(_STANDING, {"ids": ids}))
    news = [run.new for run in runs if run.new.id not in standing]
    ready = submit_all(connection, news, lanes, now) if news else 0
    made = {row.id: row for row in connection.execute(_MADE, {"ids": ids})}
    _MOVE_ON.many(connection, [_moved_on(run, made[run.new.id], now) for run in runs])
    return ready


def _moved_on(run: Run, made: Any, now: Micros) -> dict[str, Any]:
    """The row of a schedule whose due time has become the workflow ``made``."""
    rule, step = run.known.rule, run.step
    counts = isinstance(rule, After)
    waits = (counts or run.known.overlap is not Overlap.ALLOW) and not is_over(made.status)
    if isinstance(rule, After) and not waits:
        step = replace(step, due_at=now + rule.delay)
    return {
        "_pk": run.row.pk,
        **step_columns(run.row, step, now, blocked=waits),
        **FREE,
        "running_pk": made.pk if waits else None,
        "runs": run.row.runs + 1,
        "last_due_at": run.due,
        "last_workflow": run.new.id,
        "error": None,
    }


def submit_held(connection: Connection, firing: Firing, new: NewWorkflow, lanes: Lanes, now: Micros) -> int:
    """Store what a verb emitted and give the token up; how many ops are ready.

    Raises LeaseLost where another worker has taken over, SubmissionRefused.
    """
    row = _held(connection, firing)
    known = schedule_from_row(row)
    step = Step(None, known.due_at, known.queued, 0)
    return store_runs(connection, [Run(row, known, firing.due, step, new)], lanes, now)


def fail_held(connection: Connection, firing: Firing, reason: str, now: Micros) -> bool:
    """A verb came to nothing: try again later, or after several times give the due time up; whether it is given up.

    Raises LeaseLost.
    """
    row = _held(connection, firing)
    tries = row.tries + 1
    if tries < TRIES:
        later = now + (PAUSE << row.tries)
        _write(connection, row.pk, {**held_columns(None, None, later, firing.due, tries), "error": reason})
        return False
    known = schedule_from_row(row)
    step = Step(firing.due, known.due_at, known.queued, 0)
    columns = step_columns(row, step, now, blocked=False)
    _write(connection, row.pk, columns | _given_up(known, step, reason, now))
    return True


def postpone(connection: Connection, pk: int, reason: str, now: Micros) -> None:
    """Look at a schedule again later: now nothing can be said about it."""
    connection.execute(update(schedule).where(schedule.c.pk == pk).values(look_at=now + LATER, error=reason))


def release_held(connection: Connection, tokens: Sequence[str], now: Micros) -> None:
    """These due times are held no longer: others may take them over at once."""
    connection.execute(
        update(schedule).where(schedule.c.token.in_(tokens)).values(token=None, worker=None, look_at=now)
    )


def extend_held(connection: Connection, tokens: Sequence[str], now: Micros) -> None:
    """Hold these due times for longer."""
    connection.execute(update(schedule).where(schedule.c.token.in_(tokens)).values(look_at=now + HOLD))


def _held(connection: Connection, firing: Firing) -> Any:
    held = (schedule.c.pk == firing.schedule.pk) & (schedule.c.token == firing.token)
    row = connection.execute(SCHEDULE.where(held).with_for_update(of=schedule)).one_or_none()
    if row is None:
        raise LeaseLost(firing.token)
    return row


def _given_up(known: Schedule, step: Step, reason: str, now: Micros) -> dict[str, Any]:
    columns: dict[str, Any] = {**FREE, "error": reason, "last_due_at": step.fire}
    if isinstance(known.rule, After):
        due = now + known.rule.delay
        columns |= {"due_at": due, "look_at": None if known.paused else due}
    return columns


def _write(connection: Connection, pk: int, columns: Mapping[str, Any]) -> None:
    connection.execute(_update(tuple(sorted(columns))), {"_pk": pk, **columns})


def _update(names: tuple[str, ...]) -> Update:
    return update(schedule).where(schedule.c.pk == bindparam("_pk")).values({name: bindparam(name) for name in names})
