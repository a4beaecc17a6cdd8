"""Processes of hooks: started in sessions of their own, found again whatever became of their parents, and ended.

A hook is started by a one-line shell that waits for it and writes its exit code to a file: the code then survives the
worker. Whoever looks for a process later goes by pid *and* start time, or by the mark in its environment; a number
alone is never signalled.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from engine.hooks.inputs import MARK
from engine.liveness import identity, is_dead, start_time

_PROC = Path("/proc")
_SHIM = 'out=$1; shift; trap : TERM INT HUP; "$@"; code=$?; echo $code >"$out"; exit $code'
_PR_SET_CHILD_SUBREAPER = 36
#: After SIGKILL: what has not gone by then sits in the kernel.
_KILLED = 5.0
_LOOK = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class PidRecord:
    """Who runs a hook. ``process`` and ``owner`` are identities as :mod:`engine.liveness` makes them."""

    pid: int
    process: str
    owner: str
    machine: str
    op: str
    claim: int
    #: Unix time of the start.
    began: float

    def alive(self) -> bool:
        """Whether the process itself still runs, on this boot of this machine."""
        return start_time(self.pid) is not None and identity(self.pid) == self.process

    def orphaned(self) -> bool:
        """Whether the worker that started it has certainly ended."""
        return is_dead(self.owner)


def write_record(file: Path, record: PidRecord) -> None:
    """Replace the record in one step."""
    scratch = file.with_suffix(".new")
    scratch.write_text(json.dumps(asdict(record)))
    scratch.replace(file)


def read_record(file: Path) -> PidRecord | None:
    """The record; None where there is none or it is damaged."""
    try:
        return PidRecord(**json.loads(file.read_text()))
    except (OSError, ValueError, TypeError):
        return None


def read_exit(file: Path) -> int | None:
    """The exit code the hook's shell wrote; None where it has not ended by itself."""
    try:
        return int(file.read_text())
    except (OSError, ValueError):
        return None


def spawn(
    words: Sequence[str], cwd: Path, environment: Mapping[str, str], stdout: Path, stderr: Path, exit_file: Path
) -> subprocess.Popen[bytes]:
    """Start a hook in its own session, its streams going to files. Raises OSError."""
    with stdout.open("wb") as out, stderr.open("wb") as err:
        return subprocess.Popen(
            ["/bin/sh", "-c", _SHIM, "hook", str(exit_file), *words],
            cwd=cwd,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
        )


def become_subreaper() -> None:
    """Whatever a hook leaves behind becomes a child of this process instead of disappearing to init."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def reap(session: int) -> None:
    """Bury the children this process inherited from a session and which have ended."""
    for pid in _children():
        fields = _stat(pid)
        if fields is not None and fields[0] == "Z" and int(fields[3]) == session and pid != session:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)


def bury(pids: Iterable[int]) -> None:
    """Bury those of ``pids`` that were inherited by this process."""
    own = set(_children())
    for pid in own.intersection(pids):
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


def bury_forgotten(seen: frozenset[tuple[int, str]]) -> frozenset[tuple[int, str]]:
    """Bury dead children that were dead at the last look already: nobody else is going to. Those that are dead now."""
    dead = set()
    for pid in _children():
        fields = _stat(pid)
        if fields is not None and fields[0] == "Z":
            dead.add((pid, fields[19]))
    for pid, _ in dead & seen:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
    return frozenset(dead - seen)


def _children() -> list[int]:
    found: list[int] = []
    for task in (_PROC / "self/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found.extend(int(pid) for pid in task.read_text().split())
    return found


def _stat(pid: int) -> list[str] | None:
    """state, ppid, pgrp, session, …"""
    try:
        return (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None


def marked(prefix: str) -> list[int]:
    """The living processes whose mark begins with ``prefix``."""
    wanted = f"{MARK}={prefix}".encode()
    found = []
    for entry in os.listdir(_PROC):
        if not entry.isdigit():
            continue
        try:
            environment = (_PROC / entry / "environ").read_bytes()
        except OSError:
            continue
        if environment.startswith(wanted) or b"\0" + wanted in environment:
            found.append(int(entry))
    return [pid for pid in found if pid != os.getpid()]


def group(leader: int) -> list[int]:
    """The living members of a process group."""
    try:
        os.killpg(leader, 0)
    except ProcessLookupError:
        return []
    except PermissionError:
        pass
    found = []
    for entry in os.listdir(_PROC):
        fields = _stat(int(entry)) if entry.isdigit() else None
        if fields is not None and int(fields[2]) == leader and fields[0] not in "ZX":
            found.append(int(entry))
    return found


async def end_group(leader: int, grace: float) -> None:
    """SIGTERM to the group; SIGKILL to what is left of it after ``grace``. Its leader is a child not yet reaped."""
    _signal_group(leader, signal.SIGTERM)
    if not await _gone(lambda: bool(group(leader)), grace):
        _signal_group(leader, signal.SIGKILL)
        await _gone(lambda: bool(group(leader)), _KILLED)


async def end_rest_of_group(leader: int, grace: float) -> None:
    """End the members that a reaped leader left. If its number is a living process's again, nothing is left of it."""
    members = group(leader)
    if members and leader not in members:
        await end_group(leader, grace)


