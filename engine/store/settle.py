"""Committing outcomes: set-wise, fenced by token, everything of one outcome together or nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sqlalchemy import Connection, bindparam, delete, insert, select, update

from engine.clock import Micros
from engine.dialect import Among
from engine.errors import OpError
from engine.model import Artifact, AttemptState, JsonText, NewOp, OpStatus, Result
from engine.outcome import Failed, Fenced, Interrupted, RetryAt, Succeeded
from engine.store import validators
from engine.store.artifacts import write_artifacts
from engine.store.attempts import end
from engine.store.batches import batches
from engine.store.cookies import change_jars
from engine.store.graph import UNBORN, GraphPlan
from engine.store.prepared import Prepared
from engine.store.propagate import Consequences
from engine.store.rows import dumps, error_json, records_json, stored_error
from engine.store.runs import reschedule
from engine.store.schema import attempt, lane, log_line, op, op_is, queue, result, workflow
from engine.store.types import Applied, LostLease, Refused, Settlement, Verdict

_ENDED_WELL = frozenset({AttemptState.SUCCEEDED, AttemptState.FAILED, AttemptState.RETRIED, AttemptState.INTERRUPTED})


@dataclass(slots=True)
class Settling:
    """One group of outcomes inside one transaction."""

    connection: Connection
    now: Micros
    lanes: Callable[[NewOp], tuple[int, int]]
    #: Token to the instant at which its op really began, where that is not written yet; what is settled is taken out.
    started: dict[str, Micros] = field(default_factory=dict)
    consequences: Consequences = field(init=False)
    rows: dict[int, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.consequences = Consequences(self.connection, self.now)

    def run(self, settlements: Sequence[Settlement]) -> list[Verdict]:
        """Write all outcomes whose lease is current and which can stand; one verdict each."""
        self._load(sorted({settlement.lease.op_pk for settlement in settlements}))
        earlier = self._earlier(settlements)
        verdicts: list[Verdict] = []
        current: list[Settlement] = []
        for settlement in settlements:
            if self._is_current(settlement):
                current.append(settlement)
                verdicts.append(Applied())
            else:
                known = earlier.get(settlement.lease.token)
                verdicts.append(Applied() if known in _ENDED_WELL else LostLease())
        refused = self._emit(current)
        standing = [settlement for settlement in current if settlement.lease.token not in refused]
        self._write(standing)
        self.consequences.finish()
        return [
            Refused(refused[settlement.lease.token]) if settlement.lease.token in refused else verdict
            for settlement, verdict in zip(settlements, verdicts, strict=True)
        ]

    def _load(self, pks: Sequence[int]) -> None:
        for batch in batches(pks):
            self.rows.update({row.pk: row for row in _LOAD.rows(self.connection, pks=batch)})

    def _is_current(self, settlement: Settlement) -> bool:
        row = self.rows.get(settlement.lease.op_pk)
        return row is not None and row.token == settlement.lease.token

    def _earlier(self, settlements: Sequence[Settlement]) -> dict[str, str]:
        stale = sorted(settlement.lease.op_pk for settlement in settlements if not self._is_current(settlement))
        found: dict[str, str] = {}
        for batch in batches(stale):
            found.update({row.token: row.state for row in _EARLIER.rows(self.connection, pks=batch)})
        return found

    def _emit(self, settlements: Sequence[Settlement]) -> dict[str, OpError]:
        emitting = [
            (settlement, settlement.outcome.result.emitted)
            for settlement in settlements
            if isinstance(settlement.outcome, Succeeded)
            and settlement.outcome.result.emitted
            and self.rows[settlement.lease.op_pk].status == OpStatus.RUNNING
        ]
        if not emitting:
            return {}
        elsewhere = self._workflows({spec.workflow_id for _, specs in emitting for spec in specs if spec.workflow_id})
        refused: dict[str, OpError] = {}
        placed: list[tuple[Settlement, dict[int, list[NewOp]]]] = []
        for settlement, specs in emitting:
            groups: dict[int, list[NewOp]] = {}
            for spec in specs:
                workflow_pk = self.rows[settlement.lease.op_pk].workflow_pk
                if spec.workflow_id:
                    workflow_pk = elsewhere.get(spec.workflow_id, 0)
                if not workflow_pk:
                    refused[settlement.lease.token] = OpError(
                        "unknown_workflow",
                        f'op "{spec.id}" was emitted into the unknown workflow "{spec.workflow_id}"',
                    )
                groups.setdefault(workflow_pk, []).append(spec)
            placed.append((settlement, groups))
        plan = GraphPlan(self.connection, self.lanes, self.now)
        plan.load((pk, spec) for _, groups in placed for pk, specs in groups.items() for spec in specs)
        for settlement, groups in placed:
            if settlement.lease.token in refused:
                continue
            try:
                for workflow_pk, group in groups.items():
                    plan.check(workflow_pk, group, settlement.lease.op_pk)
            except OpError as error:
                refused[settlement.lease.token] = error
                continue
            for workflow_pk, group in groups.items():
                plan.accept(workflow_pk, group)
        self.consequences.inserted(plan.write())
        return refused

    def _workflows(self, ids: set[str]) -> dict[str, int]:
        query = select(workflow.c.id, workflow.c.pk).where(workflow.c.id.in_(sorted(ids)))
        return {row.id: row.pk for row in self.connection.execute(query)} if ids else {}

    def _write(self, settlements: Sequence[Settlement]) -> None:
        ops: dict[_OpColumns, list[int]] = {}
        attempts: dict[tuple[AttemptState, JsonText | None], dict[int, Micros | None]] = {}
        results: list[dict[str, Any]] = []
        ended: dict[int, OpStatus] = {}
        settled_once: list[int] = []
        # an earlier claim may have left a result
        replaced: list[int] = []
        for settlement in settlements:
            row = self.rows[settlement.lease.op_pk]
            change = _transition(row, settlement, self.now)
            ops.setdefault(change.op, []).append(row.pk)
            token = settlement.lease.token
            attempts.setdefault((change.attempt, change.error), {})[row.pk] = self.started.pop(token, None)
            if change.result is not None:
                results.append(change.result)
                if row.claims > 1:
                    replaced.append(row.pk)
            if row.status != OpStatus.RUNNING:
                continue
            self.consequences.moved(row.workflow_pk, OpStatus.RUNNING, change.status)
            if change.status is OpStatus.READY:
                self.consequences.became_ready(row.lane_pk, change.op.ready_at)
                if change.attempt == AttemptState.RETRIED:
                    settled_once.append(row.pk)
            else:
                ended[row.pk] = change.status
        if not ops:
            return
        for (state, error), began in attempts.items():
            end(self.connection, began, state, error, self.now)
        for columns, pks in ops.items():
            for batch in batches(pks):
                _UPDATE_OP.run(self.connection, **columns._asdict(), pks=batch)
        for batch in batches(replaced):
            _FORGET_RESULTS.run(self.connection, pks=batch)
        _INSERT_RESULT.many(self.connection, results)
        self._write_extras(settlements)
        self._free_places(settlements)
        self.consequences.ended(ended, settled_once)
        self._drop_reservations(list(ended))

    def _write_extras(self, settlements: Sequence[Settlement]) -> None:
        lines: list[dict[str, Any]] = []
        artifacts: list[tuple[int, int, Artifact]] = []
        jars: dict[int, list[JsonText]] = {}
        for settlement in settlements:
            produced = _kept(settlement)
            row = self.rows[settlement.lease.op_pk]
            artifacts.extend((row.workflow_pk, row.pk, item) for item in produced.artifacts)
            lines.extend(
                {
                    "op_pk": row.pk,
                    "token": settlement.lease.token,
                    "at": line.at,
                    "level": line.level,
                    "message": line.message,
                }
                for line in produced.logs
            )
            if produced.cookies is not None:
                jars.setdefault(row.workflow_pk, []).append(produced.cookies)
        write_artifacts(self.connection, artifacts, self.now)
        _INSERT_LINE.many(self.connection, lines)
        change_jars(self.connection, jars, self.now)
        learned = [item.outcome.result.validators for item in settlements if isinstance(item.outcome, Succeeded)]
        validators.keep(self.connection, filter(None, learned), self.now)
        reschedule(self.connection, self._wishes(settlements), self.now)

    def _wishes(self, settlements: Sequence[Settlement]) -> dict[int, Micros]:
        """The workflows whose schedules go on, and after how long."""
        return {
            self.rows[item.lease.op_pk].workflow_pk: item.outcome.result.reschedule
            for item in settlements
            if isinstance(item.outcome, Succeeded)
            and item.outcome.result.reschedule is not None
            and self.rows[item.lease.op_pk].status == OpStatus.RUNNING
        }

    def _free_places(self, settlements: Sequence[Settlement]) -> None:
        left = (self.rows[item.lease.op_pk] for item in settlements)
        wake_capped(self.connection, {row.queue_pk for row in left if row.max_in_flight is not None}, self.now)

    def _drop_reservations(self, ended: Sequence[int]) -> None:
        """Ids that an op reserved and then did not emit are free again."""
        for batch in batches(ended):
            _DROP_RESERVATIONS.run(self.connection, pks=batch)


def wake_capped(connection: Connection, queues: Iterable[int | None], now: Micros) -> None:
    """A place came free in these queues: those with a limit in flight are worth a visit at once."""
    pks = sorted({pk for pk in queues if pk is not None})
    for batch in batches(pks):
        _WAKE_CAPPED.run(connection, pks=batch, now=now)


class _OpColumns(NamedTuple):
    """What an outcome writes into its op's row; ``refund`` and ``bump`` change the attempts and the generation."""

    status: str
    now: Micros
    ready_at: Micros = 0
    fence: int | None = None
    planned: JsonText | None = None
    refund: int = 0
    bump: int = 0


