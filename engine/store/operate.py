"""What an operator does to stored work: cancel, retry, pause, resume, policies."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import Connection, bindparam, delete, select, update

from engine.clock import Micros
from engine.dialect import insert_or_ignore
from engine.errors import OpError, UsageError
from engine.model import AttemptState, EdgeKind, OpStatus, QueuePolicy, WorkflowStatus
from engine.store import attempts
from engine.store.batches import batches
from engine.store.propagate import Consequences
from engine.store.rows import error_json
from engine.store.schema import edge, lane, op, op_alias, queue, result, workflow
from engine.store.settle import wake_capped

_FAR: Micros = 1 << 62


def cancel(connection: Connection, workflow_id: str, now: Micros) -> int:
    """End everything of a workflow that has not ended; how many ops. Raises UsageError."""
    row = connection.execute(select(workflow).where(workflow.c.id == workflow_id)).one_or_none()
    if row is None:
        raise UsageError(f'no workflow "{workflow_id}"')
    if row.status in (WorkflowStatus.SUCCEEDED, WorkflowStatus.CANCELED):
        return 0
    open_states = [OpStatus.PENDING.value, OpStatus.READY.value, OpStatus.RUNNING.value]
    ops = connection.execute(
        select(op.c.pk, op.c.status, op.c.queue_pk, op.c.generation, op.c.fence)
        .where(op.c.workflow_pk == row.pk, op.c.status.in_(open_states))
        .order_by(op.c.pk)
        .with_for_update()
    ).all()
    running = {item.pk for item in ops if item.status == OpStatus.RUNNING}
    error = OpError("canceled", f'workflow "{workflow_id}" was canceled')
    attempts.end(connection, dict.fromkeys(running), AttemptState.CANCELED, error_json(error, now), now)
    if ops:
        connection.execute(
            update(op)
            .where(op.c.pk == bindparam("_pk"))
            .values(
                status=OpStatus.CANCELED.value,
                updated_at=now,
                fence=bindparam("closing"),
                planned_json=None,
                token=None,
                worker=None,
                acquired_at=None,
                started_at=None,
                expires_at=None,
            ),
            [{"_pk": item.pk, "closing": item.generation if item.pk in running else item.fence} for item in ops],
        )
    consequences = Consequences(connection, now)
    consequences.write_errors({item.pk: error for item in ops})
    for item in ops:
        consequences.moved(row.pk, OpStatus(item.status), OpStatus.CANCELED)
    wake_capped(connection, {item.queue_pk for item in ops if item.pk in running}, now)
    connection.execute(update(workflow).where(workflow.c.pk == row.pk).values(canceled=True))
    if not ops:
        consequences.tally[row.pk]["pending"] += 0
    consequences.finish()
    return len(ops)


def find_op(connection: Connection, op_id: str, workflow_id: str | None) -> tuple[int, str, str]:
    """The op meant: (surrogate, workflow id, status). Raises UsageError where there is none or more than one."""
    query = (
        select(op.c.pk, workflow.c.id, op.c.status)
        .join(workflow, workflow.c.pk == op.c.workflow_pk)
        .where(op.c.status != "unborn")
    )
    aliased = select(op_alias.c.op_pk).where(op_alias.c.alias == op_id)
    query = query.where((op.c.id == op_id) | op.c.pk.in_(aliased))
    if workflow_id is not None:
        query = query.where(workflow.c.id == workflow_id)
    rows = connection.execute(query.order_by(op.c.pk).limit(5)).all()
    if not rows:
        where = f' in workflow "{workflow_id}"' if workflow_id else ""
        raise UsageError(f'no op "{op_id}"{where}')
    if len(rows) > 1:
        raise UsageError(
            f'op "{op_id}" exists in several workflows ({", ".join(row.id for row in rows)}): say which with --workflow'
        )
    return rows[0].pk, rows[0].id, rows[0].status


def retry(connection: Connection, op_id: str, workflow_id: str | None, now: Micros) -> int:
    """Run a failed op again and revive the dependents canceled because of it; how many ops. Raises UsageError."""
    pk, workflow_name, status = find_op(connection, op_id, workflow_id)
    if status != OpStatus.FAILED:
        raise UsageError(f'op "{op_id}" of workflow "{workflow_name}" is {status}; only a failed op can be retried')
    row = connection.execute(select(op).where(op.c.pk == pk).with_for_update()).one()
    revived = _revivable(connection, pk)
    connection.execute(
        update(op)
        .where(op.c.pk == pk)
        .values(status=OpStatus.READY.value, attempts=0, lost=0, planned_json=None, ready_at=now, updated_at=now)
    )
    for batch in batches([pk, *revived]):
        connection.execute(delete(result).where(result.c.op_pk.in_(batch)))
    consequences = Consequences(connection, now)
    consequences.moved(row.workflow_pk, OpStatus.FAILED, OpStatus.READY)
    consequences.became_ready(row.lane_pk, now)
    for batch in batches(revived):
        connection.execute(
            update(op)
            .where(op.c.pk.in_(batch))
            .values(status=OpStatus.PENDING.value, canceled_because=None, updated_at=now)
        )
    for _ in revived:
        consequences.moved(row.workflow_pk, OpStatus.CANCELED, OpStatus.PENDING)
    connection.execute(update(workflow).where(workflow.c.pk == row.workflow_pk).values(canceled=False))
    consequences.doomed(_still_doomed(connection, revived))
    consequences.finish()
    return 1 + len(revived)


def retry_workflow(connection: Connection, workflow_id: str, now: Micros) -> int:
    """Run every failed op of a workflow again; how many ops. Raises UsageError where there is nothing to retry."""
    pk = connection.scalar(select(workflow.c.pk).where(workflow.c.id == workflow_id))
    if pk is None:
        raise UsageError(f'no workflow "{workflow_id}"')
    failed = select(op.c.id).where(op.c.workflow_pk == pk, op.c.status == OpStatus.FAILED.value).order_by(op.c.pk)
    names = list(connection.scalars(failed))
    if not names:
        raise UsageError(f'workflow "{workflow_id}" has no failed op')
    return sum(retry(connection, name, workflow_id, now) for name in names)


def hurry(connection: Connection, workflow_id: str, now: Micros) -> int:
    """Let everything of a workflow that waits for its retry run now; how many ops. Raises UsageError."""
    pk = connection.scalar(select(workflow.c.pk).where(workflow.c.id == workflow_id))
    if pk is None:
        raise UsageError(f'no workflow "{workflow_id}"')
    waiting = (
        update(op)
        .where(op.c.workflow_pk == pk, op.c.status == OpStatus.READY.value, op.c.ready_at > now)
        .values(ready_at=now, updated_at=now)
        .returning(op.c.queue_pk)
    )
    queues = list(connection.scalars(waiting))
    _wake(connection, sorted(set(queues)), now)
    return len(queues)


def _revivable(connection: Connection, root: int) -> list[int]:
    query = (
        select(op.c.pk).where(op.c.canceled_because == root, op.c.status == OpStatus.CANCELED.value).order_by(op.c.pk)
    )
    return list(connection.scalars(query.with_for_update()))


def _still_doomed(connection: Connection, revived: list[int]) -> list[tuple[int, int]]:
    target = op.alias()
    doomed: list[tuple[int, int]] = []
    for batch in batches(revived):
        query = (
            select(edge.c.op_pk, edge.c.target_pk)
            .join(target, target.c.pk == edge.c.target_pk)
            .where(edge.c.op_pk.in_(batch), ~edge.c.satisfied, edge.c.kind == EdgeKind.SUCCESS.value)
            .where(target.c.status.in_([OpStatus.FAILED.value, OpStatus.CANCELED.value]))
        )
        doomed.extend((row.op_pk, row.target_pk) for row in connection.execute(query))
    return doomed


def ensure_lane(connection: Connection, site: str, key: str, machine: str, default: QueuePolicy) -> tuple[int, int]:
    """The (lane, queue) surrogates of a pacing domain, created where they do not exist yet."""
    columns = {"site": site, "key": key} | _policy_columns(default)
    connection.execute(insert_or_ignore(connection, queue), columns)
    queue_pk = int(connection.execute(select(queue.c.pk).where(queue.c.site == site, queue.c.key == key)).scalar_one())
    row = {"queue_pk": queue_pk, "machine": machine, "eligible_at": 0}
    connection.execute(insert_or_ignore(connection, lane), row)
    query = select(lane.c.pk).where(lane.c.queue_pk == queue_pk, lane.c.machine == machine)
    return int(connection.execute(query).scalar_one()), queue_pk


def put_policies(
    connection: Connection, site: str, policies: Mapping[str, QueuePolicy], default: QueuePolicy, now: Micros
) -> None:
    """Bring a site's queues in line with its manifest; queues it does not name get ``default``."""
    known = set(connection.scalars(select(queue.c.key).where(queue.c.site == site)))
    for key in sorted(known | policies.keys()):
        columns = _policy_columns(policies.get(key, default))
        if key not in known:
            connection.execute(insert_or_ignore(connection, queue), {"site": site, "key": key} | columns)
        changed = (
            update(queue)
            .where(queue.c.site == site, queue.c.key == key)
            .where(
                queue.c.max_in_flight.is_distinct_from(columns["max_in_flight"])
                | queue.c.rate.is_distinct_from(columns["rate"])
                | (queue.c.burst != columns["burst"])
            )
            .values(columns)
            .returning(queue.c.pk)
        )
        _wake(connection, list(connection.scalars(changed)), now)


