"""Who is still alive on this machine: a process names itself so that its neighbours can tell when it is gone.

A worker killed outright leaves its leases behind. Waiting for them to expire is always safe; a neighbour that can
prove the death need not wait. The proof is a process identity of boot, PID namespace, pid and start time: it is only
given for a process of the same boot and namespace, and a reused pid has another start time.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

_PROC = Path("/proc")


@cache
def _boot() -> str:
    """This boot and PID namespace: the same for as long as a process lives, and for those it forks."""
    boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
    return f"{boot} {os.readlink(_PROC / 'self/ns/pid')}"


def start_time(pid: int) -> str | None:
    """When the process began, in clock ticks since boot; None where there is none (a zombie is none)."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            stat = file.read()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else fields[19]


def identity(pid: int) -> str:
    """A process, as :func:`is_dead` can judge it; "" where the system offers no ``/proc``."""
    try:
        return f"{_boot()} {pid} {start_time(pid)}"
    except OSError:
        return ""


def own_identity() -> str:
    """This process's :func:`identity`."""
    return identity(os.getpid())


def is_dead(identity: str) -> bool:
    """Whether the named process has certainly ended. False when that cannot be told."""
    parts = identity.split(" ")
    own = own_identity().split(" ")
    if len(parts) != 4 or len(own) != 4:
        return False
    boot, namespace, pid, started = parts
    if namespace != own[1]:
        return False
    return boot != own[0] or start_time(int(pid)) != started