class _Change(NamedTuple):
    status: OpStatus
    attempt: AttemptState
    op: _OpColumns
    error: str | None = None
    result: dict[str, Any] | None = None


def _transition(row: Any, settlement: Settlement, now: Micros) -> _Change:
    """The rows one outcome turns into. Of an op that is canceled only the duty to close its inbox key is settled."""
    outcome = settlement.outcome
    if row.status == OpStatus.CANCELED:
        if isinstance(outcome, Interrupted):
            return _Change(
                OpStatus.CANCELED, AttemptState.INTERRUPTED, _OpColumns(OpStatus.CANCELED, now, fence=row.fence)
            )
        return _Change(OpStatus.CANCELED, AttemptState.CANCELED, _OpColumns(OpStatus.CANCELED, now))
    match outcome:
        case Succeeded(result=produced):
            return _Change(
                OpStatus.SUCCEEDED,
                AttemptState.SUCCEEDED,
                _OpColumns(OpStatus.SUCCEEDED, now),
                result=_result_row(row.pk, produced, None, now),
            )
        case Failed(error=error):
            text = error_json(error, now)
            return _Change(
                OpStatus.FAILED,
                AttemptState.FAILED,
                _OpColumns(OpStatus.FAILED, now, fence=row.fence),
                text,
                _result_row(row.pk, Result(), text, now),
            )
        case Fenced():
            planned = row.planned_json or error_json(OpError("lease_lost", "the op was given up"), now)
            text = error_json(stored_error(planned), now)
            # the generation was closed in the inbox: running the op again needs another one
            columns = _OpColumns(OpStatus.FAILED, now, bump=1)
            return _Change(
                OpStatus.FAILED, AttemptState.FAILED, columns, text, _result_row(row.pk, Result(), text, now)
            )
        case RetryAt(at=at, error=error):
            text = error_json(error, now)
            return _Change(
                OpStatus.READY,
                AttemptState.RETRIED,
                _OpColumns(OpStatus.READY, now, ready_at=at, fence=row.fence),
                text,
                _result_row(row.pk, Result(), text, now),
            )
        case Interrupted(reason=reason, at=at):
            columns = _OpColumns(OpStatus.READY, now, max(at, now), row.fence, row.planned_json, refund=1)
            text = error_json(OpError("interrupted", reason), now)
            return _Change(OpStatus.READY, AttemptState.INTERRUPTED, columns, text)