def _policy_columns(policy: QueuePolicy) -> dict[str, float | int | None]:
    return {"max_in_flight": policy.max_in_flight, "rate": policy.rate, "burst": policy.burst}


def pause(connection: Connection, site: str, key: str) -> None:
    """Stop claims from a queue. Raises UsageError for a queue nobody used yet."""
    pks = _mark(connection, site, key, paused=True)
    connection.execute(update(lane).where(lane.c.queue_pk.in_(pks)).values(eligible_at=_FAR))


def resume(connection: Connection, site: str, key: str, now: Micros) -> None:
    """Allow claims from a queue again. Raises UsageError for a queue nobody used yet."""
    _wake(connection, _mark(connection, site, key, paused=False), now)


def _mark(connection: Connection, site: str, key: str, *, paused: bool) -> list[int]:
    marked = update(queue).where(queue.c.site == site, queue.c.key == key).values(paused=paused).returning(queue.c.pk)
    pks = list(connection.scalars(marked))
    if not pks:
        raise UsageError(f'site "{site}" has no queue "{key}" yet')
    return pks


def _wake(connection: Connection, queues: list[int], now: Micros) -> None:
    if queues:
        connection.execute(
            update(lane).where(lane.c.queue_pk.in_(queues), lane.c.eligible_at > now).values(eligible_at=now)
        )


def is_idle(connection: Connection, machine: str, sites: frozenset[str] | None) -> bool:
    """Whether nothing is running, ready or delayed that this machine could run; paused queues do not count."""
    running = select(op.c.pk).where(op.c.status == OpStatus.RUNNING.value)
    waiting = (
        select(lane.c.pk)
        .join(queue, queue.c.pk == lane.c.queue_pk)
        .where(~queue.c.paused, lane.c.machine.in_(["", machine]))
        .where(select(op.c.pk).where(op.c.lane_pk == lane.c.pk, op.c.status == OpStatus.READY.value).exists())
    )
    near = select(lane.c.pk).where(lane.c.machine.in_(["", machine]))
    duties = select(op.c.pk).where(op.c.status == OpStatus.CANCELED.value, op.c.fence.is_not(None))
    duties = duties.where(op.c.lane_pk.in_(near))
    if sites is not None:
        duties = duties.where(op.c.site.in_(sorted(sites)))
        running = running.where(op.c.site.in_(sorted(sites)))
        waiting = waiting.where(queue.c.site.in_(sorted(sites)))
    return all(connection.execute(query.limit(1)).first() is None for query in (running, waiting, duties))
