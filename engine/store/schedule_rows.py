"""The rows of schedules: how they become values, and what their columns hold after each kind of step."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from sqlalchemy import select

from engine.clock import Micros
from engine.model import TERMINAL
from engine.schedules import (
    After,
    Missed,
    NewSchedule,
    Origin,
    Overlap,
    Rule,
    Schedule,
    Target,
    VerbTarget,
    dump_target,
    load_target,
    rule_from_dict,
    rule_to_dict,
)
from engine.store.rows import dumps
from engine.store.schema import schedule, workflow
from engine.timing import Step, look_at

_ENDED = frozenset(status.value for status in TERMINAL)

#: A schedule with the workflow whose end it waits for.
SCHEDULE = select(schedule, workflow.c.id.label("running"), workflow.c.status.label("running_status")).join_from(
    schedule, workflow, workflow.c.pk == schedule.c.running_pk, isouter=True
)


def is_blocked(row: Any) -> bool:
    """Whether the run before has not ended."""
    return row.running_status is not None and not is_over(row.running_status)


def is_over(status: str) -> bool:
    """Whether a workflow of that status has ended."""
    return status in _ENDED


def schedule_from_row(row: Any) -> Schedule:
    """A row of :data:`SCHEDULE` as a value."""
    return Schedule(
        pk=row.pk,
        site=row.site,
        name=row.name,
        rule=stored_rule(row.rule_json),
        target=stored_target(row.target_json),
        overlap=Overlap(row.overlap),
        missed=Missed(row.missed),
        origin=Origin(row.origin),
        paused=row.paused,
        due_at=row.due_at,
        queued=tuple(json.loads(row.queued_json)) if row.queued_json != "[]" else (),
        firing=row.firing,
        running=row.running if is_blocked(row) else None,
        runs=row.runs,
        skipped=row.skipped,
        last_due_at=row.last_due_at,
        last_workflow=row.last_workflow,
        error=row.error,
    )


@lru_cache(maxsize=1024)
def stored_rule(stored: str) -> Rule:
    """The rule a column holds."""
    return rule_from_dict(json.loads(stored))


@lru_cache(maxsize=1024)
def stored_target(stored: str) -> Target:
    """The target a column holds."""
    return load_target(stored)


def spec_columns(new: NewSchedule) -> dict[str, Any]:
    """What a schedule is asked to be; what it has come to is in other columns."""
    return {
        "origin": new.origin.value,
        "verb": new.target.verb if isinstance(new.target, VerbTarget) else None,
        "rule_json": dumps(rule_to_dict(new.rule)),
        "target_json": dump_target(new.target),
        "overlap": new.overlap.value,
        "missed": new.missed.value,
        "delay": new.rule.delay if isinstance(new.rule, After) else None,
    }


def step_columns(row: Any, step: Step, now: Micros, *, blocked: bool) -> dict[str, Any]:
    """The row after due times were passed over or put in the queue, with nothing under way."""
    return {
        "due_at": step.due_at,
        "queued_json": dumps(step.queued),
        "look_at": look_at(step, now, paused=row.paused, blocked=blocked),
        "skipped": row.skipped + step.skipped,
        "updated_at": now,
    }


def held_columns(token: str | None, worker: str | None, until: Micros, firing: Micros, tries: int) -> dict[str, Any]:
    """What brings a due time to its workflow, and when others may take that over."""
    return {"firing": firing, "token": token, "worker": worker, "look_at": until, "tries": tries}


#: Nothing is under way.
FREE: Mapping[str, Any] = {"firing": None, "token": None, "worker": None, "tries": 0}
