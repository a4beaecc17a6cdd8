"""Many rows through one statement, without SQLAlchemy's work for each of them.

The statement is compiled once per dialect; its rows go straight to the driver. For the hot path only: values must be of
types that the driver takes as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Any

from sqlalchemy import Connection, Dialect
from sqlalchemy.sql.dml import Insert, Update

Row = Mapping[str, Any]


def execute_many(connection: Connection, statement: Insert | Update, rows: Sequence[Row]) -> None:
    """Run ``statement`` for every row; all rows have the same keys."""
    if rows:
        sql, arranged = _prepared(statement, connection.dialect, tuple(rows[0]))
        connection.exec_driver_sql(sql, [arranged(row) for row in rows])


@lru_cache(maxsize=64)
def _prepared(statement: Insert | Update, dialect: Dialect, keys: tuple[str, ...]) -> tuple[str, Callable[[Row], Any]]:
    if isinstance(statement, Insert):
        statement = statement.inline()
    compiled: Any = statement.compile(dialect=dialect, column_keys=list(keys))
    if not compiled.positional:
        fixed = {name: value for name, value in compiled.params.items() if name not in keys}
        return str(compiled), (lambda row: {**fixed, **row}) if fixed else dict
    names: list[str] = compiled.positiontup
    fixed = {name: compiled.params[name] for name in names if name not in keys}
    if fixed:
        return str(compiled), lambda row: tuple(fixed[name] if name in fixed else row[name] for name in names)
    return str(compiled), itemgetter(*names) if len(names) > 1 else lambda row: (row[names[0]],)
