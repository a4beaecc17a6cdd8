"""What an operator does to crawls: add, cancel, retry, seal. The engine DB first, the rows of the site DB second."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import TypeVar

from engine.clock import SECOND, Clock, rfc3339
from engine.config import Settings
from engine.errors import DatabaseUnavailable, OpError, UsageError
from engine.hooks.binaries import Need
from engine.hooks.config import Layers, covered
from engine.hooks.graph import KIND, CrawlSpec, binary_op, control
from engine.hooks.plugins import discover, hook_directories
from engine.hooks.process import end_marked
from engine.hooks.urls import normalised
from engine.js.ports import DatabaseBusy, SiteSession
from engine.machine import machine_id
from engine.model import NewWorkflow
from engine.plugins.site import Site
from engine.projection import archive, archive_rows
from engine.projection.archive import Statement
from engine.projection.databases import OpenDatabases
from engine.projection.session import Database
from engine.runners.hook_hands import mark_of_crawl
from engine.store.store import Store

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Added:
    """A crawl that was stored."""

    crawl_id: str
    urls: int
    #: URLs that its own filters keep out.
    unwanted: int
    warnings: tuple[str, ...]


def add_crawl(settings: Settings, store: Store, site: Site, spec: CrawlSpec, crawl_id: str | None = None) -> Added:
    """Store a crawl. Raises UsageError, SiteError, SubmissionRefused."""
    directories = hook_directories(site, spec.hook_dirs)
    if not directories:
        raise UsageError(f'site "{site.name}" has no hooks: name some in hookDirs of its manifest, or with --hook-dir')
    bad = [url for url in spec.urls if normalised(url) is None]
    if bad:
        raise UsageError(f'"{bad[0]}" is not a URL that can be crawled (http, https or file)')
    plugins = discover(directories)
    unknown = sorted(set(spec.plugins) - plugins.by_name.keys())
    if unknown:
        raise UsageError(
            f'there is no plugin "{unknown[0]}" (there are: {", ".join(sorted(plugins.by_name)) or "none"})'
        )
    wanted = spec.filter.check()
    layers = Layers(site.hook_config, spec.config)
    faults = [fault for one in plugins.by_name.values() for fault in layers.resolve(plugins, one).faults]
    now = store.clock.now()
    chosen = crawl_id or f"{site.name}-crawl-{time.time_ns()}"
    spec = replace(spec, created=now)
    store.put_policies(site.name, site.queue_policies, site.default_policy)
    home = store.home_of(site.name, machine_id(settings.sites_dir))
    begin = replace(control(site.name, "crawl", "crawl", None), machine=site.machine_for(KIND, home))
    store.submit(
        NewWorkflow(
            id=chosen,
            site=site.name,
            name=f"{site.name} crawl",
            input=spec.dump(),
            metadata={"crawl": "true"},
            ops=(begin,),
        )
    )
    row = archive_rows.queue_crawl(
        chosen,
        label=spec.label,
        urls=spec.urls,
        max_depth=spec.max_depth,
        user=spec.user,
        config=covered(plugins, spec.config),
        at=rfc3339(now),
    )
    change(settings, store.clock, site, [row])
    unwanted = sum(not wanted.admits(normalised(url) or "") for url in spec.urls)
    return Added(chosen, len(spec.urls), unwanted, (*plugins.warnings, *faults))


def add_installation(settings: Settings, store: Store, site: Site, spec: CrawlSpec, wanted: Sequence[Need]) -> str:
    """Store a workflow that finds or installs programs on this machine; its id. Raises SubmissionRefused."""
    workflow_id = f"{site.name}-binaries-{time.time_ns()}"
    spec = replace(spec, created=store.clock.now())
    here = machine_id(settings.sites_dir)
    store.put_policies(site.name, site.queue_policies, site.default_policy)
    store.submit(
        NewWorkflow(
            id=workflow_id,
            site=site.name,
            name=f"{site.name} binaries",
            input=spec.dump(),
            metadata={"binaries": "true"},
            ops=tuple(replace(binary_op(site.name, spec, need), machine=here) for need in wanted),
        )
    )
    return workflow_id


def cancel_crawl(settings: Settings, store: Store, site: Site, crawl_id: str) -> int:
    """End everything of a crawl that has not ended; how many ops. Raises UsageError."""
    require_crawl(store, site, crawl_id)
    canceled = store.cancel(crawl_id)
    change(settings, store.clock, site, archive_rows.cancel_crawl(crawl_id, rfc3339(store.clock.now())))
    _end_processes(settings, store, crawl_id)
    return canceled


def seal_crawl(settings: Settings, store: Store, site: Site, crawl_id: str) -> int:
    """Give up the retries a crawl still waits for, and seal it; how many ops. Raises UsageError."""
    require_crawl(store, site, crawl_id)
    canceled = store.cancel(crawl_id)
    change(settings, store.clock, site, archive_rows.give_up(crawl_id, rfc3339(store.clock.now())))
    _end_processes(settings, store, crawl_id)
    return canceled


def _end_processes(settings: Settings, store: Store, crawl_id: str) -> None:
    """End what the crawl's hooks left running on this machine; workers elsewhere end their hooks themselves."""
    asyncio.run(end_marked(mark_of_crawl(store.uuid, crawl_id), settings.hooks.grace / SECOND))


def require_crawl(store: Store, site: Site, crawl_id: str) -> None:
    """Raise UsageError where the site has no crawl of that id."""
    if store.workflow_status(crawl_id) is None or not crawl_id:
        raise UsageError(f'site "{site.name}" has no crawl "{crawl_id}"')


def change(settings: Settings, clock: Clock, site: Site, statements: Sequence[Statement]) -> None:
    """Apply statements to the site's DB. Raises DatabaseUnavailable."""

    def write(database: Database) -> None:
        with archive.transaction(database):
            for sql, parameters in statements:
                database.run(sql, parameters)

    with site_database(settings, clock, site) as database:
        _patiently(lambda: write(database))


@contextmanager
def site_database(settings: Settings, clock: Clock, site: Site) -> Iterator[Database]:
    """The site's DB, migrated, with the tables of crawls. Raises SiteError, DatabaseUnavailable."""
    with closing(OpenDatabases(settings.sites_dir, settings.site_database_url, clock)) as databases:

        def opened() -> Database:
            databases.migrate(site, _no_scripts)
            database = databases.database(site)
            archive.create_tables(database)
            return database

        yield _patiently(opened)


def _patiently(call: Callable[[], T]) -> T:
    try:
        return call()
    except DatabaseBusy as error:
        raise DatabaseUnavailable(f"the site database is busy: {error}") from error


def _no_scripts(name: str, _session: SiteSession) -> None:
    raise OpError("site_error", f"the migration {name} is JavaScript: run scraper site migrate first")
