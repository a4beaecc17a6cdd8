"""What a script may reach, as the JS layer sees it; the composition root of the child supplies the real things.

All calls are synchronous and happen on V8's thread inside a host call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from engine.clock import Micros
from engine.model import JsonText, LogLine, Record
from engine.plugins.site import Site

SqlValue: TypeAlias = int | float | str | bytes | None


@dataclass(frozen=True, slots=True)
class Rows:
    """The answer of a query: column names, then one tuple a row."""

    columns: tuple[str, ...]
    rows: Sequence[tuple[SqlValue, ...]]


class DatabaseBusy(Exception):
    """The site DB's lock could not be had in time, or a late write lost its snapshot: run the op again."""


class SqlRefused(Exception):
    """The statement failed or is not allowed; the message is for the script's author."""


class AlreadyApplied(Exception):
    """The inbox holds an outcome (or a fence) under this key: nothing of this transaction was kept."""


class StaleClaim(Exception):
    """The claim is older than the inbox's horizon: nothing of this transaction was kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSpec:
    """Whose transaction a session is: the key of its inbox row, and what records carry."""

    engine_uuid: str
    #: The op's surrogate; for a verb, a text that no surrogate can be.
    op_key: str
    generation: int
    claimed_at: Micros
    workflow_id: str
    op_id: str


class SiteSession(Protocol):
    """One execution's single transaction on the site DB, begun lazily, committed with the inbox row."""

    def query(self, sql: str, params: Sequence[SqlValue]) -> Rows: ...

    def execute(self, sql: str, params: Sequence[SqlValue]) -> int:
        """Run one or several statements; the number of affected rows of the last that changed any."""
        ...

    def last_insert_id(self) -> int | None: ...

    def has_table(self, table: str) -> bool: ...

    def has_column(self, table: str, column: str) -> bool: ...

    @property
    def waited(self) -> float:
        """Seconds spent waiting for the database's lock."""
        ...

    def write_record(self, record: Record) -> None:
        """Buffer an upsert into ``scraper_records``; applied at :meth:`commit`."""
        ...

    @property
    def wrote(self) -> bool:
        """Whether this execution changed the site DB or buffered records: only then is an inbox row needed."""
        ...

    def check(self) -> None:
        """Raise SqlRefused where nothing of this session can be kept any more."""
        ...

    def commit(self, outcome: bytes) -> None:
        """Apply buffered records, insert the inbox row holding ``outcome``, commit.

        Raises AlreadyApplied, StaleClaim, DatabaseBusy, SqlRefused; after any of them all is rolled back.
        """
        ...

    def rollback(self) -> None: ...

    def kill(self) -> None:
        """Refuse every later call of this session and roll back (the script timed out or was canceled)."""
        ...


class EngineReads(Protocol):
    """The read-only view of the engine DB."""

    def dependency(self, workflow_id: str, op_id: str) -> JsonText | None:
        """The result of an op as ``ctx.dep`` shows it (JSON text; artifacts carry ``sha256`` instead of a body)."""
        ...

    def standing(self, workflow_id: str, kind: str, dedup_key: str) -> str | None:
        """The id of the op that holds a dedup key, if any does."""
        ...

    def blob(self, sha256: str) -> bytes:
        """The bytes of an artifact. Raises KeyError."""
        ...

    def query(self, sql: str, params: Sequence[SqlValue]) -> Rows:
        """A read of the tables scripts know (``ops``, ``results``, …). Raises SqlRefused for anything but a read."""
        ...


#: What only the worker can do: name and arguments in, result out. Raises HostError.
Ask: TypeAlias = Callable[[str, Mapping[str, Any]], Any]


@dataclass(slots=True)
class CycleAnswer:
    """What a step of a lifecycle job came to."""

    value: Any = None
    #: Bodies the worker is to store.
    bodies: Sequence[bytes] = ()
    logs: list[LogLine] = field(default_factory=list)


class CycleSteps(Protocol):
    """The part of lifecycle jobs that runs where the site DB and V8 are."""

    def run(self, site: Site, spec: SessionSpec, task: Mapping[str, Any], ask: Ask) -> CycleAnswer:
        """Do a step, or what is left of it. Raises OpError, DatabaseBusy."""
        ...


#: Runs the JavaScript migration of that file name on the migration's own transaction. Raises OpError when it throws.
MigrationScript: TypeAlias = Callable[[str, SiteSession], None]


@dataclass(frozen=True, slots=True)
class MigrationReport:
    """What migrating a site DB did."""

    site: str
    #: Where the database is, for people.
    database: str
    applied: tuple[str, ...]
    version: int


class SiteDatabases(Protocol):
    """The site DBs of one child process."""

    def migrate(self, site: Site, run_js: MigrationScript) -> MigrationReport:
        """Apply what is pending, once per site and process. Raises SiteError, DatabaseBusy."""
        ...

    def session(self, site: Site, spec: SessionSpec, *, writer: bool) -> SiteSession:
        """A session; a ``writer`` takes the write lock at its first call, a reader only when it writes."""
        ...

    def database(self, site: Site) -> Any:
        """The site's DB, for the engine's own statements."""
        ...

    def outcome(self, site: Site, spec: SessionSpec) -> bytes | None:
        """The outcome the inbox holds under the key, if any (a fence is none)."""
        ...

    def fence(self, site: Site, spec: SessionSpec) -> bytes | None:
        """Close the key; the outcome that stood there already, if any."""
        ...
