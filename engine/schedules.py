"""Schedules: what is to be run when, in the words of manifests, jobs and operators, and as the engine DB keeps it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, TypeAlias

from engine.clock import SECOND, Micros, rfc3339
from engine.durations import format_duration, parse_duration
from engine.model import JsonText, NewOp

#: The shortest interval and the shortest delay.
SHORTEST: Micros = SECOND


class Overlap(StrEnum):
    """What becomes of a due time at which the last run has not ended."""

    SKIP = "skip"
    QUEUE = "queue"
    ALLOW = "allow"


class Missed(StrEnum):
    """What becomes of due times at which no worker was there."""

    ONCE = "once"
    SKIP = "skip"


class Origin(StrEnum):
    """Who made a schedule, and so who may delete it."""

    OPERATOR = "operator"
    MANIFEST = "manifest"
    JOB = "job"


@dataclass(frozen=True, slots=True)
class Cron:
    """Due when the clock of ``timezone`` shows what the expression says."""

    expression: str
    timezone: str = "UTC"

    def __str__(self) -> str:
        return f"{self.expression} {self.timezone}"


@dataclass(frozen=True, slots=True)
class Every:
    """Due at a fixed rate, whatever the runs last."""

    interval: Micros

    def __str__(self) -> str:
        return f"every {format_duration(self.interval)}"


@dataclass(frozen=True, slots=True)
class After:
    """Due this long after the end of the last run."""

    delay: Micros

    def __str__(self) -> str:
        return f"{format_duration(self.delay)} after the end"


Rule: TypeAlias = Cron | Every | After


@dataclass(frozen=True, slots=True)
class VerbTarget:
    """A submit verb and the values of its fields, by name."""

    verb: str
    values: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OpsTarget:
    """The same ops each time. The worker that fires pins them to the machine that must run them."""

    ops: tuple[NewOp, ...]
    name: str
    input: JsonText = "{}"
    metadata: Mapping[str, str] = field(default_factory=dict)


Target: TypeAlias = VerbTarget | OpsTarget


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSchedule:
    """A schedule that is asked for. Site and name together name it."""

    site: str
    name: str
    rule: Rule
    target: Target
    overlap: Overlap = Overlap.SKIP
    missed: Missed = Missed.ONCE
    origin: Origin = Origin.OPERATOR
    #: The first due time; None = what the rule says, 0 = at once.
    first_due: Micros | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A stored schedule."""

    pk: int
    site: str
    name: str
    rule: Rule
    target: Target
    overlap: Overlap
    missed: Missed
    origin: Origin
    paused: bool
    #: None: not before the run under way has ended.
    due_at: Micros | None
    #: Due times whose runs wait for the end of the one under way.
    queued: tuple[Micros, ...]
    #: The due time that a worker is turning into a workflow.
    firing: Micros | None
    #: The workflow that has to end before the next one, if there is one.
    running: str | None
    #: Workflows made so far.
    runs: int
    #: How often due times were passed over.
    skipped: int
    last_due_at: Micros | None
    last_workflow: str | None
    #: Why the last firing came to nothing.
    error: str | None

    @property
    def key(self) -> str:
        return f"{self.site}/{self.name}"


def workflow_id(site: str, name: str, due: Micros) -> str:
    """The id of the workflow that the due time becomes, whoever fires it and however often.

    >>> workflow_id("books", "nightly", 1_774_746_000_000_000)
    'books/nightly@20260329T010000Z'
    """
    text = rfc3339(due).replace("-", "").replace(":", "")
    return f"{site}/{name}@{text.replace('.000000', '')}"


def run_metadata(schedule: Schedule, due: Micros) -> dict[str, str]:
    """What the workflow of a firing is told about it."""
    return {"schedule": schedule.key, "scheduledFor": rfc3339(due), "scheduleRun": str(schedule.runs + 1)}


def rule_to_dict(rule: Rule) -> dict[str, str]:
    """A rule in the words of the manifest."""
    match rule:
        case Cron(expression=expression, timezone=timezone):
            return {"cron": expression, "timezone": timezone}
        case Every(interval=interval):
            return {"every": format_duration(interval)}
        case After(delay=delay):
            return {"after": format_duration(delay)}


def rule_from_dict(plain: Mapping[str, Any]) -> Rule:
    """The inverse of :func:`rule_to_dict`."""
    if "cron" in plain:
        return Cron(" ".join(str(plain["cron"]).split()), str(plain.get("timezone") or "UTC"))
    if "every" in plain:
        return Every(parse_duration(plain["every"]))
    return After(parse_duration(plain["after"]))


def dump_target(target: Target) -> JsonText:
    """A target as the engine DB keeps it."""
    return json.dumps(asdict(target), ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def load_target(stored: JsonText) -> Target:
    """The inverse of :func:`dump_target`."""
    plain = json.loads(stored)
    if "verb" in plain:
        return VerbTarget(**plain)
    from engine.codec import op_from_dict  # the command line reads manifests without it

    return OpsTarget(**{**plain, "ops": tuple(op_from_dict(item) for item in plain["ops"])})
