"""The home machines of SQLite site DBs, and how one moves.

Ops that need a site's DB wait in lanes of its home. A move renames those lanes, so that ops which somebody who has not
heard of it still puts there move along.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, func, select, update

from engine.dialect import insert_or_ignore
from engine.errors import UsageError
from engine.model import OpStatus
from engine.store.schema import lane, op, queue, site

_OPEN = [OpStatus.PENDING.value, OpStatus.READY.value, OpStatus.RUNNING.value]


@dataclass(frozen=True, slots=True)
class Rehomed:
    """What a move did; ``previous`` is None for a site nobody had run yet."""

    previous: str | None
    moved: int


def home_of(connection: Connection, name: str) -> str | None:
    """The home of a site; None where nobody asked for it yet."""
    home = connection.scalar(select(site.c.home).where(site.c.name == name))
    return None if home is None else str(home)


def rehome(connection: Connection, name: str, machine: str, *, force: bool) -> Rehomed:
    """Make ``machine`` the home of a site's DB and move its waiting ops there.

    Raises UsageError while ops of the site run elsewhere, unless ``force`` says that they never come back.
    """
    connection.execute(select(site.c.home).where(site.c.name == name).with_for_update())
    previous = home_of(connection, name)
    elsewhere = connection.execute(
        select(lane.c.pk, lane.c.queue_pk, lane.c.machine)
        .join(queue, queue.c.pk == lane.c.queue_pk)
        .where(queue.c.site == name, lane.c.machine.not_in(["", machine]))
        .order_by(lane.c.pk)
        .with_for_update(of=lane)
    ).all()
    lanes = [row.pk for row in elsewhere]
    if not force:
        _refuse_running(connection, name, lanes)
    moved = connection.scalar(
        select(func.count()).select_from(op).where(op.c.lane_pk.in_(lanes), op.c.status.in_(_OPEN))
    )
    for row in elsewhere:
        move_lane(connection, row.pk, row.queue_pk, machine)
    if previous is None:
        connection.execute(insert_or_ignore(connection, site), {"name": name, "home": machine})
    connection.execute(update(site).where(site.c.name == name).values(home=machine))
    return Rehomed(previous, int(moved or 0))


def _refuse_running(connection: Connection, name: str, lanes: list[int]) -> None:
    query = (
        select(op.c.id, op.c.worker, lane.c.machine)
        .join(lane, lane.c.pk == op.c.lane_pk)
        .where(op.c.lane_pk.in_(lanes), op.c.status == OpStatus.RUNNING.value)
    )
    running = connection.execute(query.limit(1)).first()
    if running is not None:
        raise UsageError(
            f'op "{running.id}" of site "{name}" is running on {running.machine} (worker {running.worker}): wait until '
            "it has ended or stop that worker; --force if the machine is gone for good"
        )


def move_lane(connection: Connection, lane_pk: int, queue_pk: int, machine: str) -> None:
    """Rename a lane, or empty it into the one that has the name."""
    query = select(lane.c.pk, lane.c.eligible_at).where(lane.c.queue_pk == queue_pk, lane.c.machine == machine)
    there = connection.execute(query.with_for_update()).first()
    if there is None:
        connection.execute(update(lane).where(lane.c.pk == lane_pk).values(machine=machine))
        return
    connection.execute(update(op).where(op.c.lane_pk == lane_pk, op.c.status.in_(_OPEN)).values(lane_pk=there.pk))
    earlier = connection.scalar(select(lane.c.eligible_at).where(lane.c.pk == lane_pk))
    if earlier is not None and earlier < there.eligible_at:
        connection.execute(update(lane).where(lane.c.pk == there.pk).values(eligible_at=earlier))
