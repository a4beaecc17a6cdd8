"""Counters kept as text among other texts."""

from __future__ import annotations

from typing import TypeAlias

Number: TypeAlias = int | float

#: Beyond it JavaScript loses digits.
_SAFE = 2**53


class NotANumber(Exception):
    """The text that stands there is no number."""


def advance(stored: str | None, default: Number, delta: Number) -> Number:
    """The number after adding ``delta`` to what is stored, or to ``default`` where nothing is. Raises NotANumber.

    >>> advance(None, 10, 5), advance("2.5", 0, 1), advance("4.0", 0, 1)
    (15, 3.5, 5)
    """
    return whole((default if stored is None else _read(stored)) + delta)


def whole(number: Number) -> Number:
    """The number as an int where it is one."""
    return int(number) if isinstance(number, float) and number.is_integer() and abs(number) <= _SAFE else number


def _read(text: str) -> Number:
    try:
        return int(text)
    except ValueError:
        pass
    try:
        number = float(text)
    except ValueError:
        raise NotANumber(f"{text[:40]!r} is not a number") from None
    if number != number or number in (float("inf"), float("-inf")):
        raise NotANumber(f"{text[:40]!r} is not a number")
    return number
