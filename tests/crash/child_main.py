"""A real JS child that takes its worker down with it, once, inside a script or right after the site DB's commit."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from engine import jschild
from engine.clock import Clock
from engine.js.ports import SessionSpec, SiteDatabases, SiteSession, SqlValue
from engine.plugins.site import Site
from engine.projection.databases import OpenDatabases
from engine.projection.session import Session


def fall(marker: Path, victim: int) -> None:
    """Kill ``victim``, and this process, the first time anybody gets here."""
    if is_first(marker):
        os.kill(victim, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)


def is_first(marker: Path) -> bool:
    """Whether nobody got here before."""
    try:
        with marker.open("x"):
            return True
    except FileExistsError:
        return False


class FragileDatabases(OpenDatabases):
    """Site DBs whose sessions end the worker or the child."""

    def __init__(self, told: Mapping[str, Any], clock: Clock, marker: Path, point: str) -> None:
        super().__init__(Path(told["sites_dir"]), told.get("site_database_url"), clock)
        self._marker = marker
        self._point = point
        self._worker = os.getppid()

    def session(self, site: Site, spec: SessionSpec, *, writer: bool) -> SiteSession:
        fragile = self

        class FragileSession(Session):
            def execute(self, sql: str, params: Sequence[SqlValue]) -> int:
                changed = super().execute(sql, params)
                if fragile._point == "inside-script":
                    fall(fragile._marker, fragile._worker)
                if fragile._point == "child-inside-script":
                    fall(fragile._marker, os.getpid())
                return changed

            def commit(self, outcome: bytes) -> None:
                super().commit(outcome)
                if fragile._point == "after-site-commit":
                    fall(fragile._marker, fragile._worker)
                if fragile._point == "child-after-site-commit":
                    fall(fragile._marker, os.getpid())
                if fragile._point == "child-aborts-after-site-commit" and is_first(fragile._marker):
                    os.abort()

        return FragileSession(self._database(site), spec, self._clock, writer=writer)


def main() -> None:
    """Serve like any child."""
    marker, point = Path(sys.argv[1]), sys.argv[2]
    del sys.argv[1:3]

    def databases(told: Mapping[str, Any], clock: Clock) -> SiteDatabases:
        return FragileDatabases(told, clock, marker, point)

    jschild.main(databases)


if __name__ == "__main__":
    main()
