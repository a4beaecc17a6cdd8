"""The store against a model: in whatever order things happen, the invariants hold after every step (STORE-1 to 30).

The model knows which leases are current; the store must agree on every write. Removing the token condition from the
commit makes this fail at the first zombie.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
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
from sqlalchemy import text

from engine.clock import SECOND
from engine.errors import OpError, UsageError
from engine.model import Dependency, EdgeKind, NewOp, NewWorkflow, QueuePolicy, Result
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

    url: ClassVar[str] = ""
    template: ClassVar[Path | None] = None

    def __init__(self) -> None:
        super().__init__()
        self.clock = FakeClock()
        self.folder = Path(tempfile.mkdtemp(prefix="scraper-machine-"))
        target = self.url
        if self.template is not None:
            target = str(shutil.copy(self.template, self.folder / "engine.db"))
        self.store = Store.open(target, clock=self.clock, max_lost=MAX_LOST)
        self.held: list[Held] = []
        self.workflows: list[str] = []
        self.names = 0
        self.successes: Counter[tuple[int, int]] = Counter()

    @initialize()
    def set_up(self) -> None:
        if self.template is None:
            with self.store.database.write() as connection:
                tables = ", ".join(
                    f'"{table.name}"' for table in metadata.sorted_tables if table.name not in ("meta", "migration")
                )
                connection.execute(text(f"TRUNCATE {tables} RESTART IDENTITY"))
        self.store.put_policies(SITE, {"capped": QueuePolicy(max_in_flight=CAP)})

    def teardown(self) -> None:
        self.store.close()
        shutil.rmtree(self.folder, ignore_errors=True)

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
        for held in self.held:
            if held.current and held.expires < self.clock.now() and self._status(held) != "canceled":
                held.current = False

    def _status(self, held: Held) -> str:
        with self.store.database.read() as connection:
            query = text("SELECT status FROM op WHERE pk = :pk")
            return str(connection.execute(query, {"pk": held.leased.lease.op_pk}).scalar_one())

    @precondition(lambda self: self.workflows)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        workflow = data.draw(st.sampled_from(self.workflows))
        before = {held.leased.lease.op_pk for held in self.held if held.current and self._status(held) == "canceled"}
        self.store.cancel(workflow)
        for held in self.held:
            mine = held.leased.op.workflow.id == workflow and held.leased.lease.op_pk not in before
            if held.current and mine and self._status(held) == "canceled":
                held.current = False

    @precondition(lambda self: self.workflows)
    @rule(data=st.data())
    def retry(self, data: st.DataObject) -> None:
        with self.store.database.read() as connection:
            rows = connection.execute(
                text("SELECT o.id, w.id FROM op o JOIN workflow w ON w.pk = o.workflow_pk WHERE o.status <> 'unborn'")
            ).all()
        op_id, workflow = data.draw(st.sampled_from(sorted((str(row[0]), str(row[1])) for row in rows)))
        with self.store.database.read() as connection:
            status = connection.execute(
                text("SELECT status FROM ops WHERE id = :id AND workflow_id = :w"), {"id": op_id, "w": workflow}
            ).scalar_one()
        if status == "failed":
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
            ops = connection.execute(text("SELECT * FROM op")).mappings().all()
            edges = connection.execute(text("SELECT * FROM edge")).mappings().all()
            workflows = connection.execute(text("SELECT * FROM workflow")).mappings().all()
            attempts = connection.execute(text("SELECT * FROM attempt")).mappings().all()
            queues = {row["pk"]: row for row in connection.execute(text("SELECT * FROM queue")).mappings()}
        unmet = Counter(row["op_pk"] for row in edges if not row["satisfied"])
        by_pk = {row["pk"]: row for row in ops}
        running = Counter(row["queue_pk"] for row in ops if row["status"] == "running")
        for pk, count in running.items():
            cap = queues[pk]["max_in_flight"]
            assert cap is None or count <= cap
        live = {row["token"]: row for row in attempts if row["state"] == "running"}
        for row in ops:
            if row["status"] == "pending":
                assert row["unmet"] == unmet[row["pk"]] > 0
            if row["status"] in ("ready", "running"):
                assert unmet[row["pk"]] == 0
            if row["status"] == "running":
                assert live[row["token"]]["op_pk"] == row["pk"]
            assert row["lost"] <= MAX_LOST
            if row["status"] == "succeeded":
                done = [item for item in attempts if item["op_pk"] == row["pk"] and item["state"] == "succeeded"]
                assert len(done) == 1
        for token, row in live.items():
            assert by_pk[row["op_pk"]]["token"] == token
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


@pytest.mark.timeout(600)
def test_the_store_agrees_with_the_model_on_sqlite(tmp_path: Path) -> None:
    class OnSqlite(StoreMachine):
        template = tmp_path / "template.db"

    Store.open(tmp_path / "template.db").close()
    run_state_machine_as_test(
        OnSqlite,
        settings=settings(
            max_examples=200, stateful_step_count=50, deadline=None, suppress_health_check=_CHECKS, phases=_PHASES
        ),
    )


def test_without_the_token_condition_the_model_disagrees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class OnSqlite(StoreMachine):
        template = tmp_path / "template.db"

    Store.open(tmp_path / "template.db").close()
    monkeypatch.setattr(Settling, "_is_current", lambda self, settlement: settlement.lease.op_pk in self.rows)
    with pytest.raises(AssertionError):
        run_state_machine_as_test(
            OnSqlite,
            settings=settings(
                max_examples=50,
                stateful_step_count=50,
                deadline=None,
                suppress_health_check=_CHECKS,
                phases=[Phase.generate],
                database=None,
            ),
        )


@pytest.mark.timeout(600)
def test_the_store_agrees_with_the_model_on_postgresql(pg_url: str) -> None:
    class OnPostgresql(StoreMachine):
        url = pg_url

    Store.open(pg_url).close()
    run_state_machine_as_test(
        OnPostgresql,
        settings=settings(
            max_examples=50, stateful_step_count=50, deadline=None, suppress_health_check=_CHECKS, phases=_PHASES
        ),
    )
