"""What may be wrong with an installation, its databases and its sites, and what to do about each finding."""

from __future__ import annotations

import os
import platform
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from sqlalchemy import Connection, func, select, text

from engine.browser.settings import ADVICE, browser_settings, chromium, missing, playwright_version
from engine.clock import MINUTE, SECOND, Micros, SystemClock
from engine.config import BrowserLimits, Settings
from engine.dialect import Database, database_url
from engine.errors import ScraperError
from engine.liveness import is_dead
from engine.model import OpStatus
from engine.plugins.registry import Registry
from engine.store.schema import op, queue, worker
from engine.views.reader import Views

_LOW_DISK = 1 << 30
_LARGE_OFFSET: Micros = 2 * SECOND
#: A worker that has not beaten its heart for so long is gone, or its machine asleep.
_SILENT: Micros = 5 * MINUTE
_MANY_INBOX_ROWS = 1_000_000


class Health(StrEnum):
    """How a check ended."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Finding:
    """One check. ``advice`` says what to do where something is to be done."""

    check: str
    health: Health
    detail: str
    advice: str = ""


def examine(settings: Settings, registry: Registry) -> Iterator[Finding]:
    """All checks, one after another; none changes anything."""
    yield from _versions()
    yield _browser(settings.browser)
    yield from _disk(settings)
    yield from _engine(settings)
    yield from _sites(settings, registry)


def _versions() -> Iterator[Finding]:
    names = ["scraper", "mini-racer", "SQLAlchemy", "httpx", "psycopg"]
    found = [f"{name} {_version(name)}" for name in names]
    yield Finding("versions", Health.OK, f"Python {platform.python_version()}, {', '.join(found)}")
    yield Finding("sqlite", Health.OK, f"SQLite {sqlite3.sqlite_version}; checkpoints are kept apart by our own lock")


def _browser(limits: BrowserLimits) -> Finding:
    chosen = browser_settings(limits)
    lacking = missing(chosen)
    if lacking is None:
        confined = "" if chosen.sandboxed else ", without its sandbox"
        return Finding("browser", Health.OK, f"{chromium(chosen)}{confined}, Playwright {playwright_version()}")
    # most installations need none: it is only amiss where somebody has asked for one
    health = Health.WARNING if limits.executable else Health.OK
    return Finding("browser", health, f"{lacking}; browser/fetch and cdp need it", ADVICE)


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def _disk(settings: Settings) -> Iterator[Finding]:
    database = database_url(settings.engine_db)
    places = {settings.sites_dir}
    if database.get_backend_name() == "sqlite":
        places.add(Path(str(database.database)).parent)
    for place in sorted(places):
        existing = next(folder for folder in (place.absolute(), *place.absolute().parents) if folder.exists())
        free = shutil.disk_usage(existing).free
        low = free < _LOW_DISK
        yield Finding(
            f"disk {place}",
            Health.WARNING if low else Health.OK,
            f"{free / (1 << 30):.1f} GiB free",
            "free some space, or run: scraper engine gc --older-than 30d" if low else "",
        )
        if not os.access(existing, os.W_OK):
            yield Finding(f"disk {place}", Health.FAILED, f"{existing} is not writable", "give this user the right to")


def _engine(settings: Settings) -> Iterator[Finding]:
    try:
        with closing(Views(settings.engine_db)) as views:
            state = views.engine(SystemClock().now())
            if not state.exists or not state.initialized:
                yield Finding("engine db", Health.OK, f"{state.path} does not exist yet; the first submission makes it")
                return
            if not state.up_to_date:
                yield Finding(
                    "engine db",
                    Health.WARNING,
                    f"{state.path} is at schema {state.current_version} of {state.latest_known_migration}",
                    "run: scraper engine migrate",
                )
                return
            yield Finding("engine db", Health.OK, f"{state.path}, schema {state.current_version}")
            with views.connection() as connection:
                yield from _contents(connection, SystemClock().now())
        with closing(Database(database_url(settings.engine_db))) as database:
            yield from _pragmas(database)
            yield from _clock(database)
    except ScraperError as error:
        yield Finding("engine db", Health.FAILED, str(error), "restore a copy, or name another with --engine-db")


def _pragmas(database: Database) -> Iterator[Finding]:
    with database.read() as connection:
        if not database.is_sqlite:
            told = connection.execute(text("SHOW synchronous_commit")).scalar_one()
            health = Health.OK if told in ("on", "remote_apply", "remote_write") else Health.FAILED
            yield Finding(
                "durability", health, f"synchronous_commit {told}", "" if health is Health.OK else "set it on"
            )
            return
        told = connection.execute(text("PRAGMA synchronous")).scalar_one()
        mode = connection.execute(text("PRAGMA journal_mode")).scalar_one()
        sound = told >= 2 and mode == "wal"
        advice = "" if sound else "the file system refused it: move the database to a local disk"
        yield Finding("durability", _judge(sound), f"{mode}, synchronous {told}", advice)
        broken = connection.execute(text("PRAGMA quick_check(1)")).scalar_one()
        advice = "" if broken == "ok" else "stop all workers, then: sqlite3 engine.db .recover"
        yield Finding("integrity", _judge(broken == "ok"), str(broken), advice)


def _judge(sound: bool) -> Health:
    return Health.OK if sound else Health.FAILED


def _clock(database: Database) -> Iterator[Finding]:
    clock = database.clock()
    offset = abs(clock.offset) if isinstance(clock, SystemClock) else 0
    far = offset > _LARGE_OFFSET
    yield Finding(
        "clock",
        Health.WARNING if far else Health.OK,
        f"{offset / SECOND:.3f} s from the database's clock; the engine goes by the database's",
        "let the machines keep time (NTP)" if far else "",
    )


def _contents(connection: Connection, now: Micros) -> Iterator[Finding]:
    running = op.c.status == OpStatus.RUNNING.value
    expired = connection.execute(select(func.count()).where(running, op.c.expires_at < now)).scalar_one()
    yield Finding(
        "leases",
        Health.WARNING if expired else Health.OK,
        f"{expired} ops are leased to workers that have stopped answering" if expired else "none is orphaned",
        "any worker takes them back: scraper worker run" if expired else "",
    )
    lost = [
        row.id
        for row in connection.execute(select(worker.c.id, worker.c.seen_at, worker.c.process))
        if now - row.seen_at > _SILENT or is_dead(row.process)
    ]
    yield Finding(
        "workers",
        Health.WARNING if lost else Health.OK,
        f"{len(lost)} ended without goodbye: {', '.join(lost[:3])}" if lost else "all that are registered answer",
        "nothing is lost; a worker on the same machine clears them away" if lost else "",
    )
    paused = [f'{row.site} "{row.key}"' for row in connection.execute(select(queue).where(queue.c.paused))]
    if paused:
        yield Finding("queues", Health.WARNING, f"paused: {', '.join(paused)}", f"scraper queue resume {paused[0]}")


def _sites(settings: Settings, registry: Registry) -> Iterator[Finding]:
    for broken in registry.broken.values():
        yield Finding(f"site {broken.name}", Health.FAILED, str(broken.faults[0]), f"scraper site check {broken.name}")
    yield Finding("sites", Health.OK, f"{len(registry.sites)} can be used")
    for site in registry.sites.values():
        file = settings.sites_dir / site.database_file
        if site.dialect == "sqlite" and file.is_file():
            yield from _site_database(site.name, file)


def _site_database(name: str, file: Path) -> Iterator[Finding]:
    try:
        with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            inbox = connection.execute("SELECT count(*) FROM sqlite_master WHERE name = 'scraper_inbox'").fetchone()
            if not inbox[0]:
                yield Finding(f"site db {name}", Health.WARNING, f"{file} was not made by scraper", "move it away")
                return
            (rows,) = connection.execute("SELECT count(*) FROM scraper_inbox").fetchone()
    except sqlite3.Error as error:
        yield Finding(f"site db {name}", Health.FAILED, f"{file}: {error}", "restore a copy")
        return
    many = rows > _MANY_INBOX_ROWS
    advice = "scraper engine gc --older-than 30d forgets old ones" if many else ""
    yield Finding(f"site db {name}", Health.WARNING if many else Health.OK, f"{rows} inbox rows", advice)
