"""Time: every ``now`` of the engine comes from a :class:`Clock`.

Instants and durations are whole microseconds (``Micros``), instants counted from the Unix epoch in UTC, so
that they compare, index and add alike in Python, SQLite and PostgreSQL.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol, TypeAlias

Micros: TypeAlias = int

MILLISECOND: Micros = 1_000
SECOND: Micros = 1_000_000
MINUTE: Micros = 60 * SECOND


class Clock(Protocol):
    """A source of the current instant."""

    def now(self) -> Micros:
        """The current instant."""
        ...


class SystemClock:
    """The machine's clock, shifted by ``offset`` (the measured distance to a database server's clock)."""

    def __init__(self, offset: Micros = 0) -> None:
        self.offset = offset

    def now(self) -> Micros:
        """The current instant."""
        return time.time_ns() // 1_000 + self.offset


def rfc3339(instant: Micros) -> str:
    """``instant`` as UTC RFC3339 of fixed width: ``2026-01-02T03:04:05.000006Z``."""
    moment = datetime.fromtimestamp(instant // SECOND, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{instant % SECOND:06d}Z"
