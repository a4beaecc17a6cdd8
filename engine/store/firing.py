"""Turning due times into workflows: each exactly once, however many workers look.

The ops of a list are stored in the transaction that moves the schedule on. A verb runs first, under a token in the
schedule's row, and what it emitted is stored in the transaction that gives the token up; whoever comes with an old
token changes nothing. Rows of schedules are locked before lanes, here as in ``propagate``.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, Update, bindparam, select, update

from engine.clock import SECOND, Micros
from engine.errors import LeaseLost, SubmissionRefused
from engine.model import NewOp, NewWorkflow
from engine.schedules import After, OpsTarget, Overlap, Schedule, VerbTarget, run_metadata, workflow_id
from engine.store.schedule_rows import FREE, SCHEDULE, held_columns, is_over, schedule_from_row, step_columns
from engine.store.schema import schedule, workflow
from engine.store.submit import submit
from engine.timing import Step, decide

#: For how long a worker may not be heard of before another one takes over the due time it holds.
HOLD: Micros = 30 * SECOND
#: Failures and lost holders after which a due time is given up.
TRIES = 5
#: The pause after the first failure; it doubles.
PAUSE: Micros = 5 * SECOND

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
    #: Rows looked at.
    seen: int = 0


class Spoiled(Exception):
    """A firing was refused halfway: the transaction has to begin again without it."""

    def __init__(self, pk: int, reason: str) -> None:
        super().__init__(reason)
        self.pk = pk
        self.reason = reason


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


@dataclass(slots=True, kw_only=True)
class Round:
    """One transaction over schedules that have come due."""

    connection: Connection
    now: Micros
    worker: str
    lanes: Lanes
    #: The ops of targets, placed; by the target as it was read before the transaction.
    placed: Mapping[tuple[int, str], tuple[NewOp, ...]]
    #: Verbs that the worker can run.
    verbs: int
    #: Firings that were refused in an earlier try of this round.
    spoiled: Mapping[int, str]
    fired: Fired = field(default_factory=Fired)

    def run(self, pks: Sequence[int]) -> Fired:
        """Take the steps of these schedules, as far as they are still due. Raises Spoiled."""
        rows = self.connection.execute(_LOCKED, {"pks": list(pks), "now": self.now}).all()
        for row in rows:
            self._step(row, schedule_from_row(row))
        self.fired.seen = len(rows)
        return self.fired

    def _step(self, row: Any, known: Schedule) -> None:
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
        elif row.pk in self.spoiled:
            _write(self.connection, row.pk, columns | _given_up(known, step, self.spoiled[row.pk], self.now))
            self.fired.refused.append((known.key, self.spoiled[row.pk]))
        elif isinstance(known.target, VerbTarget):
            self._hold(row, known, step, columns)
        elif (row.pk, row.target_json) in self.placed:
            self._submit(row, known, known.target, step.fire, step)

    def _hold(self, row: Any, known: Schedule, step: Step, columns: dict[str, Any]) -> None:
        assert step.fire is not None
        tries = row.tries + (row.token is not None)
        if tries >= TRIES:
            reason = f"given up: {tries} workers died or stood still under it"
            _write(self.connection, row.pk, columns | _given_up(known, step, reason, self.now))
            self.fired.refused.append((known.key, reason))
            return
        if self.verbs <= len(self.fired.verbs):
            return
        firing = Firing(known, step.fire, uuid.uuid4().hex)
        held = held_columns(firing.token, self.worker, self.now + HOLD, firing.due, tries)
        _write(self.connection, row.pk, columns | held)
        self.fired.verbs.append(firing)

    def _submit(self, row: Any, known: Schedule, target: OpsTarget, due: Micros, step: Step) -> None:
        new = NewWorkflow(
            id=workflow_id(known.site, known.name, due),
            site=known.site,
            name=target.name,
            input=target.input,
            metadata={**target.metadata, **run_metadata(known, due)},
            ops=self.placed[row.pk, row.target_json],
        )
        try:
            self.fired.made_ready += store_run(self.connection, row, known, new, due, step, self.lanes, self.now)
        except SubmissionRefused as refused:
            raise Spoiled(row.pk, str(refused)) from refused
        self.fired.workflows.append(new.id)


def store_run(
    connection: Connection,
    row: Any,
    known: Schedule,
    new: NewWorkflow,
    due: Micros,
    step: Step,
    lanes: Lanes,
    now: Micros,
) -> int:
    """Store the workflow of a due time and move its schedule on; how many ops are ready. Raises SubmissionRefused."""
    ready = 0
    try:
        _, ready = submit(connection, new, lanes, now)
    except SubmissionRefused as refused:
        if refused.code != "workflow_exists":
            raise
    made = connection.execute(select(workflow.c.pk, workflow.c.status).where(workflow.c.id == new.id)).one()
    waits = known.overlap is not Overlap.ALLOW or isinstance(known.rule, After)
    over = is_over(made.status)
    if isinstance(known.rule, After) and over:
        step = Step(None, now + known.rule.delay, step.queued, 0)
    columns = {
        **step_columns(row, step, now, blocked=waits and not over),
        **FREE,
        "running_pk": made.pk if waits and not over else None,
        "runs": row.runs + 1,
        "last_due_at": due,
        "last_workflow": new.id,
        "error": None,
    }
    _write(connection, row.pk, columns)
    return ready


def submit_held(connection: Connection, firing: Firing, new: NewWorkflow, lanes: Lanes, now: Micros) -> int:
    """Store what a verb emitted and give the token up; how many ops are ready.

    Raises LeaseLost where another worker has taken over, SubmissionRefused.
    """
    row = _held(connection, firing)
    known = schedule_from_row(row)
    step = Step(None, known.due_at, known.queued, 0)
    return store_run(connection, row, known, new, firing.due, step, lanes, now)


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
