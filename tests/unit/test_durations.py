"""Durations: what is accepted, what is refused, and that spelling one out loses nothing."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.clock import SECOND
from engine.durations import LONGEST, format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "micros"),
    [
        ("1s", SECOND),
        ("150ms", 150_000),
        ("1.5s", 1_500_000),
        (".5s", 500_000),
        ("1h30m", 5_400 * SECOND),
        ("2us", 2),
        ("2µs", 2),
        ("1500ns", 2),
        ("0", 0),
        ("0s", 0),
        (" 5s ", 5 * SECOND),
        (250, 250_000),
        (0.5, 500),
        (0, 0),
    ],
)
def test_go_strings_and_milliseconds_are_read(text: str | float, micros: int) -> None:
    assert parse_duration(text) == micros


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is not a duration"),
        ("15", "unit is missing"),
        ("soon", "is not a duration"),
        ("1s!", "is not a duration"),
        ("1 s", "is not a duration"),
        ("1d", "is not a duration"),
        ("-1s", "must not be negative"),
        (-1, "not negative"),
        (float("nan"), "finite"),
        (float("inf"), "finite"),
        (True, "is not a duration"),
        (None, "is not a duration"),
        (["1s"], "is not a duration"),
        ("99999999h", "292 years"),
    ],
)
def test_what_is_no_duration_is_refused_with_a_sentence(text: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse_duration(text)


@given(st.integers(min_value=0, max_value=LONGEST))
def test_a_formatted_duration_reads_back_unchanged(duration: int) -> None:
    assert parse_duration(format_duration(duration)) == duration
