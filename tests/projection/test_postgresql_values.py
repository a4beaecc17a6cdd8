"""Values between scripts and a site DB in PostgreSQL."""

from __future__ import annotations

import pytest

from engine.errors import ConfigError, DatabaseRefused
from engine.projection.postgresql import PostgresqlDatabase


def test_values_come_and_go_as_scripts_understand_them(pg_url: str) -> None:
    """DB-26."""
    database = PostgresqlDatabase(pg_url)
    database.begin_write()
    database.execute("CREATE TABLE t (b boolean, i integer, n numeric, j jsonb, d date, at timestamptz)", [])
    database.execute("INSERT INTO t VALUES (?, ?, 12.5, ?, '2026-01-02', NULL)", [True, True, '{"a": [1, "é"]}'])
    rows = database.query("SELECT * FROM t WHERE b = ? AND i = ?", [True, 1]).rows
    assert rows == [(1, 1, 12.5, '{"a": [1, "é"]}', "2026-01-02", None)]
    database.rollback()
    database.close()


def test_a_url_that_is_none_and_a_user_that_is_unknown_are_refused_at_once(pg_url: str) -> None:
    with pytest.raises(ConfigError, match="siteDatabaseURL is not a PostgreSQL URL"):
        PostgresqlDatabase("postgresql+psycopg://[no-host/shop")
    with pytest.raises(DatabaseRefused, match='role "nobody_here" does not exist'):
        PostgresqlDatabase(pg_url.replace("postgres:@", "nobody_here:@"))
