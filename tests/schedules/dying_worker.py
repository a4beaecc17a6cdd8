"""A worker that is killed in the middle of a firing; its arguments are ENGINE_DB FOLDER before|after."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from engine.store.schedules import Schedules
from tests.worker.lab import Lab


def main() -> None:
    """Work until the workflow of a verb is about to be stored, or was stored."""
    engine_db, folder, instant = sys.argv[1:]
    submit = Schedules.submit

    def dying(self: Schedules, *arguments: Any) -> None:
        if instant == "after":
            submit(self, *arguments)
        os.kill(os.getpid(), signal.SIGKILL)

    vars_of: Any = Schedules
    vars_of.submit = dying
    Lab(engine_db, Path(folder)).work()


if __name__ == "__main__":
    main()
