"""What this machine is called: the home of its SQLite site DBs."""

from __future__ import annotations

import os
import socket
import uuid
from pathlib import Path

_SYSTEM = Path("/etc/machine-id")


def machine_id(state: Path) -> str:
    """``SCRAPER_MACHINE_ID``, else the system's id, else one made up and kept in ``state``."""
    told = os.environ.get("SCRAPER_MACHINE_ID", "").strip()
    if told:
        return told
    try:
        known = _SYSTEM.read_text().strip()
    except OSError:
        known = ""
    return f"{socket.gethostname()}-{known[:12]}" if known else _own(state / "machine-id")


def _own(path: Path) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with path.open("x") as file:
            file.write(uuid.uuid4().hex)
    except FileExistsError:
        pass
    return f"{socket.gethostname()}-{path.read_text().strip()[:12]}"