def _result_row(pk: int, produced: Result, error: str | None, now: Micros) -> dict[str, Any]:
    return {
        "op_pk": pk,
        "data_json": produced.data,
        "records_json": records_json(produced.records),
        "emitted_ids_json": dumps([spec.id for spec in produced.emitted]) if produced.emitted else "[]",
        "error_json": error,
        "completed_at": now,
    }


def _kept(settlement: Settlement) -> Result:
    match settlement.outcome:
        case Succeeded(result=produced):
            return produced
        case Failed(evidence=evidence) | RetryAt(evidence=evidence):
            return evidence
        case _:
            return Result()


# Built once, see claim.py.


_LOAD = Prepared(
    select(op.c.pk, op.c.workflow_pk, op.c.token, op.c.status, op.c.lane_pk, op.c.queue_pk)
    .add_columns(op.c.planned_json, op.c.fence, op.c.claims, queue.c.max_in_flight)
    .outerjoin(queue, queue.c.pk == op.c.queue_pk)
    .where(Among(op.c.pk, "pks"))
    .order_by(op.c.pk)
    .with_for_update(of=op)
)
_EARLIER = Prepared(select(attempt.c.token, attempt.c.state).where(Among(attempt.c.op_pk, "pks")))
_FORGET_RESULTS = Prepared(delete(result).where(Among(result.c.op_pk, "pks")))
_INSERT_RESULT = Prepared(insert(result))
_INSERT_LINE = Prepared(insert(log_line))
_DROP_RESERVATIONS = Prepared(
    update(op).where(op_is(UNBORN), Among(op.c.reserved_by, "pks")).values(reserved_by=None, spec_hash="")
)
_CAPPED = select(queue.c.pk).where(Among(queue.c.pk, "pks"), queue.c.max_in_flight.is_not(None))
_WAKE_CAPPED = Prepared(
    update(lane)
    .where(lane.c.queue_pk.in_(_CAPPED), lane.c.eligible_at > bindparam("now"))
    .values(eligible_at=bindparam("now"))
)

_UPDATE_OP = Prepared(
    update(op)
    .where(Among(op.c.pk, "pks"))
    .values(
        status=bindparam("status"),
        updated_at=bindparam("now"),
        ready_at=bindparam("ready_at"),
        attempts=op.c.attempts - bindparam("refund"),
        generation=op.c.generation + bindparam("bump"),
        fence=bindparam("fence"),
        planned_json=bindparam("planned"),
        token=None,
        worker=None,
        acquired_at=None,
        started_at=None,
        expires_at=None,
    )
)
