"""A new workflow from one that has ended: what still holds is copied set-wise, the rest waits to run again."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Table, case, func, insert, literal, or_, select, update

from engine.clock import Micros
from engine.dialect import insert_or_ignore
from engine.errors import UsageError
from engine.faults import did_you_mean
from engine.model import EdgeKind, OpStatus, WorkflowStatus
from engine.store.fork_scope import State, copied, link, names_in_use, rerun, scope
from engine.store.graph import UNBORN
from engine.store.propagate import Consequences
from engine.store.rows import dumps
from engine.store.schema import (
    artifact,
    attempt,
    cookie_jar,
    edge,
    lane,
    log_line,
    op,
    op_alias,
    result,
    site,
    workflow,
)
from engine.store.types import Forked


def fork(
    connection: Connection, source_id: str, from_ops: Sequence[str], new_id: str, now: Micros
) -> tuple[Forked, int]:
    """Store the new workflow; also how many of its queues have something to do.

    Raises UsageError for an unknown op, a workflow that is unknown or has not ended, and an id that is taken.
    """
    source = _source(connection, source_id)
    roots = sorted({_root(connection, source, op_id) for op_id in from_ops})
    copying = _Copying(connection, source.pk, _insert_workflow(connection, source, new_id, from_ops, now), now)
    with scope(connection, source.pk, roots):
        counts = copying.counts()
        copying.ops()
        copying.edges()
        copying.outcomes()
        copying.names_and_cookies()
    consequences = copying.begin()
    forked = Forked(
        workflow_id=new_id,
        source_id=source_id,
        kept=counts[State.KEPT],
        kept_unsuccessful=counts["unsuccessful"],
        again=counts[State.AGAIN],
        dropped=counts["rerun"] - counts[State.AGAIN],
    )
    return forked, consequences.made_ready


def _source(connection: Connection, workflow_id: str) -> Any:
    query = select(workflow).where(workflow.c.id == workflow_id).with_for_update(read=True)
    row = connection.execute(query).one_or_none()
    if row is None:
        recent = connection.scalars(select(workflow.c.id).order_by(workflow.c.pk.desc()).limit(200))
        raise UsageError(_unknown(f'no workflow "{workflow_id}"', did_you_mean(workflow_id, recent)))
    if row.status in (WorkflowStatus.PENDING, WorkflowStatus.RUNNING):
        raise UsageError(f'workflow "{workflow_id}" is {row.status}; only one that has ended can be forked')
    return row


def _root(connection: Connection, source: Any, op_id: str) -> int:
    aliased = select(op_alias.c.op_pk).where(op_alias.c.workflow_pk == source.pk, op_alias.c.alias == op_id)
    ours = (op.c.workflow_pk == source.pk) & (op.c.status != UNBORN)
    pk = connection.scalar(select(op.c.pk).where(ours, or_(op.c.id == op_id, op.c.pk.in_(aliased))))
    if pk is None:
        some = connection.scalars(select(op.c.id).where(ours).order_by(op.c.pk).limit(1000))
        raise UsageError(_unknown(f'no op "{op_id}" in workflow "{source.id}"', did_you_mean(op_id, some)))
    return int(pk)


def _unknown(message: str, hint: str | None) -> str:
    return f"{message}; {hint}" if hint else message


def _insert_workflow(connection: Connection, source: Any, new_id: str, from_ops: Sequence[str], now: Micros) -> int:
    told = {"forkedFrom": source.id, "forkedFromOps": ",".join(from_ops)}
    columns = {
        "id": new_id,
        "site": source.site,
        "name": source.name,
        "status": WorkflowStatus.PENDING.value,
        "input_json": source.input_json,
        "metadata_json": dumps(json.loads(source.metadata_json) | told),
        "created_at": now,
        "updated_at": now,
    }
    pk = connection.scalar(insert_or_ignore(connection, workflow).values(columns).returning(workflow.c.pk))
    if pk is None:
        raise UsageError(f'workflow "{new_id}" exists already: choose another --workflow-id')
    return int(pk)


_SPEC = (
    *("kind", "site", "queue_pk", "lane_pk", "dedup_key", "parent_id", "input_json", "metadata_json"),
    *("retry_json", "spec_hash", "not_before"),
)
_HISTORY = ("status", "ready_at", "created_at", "updated_at", "generation", "attempts", "claims", "lost")
_DROPPED = (OpStatus.FAILED.value, OpStatus.CANCELED.value)


@dataclass(frozen=True, slots=True)
class _Copying:
    connection: Connection
    source_pk: int
    new_pk: int
    now: Micros

    def counts(self) -> dict[str, int]:
        """How many ops are in which state, run again in one way or the other, and stay without having succeeded."""
        by_state = dict.fromkeys((state.value for state in State), 0)
        by_state.update(
            (state, number)
            for state, number in self.connection.execute(select(copied.c.state, func.count()).group_by(copied.c.state))
        )
        unsuccessful = (
            select(func.count())
            .select_from(copied)
            .join(op, op.c.pk == copied.c.pk)
            .where(copied.c.state == State.KEPT.value, op.c.status != OpStatus.SUCCEEDED.value)
        )
        return by_state | {
            "rerun": self.connection.execute(select(func.count()).select_from(rerun)).scalar_one(),
            "unsuccessful": self.connection.execute(unsuccessful).scalar_one(),
        }

    def ops(self) -> None:
        """The rows, in their old order, and their new surrogates."""
        spec = {name: op.c[name] for name in _SPEC}
        fresh = {"ready_at": literal(0), "created_at": literal(self.now), "updated_at": literal(self.now)}
        waiting = fresh | {"status": literal(OpStatus.PENDING.value)}
        nothing = {name: literal("") for name in ("kind", "site", "dedup_key", "spec_hash")}
        nothing |= {name: literal("{}") for name in ("metadata_json", "retry_json")}
        unborn = fresh | nothing | {"status": literal(UNBORN), "input_json": literal("null"), "not_before": literal(0)}
        self._insert_ops(State.KEPT, spec | {name: op.c[name] for name in _HISTORY})
        self._insert_ops(State.AGAIN, spec | waiting)
        self._insert_ops(State.BLANK, unborn)
        born = select(op.c.pk).where(op.c.workflow_pk == self.new_pk, op.c.id == copied.c.id)
        self.connection.execute(update(copied).values(new_pk=born.scalar_subquery()))
        self._remap_causes()
        self._follow_homes()

    def _insert_ops(self, state: State, columns: Mapping[str, Any]) -> None:
        values = {"workflow_pk": literal(self.new_pk), "id": copied.c.id, "unmet": literal(0)} | dict(columns)
        rows = (
            select(*values.values())
            .select_from(copied)
            .join(op, op.c.pk == copied.c.pk)
            .where(copied.c.state == state.value)
            .order_by(op.c.pk)
        )
        self.connection.execute(insert(op).from_select(list(values), rows))

    def _remap_causes(self) -> None:
        """A retry in the new workflow revives what was canceled there because of the same op."""
        old, cause = op.alias("old"), copied.alias("cause")
        root = (
            select(cause.c.new_pk)
            .select_from(copied)
            .join(old, old.c.pk == copied.c.pk)
            .join(cause, cause.c.pk == old.c.canceled_because)
            .where(copied.c.new_pk == op.c.pk)
        )
        canceled = (op.c.workflow_pk == self.new_pk) & (op.c.status == OpStatus.CANCELED.value)
        self.connection.execute(update(op).where(canceled).values(canceled_because=root.scalar_subquery()))

    def _follow_homes(self) -> None:
        """Ops that are pinned go where their site's DB is now."""
        old, new = lane.alias("old"), lane.alias("new")
        there = (
            select(new.c.pk)
            .select_from(old)
            .join(site, site.c.name == op.c.site)
            .join(new, (new.c.queue_pk == old.c.queue_pk) & (new.c.machine == site.c.home))
            .where(old.c.pk == op.c.lane_pk, old.c.machine != "")
            .correlate(op)
            .scalar_subquery()
        )
        unfinished = (op.c.workflow_pk == self.new_pk) & (op.c.status != OpStatus.SUCCEEDED.value)
        self.connection.execute(update(op).where(unfinished).values(lane_pk=func.coalesce(there, op.c.lane_pk)))

    def edges(self) -> None:
        """The edges; one to an op that stays is satisfied as its state says. Then who waits for how many."""
        cause, target = copied.alias("cause"), op.alias("target")
        satisfied = case(
            (target.c.status == OpStatus.SUCCEEDED.value, literal(True)),
            (target.c.status.in_(_DROPPED), link.c.kind != EdgeKind.SUCCESS.value),
            else_=literal(False),
        )
        rows = (
            select(copied.c.new_pk, target.c.pk, link.c.kind, satisfied)
            .select_from(link)
            .join(copied, copied.c.pk == link.c.op_pk)
            .join(cause, cause.c.pk == link.c.cause_pk)
            .join(target, target.c.pk == cause.c.new_pk)
            .where(link.c.kind.is_not(None))
        )
        self.connection.execute(insert(edge).from_select(["op_pk", "target_pk", "kind", "satisfied"], rows))
        unmet = select(func.count()).select_from(edge).where(edge.c.op_pk == op.c.pk, ~edge.c.satisfied)
        ours = op.c.workflow_pk == self.new_pk
        waiting = op.c.status.in_([OpStatus.PENDING.value, OpStatus.CANCELED.value])
        self.connection.execute(update(op).where(ours, waiting).values(unmet=unmet.scalar_subquery()))
        due = case((op.c.not_before > self.now, op.c.not_before), else_=self.now)
        free = (op.c.status == OpStatus.PENDING.value) & (op.c.unmet == 0)
        self.connection.execute(update(op).where(ours, free).values(status=OpStatus.READY.value, ready_at=due))

    def outcomes(self) -> None:
        """What the ops that stay produced: results, artifacts (their bodies are shared), attempts, log lines."""
        self._insert_of_kept(result, {})
        self._insert_of_kept(artifact, {"workflow_pk": literal(self.new_pk)})
        for told in (attempt, log_line):
            self._insert_of_kept(told, {"token": literal(f"fork:{self.new_pk}:") + told.c.token})

    def _insert_of_kept(self, table: Table, changed: Mapping[str, Any]) -> None:
        values = {column.name: column for column in table.c if column.name != "pk"} | {"op_pk": copied.c.new_pk}
        values |= changed
        rows = select(*values.values()).select_from(copied).join(table, table.c.op_pk == copied.c.pk)
        rows = rows.where(copied.c.state == State.KEPT.value)
        if "pk" in table.c:
            rows = rows.order_by(table.c.pk)
        self.connection.execute(insert(table).from_select(list(values), rows))

    def names_and_cookies(self) -> None:
        """Ids that were deduplicated away, as far as something that stays used them; the cookie jar."""
        used = names_in_use()
        names = (
            select(literal(self.new_pk), op_alias.c.alias, copied.c.new_pk)
            .select_from(op_alias)
            .join(copied, copied.c.pk == op_alias.c.op_pk)
            .outerjoin(used, used.c.said == op_alias.c.alias)
            .where(op_alias.c.workflow_pk == self.source_pk, copied.c.state != State.BLANK.value)
            .where(used.c.said.is_(None) | (used.c.stays == 1), op_alias.c.alias != copied.c.id)
        )
        self.connection.execute(insert(op_alias).from_select(["workflow_pk", "alias", "op_pk"], names))
        jar = select(literal(self.new_pk), cookie_jar.c.jar_json, literal(self.now))
        jar = jar.where(cookie_jar.c.workflow_pk == self.source_pk)
        self.connection.execute(insert(cookie_jar).from_select(["workflow_pk", "jar_json", "updated_at"], jar))

    def begin(self) -> Consequences:
        """Count the ops, wake the lanes, and follow up what can never run."""
        consequences = Consequences(self.connection, self.now)
        ours = op.c.workflow_pk == self.new_pk
        by_status = select(op.c.status, func.count()).where(ours, op.c.status != UNBORN).group_by(op.c.status)
        for status, number in self.connection.execute(by_status):
            consequences.moved(self.new_pk, None, OpStatus(status), number)
        ready = select(op.c.lane_pk, func.min(op.c.ready_at)).where(ours, op.c.status == OpStatus.READY.value)
        for lane_pk, ready_at in self.connection.execute(ready.group_by(op.c.lane_pk)):
            consequences.became_ready(lane_pk, ready_at)
        target = op.alias("target")
        doomed = (
            select(edge.c.op_pk, edge.c.target_pk)
            .select_from(op)
            .join(edge, edge.c.op_pk == op.c.pk)
            .join(target, target.c.pk == edge.c.target_pk)
            .where(ours, op.c.status == OpStatus.PENDING.value, ~edge.c.satisfied, target.c.status.in_(_DROPPED))
            .where(edge.c.kind == EdgeKind.SUCCESS.value)
        )
        consequences.doomed([(row.op_pk, row.target_pk) for row in self.connection.execute(doomed)])
        consequences.finish()
        return consequences
