"""The site DBs of one process: opened once, migrated once, one connection each."""

from __future__ import annotations

from pathlib import Path

from engine.clock import Clock, Micros
from engine.errors import ConfigError
from engine.js.ports import MigrationReport, MigrationScript, SessionSpec, SiteSession
from engine.plugins.site import Site
from engine.projection.migrate import migrate
from engine.projection.session import Database, Inbox, Session
from engine.projection.sqlite import SqliteDatabase


class OpenDatabases:
    """Site DBs below ``folder``, or at ``url_template`` (with ``{site}``) for sites that want PostgreSQL."""

    def __init__(self, folder: Path, url_template: str | None, clock: Clock) -> None:
        self._folder = folder
        self._url_template = url_template
        self._clock = clock
        self._open: dict[str, Database] = {}
        self._migrated: dict[str, MigrationReport] = {}

    def migrate(self, site: Site, run_js: MigrationScript) -> MigrationReport:
        """Apply pending migrations once per process. Raises SiteError, DatabaseBusy."""
        if site.name not in self._migrated:
            self._migrated[site.name] = migrate(self._database(site), site, run_js, self._clock)
        return self._migrated[site.name]

    def session(self, site: Site, spec: SessionSpec, *, writer: bool) -> SiteSession:
        """A new session; the one before must have ended."""
        return Session(self._database(site), spec, self._clock, writer=writer)

    def outcome(self, site: Site, spec: SessionSpec) -> bytes | None:
        """What the inbox holds under the key."""
        return Inbox(self._database(site), self._clock).outcome(spec)

    def fence(self, site: Site, spec: SessionSpec) -> bytes | None:
        """Close the key; the outcome that stood there already, if any."""
        return Inbox(self._database(site), self._clock).fence(spec)

    def collect(self, site: Site, before: Micros) -> int:
        """Forget inbox rows of claims before ``before``; how many. A site DB that does not exist stays so."""
        if site.dialect == "sqlite" and not (self._folder / site.database_file).is_file():
            return 0
        database = self._database(site)
        return Inbox(database, self._clock).collect(before) if database.has_table("scraper_inbox") else 0

    def close(self) -> None:
        """Close all connections."""
        for database in self._open.values():
            database.close()

    def database(self, site: Site) -> Database:
        """The site's DB, for the engine's own statements."""
        return self._database(site)

    def _database(self, site: Site) -> Database:
        if site.name not in self._open:
            self._open[site.name] = self._connect(site)
        return self._open[site.name]

    def _connect(self, site: Site) -> Database:
        if site.dialect == "sqlite":
            return SqliteDatabase(self._folder / site.database_file)
        if self._url_template is None:
            raise ConfigError(f'site "{site.name}" wants PostgreSQL: set siteDatabaseURL in the configuration')
        from engine.projection.postgresql import PostgresqlDatabase

        return PostgresqlDatabase(self._url_template.replace("{site}", site.name.replace("-", "_")))
