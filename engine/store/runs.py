"""What ends mean to schedules: of a run, of its iteration before the run's own end, of the worker that fires one.

Called by whoever settles and sweeps; the firing itself is in ``firing``, which stands above them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, bindparam, case, update

from engine.clock import Micros
from engine.dialect import Among
from engine.store.prepared import Prepared
from engine.store.schema import schedule


def runs_ended(connection: Connection, workflow_pks: Sequence[int], now: Micros) -> None:
    """Workflows that have ended hold their schedules up no longer."""
    _RUN_ENDED.run(connection, pks=workflow_pks, now=now)


def reschedule(connection: Connection, wishes: Mapping[int, Micros], now: Micros) -> None:
    """The schedules that made these workflows are due again so long after now, whatever else of them still runs."""
    if wishes:
        rows = [{"_workflow": pk, "after": after, "now": now} for pk, after in sorted(wishes.items())]
        connection.execute(_RESCHEDULE, rows)


def bury_firings(connection: Connection, worker_id: str, now: Micros) -> None:
    """A worker is certainly dead: what it held is due for others."""
    mine = (schedule.c.worker == worker_id) & schedule.c.firing.is_not(None)
    connection.execute(update(schedule).where(mine).values(look_at=now))


# Built once, see claim.py.

_NOW = bindparam("now", type_=schedule.c.due_at.type)
_AFTER = bindparam("after", type_=schedule.c.due_at.type)


def _freed(due: Any) -> dict[str, Any]:
    return {
        "running_pk": None,
        "due_at": case((schedule.c.delay.is_not(None), due), else_=schedule.c.due_at),
        "look_at": case(
            (schedule.c.queued_json != "[]", _NOW),
            (schedule.c.paused, None),
            (schedule.c.delay.is_not(None), due),
            else_=schedule.c.due_at,
        ),
    }


_RUN_ENDED = Prepared(
    update(schedule).where(Among(schedule.c.running_pk, "pks")).values(_freed(_NOW + schedule.c.delay))
)
_RESCHEDULE = update(schedule).where(schedule.c.running_pk == bindparam("_workflow")).values(_freed(_NOW + _AFTER))
