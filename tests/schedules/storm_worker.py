"""A worker for storms; its arguments are ENGINE_DB FOLDER. It works until it is killed or told to stop."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.worker.lab import Lab


def main() -> None:
    """Work."""
    engine_db, folder = sys.argv[1:]
    Lab(engine_db, Path(folder)).work(until_idle=False)
