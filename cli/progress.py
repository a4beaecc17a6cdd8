"""What a worker is doing, as it happens, on stderr: a live table on a terminal, plain lines in a pipe."""

from __future__ import annotations

import sys
import time
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cli.output import clean, note

if TYPE_CHECKING:
    from engine.model import Op
    from engine.worker.options import Observer

_ENDINGS = ("succeeded", "retried", "failed")
#: Seconds between two lines of totals in a pipe, and between two frames on a terminal.
_PIPE_SECONDS = 2.0
_FRAME_SECONDS = 0.25
_LAST_ERRORS = 3


@contextmanager
def watching() -> Iterator[Observer]:
    """An observer that shows progress until the block ends."""
    if not sys.stderr.isatty():
        lines = Lines()
        try:
            yield lines
        finally:
            lines.total()
        return
    from rich.console import Console
    from rich.live import Live

    board = Board()
    with Live(get_renderable=board.render, console=Console(stderr=True), refresh_per_second=4, transient=True) as live:
        board.above = lambda text: live.console.print(text, markup=False, highlight=False)
        yield board


@dataclass(slots=True)
class Tally:
    """Counts per queue, as the worker tells them."""

    running: Counter[str] = field(default_factory=Counter)
    ended: dict[str, Counter[str]] = field(default_factory=dict)

    def started(self, op: Op) -> None:
        """An op began."""
        self.running[_queue(op)] += 1

    def over(self, op: Op, ending: str) -> None:
        """An op ended; resolve-only claims end without having begun."""
        queue = _queue(op)
        self.running[queue] = max(0, self.running[queue] - 1)
        self.ended.setdefault(queue, Counter())[ending] += 1

    def sum(self, ending: str) -> int:
        """How many ops of all queues ended that way."""
        return sum(counter[ending] for counter in self.ended.values())


def _queue(op: Op) -> str:
    return f"{op.site} {op.queue}" if op.queue else op.site


class Lines:
    """Progress for a pipe: one line per trouble, totals every now and then; ``key=value`` throughout."""

    def __init__(self) -> None:
        self._tally = Tally()
        self._told = time.monotonic()
        self._fresh = False

    def op_started(self, op: Op) -> None:
        """Count it."""
        self._tally.started(op)

    def op_ended(self, op: Op, ending: str, detail: str) -> None:
        """Count it; anything but a success gets its own line."""
        self._tally.over(op, ending)
        self._fresh = True
        if ending != "succeeded":
            note(f"op {ending} workflow={op.workflow.id} op={op.id} kind={op.kind} queue={op.queue}: {detail}")
        if time.monotonic() - self._told >= _PIPE_SECONDS:
            self.total()

    def notice(self, message: str) -> None:
        """A line for the operator."""
        note(message)

    def total(self) -> None:
        """The totals, if anything happened since they were last told."""
        if not self._fresh:
            return
        self._told, self._fresh = time.monotonic(), False
        counts = " ".join(f"{ending}={self._tally.sum(ending)}" for ending in _ENDINGS)
        note(f"progress running={self._tally.running.total()} {counts}")


class Board:
    """Progress for a terminal: one row per queue, and the last errors."""

    def __init__(self) -> None:
        self._tally = Tally()
        self._errors: deque[str] = deque(maxlen=_LAST_ERRORS)
        self._began = time.monotonic()
        self.above: Any = note

    def op_started(self, op: Op) -> None:
        """Count it."""
        self._tally.started(op)

    def op_ended(self, op: Op, ending: str, detail: str) -> None:
        """Count it and remember what went wrong."""
        self._tally.over(op, ending)
        if ending in ("retried", "failed", "lease_lost"):
            self._errors.append(clean(f"{ending} {op.id}: {detail}").replace("\n", " "))

    def notice(self, message: str) -> None:
        """A line above the table."""
        self.above(clean(message))

    def render(self) -> Any:
        """The table as it stands."""
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        grid = Table(box=None, pad_edge=False, header_style="bold")
        grid.add_column("queue")  # the only column that gives way where the terminal is narrow
        for header in ("running", "done", "retried", "failed"):
            grid.add_column(header, justify="right", no_wrap=True)
        for queue in sorted({*self._tally.running, *self._tally.ended}):
            ended = self._tally.ended.get(queue, Counter())
            counts = (self._tally.running[queue], *(ended[ending] for ending in _ENDINGS))
            grid.add_row(Text(clean(queue), no_wrap=True, overflow="ellipsis"), *map(str, counts))
        seconds = max(time.monotonic() - self._began, 1e-9)
        rate = f"{self._tally.sum('succeeded') / seconds:.1f} ops/s, {seconds:.0f} s"
        errors = [Text(error, style="red", no_wrap=True, overflow="ellipsis") for error in self._errors]
        return Group(grid, Text(rate, style="dim"), *errors)
