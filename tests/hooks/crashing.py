"""Workers as processes, to be killed, and what their hooks leave running."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

from engine.hooks.process import marked
from tests.cli.console import SCRIPT, clean_env
from tests.hooks.lab import Lab


def living(lab: Lab) -> list[int]:
    """The processes of the lab's hooks, found by their environment."""
    found = []
    for pid in marked(""):
        try:
            environment = Path(f"/proc/{pid}/environ").read_text(errors="replace")
        except OSError:
            continue
        if str(lab.folder) in environment:
            found.append(pid)
    return found


def await_file(path: Path) -> None:
    """Wait until a hook has made ``path``."""
    deadline = time.monotonic() + 30
    while not path.exists():
        assert time.monotonic() < deadline, path
        time.sleep(0.02)


def start_worker(lab: Lab, *more: str, grace: str = "5s", **env: str) -> subprocess.Popen[bytes]:
    """The installed script as a worker on the lab's databases."""
    flags = ("--engine-db", lab.settings.engine_db, "--sites-dir", str(lab.settings.sites_dir), "--max-workers", "4")
    return subprocess.Popen(
        [SCRIPT, "worker", "run", "--sites-manifest-dir", str(lab.folder / "sites"), *flags, *more],
        env=clean_env(
            lab.folder / "home", SCRAPER_HOOKS_GRACE=grace, SCRAPER_HOOKS_DATA_DIR=str(lab.settings.data_dir), **env
        ),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
