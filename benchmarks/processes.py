"""Running a contestant as a process, and measuring it with all its children."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parents[1]
_LOOK_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Ran:
    """What a process said (the JSON object on its last line) and what it used."""

    said: dict[str, Any]
    #: User and system time of the process and of all children it waited for.
    cpu_seconds: float
    #: The most memory that all its processes held at once (PSS: shared pages are counted once), sampled.
    peak_mb: float


class Failed(Exception):
    """A contestant's process failed; the last lines of what it wrote."""


@dataclass(slots=True)
class Memory:
    """The peak of a process tree, sampled by a thread."""

    pid: int
    peak: int = 0
    _stop: threading.Event = field(default_factory=threading.Event)

    def watch(self) -> None:
        """Sample until stopped."""
        while not self._stop.wait(_LOOK_SECONDS):
            self.peak = max(self.peak, resident(self.pid))

    def stop(self) -> None:
        """End the sampling."""
        self._stop.set()


def resident(pid: int) -> int:
    """The memory of a process and its descendants in bytes, pages shared among processes counted in parts."""
    total = 0
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        for one in (process, *process.children(recursive=True)):
            with contextlib.suppress(psutil.Error):
                total += one.memory_full_info().pss
    return total


@contextmanager
def started(command: Sequence[str], environment: Mapping[str, str] | None = None) -> Iterator[subprocess.Popen[str]]:
    """A process that talks over its standard output, ended with the block. It inherits standard error."""
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True, cwd=ROOT, env=_environment(environment)
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
        process.communicate()


def run_measured(command: Sequence[str], timeout: float, environment: Mapping[str, str] | None = None) -> Ran:
    """Run a command to its end. Raises Failed."""
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        cwd=ROOT,
        env=_environment(environment),
    )
    memory = Memory(process.pid)
    watch = threading.Thread(target=memory.watch, daemon=True)
    killer = threading.Timer(timeout, process.kill)
    watch.start()
    killer.start()
    try:
        assert process.stdout is not None
        said = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    finally:
        killer.cancel()
        memory.stop()
        watch.join()
    lines = said.strip().splitlines()
    if process.returncode or not lines:
        raise Failed(f"status {process.returncode}: {' | '.join(lines[-4:])}")
    return Ran(json.loads(lines[-1]), usage.ru_utime + usage.ru_stime, memory.peak / 2**20)


def _environment(more: Mapping[str, str] | None) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, **(more or {})}
