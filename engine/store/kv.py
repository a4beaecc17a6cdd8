"""Texts that all jobs share, changed at once and exactly once.

A change carries its scope and its number there (``call``): made again by a repeated hook, it gives the result of the
first time and changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from sqlalchemy import Connection, Table, delete, select, update

from engine.clock import Micros
from engine.counting import NotANumber, advance
from engine.dialect import insert_or_ignore
from engine.store.schema import kv, kv_call


def answer(connection: Connection, name: str, told: Mapping[str, Any], now: Micros) -> Any:
    """Answer one of ``kv.get``, ``kv.set``, ``kv.delete``, ``kv.incr``, ``kv.forget``.

    ``kv.incr`` answers ``{"value"}``, and ``{"value", "fault"}`` where no number stands there.
    """
    match name:
        case "kv.get":
            return connection.scalar(select(kv.c.value).where(kv.c.key == told["key"]))
        case "kv.forget":
            connection.execute(delete(kv_call).where(kv_call.c.scope == told["scope"]))
            return None
        case _:
            return _once(connection, told, _CHANGES[name], now)


_Change = Callable[[Connection, Mapping[str, Any], Micros], Any]


def _once(connection: Connection, told: Mapping[str, Any], change: _Change, now: Micros) -> Any:
    """The result of a change, which is made unless it was made before."""
    mine = (kv_call.c.scope == told["scope"]) & (kv_call.c.call == told["call"])
    # whoever enters the row makes the change; a second one waits here for the first to commit
    row = {"scope": told["scope"], "call": told["call"], "result_json": "null", "at": now}
    if not _enter(connection, kv_call, row):
        return json.loads(connection.execute(select(kv_call.c.result_json).where(mine)).scalar_one())
    result = change(connection, told, now)
    connection.execute(update(kv_call).where(mine).values(result_json=json.dumps(result)))
    return result


def _enter(connection: Connection, table: Table, row: Mapping[str, Any]) -> bool:
    """Insert a row unless its key is taken; whether it was inserted."""
    key = next(iter(table.primary_key))
    return connection.execute(insert_or_ignore(connection, table).values(**row).returning(key)).first() is not None


def _set(connection: Connection, told: Mapping[str, Any], now: Micros) -> None:
    changed = connection.execute(update(kv).where(kv.c.key == told["key"]).values(value=told["value"], updated_at=now))
    if not changed.rowcount:
        row = {"key": told["key"], "value": told["value"], "updated_at": now}
        if not _enter(connection, kv, row):
            _set(connection, told, now)


def _delete(connection: Connection, told: Mapping[str, Any], now: Micros) -> None:
    connection.execute(delete(kv).where(kv.c.key == told["key"]))


def _incr(connection: Connection, told: Mapping[str, Any], now: Micros) -> dict[str, Any]:
    mine = kv.c.key == told["key"]
    stored = connection.scalar(select(kv.c.value).where(mine).with_for_update())
    try:
        number = advance(stored, told["default"], told["delta"])
    except NotANumber as error:
        return {"value": told["default"], "fault": str(error)}
    if stored is None:
        row = {"key": told["key"], "value": json.dumps(number), "updated_at": now}
        if not _enter(connection, kv, row):
            return _incr(connection, told, now)
        return {"value": number}
    connection.execute(update(kv).where(mine).values(value=json.dumps(number), updated_at=now))
    return {"value": number}


_CHANGES: Mapping[str, _Change] = {"kv.set": _set, "kv.delete": _delete, "kv.incr": _incr}
