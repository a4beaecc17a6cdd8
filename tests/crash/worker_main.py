"""A real worker process that kills itself, once, at a named point.

``python -m tests.crash.worker_main ENGINE_DB SITES_DIR MANIFESTS MARKER POINT CHILDREN``: the point is taken once per
MARKER file, so that a worker started again runs through.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from sqlalchemy import Connection, event

from engine.app import WorkerOptions, run_worker
from engine.clock import Micros
from engine.config import ManifestDirectory, Settings
from engine.machine import machine_id
from engine.plugins.registry import discover
from engine.store.store import Store
from engine.store.types import Claim, ClaimRequest, Settlement, SettleReport
from engine.worker.options import Silent


def die_once(marker: Path) -> None:
    """End this process the hard way, the first time anybody gets here."""
    try:
        with marker.open("x"):
            pass
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


class FragileStore(Store):
    """A store whose worker dies around its commits."""

    point: str
    marker: Path

    def claim(self, request: ClaimRequest) -> Claim:
        claimed = super().claim(request)
        if self.point == "after-claim" and claimed.leased:
            die_once(self.marker)
        return claimed

    def settle(self, settlements: Sequence[Settlement], started: Sequence[tuple[str, Micros]] = ()) -> SettleReport:
        if self.point == "inside-engine-commit" and settlements:

            def before_commit(_connection: Connection) -> None:
                die_once(self.marker)

            event.listen(self.database.engine, "commit", before_commit)
        report = super().settle(settlements, started)
        if self.point == "after-engine-commit" and settlements:
            die_once(self.marker)
        return report


def main() -> None:
    """Run one worker until idle."""
    engine_db, sites_dir, manifests, marker, point, children = sys.argv[1:7]
    FragileStore.point, FragileStore.marker = point, Path(marker)
    settings = Settings(
        engine_db=engine_db,
        sites_dir=Path(sites_dir),
        manifest_dirs=tuple(ManifestDirectory(Path(item), "flag") for item in manifests.split(os.pathsep)),
        site_database_url=os.environ.get("SCRAPER_SITE_DATABASE_URL"),
    )
    options = WorkerOptions(
        machine_id=machine_id(settings.sites_dir), until_idle=True, js_processes=int(children), max_workers=8
    )
    child = (sys.executable, "-m", "tests.crash.child_main", marker, point)
    run_worker(settings, discover(settings), options, Silent(), store=FragileStore.open(engine_db), child=child)


if __name__ == "__main__":
    main()
