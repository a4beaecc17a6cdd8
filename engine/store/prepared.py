"""Statements of the hot path: compiled once for each kind of database, and run on the driver's own cursor.

SQLAlchemy's work for one execution costs ten times what SQLite needs for a small statement. What is left out here:
processing of results (booleans of SQLite are numbers), events, and parameters that expand.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any

from sqlalchemy import Connection, Delete, Dialect, Insert, Select, Update

from engine.dialect import DriverRows, insert_of_lists, run_many_on_driver, run_on_driver, takes_lists

Statement = Select[Any] | Insert | Update | Delete
Row = Mapping[str, Any]


class Prepared:
    """One statement, or what makes it for a dialect, executed with values for all its parameters.

    Every method raises what SQLAlchemy would raise for the driver's errors.
    """

    def __init__(self, statement: Statement | Callable[[Dialect], Statement]) -> None:
        self._statement = statement
        #: By the name of the dialect.
        self._texts: dict[str, _Text] = {}
        self._make: Callable[[Sequence[Any]], Any] | None = None

    def rows(self, connection: Connection, **values: Any) -> list[Any]:
        """All rows that the statement gives, as named tuples."""
        names, rows = self._execute(connection, values)
        if self._make is None:
            kind: Any = namedtuple("Row", names)  # type: ignore[misc]
            self._make = kind._make
        return list(map(self._make, rows))

    def scalars(self, connection: Connection, **values: Any) -> list[Any]:
        """The first column of all rows."""
        return [row[0] for row in self._execute(connection, values).rows]

    def scalar(self, connection: Connection, **values: Any) -> Any:
        """The first column of the first row; None where there is none."""
        rows = self._execute(connection, values).rows
        return rows[0][0] if rows else None

    def run(self, connection: Connection, **values: Any) -> None:
        """Execute a statement that gives no rows."""
        self._execute(connection, values)

    def many(self, connection: Connection, rows: Sequence[Row]) -> None:
        """Execute the statement for every row; all rows have the same keys."""
        if not rows:
            return
        names = tuple(rows[0])
        text = self._text(connection.dialect, names)
        if text.of_lists:
            run_on_driver(connection, text.sql, text.arranged({name: [row[name] for row in rows] for name in names}))
        else:
            run_many_on_driver(connection, text.sql, [text.arranged(row) for row in rows])

    def _execute(self, connection: Connection, values: Row) -> DriverRows:
        text = self._text(connection.dialect, tuple(values))
        return run_on_driver(connection, text.sql, text.arranged(values))

    def _text(self, dialect: Dialect, names: tuple[str, ...]) -> _Text:
        found = self._texts.get(dialect.name)
        if found is None:
            statement = self._statement(dialect) if callable(self._statement) else self._statement
            found = self._texts[dialect.name] = _Text(statement, dialect, names)
        return found


class _Text:
    """A statement in the words of one database, and how its parameters are arranged."""

    def __init__(self, statement: Statement, dialect: Dialect, names: tuple[str, ...]) -> None:
        #: Its parameters are lists, one for each column.
        self.of_lists = False
        columns: list[str] | None = None
        if isinstance(statement, Insert) and statement.select is None:
            # a dialect's own INSERT has more to say than its columns
            self.of_lists = takes_lists(dialect) and type(statement) is Insert
            if self.of_lists:
                statement = insert_of_lists(statement.table, names)
            else:
                statement, columns = statement.inline(), list(names)
        compiled: Any = statement.compile(dialect=dialect, column_keys=columns)
        binds: dict[str, Any] = {name: compiled.binds[name] for name in compiled.params}
        missing = {name for name, bind in binds.items() if bind.required} - set(names)
        assert not missing, f"{missing} of {compiled} are not given"
        self.sql = str(compiled)
        self._in_order = _in_order(compiled.positiontup) if compiled.positional else None
        processors = {name: bind.type.dialect_impl(dialect).bind_processor(dialect) for name, bind in binds.items()}
        self._own = {
            name: value if processors[name] is None else processors[name](value)
            for name, value in compiled.params.items()
            if name not in names
        }
        self._processors = {name: made for name, made in processors.items() if made is not None and name in names}

    def arranged(self, values: Row) -> Any:
        """``values`` and the statement's own, as the driver wants them."""
        if self._own or self._processors:
            every = {**self._own, **values}
            for name, processor in self._processors.items():
                every[name] = processor(every[name])
            values = every
        return values if self._in_order is None else self._in_order(values)


def _in_order(names: Sequence[str]) -> Callable[[Row], tuple[Any, ...]]:
    return itemgetter(*names) if len(names) > 1 else lambda values: tuple(values[name] for name in names)
