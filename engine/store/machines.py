"""The machines that run hooks, the addresses they speak from, and the programs found on them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, Select, Table, select, update

from engine.clock import Micros
from engine.dialect import Database, insert_or_ignore
from engine.model import Binary, MachineFacts, OpStatus
from engine.store.homes import move_lane
from engine.store.schema import binary, lane, machine, meta, network_interface, op, queue, worker

#: The row of ``meta`` that holds the configuration of a machine's hooks.
_CONFIG = "hook_config:{machine}"
_OPEN = [OpStatus.PENDING.value, OpStatus.READY.value]


def meet(connection: Connection, machine_id: str, hostname: str, system: str, address: str, now: Micros) -> None:
    """Remember a machine and, if it has one, its address."""
    common = {"created_at": now, "seen_at": now}
    _put(connection, machine, {"id": machine_id}, common | {"hostname": hostname, "system": system})
    if address:
        _put(connection, network_interface, {"machine": machine_id, "address": address}, common)


def take_over(database: Database, machine_id: str, sites: frozenset[str], before: Micros) -> tuple[str, ...]:
    """Let this machine run the ops that wait for machines nobody has heard of since ``before``; those machines.

    ``sites`` are those whose databases are no machine's own.
    """
    with database.read() as connection:
        if not connection.execute(_abandoned(machine_id, sites, before).limit(1)).first():
            return ()
    with database.write() as connection:
        rows = connection.execute(_abandoned(machine_id, sites, before).order_by(lane.c.pk)).all()
        for row in rows:
            move_lane(connection, row.pk, row.queue_pk, machine_id)
    return tuple(sorted({row.machine for row in rows}))


def _abandoned(machine_id: str, sites: frozenset[str], before: Micros) -> Select[tuple[int, int, str]]:
    heard = select(worker.c.machine).where(worker.c.seen_at >= before)
    met = select(machine.c.id).where(machine.c.seen_at >= before)
    waiting = select(op.c.pk).where(op.c.lane_pk == lane.c.pk, op.c.status.in_(_OPEN))
    return (
        select(lane.c.pk, lane.c.queue_pk, lane.c.machine)
        .join(queue, queue.c.pk == lane.c.queue_pk)
        .where(queue.c.site.in_(sorted(sites)), lane.c.machine.not_in(["", machine_id]))
        .where(lane.c.machine.not_in(heard), lane.c.machine.not_in(met), waiting.exists())
    )


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


def configure(connection: Connection, machine_id: str, values: Mapping[str, Any]) -> None:
    """Set configuration of all hooks of a machine; None takes a key away."""
    key = _CONFIG.format(machine=machine_id)
    connection.execute(insert_or_ignore(connection, meta), {"key": key, "value": "{}"})
    standing = connection.scalar(select(meta.c.value).where(meta.c.key == key).with_for_update())
    merged = {name: value for name, value in (json.loads(standing or "{}") | dict(values)).items() if value is not None}
    connection.execute(update(meta).where(meta.c.key == key).values(value=json.dumps(merged)))


def facts(connection: Connection, machine_id: str) -> MachineFacts:
    """All that hooks have found out about a machine."""
    config = connection.scalar(select(meta.c.value).where(meta.c.key == _CONFIG.format(machine=machine_id)))
    return MachineFacts(binaries=binaries(connection, machine_id), config=json.loads(config or "{}"))


def _put(connection: Connection, table: Table, key: dict[str, Any], values: dict[str, Any]) -> None:
    connection.execute(insert_or_ignore(connection, table), key | values)
    changed = {name: value for name, value in values.items() if name != "created_at"}
    where = [table.c[name] == value for name, value in key.items()]
    connection.execute(update(table).where(*where).values(changed))
