"""Statements on the driver's own cursor fail as SQLAlchemy's would."""

from __future__ import annotations

from contextlib import closing

import pytest
from sqlalchemy import bindparam, insert, select
from sqlalchemy.exc import DBAPIError, IntegrityError

from engine.errors import DatabaseUnavailable
from engine.store.prepared import Prepared
from engine.store.schema import meta
from engine.store.store import Store

KEEP = Prepared(insert(meta))
READ = Prepared(select(meta.c.value).where(meta.c.key == bindparam("key")))


def rows(*keys: str) -> list[dict[str, str]]:
    return [{"key": key, "value": f"value of {key}"} for key in keys]


def test_many_rows_are_stored_and_read_back_one_by_one(store: Store) -> None:
    with store.database.write() as connection:
        KEEP.many(connection, rows("prepared 1", "prepared 2"))
        assert READ.scalar(connection, key="prepared 2") == "value of prepared 2"
        assert READ.scalar(connection, key="absent") is None
        connection.rollback()


def test_a_key_that_is_taken_is_an_integrity_error_and_the_transaction_leaves_nothing(store: Store) -> None:
    with pytest.raises(IntegrityError), store.database.write() as connection:
        KEEP.many(connection, rows("prepared 1", "prepared 1"))
    with store.database.read() as connection:
        assert READ.scalars(connection, key="prepared 1") == []


def test_a_value_that_the_database_cannot_hold_is_said_by_the_statement(store: Store) -> None:
    impossible = "\ud800" if store.database.is_sqlite else "\x00"
    with pytest.raises((DBAPIError, ValueError)), store.database.write() as connection:
        KEEP.many(connection, [{"key": "prepared", "value": impossible}])


def read_after_the_server_broke_off(store: Store) -> None:
    with store.database.write() as connection:
        mine = connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one()
        with store.database.write() as other:
            other.exec_driver_sql(f"SELECT pg_terminate_backend({mine}, 5000)")
        READ.scalar(connection, key="uuid")


def test_a_connection_that_is_lost_under_a_statement_is_a_database_that_is_unavailable(migrated_database: str) -> None:
    with closing(Store.open(migrated_database)) as store:
        with pytest.raises(DatabaseUnavailable):
            read_after_the_server_broke_off(store)
        with store.database.read() as connection:
            assert READ.scalar(connection, key="uuid") == store.uuid
