"""Directories that browsers work in, by which every process of a browser is found again.

Chromium overwrites the environment of its helpers, so a mark there does not find them all; but their command lines
name the profile, and the rest (host, driver, crash handlers) carry the directory as ``TMPDIR``. Its name is random: no
other process mentions it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import tempfile
import time
from pathlib import Path

from engine.liveness import is_dead, own_identity, start_time

#: Tells processes whose they are: the identity of their owner, then their directory.
MARK = "SCRAPER_BROWSER_OF"
PREFIX = "scraper-web-"

_PROC = Path("/proc")
_OWNER = "owner"
#: A longer directory leaves Chromium no room for the path of its socket.
_ROOM = 36
_SHORT = Path("/tmp")
#: After SIGKILL: what has not gone by then sits in the kernel.
_KILLED = 5.0
_LOOK = 0.01


def new_scratch() -> Path:
    """A directory for one browser of this process."""
    scratch = Path(tempfile.mkdtemp(prefix=PREFIX, dir=_places()[0])).resolve()
    (scratch / _OWNER).write_text(own_identity())
    return scratch


def mark(scratch: Path) -> str:
    """The value of :data:`MARK` for a browser of this process."""
    return f"{own_identity()};{scratch}"


def processes_of(scratch: Path) -> list[int]:
    """The living processes of the browser that works in ``scratch``, but for this one."""
    name = str(scratch).encode()
    found = []
    for entry in _processes():
        if int(entry) != os.getpid() and any(name in text for text in _texts(entry)):
            found.append(int(entry))
    return [pid for pid in found if start_time(pid) is not None]


def end_browser(scratch: Path) -> int:
    """Kill every process of a browser and remove its directory; how many there were.

    Nothing of a browser is worth keeping, so nothing is asked to end first.
    """
    ended: set[int] = set()
    deadline = time.monotonic() + _KILLED
    while (pids := processes_of(scratch)) and time.monotonic() < deadline:
        ended.update(pids)
        for pid in pids:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_LOOK)
    for pid in ended:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
    shutil.rmtree(scratch, ignore_errors=True)
    return len(ended)


def end_forgotten() -> int:
    """End the browsers whose owners have certainly died, however they died; how many processes there were."""
    return sum(end_browser(scratch) for scratch in _forgotten())


def _forgotten() -> set[Path]:
    found = set()
    for place in _places():
        for file in place.glob(f"{PREFIX}*/{_OWNER}"):
            with contextlib.suppress(OSError):
                if is_dead(file.read_text()):
                    found.add(file.parent)
    wanted = f"{MARK}=".encode()
    for entry in _processes():
        environment = _read(entry, "environ")
        if wanted not in environment:
            continue
        for variable in environment.split(b"\0"):
            owner, _, scratch = variable.removeprefix(wanted).decode("utf-8", "replace").partition(";")
            if variable.startswith(wanted) and PREFIX in scratch and is_dead(owner):
                found.add(Path(scratch))
    return found


def _places() -> list[Path]:
    """Where browsers work, and where they may have worked."""
    usual = Path(tempfile.gettempdir()).resolve()
    return [usual, _SHORT.resolve()] if len(str(usual)) <= _ROOM else [_SHORT.resolve(), usual]


def _processes() -> list[str]:
    try:
        return [entry for entry in os.listdir(_PROC) if entry.isdigit()]
    except OSError:
        # without /proc only the host ends its browser, and Playwright's driver where the host was killed
        return []


def _texts(entry: str) -> tuple[bytes, bytes]:
    return _read(entry, "cmdline"), _read(entry, "environ")


def _read(entry: str, name: str) -> bytes:
    try:
        with open(f"{_PROC}/{entry}/{name}", "rb", buffering=0) as file:
            return file.readall()
    except OSError:
        return b""
