"""Scripts run in real isolates against a real SQLite site DB, without a pool around them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.clock import SystemClock
from engine.js.host import Host, Identity
from engine.js.isolate import Limits, execute
from engine.js.modules import ModuleRoots
from engine.js.ports import SessionSpec
from engine.projection.migrate import migrate
from engine.projection.session import Session
from engine.projection.sqlite import SqliteDatabase
from tests.js.sites import site_at

SPEC = SessionSpec(engine_uuid="e", op_key="1", generation=0, claimed_at=1, workflow_id="w", op_id="op")


@dataclass(slots=True)
class Bench:
    """A folder of scripts and the host of the last execution."""

    folder: Path
    host: Host | None = None

    def run(self, source: str, *, seconds: float = 5.0, heap_mb: int = 64, **ctx: Any) -> str:
        """Execute ``source`` as scripts/main.js; the JSON it returned."""
        (self.folder / "main.js").write_text(source, "utf-8")
        clock = SystemClock()
        database = SqliteDatabase(self.folder / "site.db")
        migrate(database, site_at(self.folder), lambda path, session: None, clock)
        session = Session(database, SPEC, clock, writer=False)
        self.host = Host(
            ModuleRoots([("scripts", self.folder)]), clock, identity=Identity("w", "shop", "op", 0), session=session
        )
        job = {"mode": "script", "entry": "main.js", "ctx": ctx}
        try:
            return execute(self.host, job, Limits(seconds, heap_mb << 20))
        finally:
            session.rollback()
            database.close()