async def end_marked(prefix: str, grace: float) -> int:
    """End every process that carries the mark; how many there were."""
    return await end_processes(lambda: marked(prefix), grace)


async def end_processes(find: Callable[[], list[int]], grace: float) -> int:
    """SIGTERM to what ``find`` finds, SIGKILL to what it still finds after ``grace``; how many there were."""
    pids = await asyncio.to_thread(find)
    if not pids:
        return 0
    ended = set(pids)
    _signal(pids, signal.SIGTERM)
    deadline = time.monotonic() + grace
    while pids and time.monotonic() < deadline:
        await asyncio.sleep(_LOOK)
        pids = await asyncio.to_thread(find)
    deadline = time.monotonic() + _KILLED
    while pids and time.monotonic() < deadline:
        ended.update(pids)
        _signal(pids, signal.SIGKILL)
        await asyncio.sleep(_LOOK)
        pids = await asyncio.to_thread(find)
    bury(ended)
    return len(ended)


async def _gone(any_left: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while any_left():
        if time.monotonic() >= deadline:
            return False
        await asyncio.sleep(_LOOK)
    return True


def _signal_group(leader: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, number)


def _signal(pids: Iterable[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def pid_files(root: Path) -> list[Path]:
    """The ``*.pid`` files that hooks left in the directories of their plugins."""
    return [file for file in sorted(root.glob("*/*.pid")) if file.is_file() and not file.is_symlink()]


def process_of(file: Path, since: float) -> int | None:
    """The process a foreign pid file names, if it is certainly the one meant.

    It must be ours, have started after ``since`` (when its snapshot's hooks began) and before the file was written.
    """
    try:
        with file.open("rb") as reader:
            pid = int(reader.read(32).split()[0])
        written = file.stat().st_mtime
        owner = (_PROC / str(pid)).stat().st_uid
        fields = _stat(pid)
    except (OSError, ValueError, IndexError):
        return None
    if pid <= 1 or pid in (os.getpid(), os.getppid()) or owner != os.getuid() or fields is None or fields[0] in "ZX":
        return None
    began = _boot_time() + int(fields[19]) / os.sysconf("SC_CLK_TCK")
    return pid if since - 1.0 <= began <= written + 2.0 else None


def _boot_time() -> float:
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in (_PROC / "stat").read_text().splitlines():
            if line.startswith("btime "):
                return float(line.split()[1])
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)


async def wait_for(pid: int) -> None:
    """Return when the process has ended, whoever its parent is."""
    loop = asyncio.get_running_loop()
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    except (OSError, AttributeError):
        while start_time(pid) is not None:  # noqa: ASYNC110 - without a pidfd there is no event
            await asyncio.sleep(_LOOK)
        return
    ended = asyncio.Event()
    try:
        loop.add_reader(descriptor, ended.set)
        await ended.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)
