"""When schedules are due, and what becomes of a due time. Nothing here knows the database or reads a clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from engine.clock import MINUTE, Micros
from engine.durations import format_duration, parse_duration
from engine.schedules import SHORTEST, After, Cron, Every, Missed, Overlap, Rule, Schedule

#: A due time that nobody looked at for longer than this was missed.
GRACE: Micros = MINUTE
#: Due times that may wait for the end of a run; further ones are passed over.
LONGEST_QUEUE = 1_000

_NAMED = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: Steps from due time to due time before larger ones are tried, and how far back those begin.
_STEPS = 100
_BACK = (60 * MINUTE, 24 * 60 * MINUTE, 32 * 24 * 60 * MINUTE, 366 * 24 * 60 * MINUTE)


def check_cron(expression: str, timezone: str) -> None:
    """Raise ValueError, with a sentence for the person who wrote it, for what is never due."""
    _zone(timezone)
    if next_due(Cron(expression, timezone), 0, 0) is None:
        raise ValueError(f'"{expression}" never comes')


def first_due(rule: Rule, now: Micros) -> Micros | None:
    """When a schedule that is new is due for the first time: what counts from the end of a run, at once."""
    return now if isinstance(rule, After) else next_due(rule, now, now)


def next_due(rule: Rule, after: Micros, due: Micros) -> Micros | None:
    """The first due time later than ``after``; ``due`` is any due time. None: the end of a run decides."""
    match rule:
        case Every(interval=interval):
            return due + ((after - due) // interval + 1) * interval
        case Cron(expression=expression, timezone=timezone):
            return _next_cron(expression, timezone, after)
        case After():
            return None


def latest_due(rule: Rule, due: Micros, now: Micros) -> Micros:
    """The last due time that is not later than ``now``; ``due`` is an earlier one, or that."""
    if isinstance(rule, Every):
        return due + (now - due) // rule.interval * rule.interval
    if isinstance(rule, After):
        return due
    latest, arrived = _walk(rule, due, now, _STEPS)
    if arrived:
        return latest
    for back in _BACK:
        nearer = next_due(rule, now - back, 0)
        if nearer is not None and latest < nearer <= now:
            latest = nearer
            break
    return _walk(rule, latest, now, None)[0]


def _walk(rule: Rule, due: Micros, now: Micros, steps: int | None) -> tuple[Micros, bool]:
    """The due time reached after so many steps, and whether it is the last one until ``now``."""
    while steps is None or steps > 0:
        following = next_due(rule, due, due)
        if following is None or following > now:
            return due, True
        due = following
        steps = None if steps is None else steps - 1
    return due, False


def _next_cron(expression: str, timezone: str, after: Micros) -> Micros | None:
    from cronsim import CronSim, CronSimError  # most sites have no schedules

    text = _NAMED.get(expression.lower(), expression)
    if len(text.split()) != 5:
        known = ", ".join(_NAMED)
        raise ValueError(f'"{expression}" is not a cron expression: five fields, or one of {known}')
    moment = (_EPOCH + timedelta(microseconds=after)).astimezone(_zone(timezone))
    try:
        due_times: Any = CronSim(text, moment)
        for due in due_times:
            instant = (due.astimezone(UTC) - _EPOCH) // timedelta(microseconds=1)
            # in the second of two equal hours it begins with the first one
            if instant > after:
                return int(instant)
    except CronSimError as error:
        raise ValueError(f'"{expression}" is not a cron expression: {str(error).lower()}') from error
    return None


@lru_cache(maxsize=64)
def _zone(name: str) -> Any:
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(f'"{name}" is not a time zone: write it like Europe/Berlin, or UTC') from None


@dataclass(frozen=True, slots=True)
class Step:
    """What is to be done about a schedule now."""

    #: The due time to turn into a workflow, if there is one.
    fire: Micros | None
    due_at: Micros | None
    queued: tuple[Micros, ...]
    #: How often due times were passed over.
    skipped: int


def decide(schedule: Schedule, now: Micros, *, blocked: bool) -> Step:
    """The step of a schedule that has come due. ``blocked``: the run before has not ended."""
    due, queued, skipped = schedule.due_at, schedule.queued, 0
    fire: Micros | None = None
    if due is not None and due <= now and not schedule.paused:
        latest = latest_due(schedule.rule, due, now)
        due = next_due(schedule.rule, latest, latest)
        taken = (
            _wanted(schedule, latest, now)
            and (not blocked or schedule.overlap is Overlap.QUEUE)
            and len(queued) < LONGEST_QUEUE
        )
        queued = (*queued, latest) if taken else queued
        skipped = int(latest != schedule.due_at or not taken)
    if queued and not blocked:
        fire, queued = queued[0], queued[1:]
    if fire is not None and isinstance(schedule.rule, After):
        due = None
    return Step(fire, due, queued, skipped)


def look_at(step: Step, now: Micros, *, paused: bool, blocked: bool) -> Micros | None:
    """When a worker has to look again after a step; None: when something happens."""
    if step.queued and not blocked:
        return now
    return None if paused else step.due_at


def _wanted(schedule: Schedule, latest: Micros, now: Micros) -> bool:
    return schedule.missed is Missed.ONCE or isinstance(schedule.rule, After) or now - latest <= GRACE


def after_pause(rule: Rule, due: Micros | None, now: Micros, *, running: bool) -> Micros | None:
    """The due time of a schedule that is resumed: what passed meanwhile was paused, not missed."""
    if isinstance(rule, After):
        return None if running else max(due or now, now)
    if due is not None and due > now:
        return due
    return next_due(rule, now, now if due is None else due)


class BadRule(ValueError):
    """A rule that says nothing, or the wrong thing. ``key`` is what to mend, "" for the rule as a whole."""

    def __init__(self, key: str, message: str) -> None:
        super().__init__(message)
        self.key = key


def read_rule(plain: Mapping[str, Any]) -> Rule:
    """The rule that the keys ``cron`` (with ``timezone``), ``every`` or ``after`` say. Raises BadRule."""
    given = [key for key in ("cron", "every", "after") if plain.get(key) is not None]
    if len(given) != 1:
        raise BadRule("", f"needs one of cron, every and after{', not several' if given else ''}")
    (key,) = given
    if key == "cron":
        return _read_cron(str(plain["cron"]), str(plain.get("timezone") or "UTC"))
    if plain.get("timezone") is not None:
        raise BadRule("timezone", f"goes with cron only, not with {key}")
    try:
        duration = parse_duration(plain[key])
    except ValueError as error:
        raise BadRule(key, str(error)) from error
    if duration < SHORTEST:
        raise BadRule(key, f"must be at least {format_duration(SHORTEST)}")
    return Every(duration) if key == "every" else After(duration)


def _read_cron(expression: str, timezone: str) -> Rule:
    try:
        _zone(timezone)
    except ValueError as error:
        raise BadRule("timezone", str(error)) from error
    try:
        check_cron(expression, timezone)
    except ValueError as error:
        raise BadRule("cron", str(error)) from error
    return Cron(" ".join(expression.split()), timezone)
