"""Reading a site's records (``ctx.writeRecord``) from outside, without creating or migrating its database."""

from __future__ import annotations

import json
import operator as op
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.errors import DatabaseRefused, SiteError, UsageError
from engine.faults import did_you_mean
from engine.plugins.site import Site

_CONDITION = re.compile(r"^\s*([A-Za-z_][\w.]*)\s*(=|!=|<>|<=|>=|<|>|~)\s*(.*?)\s*$", re.DOTALL)
_COMPARED = {"=": op.eq, "!=": op.ne, "<": op.lt, "<=": op.le, ">": op.gt, ">=": op.ge}
_COLUMNS = ("collection", "key", "workflow_id", "op_id", "updated_at")


@dataclass(frozen=True, slots=True)
class Record:
    """A row of ``scraper_records``; ``data`` is what the script wrote."""

    collection: str
    key: str
    data: Any
    workflow_id: str
    op_id: str
    updated_at: str


@dataclass(frozen=True, slots=True)
class Condition:
    """``member OP value`` on a record's data, or on one of its columns; ``~`` means "contains"."""

    member: str
    operator: str
    value: str

    def holds(self, record: Record) -> bool:
        """Whether ``record`` is one of those asked for. Numbers compare as numbers."""
        found: Any = getattr(record, self.member) if self.member in _COLUMNS else _member(record.data, self.member)
        if self.operator == "~":
            return found is not None and self.value in str(found)
        return _compare(found, self.operator, self.value)


def condition(text: str) -> Condition:
    """``--where`` read. Raises UsageError."""
    match = _CONDITION.match(text)
    if match is None:
        raise UsageError(f'--where: "{text}" is not MEMBER=VALUE (or != < <= > >=, or ~ for "contains")')
    member, operator, value = match.groups()
    return Condition(member, "!=" if operator == "<>" else operator, value)


class RecordsReader:
    """The records of one site."""

    def __init__(self, site: Site, sites_dir: Path, url_template: str | None) -> None:
        """Raises SiteError where the site has no database yet."""
        self._site = site
        self._url = None
        if site.dialect == "sqlite":
            self._file = sites_dir / site.database_file
            if not self._file.is_file():
                raise SiteError(f'site "{site.name}" has no database at {self._file} yet: run a verb of it first')
        elif url_template:
            self._url = url_template.replace("{site}", site.name.replace("-", "_"))
        else:
            raise SiteError(f'site "{site.name}" is in PostgreSQL: siteDatabaseURL is not configured')

    def collections(self) -> list[tuple[str, int]]:
        """Every collection and how many records it has."""
        rows = self._rows(
            "SELECT collection, count(*) FROM scraper_records GROUP BY collection ORDER BY collection", ()
        )
        return [(str(row[0]), int(row[1])) for row in rows]

    def records(self, collection: str | None, conditions: tuple[Condition, ...] = ()) -> Iterator[Record]:
        """Records in the order of collection and key. Raises UsageError for an unknown collection."""
        sql = f"SELECT collection, key, data, {', '.join(_COLUMNS[2:])} FROM scraper_records"
        parameters: tuple[str, ...] = ()
        if collection is not None:
            known = [name for name, _ in self.collections()]
            if collection not in known:
                hint = did_you_mean(collection, known) or f"there are: {', '.join(known) or 'none'}"
                raise UsageError(f'site "{self._site.name}" has no collection "{collection}" ({hint})')
            sql, parameters = f"{sql} WHERE collection = ?", (collection,)
        for row in self._rows(f"{sql} ORDER BY collection, key", parameters):
            data = json.loads(row[2]) if isinstance(row[2], str) else row[2]
            record = Record(row[0], row[1], data, row[3], row[4], str(row[5]))
            if all(one.holds(record) for one in conditions):
                yield record

    def _rows(self, sql: str, parameters: tuple[str, ...]) -> Iterator[Any]:
        if self._url is not None:
            yield from _postgresql_rows(self._url, sql, parameters)
            return
        try:
            with closing(sqlite3.connect(f"{self._file.absolute().as_uri()}?mode=ro", uri=True)) as connection:
                yield from connection.execute(sql, parameters)
        except sqlite3.Error as error:
            if "no such table" in str(error):
                return
            raise DatabaseRefused(f"{self._file}: {error}") from error


def _postgresql_rows(url: str, sql: str, parameters: tuple[str, ...]) -> Iterator[Any]:
    import psycopg

    try:
        with psycopg.connect(url.replace("postgresql+psycopg://", "postgresql://", 1)) as connection:
            connection.read_only = True
            yield from connection.execute(sql.replace("?", "%s").encode(), parameters)
    except psycopg.errors.UndefinedTable:
        return
    except psycopg.Error as error:
        raise DatabaseRefused(str(error).splitlines()[0]) from error


def _member(data: Any, path: str) -> Any:
    for name in path.split("."):
        data = data.get(name) if isinstance(data, dict) else None
    return data


def _compare(found: Any, operator: str, wanted: str) -> bool:
    left: Any = found
    right: Any = wanted
    if isinstance(found, bool):
        left = "true" if found else "false"
    elif isinstance(found, int | float):
        try:
            right = float(wanted)
        except ValueError:
            left = str(found)
    elif found is None:
        return (wanted == "null") == (operator == "=") if operator in ("=", "!=") else False
    else:
        left = str(found)
    return bool(_COMPARED[operator](left, right))
