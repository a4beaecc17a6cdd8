"""Runs commands as a user does: a process each, an empty home, an own working directory, no inherited settings."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests import warm

SCRIPT = Path(sys.executable).with_name("scraper")


@dataclass(frozen=True)
class Ran:
    """How a command ended."""

    code: int
    out: str
    err: str


def clean_env(home: Path, **more: str) -> dict[str, str]:
    """The environment of a user who has configured nothing."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SCRAPER_", "XDG_", "COLUMNS"))}
    return {**kept, "HOME": str(home), **more}


def scraper(cwd: Path, *arguments: str, **env: str) -> Ran:
    """Run ``scraper`` with ``arguments`` in ``cwd``, whose ``home`` sub-directory is the home directory."""
    return Ran(*warm.run("cli.main:main", arguments, cwd=cwd, env=clean_env(cwd / "home", **env)))


def installed(cwd: Path, *arguments: str, **env: str) -> Ran:
    """The same through the installed console script, where the start itself matters."""
    done = subprocess.run(
        [SCRIPT, *arguments],
        cwd=cwd,
        env=clean_env(cwd / "home", **env),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    return Ran(done.returncode, done.stdout, done.stderr)


def make_site(directory: Path, name: str, extra: str = "") -> Path:
    """A site folder with nothing but a manifest."""
    directory.mkdir(parents=True)
    (directory / "site.yaml").write_text(f"name: {name}\ndatabaseFileName: {name}.db\n{extra}")
    return directory
