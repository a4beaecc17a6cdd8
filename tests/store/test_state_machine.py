"""The store against a model: in whatever order things happen, the invariants hold after every step (STORE-1 to 30).

The model knows which leases are current; the store must agree on every write. Removing the token condition from the
commit makes this fail at the first zombie.
"""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from sqlalchemy import Connection

from engine.clock import SECOND
from engine.errors import OpError, UsageError
from engine.model import UNLIMITED, Dependency, EdgeKind, NewOp, NewWorkflow, QueuePolicy, Result
from engine.outcome import Failed, Fenced, Interrupted, Outcome, RetryAt, Succeeded
from engine.store.schema import metadata
from engine.store.settle import Settling
from engine.store.store import Store
from engine.store.types import Applied, LeasedOp, LostLease, Refused, Settlement
from tests.factories import LEASE, claim
from tests.fakes import FakeClock

SITE = "shop"
CAP = 2
MAX_LOST = 3


def rows_of(connection: Connection, query: str) -> list[dict[str, Any]]:
    """The rows of a query, straight from the driver: it is asked ten thousands of times."""
    cursor = connection.connection.cursor()
    cursor.execute(query)
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


@dataclass
class Held:
    """A claim as the model sees it."""

    leased: LeasedOp
    worker: str
    expires: int
    current: bool = True
    #: Settled regularly: settling again must be recognised.
    settled: bool = False


