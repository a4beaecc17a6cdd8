"""The key ``schedules`` of a manifest: verbs to be run on a schedule."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from engine.documents import Document, spell
from engine.faults import Fault
from engine.schedules import Missed, NewSchedule, Origin, Overlap, VerbTarget

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def schedule_faults(document: Document, schedules: Any) -> Iterator[Fault]:
    """What the schema cannot say about the list. Values of a wrong type are passed over."""
    seen: set[str] = set()
    for number, one in enumerate(schedules if isinstance(schedules, list) else ()):
        if isinstance(one, dict):
            yield from _faults(document, number, one, seen)


def _faults(document: Document, number: int, one: Mapping[str, Any], seen: set[str]) -> Iterator[Fault]:
    from engine.timing import BadRule, read_rule  # most sites have no schedules

    place = ("schedules", number)
    where = spell("site", document.value, place)
    name = one.get("name") or one.get("verb")
    if isinstance(name, str) and name:
        if not NAME.fullmatch(name):
            message = f'{where}.name must be made of letters, digits, ".", "_" and "-", not "{name}"'
            yield document.fault((*place, "name"), message)
        if name in seen:
            hint = "" if one.get("name") else "give it a name of its own"
            yield document.fault((*place, "name"), f'site.schedules contains duplicate schedule "{name}"', hint)
        seen.add(name)
    if not all(_readable(one.get(key)) for key in ("cron", "every", "after", "timezone")):
        return
    try:
        read_rule(one)
    except BadRule as bad:
        if bad.key:
            yield document.fault((*place, bad.key), f"{where}.{bad.key}: {bad}")
        else:
            yield document.fault(place, f"{where} {bad}")


def _readable(value: Any) -> bool:
    return value is None or (isinstance(value, str | int | float) and not isinstance(value, bool))


def read_schedules(site: str, schedules: Sequence[Mapping[str, Any]]) -> tuple[NewSchedule, ...]:
    """The schedules of a list without faults."""
    if not schedules:
        return ()
    from engine.timing import read_rule

    return tuple(
        NewSchedule(
            site=site,
            name=one.get("name") or one["verb"],
            rule=read_rule(one),
            target=VerbTarget(one["verb"], dict(one.get("values") or {})),
            overlap=Overlap(one.get("overlap", "skip")),
            missed=Missed(one.get("missed", "once")),
            origin=Origin.MANIFEST,
        )
        for one in schedules
    )
