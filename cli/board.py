"""The live table: per queue what is ready, running, delayed, done and failed; the rate, the end, the last errors."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from cli.output import clean, note

if TYPE_CHECKING:
    from engine.views.progress import Progress

_COLUMNS = ("ready", "running", "delayed", "done", "failed")
_LAST_ERRORS = 3
#: The rate is that of the last so many seconds.
_WINDOW = 30.0
#: The end is foretold once no op has been added for so many seconds.
_SETTLED = 5.0


class Board:
    """Counts from a worker's own events and from looks at the database; the latter win where both know."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._began = now()
        self._running: Counter[str] = Counter()
        self._ended: dict[str, Counter[str]] = {}
        self._errors: deque[str] = deque(maxlen=_LAST_ERRORS)
        self._progress: Progress | None = None
        #: (time, ops ended until then), and since when the number of ops has stood still
        self._samples: deque[tuple[float, int]] = deque([(self._began, 0)])
        self._total = 0
        self._total_since = self._began
        self.above: Callable[[str], object] = note

    def started(self, queue: str) -> None:
        """An op of ``queue`` began."""
        self._running[queue] += 1

    def ended(self, queue: str, ending: str) -> None:
        """An op of ``queue`` ended; resolve-only claims end without having begun."""
        self._running[queue] = max(0, self._running[queue] - 1)
        self._ended.setdefault(queue, Counter())[ending] += 1

    def error(self, text: str) -> None:
        """Something went wrong."""
        self._errors.append(clean(text).replace("\n", " "))

    def notice(self, text: str) -> None:
        """A line above the table."""
        self.above(clean(text))

    def seen(self, progress: Progress) -> None:
        """What the database says."""
        total = progress.remaining + progress.ended
        if total != self._total or not progress.status:
            self._total, self._total_since = total, self._now()
        self._progress = progress

    def render(self) -> Any:
        """The table as it stands; no line is wider than the terminal."""
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        grid = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1, 0, 0))
        grid.add_column("queue", ratio=1)  # the only column that gives way where the terminal is narrow
        for header in _COLUMNS:
            grid.add_column(header, justify="right", no_wrap=True, min_width=len(header))
        for queue, counts in sorted(self.counts().items()):
            cells = ("" if counts[column] is None else str(counts[column]) for column in _COLUMNS)
            grid.add_row(Text(clean(queue), no_wrap=True, overflow="ellipsis"), *cells)
        errors = self._errors or (self._progress.errors if self._progress else ())
        lines = [Text(clean(error), style="red", no_wrap=True, overflow="ellipsis") for error in errors]
        return Group(grid, Text(self.pace(), style="dim", no_wrap=True, overflow="ellipsis"), *lines)

    def counts(self) -> dict[str, dict[str, int | None]]:
        """Queue to column to number; None where nobody has looked yet."""
        looked = self._progress.queues if self._progress else {}
        rows: dict[str, dict[str, int | None]] = {}
        for queue in {*looked, *self._running, *self._ended}:
            states, own = looked.get(queue), self._ended.get(queue, Counter())
            whole = bool(self._progress and self._progress.status)
            rows[queue] = {
                "ready": None if self._progress is None else (states or {}).get("ready", 0),
                "running": (states or {}).get("running", 0) if whole else self._running[queue],
                "delayed": None if self._progress is None else (states or {}).get("delayed", 0),
                "done": (states or {}).get("succeeded", 0) if whole else own["succeeded"],
                "failed": (states or {}).get("failed", 0) if whole else own["failed"],
            }
        return rows

    def pace(self) -> str:
        """Rate, time since the start, and the time left where the end is known."""
        now = self._now()
        whole = self._progress is not None and bool(self._progress.status)
        own = sum(sum(counter[one] for one in ("succeeded", "failed", "canceled")) for counter in self._ended.values())
        done = self._progress.ended if whole and self._progress is not None else own
        self._samples.append((now, done))
        while len(self._samples) > 2 and now - self._samples[0][0] > _WINDOW:
            self._samples.popleft()
        (then, before) = self._samples[0]
        rate = (done - before) / max(now - then, 1e-9)
        told = f"{rate:.1f} ops/s, {_span(now - self._began)}"
        if whole and self._progress is not None and rate > 0 and now - self._total_since >= _SETTLED:
            told += f", about {_span(self._progress.remaining / rate)} left"
        return told


def _span(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02d}m" if hours else f"{minutes}m{rest:02d}s" if minutes else f"{rest} s"
