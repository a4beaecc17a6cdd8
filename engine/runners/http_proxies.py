"""Which proxy a request takes where there are several."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable

from engine.plugins.site import Proxies

#: The place, from 0, of the n-th request of an op in a round: see RunContext.turn.
Turn = Callable[[str, int], Awaitable[int]]


async def pick(proxies: Proxies, name: str, turn: Turn, request: int = 1) -> str | None:
    """The proxy of an op's ``request``-th request; None where there are none to choose from.

    ``name`` is the round whose cursor moves: all requests that share it take turns. Raises LeaseLost.
    """
    if not proxies.urls:
        return None
    match proxies.rotate:
        case "Sticky":
            return proxies.urls[0]
        case "Random":
            return any_of(proxies)
        case "RoundRobin":
            return proxies.urls[await turn(name, request) % len(proxies.urls)]


def any_of(proxies: Proxies) -> str | None:
    """One of them, without a turn."""
    return random.choice(proxies.urls) if proxies.urls else None
