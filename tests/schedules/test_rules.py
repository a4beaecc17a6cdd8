"""Due times of rules, and what is said about rules that make no sense (SCHED-1 to SCHED-6)."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.clock import MINUTE, SECOND, Micros
from engine.errors import UsageError
from engine.fields import read_fields
from engine.plugins.manifest import InvalidManifest, load_site
from engine.schedules import (
    After,
    Cron,
    Every,
    Missed,
    Overlap,
    Rule,
    VerbTarget,
    dump_target,
    load_target,
    rule_from_dict,
    rule_to_dict,
    workflow_id,
)
from engine.timing import BadRule, first_due, latest_due, next_due, read_rule
from engine.verbs import VerbField, VerbSection, VerbSpec
from tests.schedules.agenda import at, ops

HOUR = 60 * MINUTE
DAY = 24 * HOUR
BERLIN = "Europe/Berlin"


def local(instant: Micros, zone: str = BERLIN) -> str:
    return datetime.fromtimestamp(instant / SECOND, ZoneInfo(zone)).strftime("%d %H:%M%z")


def dues(rule: Rule, begin: Micros, end: Micros) -> list[Micros]:
    found: list[Micros] = []
    due = next_due(rule, begin, begin)
    while due is not None and due <= end:
        found.append(due)
        due = next_due(rule, due, due)
    return found


@pytest.mark.parametrize(
    ("expression", "spring", "autumn"),
    [
        # a time of day that a change skips comes right after it; one that is there twice comes the first time
        ("30 2 * * *", ["29 03:00+0200"], ["25 02:30+0200"]),
        ("0 3 * * *", ["29 03:00+0200"], ["25 03:00+0100"]),
        # what is to come every so often does so by the clock on the wall of the world
        ("0 * * * *", ["29 01:00+0100", "29 03:00+0200"], ["25 02:00+0200", "25 02:00+0100"]),
        ("*/30 1-3 * * *", ["29 01:30+0100", "29 03:00+0200"], ["25 02:30+0200", "25 02:00+0100", "25 02:30+0100"]),
    ],
)
def test_the_two_days_of_a_year_that_have_23_and_25_hours(
    expression: str, spring: list[str], autumn: list[str]
) -> None:
    """SCHED-4."""
    rule = Cron(expression, BERLIN)
    springs = dues(rule, at("2026-03-28 23:59"), at("2026-03-29 01:30"))
    autumns = dues(rule, at("2026-10-25 00:00") - 1, at("2026-10-25 02:30"))
    assert {local(due) for due in springs} >= set(spring)
    assert {local(due) for due in autumns} >= set(autumn)
    for found in (springs, autumns):
        assert found == sorted(set(found))
    if expression == "0 * * * *":
        assert len(dues(rule, at("2026-03-28 23:00") - 1, at("2026-03-29 22:00") - 1)) == 23
        assert len(dues(rule, at("2026-10-24 22:00") - 1, at("2026-10-25 23:00") - 1)) == 25


def test_a_time_of_day_comes_once_on_every_day_of_a_year() -> None:
    """SCHED-4."""
    for zone in (BERLIN, "America/New_York", "Australia/Lord_Howe", "UTC"):
        found = dues(Cron("15 2 * * *", zone), at("2026-01-01 00:00"), at("2026-12-31 23:59"))
        days = {datetime.fromtimestamp(due / SECOND, ZoneInfo(zone)).date() for due in found}
        assert len(found) == len(days) >= 364


@pytest.mark.parametrize(
    ("rule", "begin", "expected"),
    [
        (Cron("*/20 8 * * 1-5"), "2026-01-02 08:40", "2026-01-05 08:00"),
        (Cron("0 0 29 2 *"), "2026-01-01 00:00", "2028-02-29 00:00"),
        (Cron("0 12 * * SUN#1"), "2026-01-01 00:00", "2026-01-04 12:00"),
        (Cron("@monthly"), "2026-01-01 00:00", "2026-02-01 00:00"),
        (Cron("0 9 * * *", "Asia/Tokyo"), "2026-01-01 00:00", "2026-01-02 00:00"),
        (Every(HOUR), "2026-01-01 00:30", "2026-01-01 01:30"),
    ],
)
def test_a_rule_begins_with_its_next_due_time(rule: Rule, begin: str, expected: str) -> None:
    """SCHED-2, SCHED-3."""
    assert first_due(rule, at(begin)) == at(expected)


def test_what_counts_from_the_end_begins_at_once() -> None:
    """SCHED-5."""
    assert first_due(After(HOUR), 7) == 7


@given(
    start=st.integers(0, 4_000_000_000),
    gap=st.integers(0, 400 * 24 * 3600),
    expression=st.sampled_from(
        ["* * * * *", "7 * * * *", "0 3 * * *", "30 2 * * *", "0 0 1 * *", "* * 1 1 *", "*/15 2 * * 0"]
    ),
)
@settings(max_examples=40, deadline=None)
def test_the_latest_due_time_is_found_however_long_nobody_looked(start: int, gap: int, expression: str) -> None:
    rule = Cron(expression, BERLIN)
    due = next_due(rule, start * SECOND, 0)
    assert due is not None
    now = due + gap * SECOND
    latest = latest_due(rule, due, now)
    following = next_due(rule, latest, latest)
    assert due <= latest <= now
    assert following is not None
    assert following > now
    assert next_due(rule, latest - 1, 0) == latest


@given(interval=st.integers(1, 10**12), due=st.integers(0, 10**16), gap=st.integers(0, 10**15))
def test_an_interval_keeps_its_phase(interval: int, due: int, gap: int) -> None:
    rule = Every(interval)
    latest = latest_due(rule, due, due + gap)
    following = next_due(rule, latest, latest)
    assert (latest - due) % interval == 0
    assert latest <= due + gap < latest + interval == following


@pytest.mark.parametrize(
    ("said", "key", "message"),
    [
        ({}, "", "needs one of cron, every and after"),
        ({"cron": "@daily", "every": "1h"}, "", "not several"),
        ({"cron": "* * * *"}, "cron", "five fields"),
        ({"cron": "* * * * * *"}, "cron", "five fields"),
        ({"cron": "61 * * * *"}, "cron", "bad minute"),
        ({"cron": "0 0 30 2 *"}, "cron", "bad day-of-month"),
        ({"cron": "@never"}, "cron", "@hourly"),
        ({"cron": "@daily", "timezone": "Europe/Berlim"}, "timezone", "not a time zone"),
        ({"cron": "@daily", "timezone": "../etc/passwd"}, "timezone", "not a time zone"),
        ({"every": "1h", "timezone": BERLIN}, "timezone", "cron only"),
        ({"every": "soon"}, "every", "not a duration"),
        ({"every": "10ms"}, "every", "at least 1s"),
        ({"after": 0}, "after", "at least 1s"),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused_by_its_key(said: dict[str, Any], key: str, message: str) -> None:
    """SCHED-1."""
    with pytest.raises(BadRule, match=message) as bad:
        read_rule(said)
    assert bad.value.key == key


@pytest.mark.parametrize("rule", [Cron("5 4 * * SUN", BERLIN), Every(90 * SECOND), After(3 * HOUR)])
def test_a_rule_survives_the_engine_database(rule: Rule) -> None:
    assert rule_from_dict(rule_to_dict(rule)) == rule == read_rule(rule_to_dict(rule))


@pytest.mark.parametrize("target", [ops("a", "b"), VerbTarget("v", {"n": 1, "list": ["a"]})])
def test_a_target_survives_the_engine_database(target: Any) -> None:
    assert load_target(dump_target(target)) == target


def test_ids_tell_due_times_apart() -> None:
    """SCHED-22."""
    assert workflow_id("shop", "s", at("2026-01-02 03:04")) == "shop/s@20260102T030400Z"
    assert workflow_id("shop", "s", at("2026-01-02 03:04") + 5) == "shop/s@20260102T030400.000005Z"


MANIFEST = "name: shop\ndatabaseFileName: shop.db\nschedules:\n"


def test_a_manifest_says_all_there_is_to_say(tmp_path: Path) -> None:
    """SCHED-10."""
    (tmp_path / "site.yaml").write_text(
        MANIFEST + '  - {name: a, verb: seed, values: {n: 1}, cron: "0 3  * * *", timezone: Europe/Berlin,\n'
        "     overlap: queue, missed: skip}\n  - {verb: seed, after: 90s}\n"
    )
    first, second = load_site(tmp_path).schedules
    assert (first.rule, first.target) == (Cron("0 3 * * *", BERLIN), VerbTarget("seed", {"n": 1}))
    assert (first.overlap, first.missed) == (Overlap.QUEUE, Missed.SKIP)
    assert (second.name, second.rule, second.overlap, second.missed) == (
        "seed",
        After(90 * SECOND),
        Overlap.SKIP,
        Missed.ONCE,
    )


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("{every: 1h}", "site.schedules[0].verb is required"),
        ("{verb: s}", "site.schedules[0] needs one of cron, every and after"),
        ('{verb: s, cron: "0 25 * * *"}', 'site.schedules[0].cron: "0 25 * * *" is not a cron expression: bad hour'),
        ("{verb: s, every: 5}", "site.schedules[0].every: must be at least 1s"),
        ("{verb: s, every: 1h, name: a/b}", 'site.schedules[0].name must be made of letters, digits, ".", "_"'),
        ("{verb: s, every: 1h}\n  - {verb: s, every: 2h}", 'site.schedules contains duplicate schedule "s"'),
        ("{verb: s, every: 1h, overlap: wait}", "overlap"),
        ("{verb: s, every: 1h, crom: x}", "crom"),
        ("seed", "site.schedules[0]"),
    ],
)
def test_a_schedule_that_makes_no_sense_is_a_fault_of_its_line(tmp_path: Path, entry: str, message: str) -> None:
    """SCHED-10."""
    (tmp_path / "site.yaml").write_text(f"{MANIFEST}  - {entry}\n")
    with pytest.raises(InvalidManifest) as invalid:
        load_site(tmp_path)
    (fault,) = invalid.value.faults
    assert message in str(fault)
    assert fault.line >= 4


VERB = VerbSpec(
    name="seed",
    function="seed",
    source_file="seed.js",
    full_path="seed",
    sections=(
        VerbSection(
            slug="default",
            fields=(
                VerbField(name="base_url", required=True),
                VerbField(name="pages", type="int", default=2),
                VerbField(name="tags", type="stringList"),
                VerbField(name="dry", type="bool"),
            ),
        ),
        VerbSection(slug="more", fields=(VerbField(name="ratio", type="float"),)),
    ),
)


def test_values_of_a_schedule_are_read_like_flags_of_the_verb() -> None:
    """SCHED-12."""
    assert read_fields(VERB, {"base-url": "http://x", "tags": ["a", 1], "dry": True, "ratio": "0.5"}) == {
        "default": {"base_url": "http://x", "pages": 2, "tags": ["a", "1"], "dry": True},
        "more": {"ratio": 0.5},
    }
    assert read_fields(VERB, {"base_url": 7, "pages": "3", "dry": "no"})["default"] == {
        "base_url": "7",
        "pages": 3,
        "dry": False,
    }


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "base_url is required"),
        ({"base_url": "x", "page": 1}, 'no field "page"; did you mean "pages"'),
        ({"base_url": "x", "pages": 1.5}, 'pages: "1.5" is not a whole number'),
        ({"base_url": {"a": 1}}, "base_url: .* is neither a text nor a number"),
        ({"base_url": "x", "pages": True}, "pages: True is neither"),
    ],
)
def test_values_that_do_not_fit_are_named(values: dict[str, Any], message: str) -> None:
    """SCHED-12."""
    with pytest.raises(UsageError, match=message):
        read_fields(VERB, values)
