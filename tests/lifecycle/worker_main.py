"""A real worker process over a lab's folder: its arguments are FOLDER MACHINE [on]; without ``on`` until idle."""

from __future__ import annotations

import sys
from pathlib import Path

from engine.app import WorkerOptions, run_worker
from engine.clock import SECOND
from engine.config import LeaseSettings, ManifestDirectory, Settings
from engine.plugins.registry import discover
from engine.worker.options import Silent


def main() -> None:
    """Work until nothing is left to do, or on and on."""
    folder = Path(sys.argv[1])
    settings = Settings(
        engine_db=str(folder / "engine.db"),
        sites_dir=folder / "sites",
        manifest_dirs=(ManifestDirectory(folder / "plugins", "flag"),),
        # a storm hits an op more often than bad luck does
        leases=LeaseSettings(max_lost=1000),
    )
    options = WorkerOptions(
        until_idle=sys.argv[3:] != ["on"], machine_id=sys.argv[2], js_processes=1, lease_duration=10 * SECOND
    )
    run_worker(settings, discover(settings), options, Silent())


if __name__ == "__main__":
    main()
