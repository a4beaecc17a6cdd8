"""A site's migrations tried on an empty database: every fault that is not just the consequence of another."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from engine.authoring.autocommit import AutocommitSession
from engine.clock import SystemClock
from engine.errors import OpError, SiteError
from engine.js.host import Host
from engine.js.isolate import Limits, execute
from engine.js.modules import ModuleRoots
from engine.js.ports import SqlRefused
from engine.plugins.site import Site
from engine.projection.migrate import find_migrations, migrate
from engine.projection.sqlite import SqliteDatabase, split

_LIMITS = Limits(seconds=60.0, heap_bytes=256 << 20)

#: What SQLite says about a text that is no SQL, whatever the database holds.
_SYNTAX = re.compile(r"syntax error|incomplete input|unrecognized token")


def try_migrations(site: Site, path: Path) -> list[dict[str, Any]]:
    """Faults of ``{file, line, message}``; ``path`` is where the empty database may be made.

    After the first fault only what is wrong in itself is reported.
    """
    _make_engine_tables(site, path)
    faults: list[dict[str, Any]] = []
    session = AutocommitSession(path, lambda: None)
    try:
        for migration in find_migrations(site):
            found = _script(site, migration.path, session) if migration.path.suffix == ".js" else []
            if migration.path.suffix == ".sql":
                found = _statements(migration.path, session)
            kept = [fault for fault in found if not faults or fault["syntax"]]
            faults += kept[:1] + [fault for fault in kept[1:] if fault["syntax"]]
    finally:
        session.close()
    return [{key: fault[key] for key in ("file", "line", "message")} for fault in faults]


def _make_engine_tables(site: Site, path: Path) -> None:
    database = SqliteDatabase(path)
    try:
        bare = replace(site, sql_migrations_root=None, js_migrations_root=None)
        migrate(database, bare, lambda _path, _session: None, SystemClock())
    finally:
        database.close()


def _statements(path: Path, session: AutocommitSession) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    try:
        source, at = path.read_text("utf-8"), 0
    except UnicodeDecodeError as error:
        return [_fault(path, 0, f"is not UTF-8 text: {error}")]
    for statement in split(source):
        at = source.index(statement, at)
        begin = at + len(statement) - len(_without_comments(statement))
        at += len(statement)
        try:
            session.execute(statement, [])
        except SqlRefused as error:
            line = 1 + source[:begin].count("\n")
            found.append(_fault(path, line, str(error)))
    return found


def _without_comments(statement: str) -> str:
    """What is left of a statement from its first word on."""
    return re.sub(r"\A(?:\s+|;|--[^\n]*(?:\n|\Z)|/\*.*?\*/)+", "", statement, flags=re.DOTALL)


def _script(site: Site, path: Path, session: AutocommitSession) -> list[dict[str, Any]]:
    assert site.js_migrations_root is not None
    roots = ModuleRoots([(site.js_migrations_root.relative_to(site.root).as_posix(), site.js_migrations_root)])
    try:
        execute(Host(roots, SystemClock(), session=session), {"mode": "migration", "entry": path.name}, _LIMITS)
    except OpError as error:
        details = error.details if isinstance(error.details, dict) else {}
        own = str(details.get("script", "")).endswith(path.name)
        return [_fault(path, details.get("line", 0) if own else 0, error.message)]
    except SiteError as error:
        return [_fault(path, 0, str(error))]
    return []


def _fault(path: Path, line: int, message: str) -> dict[str, Any]:
    return {"file": str(path), "line": line, "message": message, "syntax": bool(_SYNTAX.search(message))}
