"""How far work is: ops per queue by state, of one workflow or of the whole engine DB."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import Connection, func, select

from engine.clock import Micros
from engine.model import OpStatus
from engine.store.schema import op, queue, result, workflow
from engine.views.lists import queues, shown_error

_ERRORS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """A look at the work. ``queues`` maps "site queue" to state to number; "delayed" ops are ready later."""

    queues: Mapping[str, Mapping[str, int]]
    #: The workflow's state; "" where the look is at the whole database.
    status: str = ""
    errors: tuple[str, ...] = ()

    @property
    def remaining(self) -> int:
        """Ops that have not ended."""
        return sum(
            sum(states.get(one, 0) for one in ("pending", "ready", "delayed", "running"))
            for states in self.queues.values()
        )

    @property
    def ended(self) -> int:
        """Ops that have ended."""
        return sum(
            sum(states.get(one, 0) for one in ("succeeded", "failed", "canceled")) for states in self.queues.values()
        )


def of_everything(connection: Connection, now: Micros) -> Progress:
    """What waits and runs in every queue; what has ended is not counted."""
    lines = queues(connection, now, None)
    return Progress(queues={f"{one.site} {one.queue}".strip(): one.ops for one in lines if any(one.ops.values())})


def of_workflow(connection: Connection, workflow_pk: int, now: Micros) -> Progress:
    """All ops of a workflow, and the last of its errors."""
    delayed = (op.c.status == OpStatus.READY.value) & (op.c.ready_at > now)
    query = (
        select(queue.c.site, queue.c.key, op.c.status, delayed.label("later"), func.count().label("number"))
        .outerjoin(queue, queue.c.pk == op.c.queue_pk)
        .where(op.c.workflow_pk == workflow_pk, op.c.status != "unborn")
        .group_by(queue.c.site, queue.c.key, op.c.status, delayed)
    )
    found: dict[str, dict[str, int]] = {}
    for row in connection.execute(query):
        states = found.setdefault(f"{row.site or ''} {row.key or ''}".strip(), {})
        state = "delayed" if row.later else row.status
        states[state] = states.get(state, 0) + row.number
    status = connection.execute(select(workflow.c.status).where(workflow.c.pk == workflow_pk)).scalar_one()
    failed = (
        select(op.c.id, result.c.error_json)
        .join(result, result.c.op_pk == op.c.pk)
        .where(op.c.workflow_pk == workflow_pk, op.c.status == OpStatus.FAILED.value)
        .order_by(result.c.completed_at.desc())
        .limit(_ERRORS)
    )
    errors = [f"{row.id}: {shown_error(row.error_json).summary}" for row in connection.execute(failed)]
    return Progress(queues=found, status=status, errors=tuple(reversed(errors)))
