"""How many ops run at once, and how many more are worth having at hand.

A claim costs a transaction. Where ops take a moment only, a worker claims some ahead, as many as it works off in
:data:`STOCK` seconds; where some take longer than that, none.
"""

from __future__ import annotations

import math

#: Seconds of work held ahead.
STOCK = 0.05
#: Ops held ahead at most.
MOST_AHEAD = 400
#: Seconds after which an op that was claimed ahead is given back: those before it take longer than was expected.
PATIENCE = 2.0
#: The weight of a quick op; a slow one counts at once and whole.
_WEIGHT = 0.05


class Places:
    """Lets ``size`` ops run at once."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._free = size
        #: What the slower ones of late take; nothing is known at first.
        self._seconds = math.inf

    def at_hand(self) -> int:
        """How many ops a worker should hold: what runs, and what is claimed ahead."""
        ahead = STOCK * self._size / max(self._seconds, STOCK / MOST_AHEAD)
        return self._size + min(MOST_AHEAD, int(ahead))

    def enter(self) -> bool:
        """Take a place if one is free."""
        if self._free <= 0:
            return False
        self._free -= 1
        return True

    def leave(self, seconds: float) -> None:
        """Give the place up after an op that took ``seconds``."""
        if math.isinf(self._seconds):
            self._seconds = seconds
        self._seconds = max(seconds, self._seconds + _WEIGHT * (seconds - self._seconds))
        self._free += 1
