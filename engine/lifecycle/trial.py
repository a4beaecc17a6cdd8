"""The steps that a job's author asks for: which hooks there are, and how the tests go. They touch no site DB."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from engine.lifecycle.catalog import TESTS, read_version
from engine.lifecycle.means import Means
from engine.lifecycle.testing import run_tests
from engine.plugins.site import Site
from engine.projection.migrate import migrate
from engine.projection.session import Database
from engine.projection.sqlite import SqliteDatabase


def look(means: Means, site: Site, task: Mapping[str, Any]) -> dict[str, Any]:
    """The hooks of a job as it is now."""
    folder = Path(task["folder"])
    version = read_version(site, folder)
    scripts = means.scripts(site, version.job(folder), version, folder)
    return {"hooks": sorted(means.found(scripts)), "version": version.hash}


def run(means: Means, site: Site, task: Mapping[str, Any]) -> list[dict[str, Any]]:
    """How the tests of a job as it is now go."""

    def empty(path: Path) -> Database:
        """A site DB of its own, with the site's tables where plain SQL makes them."""
        database = SqliteDatabase(path)
        if site.dialect == "sqlite" and site.js_migrations_root is None:
            migrate(database, site, lambda _name, _session: None, means.clock)
        return database

    folder = Path(task["folder"])
    version = read_version(site, folder, TESTS)
    scripts = means.scripts(site, version.job(folder), version, folder)
    done = run_tests(
        scripts,
        means.clock,
        pattern=str(task["pattern"]),
        make_database=empty,
        extensions=means.extensions,
    )
    return [{**asdict(one), "ok": one.ok} for one in done]
