"""A real worker process that kills itself, once, at a named point.

Its arguments are ENGINE_DB SITES_DIR MANIFESTS MARKER POINT: the point is taken once per MARKER file, so that a worker
started again runs through.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
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
    #: This thread is settling outcomes.
    settling = threading.local()

    def die_before_commits(self) -> None:
        """Whatever is committed while outcomes are settled is not."""

        def before_commit(_connection: Connection) -> None:
            if getattr(self.settling, "here", False):
                die_once(self.marker)

        event.listen(self.database.engine, "commit", before_commit)

    def claim(self, request: ClaimRequest) -> Claim:
        claimed = super().claim(request)
        if self.point == "after-claim" and claimed.leased:
            die_once(self.marker)
        return claimed

    def settle(
        self,
        settlements: Sequence[Settlement],
        started: Sequence[tuple[str, Micros]] = (),
        request: ClaimRequest | None = None,
    ) -> SettleReport:
        self.settling.here = bool(settlements)
        try:
            report = super().settle(settlements, started, request)
        finally:
            self.settling.here = False
        claimed = report.claim is not None and report.claim.leased
        if (self.point == "after-engine-commit" and settlements) or (self.point == "after-claim" and claimed):
            die_once(self.marker)
        return report


def main() -> None:
    """Run one worker until idle."""
    engine_db, sites_dir, manifests, marker, point = sys.argv[1:6]
    FragileStore.point, FragileStore.marker = point, Path(marker)
    settings = Settings(
        engine_db=engine_db,
        sites_dir=Path(sites_dir),
        manifest_dirs=tuple(ManifestDirectory(Path(item), "flag") for item in manifests.split(os.pathsep)),
        site_database_url=os.environ.get("SCRAPER_SITE_DATABASE_URL"),
    )
    # one child: two would mean three, for the spare, and most of what a killed worker costs
    machine = machine_id(settings.sites_dir)
    options = WorkerOptions(machine_id=machine, until_idle=True, js_processes=1, max_workers=8)
    child = (sys.executable, "-m", "tests.crash.child_main", marker, point)
    store = FragileStore.open(engine_db)
    if point == "inside-engine-commit" and isinstance(store, FragileStore):
        store.die_before_commits()
    run_worker(settings, discover(settings), options, Silent(), store=store, child=child)
