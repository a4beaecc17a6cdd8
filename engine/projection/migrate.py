"""A site DB's migrations: the site's own SQL and JavaScript files, and the engine's tables before them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from engine.clock import Clock, rfc3339
from engine.errors import OpError, SiteError
from engine.js.ports import MigrationReport, MigrationScript, SessionSpec, SqlRefused
from engine.plugins.site import Site
from engine.projection.session import Database, Session
from engine.projection.sqlite import split

#: What a database's integer holds.
_LARGEST = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Migration:
    """One migration file."""

    version: int
    path: Path

    @property
    def name(self) -> str:
        """What the tracking row calls it."""
        return self.path.stem.partition("_")[2] or self.path.stem


def find_migrations(site: Site) -> tuple[Migration, ...]:
    """The site's migrations in version order. Raises SiteError for a bad name or a version used twice."""
    found: dict[int, Migration] = {}
    for root, suffix in ((site.sql_migrations_root, ".sql"), (site.js_migrations_root, ".js")):
        for path in sorted(root.glob(f"*{suffix}")) if root is not None and root.is_dir() else ():
            number, underscore, _ = path.name.partition("_")
            if not underscore or not (number.isascii() and number.isdigit()):
                raise SiteError(
                    f"{path}: a migration's name starts with its version and an underscore, like 001_init{suffix}"
                )
            version = int(number)
            if version > _LARGEST:
                raise SiteError(f"{path}: the version is too large")
            if version in found:
                raise SiteError(f"duplicate site migration version {version}: {found[version].path} and {path}")
            found[version] = Migration(version, path)
    return tuple(found[version] for version in sorted(found))


def migrate(database: Database, site: Site, run_js: MigrationScript, clock: Clock) -> MigrationReport:
    """Apply what is pending, each version in one transaction. Raises SiteError, DatabaseBusy."""
    migrations = find_migrations(site)
    done = _applied(database)
    if done is None:
        with _transaction(database):
            _create_tables(database)
        done = set()
    applied: list[str] = []
    for migration in migrations:
        if migration.version in done:
            continue
        with _transaction(database):
            if migration.version in (_applied(database) or set()):
                continue
            _apply(database, migration, run_js, clock)
            database.run_counting(
                "INSERT INTO schema_migrations (version, name, applied_at) VALUES (?, ?, ?)",
                [migration.version, migration.name, rfc3339(clock.now())],
            )
        applied.append(migration.path.name)
    version = max([*done, *(item.version for item in migrations)], default=0)
    return MigrationReport(site.name, database.name, tuple(applied), version)


def _applied(database: Database) -> set[int] | None:
    """Versions applied; None where the engine's own tables are not there yet."""
    if not (database.has_table("schema_migrations") and database.has_table("scraper_inbox_meta")):
        return None
    return {int(row[0]) for row in database.run("SELECT version FROM schema_migrations")}  # type: ignore[arg-type]


def _create_tables(database: Database) -> None:
    integer, blob = ("INTEGER", "BLOB") if database.is_sqlite else ("BIGINT", "BYTEA")
    for statement in (
        f"CREATE TABLE IF NOT EXISTS schema_migrations (version {integer} PRIMARY KEY, name TEXT, applied_at TEXT)",
        "CREATE TABLE IF NOT EXISTS scraper_records (collection TEXT NOT NULL, key TEXT NOT NULL, data TEXT NOT NULL,"
        " workflow_id TEXT NOT NULL, op_id TEXT NOT NULL, updated_at TEXT NOT NULL, PRIMARY KEY (collection, key))",
        "CREATE TABLE IF NOT EXISTS scraper_inbox (engine TEXT NOT NULL, op TEXT NOT NULL,"
        f" generation INTEGER NOT NULL, outcome {blob}, claimed_at {integer} NOT NULL, committed_at {integer} NOT NULL,"
        " PRIMARY KEY (engine, op, generation))",
        f"CREATE TABLE IF NOT EXISTS scraper_inbox_meta (horizon {integer} NOT NULL)",
        "INSERT INTO scraper_inbox_meta (horizon) SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM scraper_inbox_meta)",
    ):
        database.run(statement)


def _apply(database: Database, migration: Migration, run_js: MigrationScript, clock: Clock) -> None:
    try:
        if migration.path.suffix == ".js":
            run_js(migration.path.name, _migration_session(database, clock))
        else:
            _run_sql(database, migration.path)
    except SqlRefused as error:
        raise SiteError(f"{migration.path}: {error}") from error
    except OpError as error:
        raise SiteError(f"{migration.path}: {error.message}") from error
    if not database.in_transaction:
        raise SiteError(f"{migration.path}: a statement ended the migration's transaction (INSERT OR ROLLBACK?)")


def _run_sql(database: Database, path: Path) -> None:
    try:
        source = path.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise SqlRefused(f"the file is not UTF-8 text: {error}") from error
    if not database.is_sqlite:
        database.execute(source, [])
        return
    at = 0
    for statement in split(source):
        at = source.index(statement, at)
        line = 1 + source[: at + len(statement) - len(statement.lstrip())].count("\n")
        try:
            database.execute(statement, [])
        except SqlRefused as error:
            raise SqlRefused(f"line {line}: {error}") from error
        at += len(statement)


class _OpenSession(Session):
    """A session on a transaction that somebody else began and ends."""

    def __init__(self, database: Database, clock: Clock) -> None:
        nobody = SessionSpec(engine_uuid="", op_key="", generation=0, claimed_at=0, workflow_id="", op_id="")
        super().__init__(database, nobody, clock, writer=True)
        self._began = self._writing = True


def _migration_session(database: Database, clock: Clock) -> Session:
    return _OpenSession(database, clock)


@contextmanager
def _transaction(database: Database) -> Iterator[None]:
    database.begin_write()
    try:
        yield
        database.commit()
    except BaseException:
        database.rollback()
        raise
