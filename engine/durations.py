"""Durations as people write them: Go duration strings, or plain numbers of milliseconds."""

from __future__ import annotations

import math
import re
from decimal import Decimal

from engine.clock import MILLISECOND, MINUTE, SECOND, Micros

_UNITS: dict[str, Decimal] = {
    "ns": Decimal("0.001"),
    "us": Decimal(1),
    "µs": Decimal(1),  # the micro sign
    "μs": Decimal(1),  # the Greek letter
    "ms": Decimal(MILLISECOND),
    "s": Decimal(SECOND),
    "m": Decimal(MINUTE),
    "h": Decimal(60 * MINUTE),
}
_PART = re.compile(r"(?P<number>[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?P<unit>ns|us|µs|μs|ms|s|m|h)", re.ASCII)

#: What Go's 64-bit nanoseconds can hold, about 292 years.
LONGEST: Micros = 9_223_372_036_854_775


def parse_duration(text: str | int | float) -> Micros:
    """The duration that ``text`` says: ``"1h30m"``, ``"150ms"``, ``"1.5s"``, or a number of milliseconds.

    Raises ValueError with a sentence for the person who wrote it.

    >>> parse_duration("1.5s"), parse_duration("1m30s"), parse_duration(250)
    (1500000, 90000000, 250000)
    """
    if isinstance(text, bool) or not isinstance(text, str | int | float):
        raise ValueError(f"{_shown(text)} is not a duration: {_HOW}")  # noqa: TRY004 - one error for the caller
    micros = _of_text(text.strip()) if isinstance(text, str) else _of_number(text)
    if micros > LONGEST:
        raise ValueError(f"duration {_shown(text)} is longer than 292 years")
    return micros


_HOW = 'write it like "500ms", "1.5s" or "2m30s", or as a number of milliseconds'


def _shown(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


def _of_number(number: int | float) -> Micros:
    if not math.isfinite(number) or number < 0:
        raise ValueError(f"{number!r} is not a duration: it must be a finite number of milliseconds, not negative")
    return round(Decimal(number) * MILLISECOND)


def _of_text(text: str) -> Micros:
    if text in ("0", "+0", "-0"):
        return 0
    if text.startswith("-"):
        raise ValueError(f'duration "{text}" must not be negative')
    rest = text.removeprefix("+")
    total, position = Decimal(0), 0
    for part in _PART.finditer(rest):
        if part.start() != position:
            break
        total += Decimal(part["number"]) * _UNITS[part["unit"]]
        position = part.end()
    if position != len(rest) or not rest:
        unit = " (a unit is missing)" if re.fullmatch(r"[0-9.]+", rest) else ""
        raise ValueError(f'"{text}" is not a duration{unit}: {_HOW}')
    return round(total)


def parse_age(text: str | int | float) -> Micros:
    """A duration that may also be whole days: ``"30d"``. Raises ValueError.

    >>> parse_age("2d") == parse_duration("48h")
    True
    """
    days = text.strip().removesuffix("d") if isinstance(text, str) else ""
    return parse_duration(f"{int(days) * 24}h" if days.isdecimal() and days != text else text)


_SPELLED = (("h", 60 * MINUTE), ("m", MINUTE), ("s", SECOND))


def format_duration(duration: Micros) -> str:
    """The shortest usual spelling, which :func:`parse_duration` reads back to the same value.

    >>> format_duration(90 * SECOND), format_duration(250_000), format_duration(0)
    ('1m30s', '250ms', '0s')
    """
    if duration == 0:
        return "0s"
    if duration < 0:
        return f"-{format_duration(-duration)}"
    if duration < SECOND:
        whole, part = divmod(duration, MILLISECOND)
        return f"{duration}us" if part else f"{whole}ms"
    spelled, rest = "", duration
    for unit, size in _SPELLED[:2]:
        count, rest = divmod(rest, size)
        if count:
            spelled += f"{count}{unit}"
    if rest:
        seconds = Decimal(rest) / SECOND
        spelled += f"{seconds.normalize():f}s"
    return spelled
