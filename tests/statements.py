"""One cache of compiled SQL for all engines of a test process.

SQLAlchemy compiles every statement once for each engine. A worker has one engine for its whole life; tests open
thousands for a moment each, and would spend a third of their time on compiling the same statements again.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Engine
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.util import LRUCache

_compiled: LRUCache[Any, Any] = LRUCache(5000)


def share() -> None:
    """Let every engine created from now on use the one cache; entries are told apart by the kind of database."""
    for dialect in (SQLiteDialect_pysqlite, PGDialect_psycopg):
        vars_of: Any = dialect
        vars_of.__hash__ = lambda self: hash(type(self))
        vars_of.__eq__ = lambda self, other: type(self) is type(other)
    construct = Engine.__init__

    def initialize(self: Any, *arguments: Any, **options: Any) -> None:
        construct(self, *arguments, **options)
        self._compiled_cache = _compiled

    vars_of = Engine
    vars_of.__init__ = initialize
