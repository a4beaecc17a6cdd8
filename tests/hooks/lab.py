"""A site of hooks, its crawls, and workers that run them."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from engine.app import WorkerOptions, open_store, run_worker
from engine.clock import MILLISECOND, SECOND
from engine.config import HookSettings, ManifestDirectory, Settings
from engine.crawls import add_crawl
from engine.hooks.graph import CrawlSpec
from engine.plugins.registry import Registry, discover
from engine.plugins.site import Site
from engine.worker.options import Silent, WorkerReport
from tests import migrated
from tests.hooks.plugins import write_hook

SITE = "lab"


class Lab:
    """A folder with a site, its hooks and its databases."""

    def __init__(self, folder: Path, manifest: str = "", engine_db: str | None = None) -> None:
        self.folder = folder
        self.hooks = folder / "sites" / SITE / "hooks"
        self.hooks.mkdir(parents=True)
        text = f"name: {SITE}\ndatabaseFileName: {SITE}.db\nhookDirs: [hooks]\n{manifest}"
        (folder / "sites" / SITE / "site.yaml").write_text(text)
        self.settings = Settings(
            engine_db=engine_db or migrated.engine_db(folder),
            sites_dir=folder / "state",
            manifest_dirs=(ManifestDirectory(folder / "sites", "flag"),),
            hooks=HookSettings(data_dir=folder / "archive", grace=10 * SECOND),
        )

    def hook(self, label: str, script: str) -> Path:
        """Write a hook."""
        return write_hook(self.hooks, label, script)

    @property
    def registry(self) -> Registry:
        return discover(self.settings)

    @property
    def site(self) -> Site:
        return self.registry.site(SITE)

    def add(self, *urls: str, crawl_id: str = "c1", **values: Any) -> str:
        """Store a crawl."""
        given: dict[str, Any] = {"data_dir": str(self.settings.data_dir), "retry_delay": 100 * MILLISECOND}
        spec = CrawlSpec(**(given | {"urls": urls or ("http://a.test/",)} | values))
        with contextlib.closing(open_store(self.settings)) as store:
            return add_crawl(self.settings, store, self.site, spec, crawl_id).crawl_id

    def work(self, **values: Any) -> WorkerReport:
        """Run a worker until there is nothing left to do."""
        options = replace(WorkerOptions(until_idle=True, poll_interval=20 * MILLISECOND), **values)
        return run_worker(self.settings, self.registry, options, Silent())

    def crawl(self, *urls: str, **values: Any) -> None:
        """Store a crawl and work until it is done."""
        self.add(*urls, **values)
        self.work()

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[dict[str, Any]]:
        """Rows of the site DB."""
        with contextlib.closing(sqlite3.connect(self.settings.sites_dir / f"{SITE}.db")) as database:
            database.row_factory = sqlite3.Row
            return [dict(row) for row in database.execute(sql, parameters)]

    def results(self, columns: str = "*") -> dict[str, dict[str, Any]]:
        """The results by plugin and hook, in their order."""
        found = self.rows(f"SELECT plugin, hook_name, {columns} FROM archive_results ORDER BY event, position")
        return {f"{row['plugin']}/{row['hook_name']}": row for row in found}

    def statuses(self) -> list[str]:
        """Of the crawl, then of its snapshots by URL."""
        return [row["status"] for row in self.rows("SELECT status FROM crawls")] + [
            row["status"] for row in self.rows("SELECT status FROM snapshots ORDER BY url")
        ]


def record(**members: Any) -> str:
    """A shell command that prints a record."""
    return "echo " + "'" + json.dumps(members).replace("'", "'\\''") + "'"