class StoreMachine(RuleBasedStateMachine):
    """Rules for submitters, workers, operators and the clock."""

    opened: ClassVar[Store]

    def __init__(self) -> None:
        super().__init__()
        self.clock = FakeClock()
        # connected once for all examples
        self.store = Store(self.opened.database, self.clock, self.opened.uuid, UNLIMITED, MAX_LOST)
        self.held: list[Held] = []
        self.workflows: list[str] = []
        self.names = 0
        self.successes: Counter[tuple[int, int]] = Counter()

    @initialize()
    def set_up(self) -> None:
        with self.store.database.write() as connection:
            for table in metadata.sorted_tables:
                if table.name not in ("meta", "migration"):
                    connection.exec_driver_sql(f'DELETE FROM "{table.name}"')
        self.store.put_policies(SITE, {"capped": QueuePolicy(max_in_flight=CAP)})

    def _specs(self, draw: Any, prefix: str, known: list[str]) -> tuple[NewOp, ...]:
        specs: list[NewOp] = []
        for number in range(draw(st.integers(1, 4))):
            targets = [spec.id for spec in specs] + known
            chosen = draw(st.lists(st.sampled_from(targets), max_size=2, unique=True)) if targets else []
            edges = tuple(Dependency(target, draw(st.sampled_from(list(EdgeKind)))) for target in chosen)
            specs.append(
                NewOp(
                    id=f"{prefix}{number}",
                    kind="js",
                    site=SITE,
                    queue=draw(st.sampled_from(["", "capped"])),
                    dedup_key=draw(st.sampled_from(["", "", "k1", "k2"])),
                    depends_on=edges,
                )
            )
        return tuple(specs)

    @precondition(lambda self: len(self.workflows) < 4)
    @rule(data=st.data())
    def submit(self, data: st.DataObject) -> None:
        self.names += 1
        name = f"w{self.names}"
        specs = self._specs(data.draw, f"{name}.", [f"{name}.late"])
        self.store.submit(NewWorkflow(id=name, site=SITE, name=name, ops=specs))
        self.workflows.append(name)

    @rule(limit=st.integers(1, 4), worker=st.sampled_from(["a", "b"]))
    def claim(self, limit: int, worker: str) -> None:
        for leased in claim(self.store, limit, worker).leased:
            self._take(leased, worker)

    def _take(self, leased: LeasedOp, worker: str) -> None:
        for held in self.held:
            if held.current and held.leased.lease.op_pk == leased.lease.op_pk:
                # only the duty to close a canceled op's inbox key is handed out again without a sweep
                assert held.leased.planned is not None
                assert held.expires < self.clock.now()
                held.current = False
        self.held.append(Held(leased, worker, self.clock.now() + LEASE))

    @precondition(lambda self: self.held)
    @rule(data=st.data(), how=st.sampled_from(["succeed", "emit", "fail", "retry", "interrupt"]), start=st.booleans())
    def settle(self, data: st.DataObject, how: str, start: bool) -> None:
        held = data.draw(st.sampled_from(self.held))
        lease, now = held.leased.lease, self.clock.now()
        error = OpError("broken", "it broke", retryable=True)
        outcome: Outcome
        match how:
            case "succeed":
                outcome = Succeeded(Result())
            case "emit":
                self.names += 1
                workflow = held.leased.op.workflow.id
                outcome = Succeeded(
                    Result(emitted=self._specs(data.draw, f"{workflow}.e{self.names}.", [f"{workflow}.late"]))
                )
            case "fail":
                outcome = Failed(error)
            case "retry":
                outcome = RetryAt(now + SECOND, error)
            case _:
                outcome = Interrupted("stopped")
        if held.leased.planned is not None and how != "interrupt":
            outcome = Fenced()
        started = [(lease.token, now)] if start else []
        (verdict,) = self.store.settle([Settlement(lease, outcome)], started).verdicts
        if held.current:
            assert isinstance(verdict, Applied), verdict
            held.current, held.settled = False, True
            if isinstance(outcome, Succeeded):
                self.successes[lease.op_pk, held.leased.op.generation] += 1
        elif held.leased.planned is not None and held.leased.planned.code == "canceled":
            pass
        elif held.settled:
            assert isinstance(verdict, Applied)
        else:
            assert isinstance(verdict, LostLease), verdict
        assert not isinstance(verdict, Refused)

    @rule(worker=st.sampled_from(["a", "b"]))
    def heartbeat(self, worker: str) -> None:
        mine = [held for held in self.held if held.worker == worker and not held.settled]
        lost = self.store.heartbeat(worker, [held.leased.lease.token for held in mine], LEASE)
        assert lost == {held.leased.lease.token for held in mine if not held.current}
        for held in mine:
            if held.current:
                held.expires = self.clock.now() + LEASE

    @rule(seconds=st.integers(1, 40))
    def time_passes(self, seconds: int) -> None:
        self.clock.advance(seconds * SECOND)

    @rule()
    def sweep(self) -> None:
        self.store.sweep()
        statuses = self._statuses()
        for held in self.held:
            lost = held.current and held.expires < self.clock.now()
            if lost and statuses[held.leased.lease.op_pk] != "canceled":
                held.current = False

    def _statuses(self) -> dict[int, str]:
        with self.store.database.read() as connection:
            return {row["pk"]: row["status"] for row in rows_of(connection, "SELECT pk, status FROM op")}

    @precondition(lambda self: self.workflows)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        workflow = data.draw(st.sampled_from(self.workflows))
        before = self._statuses()
        self.store.cancel(workflow)
        after = self._statuses()
        for held in self.held:
            op = held.leased.lease.op_pk
            mine = held.leased.op.workflow.id == workflow and before[op] != "canceled"
            if held.current and mine and after[op] == "canceled":
                held.current = False

    @precondition(lambda self: self.workflows)
    @rule(data=st.data())
    def retry(self, data: st.DataObject) -> None:
        with self.store.database.read() as connection:
            rows = rows_of(connection, "SELECT id, workflow_id, status FROM ops")
        statuses = {(row["id"], row["workflow_id"]): row["status"] for row in rows}
        op_id, workflow = data.draw(st.sampled_from(sorted(statuses)))
        if statuses[op_id, workflow] == "failed":
            self.store.retry(op_id, workflow)
        else:
            with pytest.raises(UsageError):
                self.store.retry(op_id, workflow)

    @precondition(lambda self: self.workflows)
    @rule()
    def pause_and_resume(self) -> None:
        self.store.pause(SITE, "capped")
        for leased in claim(self.store, 50).leased:
            assert leased.op.queue != "capped" or leased.planned is not None
            self._take(leased, "worker-a")
        self.store.resume(SITE, "capped")

    @invariant()
    def everything_is_consistent(self) -> None:
        with self.store.database.read() as connection:
            ops = rows_of(connection, "SELECT * FROM op")
            edges = rows_of(connection, "SELECT * FROM edge")
            workflows = rows_of(connection, "SELECT * FROM workflow")
            attempts = rows_of(connection, "SELECT * FROM attempt")
            queues = {row["pk"]: row for row in rows_of(connection, "SELECT * FROM queue")}
        unmet = Counter(row["op_pk"] for row in edges if not row["satisfied"])
        running = Counter(row["queue_pk"] for row in ops if row["status"] == "running")
        for pk, count in running.items():
            cap = queues[pk]["max_in_flight"]
            assert cap is None or count <= cap
        assert not {row["token"] for row in attempts} & {row["token"] for row in ops}
        claims = Counter(row["op_pk"] for row in attempts)
        for row in ops:
            if row["status"] == "pending":
                assert row["unmet"] == unmet[row["pk"]] > 0
            if row["status"] in ("ready", "running"):
                assert unmet[row["pk"]] == 0
            if row["status"] == "running":
                assert row["token"].endswith(f":{row['pk']}")
            assert row["claims"] == claims[row["pk"]] + (row["token"] is not None)
            assert row["lost"] <= MAX_LOST
            if row["status"] == "succeeded":
                done = [item for item in attempts if item["op_pk"] == row["pk"] and item["state"] == "succeeded"]
                assert len(done) == 1
        assert all(count == 1 for count in self.successes.values())
        for row in workflows:
            mine = Counter(item["status"] for item in ops if item["workflow_pk"] == row["pk"])
            assert row["pending"] == mine["pending"]
            assert row["active"] == mine["ready"] + mine["running"]
            assert (row["succeeded"], row["failed"], row["dropped"]) == (
                mine["succeeded"],
                mine["failed"],
                mine["canceled"],
            )
            assert not (row["pending"] and not row["active"]), "what waits can never run"
            assert row["status"] == _expected_status(row, mine)


