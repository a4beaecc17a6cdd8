"""One foreground hook of a scope at a time: a retry neither overtakes the hook that runs nor runs beside it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator

from engine.hooks.layout import Place, Traces
from engine.hooks.process import read_record
from engine.liveness import is_dead

_NAME = "turn"
_LONGEST = 1_000
#: Seconds a worker has from taking the turn to the start of the hook's process.
_STARTING = 10.0


class Turn:
    """Whose turn it is stands in a file: it is over when the hook's process is, whatever became of its worker.

    A lock on the file lasts no longer than looking at it, so that a worker that stands still keeps nobody waiting.
    """

    def __init__(self, place: Place, traces: Traces, owner: str) -> None:
        self._place = place
        self._own = (traces.base.name, owner)

    def take(self) -> bool:
        """Whether it is this hook's turn now. Without a directory there is nothing to keep others from."""
        try:
            with self._locked() as file:
                if self._is_anothers(file):
                    return False
                os.ftruncate(file, 0)
                os.pwrite(file, "\n".join((*self._own, str(time.time()))).encode(), 0)
        except BlockingIOError:
            return False
        except OSError:  # no directory, no locks, a full disk
            return True
        return True

    def give_back(self) -> None:
        """Let the next one run."""
        with contextlib.suppress(OSError), self._locked() as file:
            if self._holder(file)[:2] == self._own:
                os.ftruncate(file, 0)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[int]:
        file = os.open(self._place.private / _NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield file
        finally:
            os.close(file)

    @staticmethod
    def _holder(file: int) -> tuple[str, str, float]:
        try:
            name, owner, since = os.pread(file, _LONGEST, 0).decode().split("\n")
            return name, owner, float(since)
        except ValueError:
            return "", "", 0.0

    def _is_anothers(self, file: int) -> bool:
        name, owner, since = self._holder(file)
        if name in ("", self._own[0]) or "/" in name:
            return False
        if abs(time.time() - since) < _STARTING and not is_dead(owner):
            return True
        record = read_record(Traces(self._place.private / name).pid)
        return record is not None and record.alive()
