"""The worker's own hand on the site DBs: many hooks write little by little, one thread commits for all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from engine.clock import Clock
from engine.errors import LeaseLost, OpError
from engine.js.ports import DatabaseBusy, SessionSpec, SiteSession
from engine.plugins.site import Site
from engine.projection import archive
from engine.projection.archive import Statement, Verdict, Write
from engine.projection.databases import OpenDatabases
from engine.projection.session import Database

T = TypeVar("T")

_LARGEST_GROUP = 500
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 2.0
#: Tries of a write that the database refuses for no reason of its own making.
_TRIES = 3


@dataclass(slots=True)
class _Waiting:
    site: Site
    write: Write
    verdict: asyncio.Future[Verdict]


class Projector:
    """Writes and reads of hooks on the site DBs of one worker."""

    def __init__(self, open_databases: Callable[[], OpenDatabases], clock: Clock) -> None:
        self._open = open_databases
        self._clock = clock
        self._databases: OpenDatabases | None = None
        self._ready: dict[str, Database] = {}
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="scraper-hooks")
        self._queue: list[_Waiting] = []
        self._committing: asyncio.Task[None] | None = None

    async def write(self, site: Site, write: Write) -> None:
        """Apply a write; once this returns it is durable. Raises LeaseLost where the op has passed on."""
        verdict: asyncio.Future[Verdict] = asyncio.get_running_loop().create_future()
        self._queue.append(_Waiting(site, write, verdict))
        if self._committing is None or self._committing.done():
            self._committing = asyncio.create_task(self._commit())
        if await verdict is Verdict.STALE:
            raise LeaseLost(write.spec.op_id)

    async def outcome(self, site: Site, spec: SessionSpec) -> bytes | None:
        """What the inbox holds about an op."""
        return await self.read(site, lambda database: archive.outcome(database, self._clock, spec))

    async def fence(self, site: Site, spec: SessionSpec) -> bytes | None:
        """Close an op's key; the outcome that stood there already, if any."""

        def close() -> bytes | None:
            self._database(site)
            assert self._databases is not None
            return self._databases.fence(site, spec)

        return await self._until_done(close)

    async def read(self, site: Site, query: Callable[[Database], T]) -> T:
        """The answer of ``query`` on the site's DB."""
        return await self._until_done(lambda: query(self._database(site)))

    async def _until_done(self, call: Callable[[], T]) -> T:
        loop = asyncio.get_running_loop()
        pause, tries = _FIRST_PAUSE, 0
        while True:
            try:
                return await loop.run_in_executor(self._thread, call)
            except DatabaseBusy:
                pass
            except Exception as error:
                # a connection that broke, a disk that is full: nothing was written
                tries += 1
                await loop.run_in_executor(self._thread, self._reopen)
                if tries >= _TRIES:
                    raise OpError("site_db_error", f"{type(error).__name__}: {error}", retryable=True) from error
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)

    async def _commit(self) -> None:
        while self._queue:
            site = self._queue[0].site
            group = [item for item in self._queue if item.site is site][:_LARGEST_GROUP]
            chosen = {id(item) for item in group}
            self._queue = [item for item in self._queue if id(item) not in chosen]
            await self._settle(site, group)

    async def _settle(self, site: Site, group: list[_Waiting]) -> None:
        writes = [item.write for item in group]
        try:
            verdicts = await self._until_done(lambda: archive.apply(self._database(site), self._clock, writes))
        except OpError as error:
            if len(group) > 1:
                for item in group:
                    await self._settle(site, [item])
            elif not group[0].verdict.done():
                group[0].verdict.set_exception(error)
            return
        for item, verdict in zip(group, verdicts, strict=True):
            if not item.verdict.done():
                item.verdict.set_result(verdict)

    def _database(self, site: Site) -> Database:
        if site.name not in self._ready:
            if self._databases is None:
                self._databases = self._open()
            self._databases.migrate(site, _no_scripts)
            database = self._databases.database(site)
            archive.create_tables(database)
            self._ready[site.name] = database
        return self._ready[site.name]

    def _reopen(self) -> None:
        databases, self._databases = self._databases, None
        self._ready.clear()
        if databases is not None:
            try:
                databases.close()
            except Exception:
                return

    async def aclose(self) -> None:
        """Commit what waits and close the databases."""
        if self._committing is not None:
            await asyncio.gather(self._committing, return_exceptions=True)
        await asyncio.get_running_loop().run_in_executor(self._thread, self._reopen)
        self._thread.shutdown()


def _no_scripts(name: str, _session: SiteSession) -> None:
    raise OpError("site_error", f"the migration {name} is JavaScript: run scraper site migrate first")


def statements(*parts: Statement | list[Statement]) -> list[Statement]:
    """One flat list."""
    flat: list[Statement] = []
    for part in parts:
        flat.extend(part if isinstance(part, list) else [part])
    return flat