def _expected_status(row: Any, mine: Counter[str]) -> str:
    total = sum(count for status, count in mine.items() if status != "unborn")
    if row["pending"] == row["active"] == 0:
        if row["canceled"]:
            return "canceled"
        return "succeeded" if mine["succeeded"] == total else "failed"
    return "running" if mine["succeeded"] or row["active"] else "pending"


#: A failing run is short enough to read; shrinking one of fifty steps takes minutes.
_PHASES = [Phase.explicit, Phase.reuse, Phase.generate]
_CHECKS = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]


def run_machine(url: str, **chosen: Any) -> None:
    """Play examples of fifty steps on the engine DB at ``url``."""
    with closing(Store.open(url)) as store:
        machine = type("Machine", (StoreMachine,), {"opened": store})
        usual = {"stateful_step_count": 50, "deadline": None, "suppress_health_check": _CHECKS, "phases": _PHASES}
        run_state_machine_as_test(machine, settings=settings(**(usual | chosen)))


@pytest.mark.timeout(600)
def test_the_store_agrees_with_the_model_on_sqlite(sqlite_engine: str) -> None:
    run_machine(sqlite_engine, max_examples=200)


def test_without_the_token_condition_the_model_disagrees(sqlite_engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Settling, "_is_current", lambda self, settlement: settlement.lease.op_pk in self.rows)
    with pytest.raises(AssertionError):
        run_machine(sqlite_engine, max_examples=50, phases=[Phase.generate], database=None)


@pytest.mark.timeout(600)
def test_the_store_agrees_with_the_model_on_postgresql(postgresql_engine: str) -> None:
    run_machine(postgresql_engine, max_examples=50)
