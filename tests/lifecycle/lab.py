"""A site with one job made for a test, pages on loopback, and a real worker over both."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from engine.app import WorkerOptions, open_store, run_worker
from engine.config import ManifestDirectory, Settings
from engine.jobs import run_job
from engine.lifecycle.catalog import find
from engine.lifecycle.job import Job
from engine.plugins.registry import Registry, discover
from engine.worker.options import Silent
from tests.migrated import engine_db
from tests.servers import Call, Received, Server, serve

SITE = "watch"
PAGE = "".join(f'<li class="i"><b>{name}</b><a href="/{name}">x</a></li>' for name in ("one", "two"))


@dataclass(slots=True)
class Lab:
    """Write a job, run iterations, look at what became of them."""

    folder: Path
    server: Server
    #: What the page is now; a callable answers for itself.
    pages: dict[str, str | Callable[[Call], None]] = field(default_factory=dict)
    #: What the webhook got.
    posts: list[Received] = field(default_factory=list)
    #: How it answers, one after another; then 204.
    answers: list[int] = field(default_factory=list)
    requested: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.write("site.yaml", f"name: {SITE}\ndatabaseFileName: watch.db\njobsRoot: jobs\n")
        self.pages.setdefault("/page", PAGE)
        engine_db(self.folder)

    def write(self, path: str, text: str) -> None:
        """A file of the site."""
        file = self.folder / "plugins" / SITE / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8")

    def job(self, name: str = "job", files: Mapping[str, str] | None = None, **keys: Any) -> Job:
        """Write a job; ``files`` are its scripts."""
        told: dict[str, Any] = {
            "name": name,
            "url": f"{self.server.url}/page",
            "selector": ".i",
            "fields": ["name:b", "link:a@href"],
            "interval": 5,
            "engine": {"stagger_ms": 0},
        } | keys
        self.write(f"jobs/{name}/job.yaml", yaml.safe_dump(told))
        for file, text in (files or {}).items():
            self.write(f"jobs/{name}/{file}", text)
        found = find(self.registry.site(SITE), name)
        assert found.job is not None
        return found.job

    @property
    def webhook(self) -> str:
        """Where the server takes posts."""
        return f"{self.server.url}/hook"

    @property
    def settings(self) -> Settings:
        return Settings(
            engine_db=str(self.folder / "engine.db"),
            sites_dir=self.folder / "sites",
            manifest_dirs=(ManifestDirectory(self.folder / "plugins", "flag"),),
        )

    @property
    def registry(self) -> Registry:
        return discover(self.settings)

    def submit(self, *jobs: Job) -> list[str]:
        """One iteration of each job."""
        site = self.registry.site(SITE)
        with closing(open_store(self.settings)) as store:
            return [run_job(self.settings, store, site, job) for job in jobs]

    def work(self, **options: Any) -> None:
        """Work until idle."""
        chosen: dict[str, Any] = {"until_idle": True, "machine_id": "m1", "js_processes": 1} | options
        run_worker(self.settings, self.registry, WorkerOptions(**chosen), Silent())

    def run(self, *jobs: Job) -> None:
        """Run one iteration of each job to its end."""
        self.submit(*jobs)
        self.work()

    def site(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """A read of the site DB."""
        with closing(sqlite3.connect(self.folder / "sites" / "watch.db")) as database:
            return database.execute(sql, parameters).fetchall()

    def names(self, job: str = "job") -> list[str]:
        """The ``name`` of every record of a job, oldest first."""
        rows = self.site("SELECT fields_json FROM monitor_records WHERE job_id = ? ORDER BY id", job)
        return [json.loads(row[0])["name"] for row in rows]

    def cycles(self) -> dict[str, tuple[str, str]]:
        """Status and error of every cycle."""
        rows = self.site("SELECT cycle_id, status, error FROM monitor_cycles")
        return {row[0]: (row[1], row[2]) for row in rows}

    def ops(self) -> dict[str, str]:
        """Op id to status, of all workflows."""
        with closing(open_store(self.settings)) as store, store.database.read() as connection:
            rows = connection.exec_driver_sql("SELECT o.id, o.status FROM op o WHERE status <> 'unborn'").fetchall()
        return {row[0]: row[1] for row in rows}

    def logs(self) -> list[str]:
        """What ops logged, in order."""
        with closing(open_store(self.settings)) as store, store.database.read() as connection:
            return [row[0] for row in connection.exec_driver_sql("SELECT message FROM log_line ORDER BY pk")]

    def kept(self, key: str) -> str | None:
        """What ``store_get`` would give."""
        rows = self.site("SELECT value FROM monitor_kv WHERE key = ?", key)
        return None if not rows else str(rows[0][0])


@contextmanager
def open_lab(folder: Path) -> Iterator[Lab]:
    """A lab and its server."""
    labs: list[Lab] = []

    def answer(call: Call) -> None:
        lab = labs[0]
        if call.request.path == "/hook":
            if len(call.request.body) < int(call.request.headers["content-length"]):
                return  # whoever sent it died in the middle
            lab.posts.append(call.request)
            call.reply(b"", lab.answers.pop(0) if lab.answers else 204)
            return
        lab.requested.append(call.request.target)
        page = lab.pages.get(call.request.path)
        if callable(page):
            page(call)
        elif page is None:
            call.reply(b"<p>nothing here</p>", 404, {"Content-Type": "text/html"}, "Not Found")
        else:
            call.reply(page.encode(), 200, {"Content-Type": "text/html; charset=utf-8"})

    with serve(answer) as server:
        labs.append(Lab(folder, server))
        yield labs[0]
