"""A site made for one test, its engine DB, and a real worker over it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine.app import SubmitReport, WorkerOptions, WorkerReport, run_worker, scan_verbs, submit_verb
from engine.config import ManifestDirectory, Settings
from engine.model import NewOp, NewWorkflow
from engine.plugins.registry import Registry, discover
from engine.store.reads import open_reads
from engine.store.store import Store
from engine.worker.options import Observer, Silent

SITE = "shop"
MANIFEST = """name: shop
databaseFileName: shop.db
scriptsRoot: scripts
verbsRoot: verbs
sqlMigrationsRoot: migrations
jsMigrationsRoot: jsmigrations
"""
COUNTERS = "CREATE TABLE counter (name TEXT PRIMARY KEY, n INTEGER NOT NULL); INSERT INTO counter VALUES ('c', 0);"


@dataclass(slots=True)
class Lab:
    """Write files, run ops, look at what became of them."""

    engine_db: str
    folder: Path
    options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.manifest.exists():
            self.write("site.yaml", MANIFEST)

    @property
    def manifest(self) -> Path:
        return self.folder / "plugins" / SITE / "site.yaml"

    def write(self, path: str, text: str) -> None:
        """A file of the site."""
        file = self.folder / "plugins" / SITE / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8")

    @property
    def settings(self) -> Settings:
        return Settings(
            engine_db=self.engine_db,
            sites_dir=self.folder / "sites",
            manifest_dirs=(ManifestDirectory(self.folder / "plugins", "flag"),),
        )

    @property
    def registry(self) -> Registry:
        return discover(self.settings)

    def store(self) -> Store:
        """The engine DB; to be closed by the test."""
        return Store.open(self.engine_db)

    def submit(self, *ops: NewOp, workflow_id: str = "w", **workflow: Any) -> None:
        """Store a workflow of ops as they are."""
        with closing(self.store()) as store:
            store.put_policies(SITE, self.registry.site(SITE).queue_policies)
            store.submit(NewWorkflow(id=workflow_id, site=SITE, name="test", ops=ops, **workflow))

    def verb(self, name: str, workflow_id: str = "w", **values: Any) -> SubmitReport:
        """Run a submit verb."""
        registry = self.registry
        verb = next(spec for spec in scan_verbs(registry.site(SITE)) if spec.name == name)
        return submit_verb(self.settings, registry, SITE, verb, {"default": values}, workflow_id)

    def work(self, **options: Any) -> WorkerReport:
        """Work until idle."""
        chosen: dict[str, Any] = {"until_idle": True, "machine_id": "m1", "js_processes": 1} | self.options | options
        return run_worker(self.settings, self.registry, WorkerOptions(**chosen), Silent())

    def watch(self, observer: Observer, *, store: Store | None = None, **options: Any) -> WorkerReport:
        """Work until idle under somebody's eyes."""
        chosen: dict[str, Any] = {"until_idle": True, "machine_id": "m1", "js_processes": 1} | options
        return run_worker(self.settings, self.registry, WorkerOptions(**chosen), observer, store=store)

    def run(self, *ops: NewOp, **workflow: Any) -> dict[str, str]:
        """Submit and work; op id to status."""
        self.submit(*ops, **workflow)
        self.work()
        return self.statuses()

    def statuses(self) -> dict[str, str]:
        """Op id to status."""
        return {row["id"]: row["status"] for row in self.engine("SELECT id, status FROM ops")}

    def engine(self, sql: str) -> list[dict[str, Any]]:
        """A read of the engine DB through the views scripts see."""
        reads = open_reads(self.engine_db)
        try:
            rows = reads.query(sql, [])
        finally:
            reads.close()
        return [dict(zip(rows.columns, row, strict=True)) for row in rows.rows]

    def site(self, sql: str) -> list[tuple[Any, ...]]:
        """A read of the site DB."""
        with closing(sqlite3.connect(self.folder / "sites" / "shop.db")) as database:
            return database.execute(sql).fetchall()

    def result(self, op_id: str, workflow_id: str = "w") -> dict[str, Any]:
        """What ``ctx.dep`` shows of an op."""
        reads = open_reads(self.engine_db)
        try:
            found = reads.dependency(workflow_id, op_id)
        finally:
            reads.close()
        assert found is not None
        shown: dict[str, Any] = json.loads(found)
        return shown

    def error(self, op_id: str) -> Mapping[str, Any]:
        """The error an op ended with."""
        error: dict[str, Any] = self.result(op_id)["error"]
        return error

    def attempts(self, op_id: str) -> list[str]:
        """How the op's claims ended."""
        query = "SELECT a.state FROM attempts a WHERE a.op_id = ? ORDER BY a.number"
        with closing(self.store()) as store, store.database.read() as connection:
            placeholder = query.replace("?", f"'{op_id}'")
            return [str(row[0]) for row in connection.exec_driver_sql(placeholder)]


def js(op_id: str, script: str, **values: Any) -> NewOp:
    """An op that runs a script."""
    metadata = {"script": script} | values.pop("metadata", {})
    given = values.pop("input", None)
    return NewOp(
        id=op_id, kind="js", site=SITE, metadata=metadata, input=json.dumps(given), **({"machine": "m1"} | values)
    )
