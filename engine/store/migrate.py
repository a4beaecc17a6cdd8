"""Creating, upgrading and refusing engine DBs."""

from __future__ import annotations

import sqlite3
import uuid
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from sqlalchemy import Connection, inspect, select, text

from engine.clock import Clock, Micros
from engine.dialect import Database, require_writable, shown
from engine.errors import DatabaseRefused
from engine.resources import resource
from engine.store.compat import create_views
from engine.store.schema import meta, migration

if TYPE_CHECKING:  # Alembic is loaded when there is something to apply: every process starts here
    from alembic.config import Config
    from alembic.runtime.migration import MigrationInfo
    from alembic.script import ScriptDirectory

_LOCK_KEY = 7_239_002_861


@dataclass(frozen=True, slots=True)
class MigrationState:
    """One migration known to this code, and when it was applied (None: not yet)."""

    version: int
    name: str
    applied_at: Micros | None


def scripts() -> ScriptDirectory:
    """The migrations that travel with this code."""
    from alembic.script import ScriptDirectory

    return ScriptDirectory.from_config(_config())


def upgrade(database: Database, clock: Clock) -> str:
    """Bring the engine DB to this code's schema, creating it where there is none; its UUID.

    Raises DatabaseRefused for a database that is newer, corrupt, read-only or not ours.
    """
    if database.path is not None:
        require_writable(database.path)
    with database.read() as connection:
        if _current(connection, database) == _head():
            return _uuid(connection)
    with database.write() as connection:
        if not database.is_sqlite:
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK_KEY})
        current = _current(connection, database)
        if current != _head():
            _run(connection, clock)
            create_views(connection, sqlite=database.is_sqlite)
        if connection.execute(select(meta.c.value).where(meta.c.key == "uuid")).scalar() is None:
            connection.execute(meta.insert().values(key="uuid", value=str(uuid.uuid4())))
        return _uuid(connection)


def history(database: Database) -> tuple[MigrationState, ...]:
    """Every known migration in order. Creates nothing: of a missing database all are pending."""
    applied: dict[int, Micros] = {}
    if database.exists():
        with database.read() as connection:
            if _current(connection, database) is not None:
                rows = connection.execute(select(migration.c.version, migration.c.applied_at))
                applied = {row.version: row.applied_at for row in rows}
    known = reversed(list(scripts().walk_revisions()))
    return tuple(
        MigrationState(int(script.revision), (script.doc or "").splitlines()[0], applied.get(int(script.revision)))
        for script in known
    )


def _config() -> Config:
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(resource("migrations")).replace("%", "%%"))
    return config


@cache
def _known() -> tuple[str, ...]:
    """The revisions of this code in order: a migration's file name begins with its number."""
    return tuple(sorted(file.name[:4] for file in resource("migrations/versions").glob("[0-9]*.py")))


def _head() -> str:
    return _known()[-1]


def _current(connection: Connection, database: Database) -> str | None:
    name = shown(database.url)
    try:
        tables = set(inspect(connection).get_table_names())
    except sqlite3.DatabaseError as error:
        raise DatabaseRefused(f"{name}: {error}") from error
    if "alembic_version" not in tables:
        if tables:
            raise DatabaseRefused(
                f"{name} is not an engine database: it holds other tables ({', '.join(sorted(tables)[:5])})"
            )
        return None
    if "meta" not in tables or "op" not in tables:
        raise DatabaseRefused(f"{name} is not an engine database: it is under somebody else's migrations")
    current: str | None = connection.scalar(text("SELECT version_num FROM alembic_version"))
    if current is not None and current not in _known():
        raise DatabaseRefused(
            f"{name} has schema {current}, newer than this scraper knows ({_head()}): upgrade scraper to open it"
        )
    return current


def _uuid(connection: Connection) -> str:
    return str(connection.execute(select(meta.c.value).where(meta.c.key == "uuid")).scalar_one())


def _run(connection: Connection, clock: Clock) -> None:
    from alembic import command
    from alembic.script import Script

    def record(*, step: MigrationInfo, **_: object) -> None:
        script = step.up_revision
        assert isinstance(script, Script)
        connection.execute(
            migration.insert().values(
                version=int(script.revision), name=(script.doc or "").splitlines()[0], applied_at=clock.now()
            )
        )

    config = _config()
    config.attributes.update(connection=connection, on_version_apply=record)
    command.upgrade(config, "head")
