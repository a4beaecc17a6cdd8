"""Small real things that tests steer by hand."""

from __future__ import annotations

from engine.clock import Micros


class FakeClock:
    """A clock that stands still until told to move."""

    def __init__(self, start: Micros = 1_700_000_000_000_000) -> None:
        self.instant = start

    def now(self) -> Micros:
        """The instant it was last set to."""
        return self.instant

    def advance(self, by: Micros) -> Micros:
        """Move forward and return the new instant."""
        self.instant += by
        return self.instant
