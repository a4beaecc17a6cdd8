"""What is going on, as it happens, on stderr: a live table on a terminal, structured lines in a pipe."""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cli.board import Board
from cli.log import LogLines, logger

if TYPE_CHECKING:
    from engine.model import Op
    from engine.views.progress import Progress
    from engine.worker.options import Observer

#: Seconds between two lines of totals in a pipe, and between two looks at the database at least.
_PIPE_SECONDS = 2.0
_LOOK_SECONDS = 1.0
#: A look may take this share of the time: on a large database it is taken less often.
_LOOK_SHARE = 0.05


@contextmanager
def watching(look: Callable[[], Progress] | None, lines: LogLines | None) -> Iterator[Observer]:
    """An observer that shows progress until the block ends. ``look`` reads the database's own counts."""
    if lines is not None or not sys.stderr.isatty():
        observer = Lines(lines or LogLines.TEXT)
        try:
            yield observer
        finally:
            observer.total()
        return
    from rich.console import Console
    from rich.live import Live

    board = Board()
    console = Console(stderr=True)
    with (
        Live(
            get_renderable=board.render, console=console, refresh_per_second=4, transient=True, vertical_overflow="crop"
        ),
        looking(look, board.seen),
    ):
        board.above = lambda text: console.print(text, markup=False, highlight=False)
        yield Follower(board)


@contextmanager
def looking(look: Callable[[], Progress] | None, tell: Callable[[Progress], None]) -> Iterator[None]:
    """Look at the database now and then, on a thread of its own, until the block ends."""
    if look is None:
        yield
        return
    over = threading.Event()

    def run() -> None:
        pause = 0.0
        while not over.wait(pause):
            began = time.monotonic()
            with suppress(Exception):  # a locked or vanished database is the worker's to report
                tell(look())
            pause = max(_LOOK_SECONDS, (time.monotonic() - began) / _LOOK_SHARE)

    thread = threading.Thread(target=run, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@dataclass(slots=True)
class Tally:
    """Counts of all queues together, as the worker tells them."""

    running: int = 0
    ended: Counter[str] = field(default_factory=Counter)

    def started(self) -> None:
        """An op began."""
        self.running += 1

    def over(self, ending: str) -> None:
        """An op ended; resolve-only claims end without having begun."""
        self.running = max(0, self.running - 1)
        self.ended[ending] += 1


class Lines:
    """Progress for a pipe: one line per trouble, totals every now and then."""

    def __init__(self, lines: LogLines) -> None:
        self._log: Any = logger(lines)
        self._tally = Tally()
        self._told = time.monotonic()
        self._fresh = False

    def op_started(self, op: Op) -> None:
        """Count it."""
        self._tally.started()

    def op_ended(self, op: Op, ending: str, detail: str) -> None:
        """Count it; anything but a success gets its own line."""
        self._tally.over(ending)
        self._fresh = True
        if ending != "succeeded":
            told = self._log.error if ending == "failed" else self._log.warning
            told(f"op {ending}", workflow=op.workflow.id, op=op.id, kind=op.kind, queue=op.queue, error=detail)
        if time.monotonic() - self._told >= _PIPE_SECONDS:
            self.total()

    def notice(self, message: str) -> None:
        """A line for the operator."""
        self._log.info(message)

    def total(self) -> None:
        """The totals, if anything happened since they were last told."""
        if not self._fresh:
            return
        self._told, self._fresh = time.monotonic(), False
        ended = {ending: self._tally.ended[ending] for ending in ("succeeded", "retried", "failed")}
        self._log.info("progress", running=self._tally.running, **ended)


class Follower:
    """Tells a board what a worker does."""

    def __init__(self, board: Board) -> None:
        self._board = board

    def op_started(self, op: Op) -> None:
        """Count it."""
        self._board.started(_queue(op))

    def op_ended(self, op: Op, ending: str, detail: str) -> None:
        """Count it and remember what went wrong."""
        self._board.ended(_queue(op), ending)
        if ending in ("retried", "failed", "lease_lost"):
            self._board.error(f"{ending} {op.id}: {detail}")

    def notice(self, message: str) -> None:
        """A line above the table."""
        self._board.notice(message)


def _queue(op: Op) -> str:
    return f"{op.site} {op.queue}".strip()
