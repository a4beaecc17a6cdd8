"""A blocking lock on a file beside a SQLite database.

SQLite's own busy timeout is an unfair sleep loop, and a checkpoint that races with a commit can damage the WAL in
releases before 3.51.3. Whoever writes, checkpoints or closes holds this lock, so neither can happen.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_FIRST_PAUSE = 0.0005
_LONGEST_PAUSE = 0.02


class LockTimeout(Exception):
    """Somebody else held the lock for the whole time allowed."""


class FileLock:
    """One process's handle on the lock of ``database``. Not shared between threads."""

    def __init__(self, database: Path) -> None:
        self.path = Path(f"{database}.lock")
        self._descriptor: int | None = None

    def acquire(self, seconds: float) -> float:
        """Wait for the lock; the seconds waited. Raises LockTimeout."""
        if self._descriptor is None:
            self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        began = time.monotonic()
        pause = _FIRST_PAUSE
        while True:
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                if error.errno not in (errno.EAGAIN, errno.EACCES):
                    raise
            else:
                return time.monotonic() - began
            if time.monotonic() - began > seconds:
                raise LockTimeout(f"{self.path} is held by another process")
            time.sleep(pause)
            pause = min(pause * 1.5, _LONGEST_PAUSE)

    def release(self) -> None:
        """Let the next one in."""
        if self._descriptor is not None:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def close(self) -> None:
        """Give the handle up."""
        if self._descriptor is not None:
            with suppress(OSError):
                os.close(self._descriptor)
            self._descriptor = None

    @contextmanager
    def held(self, seconds: float) -> Iterator[None]:
        """Hold the lock for a block."""
        self.acquire(seconds)
        try:
            yield
        finally:
            self.release()
