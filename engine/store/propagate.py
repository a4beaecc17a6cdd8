"""What follows when ops end: dependents become ready or are canceled, workflows get their counters and status.

Everything is counted: an edge is satisfied once and decrements its owner once, a workflow row gets one delta per
transaction, last of all rows, in order of its surrogate.
"""

from __future__ import annotations

import graphlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import BigInteger, Connection, bindparam, case, cast, delete, insert, select, update

from engine.clock import Micros
from engine.dialect import Among, each_pair, number_at
from engine.errors import OpError
from engine.model import EdgeKind, OpStatus, WorkflowStatus
from engine.store.batches import batches
from engine.store.graph import UNBORN, Inserted
from engine.store.prepared import Prepared
from engine.store.rows import error_json
from engine.store.runs import runs_ended
from engine.store.schema import edge, lane, op, op_is, result, workflow

_COUNTER = {
    OpStatus.PENDING: "pending",
    OpStatus.READY: "active",
    OpStatus.RUNNING: "active",
    OpStatus.SUCCEEDED: "succeeded",
    OpStatus.FAILED: "failed",
    OpStatus.CANCELED: "dropped",
}


@dataclass(slots=True)
class Consequences:
    """Collects what one transaction changes in the graph and writes it."""

    connection: Connection
    now: Micros
    tally: dict[int, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    wake: dict[int, Micros] = field(default_factory=dict)
    made_ready: int = 0

    def moved(self, workflow_pk: int, before: OpStatus | None, after: OpStatus | None, number: int = 1) -> None:
        """Count a change of state of ops; None is not there yet, or no longer."""
        counters = self.tally[workflow_pk]
        if before is not None:
            counters[_COUNTER[before]] -= number
        if after is not None:
            counters[_COUNTER[after]] += number

    def inserted(self, ops: Inserted) -> None:
        """Count new ops and follow up what their edges and aliases already decide."""
        for _, workflow_pk, lane_pk, ready_at in ops.ready:
            self.moved(workflow_pk, None, OpStatus.READY)
            self.became_ready(lane_pk, ready_at)
        for _, workflow_pk in ops.pending:
            self.moved(workflow_pk, None, OpStatus.PENDING)
        if ops.met:
            self._decrement(ops.met)
        self.doomed(ops.doomed)

    def doomed(self, pairs: Iterable[tuple[int, int]]) -> None:
        """Pending ops, each with a required dependency that has failed or was canceled already."""
        self.ended(self._cancel_dependents(pairs))

    def became_ready(self, lane_pk: int, ready_at: Micros) -> None:
        """An op of the lane may be claimed from ``ready_at`` on."""
        self.made_ready += 1
        self.wake[lane_pk] = min(ready_at, self.wake.get(lane_pk, ready_at))

    def ended(self, states: Mapping[int, OpStatus], settled_once: Iterable[int] = ()) -> None:
        """Ops that reached a terminal state, and ops whose first attempt ended without one."""
        while states or settled_once:
            met = self._satisfy(states, settled_once)
            self._decrement(met)
            states = self._cancel_dependents(self._doomed_by(states))
            settled_once = ()

    def begun(self, pk: int) -> None:
        """A running op said that nobody need wait for its end."""
        statement = update(edge).where(edge.c.target_pk == pk, ~edge.c.satisfied, edge.c.kind == EdgeKind.BEGUN.value)
        self._decrement(self.connection.scalars(statement.values(satisfied=True).returning(edge.c.op_pk)).all())

    def _satisfy(self, states: Mapping[int, OpStatus], settled_once: Iterable[int]) -> list[int]:
        met: list[int] = []
        succeeded = [pk for pk, state in states.items() if state is OpStatus.SUCCEEDED]
        dropped = [pk for pk, state in states.items() if state is not OpStatus.SUCCEEDED]
        for targets, statement in ((succeeded, _SATISFY), (dropped, _SATISFY_LAX), (settled_once, _SATISFY_SETTLED)):
            for batch in batches(sorted(targets)):
                met.extend(statement.scalars(self.connection, pks=batch))
        return met

    def _decrement(self, met: Iterable[int]) -> None:
        owners_by_count: dict[int, list[int]] = defaultdict(list)
        for owner, count in sorted(Counter(met).items()):
            owners_by_count[count].append(owner)
        for count, owners in sorted(owners_by_count.items()):
            for batch in batches(owners):
                _DECREMENT.run(self.connection, pks=batch, count=count)
                self._promote(batch)

    def _promote(self, owners: list[int]) -> None:
        for row in _PROMOTE.rows(self.connection, pks=owners, now=self.now):
            self.moved(row.workflow_pk, OpStatus.PENDING, OpStatus.READY)
            self.became_ready(row.lane_pk, row.ready_at)

    def _doomed_by(self, states: Mapping[int, OpStatus]) -> list[tuple[int, int]]:
        dropped = sorted(pk for pk, state in states.items() if state is not OpStatus.SUCCEEDED)
        doomed: list[tuple[int, int]] = []
        for batch in batches(dropped):
            doomed.extend((row.op_pk, row.target_pk) for row in _DOOMED.rows(self.connection, pks=batch))
        return doomed

    def _cancel_dependents(self, doomed: Iterable[tuple[int, int]]) -> dict[int, OpStatus]:
        reason = dict(sorted(doomed, reverse=True))
        if not reason:
            return {}
        targets = op.alias()
        known = {}
        for batch in batches(sorted(set(reason.values()))):
            query = select(targets.c.pk, targets.c.id, targets.c.status, targets.c.canceled_because)
            known.update({row.pk: row for row in self.connection.execute(query.where(targets.c.pk.in_(batch)))})
        errors, because = {}, {}
        for owner, target in reason.items():
            row = known[target]
            because[owner] = row.canceled_because or row.pk
            errors[owner] = OpError("dependency_failed", f'dependency "{row.id}" {_ENDING[row.status]}')
        return self.cancel(errors, because)

    def cancel(self, errors: Mapping[int, OpError], because: Mapping[int, int]) -> dict[int, OpStatus]:
        """Cancel pending ops with a result row that says why; those that really were pending."""
        canceled: dict[int, OpStatus] = {}
        for batch in batches(sorted(errors)):
            rows = self.connection.execute(
                update(op)
                .where(op.c.pk.in_(batch), op.c.status == OpStatus.PENDING.value)
                .values(status=OpStatus.CANCELED.value, updated_at=self.now)
                .returning(op.c.pk, op.c.workflow_pk)
            ).all()
            for row in rows:
                canceled[row.pk] = OpStatus.CANCELED
                self.moved(row.workflow_pk, OpStatus.PENDING, OpStatus.CANCELED)
        self.write_errors({pk: errors[pk] for pk in canceled})
        marked = [{"_pk": pk, "root": because[pk]} for pk in sorted(canceled) if pk in because]
        if marked:
            self.connection.execute(
                update(op).where(op.c.pk == bindparam("_pk")).values(canceled_because=bindparam("root")), marked
            )
        return canceled

    def write_errors(self, errors: Mapping[int, OpError]) -> None:
        """Result rows of ops that ended without data."""
        if not errors:
            return
        for batch in batches(sorted(errors)):
            self.connection.execute(delete(result).where(result.c.op_pk.in_(batch)))
        rows = [
            {
                "op_pk": pk,
                "data_json": "null",
                "records_json": "[]",
                "emitted_ids_json": "[]",
                "error_json": error_json(error, self.now),
                "completed_at": self.now,
            }
            for pk, error in sorted(errors.items())
        ]
        self.connection.execute(insert(result), rows)

    def finish(self) -> None:
        """Write what is left: lanes to be visited earlier, then the workflow rows."""
        done: set[int] = set()
        while self.tally:
            tally, self.tally = self.tally, defaultdict(Counter)
            for row in self._reckon(tally):
                done.discard(row.pk)
                if row.active == 0 and row.pending > 0:
                    self._resolve_dangling(row.pk)
                elif row.active == 0:
                    done.add(row.pk)
        if done:
            runs_ended(self.connection, sorted(done), self.now)
        if self.wake:
            _WAKE.many(self.connection, [{"_pk": pk, "at": at} for pk, at in sorted(self.wake.items())])

    def _reckon(self, tally: Mapping[int, Counter[str]]) -> list[Any]:
        changes = {pk: [counts[name] for name in _COUNTERS] for pk, counts in tally.items()}
        return _RECKON.rows(self.connection, changes=changes, now=self.now)

    def _resolve_dangling(self, workflow_pk: int) -> None:
        """Nothing of the workflow is ready, running or delayed: what still waits can never run as it is."""
        owner, target = op.alias(), op.alias()
        waiting = self.connection.execute(
            select(
                edge.c.op_pk, edge.c.target_pk, edge.c.kind, target.c.status, target.c.id, owner.c.id.label("owner_id")
            )
            .join(owner, owner.c.pk == edge.c.op_pk)
            .join(target, target.c.pk == edge.c.target_pk)
            .where(owner.c.workflow_pk == workflow_pk, owner.c.status == OpStatus.PENDING.value, ~edge.c.satisfied)
            .order_by(edge.c.op_pk, edge.c.target_pk)
        ).all()
        unknown = [row for row in waiting if row.status == UNBORN]
        required = {row.op_pk: row for row in unknown if row.kind == EdgeKind.SUCCESS.value}
        if required:
            errors = {
                pk: OpError("unknown_dependency", f'no op "{row.id}" was ever emitted') for pk, row in required.items()
            }
            self.ended(self.cancel(errors, {}))
        elif unknown:
            for row in unknown:
                self.connection.execute(
                    update(edge)
                    .where(edge.c.op_pk == row.op_pk, edge.c.target_pk == row.target_pk)
                    .values(satisfied=True)
                )
            self._decrement([row.op_pk for row in unknown])
        else:
            graph: dict[int, list[int]] = defaultdict(list)
            for row in waiting:
                graph[row.op_pk].append(row.target_pk)
            names = {row.op_pk: row.owner_id for row in waiting}
            try:
                graphlib.TopologicalSorter(graph).prepare()
            except graphlib.CycleError as error:
                spelled = " -> ".join(names[pk] for pk in error.args[1])
                circle = OpError("dependency_cycle", f"the ops wait for each other in a circle: {spelled}")
                self.ended(self.cancel(dict.fromkeys(error.args[1], circle), {}))


# Built once, see claim.py.

_COUNTERS = ("pending", "active", "succeeded", "failed", "dropped")

_EDGES = update(edge).where(Among(edge.c.target_pk, "pks"), ~edge.c.satisfied).values(satisfied=True)
_SATISFY = Prepared(_EDGES.returning(edge.c.op_pk))
_SATISFY_LAX = Prepared(_EDGES.where(edge.c.kind != EdgeKind.SUCCESS.value).returning(edge.c.op_pk))
_SATISFY_SETTLED = Prepared(
    _EDGES.where((edge.c.kind == EdgeKind.SETTLED.value) | (edge.c.kind == EdgeKind.BEGUN.value)).returning(
        edge.c.op_pk
    )
)
_DOOMED = Prepared(
    select(edge.c.op_pk, edge.c.target_pk).where(
        Among(edge.c.target_pk, "pks"), ~edge.c.satisfied, edge.c.kind == EdgeKind.SUCCESS.value
    )
)
_DECREMENT = Prepared(update(op).where(Among(op.c.pk, "pks")).values(unmet=op.c.unmet - bindparam("count")))
_PROMOTE = Prepared(
    update(op)
    .where(Among(op.c.pk, "pks"), op_is(OpStatus.PENDING), op.c.unmet <= 0)
    .values(
        status=OpStatus.READY.value,
        ready_at=case((op.c.not_before > bindparam("now"), op.c.not_before), else_=bindparam("now", type_=BigInteger)),
        updated_at=bindparam("now"),
    )
    .returning(op.c.workflow_pk, op.c.lane_pk, op.c.ready_at)
)
_WAKE = Prepared(
    update(lane)
    .where(lane.c.pk == bindparam("_pk"), lane.c.eligible_at > bindparam("at"))
    .values(eligible_at=bindparam("at"))
)
_ENDING = {OpStatus.FAILED.value: "failed", OpStatus.CANCELED.value: "was canceled"}

_changes = each_pair("changes")
# locked in the order of their surrogates, as everywhere
_locked = (
    select(workflow.c.pk, _changes.c.value)
    .join(_changes, workflow.c.pk == cast(_changes.c.key, BigInteger))
    .order_by(workflow.c.pk)
    .with_for_update(of=workflow)
    .subquery()
)
_counted = {name: workflow.c[name] + number_at(_locked.c.value, place) for place, name in enumerate(_COUNTERS)}
_over = (_counted["pending"] == 0) & (_counted["active"] == 0)
_status = case(
    (workflow.c.canceled & _over, WorkflowStatus.CANCELED.value),
    (_over & (_counted["failed"] == 0) & (_counted["dropped"] == 0), WorkflowStatus.SUCCEEDED.value),
    (_over, WorkflowStatus.FAILED.value),
    ((_counted["succeeded"] > 0) | (_counted["active"] > 0), WorkflowStatus.RUNNING.value),
    else_=WorkflowStatus.PENDING.value,
)
_RECKON = Prepared(
    update(workflow)
    .where(workflow.c.pk == _locked.c.pk)
    .values(_counted | {"status": _status, "updated_at": bindparam("now")})
    .returning(workflow.c.pk, workflow.c.pending, workflow.c.active)
)
