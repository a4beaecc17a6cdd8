"""The machines that run hooks, the addresses they speak from, and the programs found on them."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Table, select, update

from engine.clock import Micros
from engine.dialect import insert_or_ignore
from engine.model import Binary
from engine.store.schema import binary, machine, network_interface


def meet(connection: Connection, machine_id: str, hostname: str, system: str, address: str, now: Micros) -> None:
    """Remember a machine and, if it has one, its address."""
    common = {"created_at": now, "seen_at": now}
    _put(connection, machine, {"id": machine_id}, common | {"hostname": hostname, "system": system})
    if address:
        _put(connection, network_interface, {"machine": machine_id, "address": address}, common)


def put_binary(connection: Connection, machine_id: str, found: Binary, now: Micros) -> None:
    """What is known about a program on a machine."""
    values = {
        "status": found.status,
        "abspath": found.abspath,
        "version": found.version,
        "sha256": found.sha256,
        "provider": found.provider,
        "error": found.error,
        "updated_at": now,
    }
    _put(connection, binary, {"machine": machine_id, "name": found.name}, values)


def binaries(connection: Connection, machine_id: str) -> dict[str, Binary]:
    """The programs known on a machine, by name."""
    query = select(binary).where(binary.c.machine == machine_id).order_by(binary.c.name)
    return {
        row.name: Binary(
            name=row.name,
            status=row.status,
            abspath=row.abspath,
            version=row.version,
            sha256=row.sha256,
            provider=row.provider,
            error=row.error,
        )
        for row in connection.execute(query)
    }


def _put(connection: Connection, table: Table, key: dict[str, Any], values: dict[str, Any]) -> None:
    connection.execute(insert_or_ignore(connection, table), key | values)
    changed = {name: value for name, value in values.items() if name != "created_at"}
    where = [table.c[name] == value for name, value in key.items()]
    connection.execute(update(table).where(*where).values(changed))
