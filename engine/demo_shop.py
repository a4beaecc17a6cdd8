"""Two invented pages to watch: prices of which one changes, and deals of which one is new, every few seconds."""

from __future__ import annotations

import html
import time
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

#: Seconds from one change to the next.
PERIOD = 10
PRICES, DEALS = "/shop/prices.html", "/shop/deals.html"

_GOODS = ("Kettle", "Desk lamp", "Rain coat", "Bicycle bell", "Paper atlas", "Wool blanket")
_DEALS_SHOWN = 8


@dataclass(frozen=True, slots=True)
class Shop:
    """The pages as they are at the instant ``clock`` tells."""

    clock: Callable[[], float] = time.time

    def render(self, path: str) -> bytes | None:
        """The page at ``path``; None where there is none."""
        tick = int(self.clock() // PERIOD)
        match path:
            case "/shop/prices.html":
                return _page("Prices", "\n".join(self._good(number, tick) for number in range(len(_GOODS))))
            case "/shop/deals.html":
                return _page("Deals", "\n".join(self._deal(tick - age) for age in range(_DEALS_SHOWN)))
        return None

    def _good(self, number: int, tick: int) -> str:
        # each tick is the turn of one of them to get another price
        turns = (tick - number) // len(_GOODS)
        price = Random(f"{number}:{turns}").randrange(500, 9000) / 100
        return (
            f'<li class="good"><a href="good-{number}.html">{html.escape(_GOODS[number])}</a> '
            f'<span class="price">{price:.2f}</span></li>'
        )

    def _deal(self, number: int) -> str:
        draw = Random(f"deal:{number}")
        good, off = draw.choice(_GOODS), draw.randrange(5, 60, 5)
        return (
            f'<li class="deal" data-number="{number}"><a href="deal-{number}.html">{html.escape(good)}</a> '
            f'<span class="off">-{off} %</span></li>'
        )


def _page(title: str, body: str) -> bytes:
    text = f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title></head>
<body><h1>{title}</h1><ul>
{body}
</ul></body></html>
"""
    return text.encode()
