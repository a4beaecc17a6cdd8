"""Long lists in pieces: databases bound the number of parameters of a statement."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TypeVar

T = TypeVar("T")

#: Elements of one IN list; tuples of three stay below SQLite's 32,766 parameters.
IN_LIMIT = 5_000


def batches(items: Sequence[T], size: int = IN_LIMIT) -> Iterator[list[T]]:
    """``items`` in order, ``size`` at a time."""
    rest = iter(items)
    while batch := list(islice(rest, size)):
        yield batch
