"""Workers as processes, to be killed, and what their hooks leave running."""

from __future__ import annotations

import os
import time
from pathlib import Path

from engine.hooks.process import marked
from tests import warm
from tests.cli.console import clean_env
from tests.hooks.lab import Lab
from tests.warm import Warm


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


def start_worker(lab: Lab, *more: str, grace: str = "5s", **env: str) -> Warm:
    """A worker process on the lab's databases."""
    flags = ("--engine-db", lab.settings.engine_db, "--sites-dir", str(lab.settings.sites_dir), "--max-workers", "4")
    words = ("worker", "run", "--sites-manifest-dir", str(lab.folder / "sites"), *flags, *more)
    data_dir = str(lab.settings.data_dir)
    env = clean_env(lab.folder / "home", SCRAPER_HOOKS_GRACE=grace, SCRAPER_HOOKS_DATA_DIR=data_dir, **env)
    with open(os.devnull, "w") as nowhere:
        return warm.start("cli.main:main", words, env=env, stdout=nowhere.fileno(), stderr=nowhere.fileno())
