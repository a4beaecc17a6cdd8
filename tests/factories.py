"""Values that tests ask for by what matters to them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from engine.clock import SECOND, Micros
from engine.model import Dependency, EdgeKind, NewOp, NewWorkflow, Result
from engine.outcome import Outcome, Succeeded
from engine.store.store import Store
from engine.store.types import Claim, ClaimRequest, LeasedOp, Settlement, SettleReport

SITE = "shop"
LEASE: Micros = 30 * SECOND


def new_op(op_id: str, after: Iterable[str | tuple[str, EdgeKind]] = (), **values: Any) -> NewOp:
    """An op of kind ``js``; ``after`` lists required dependencies, or (id, kind)."""
    edges = tuple(Dependency(item) if isinstance(item, str) else Dependency(*item) for item in after)
    return NewOp(**({"id": op_id, "kind": "js", "site": SITE, "depends_on": edges} | values))


def submit(store: Store, ops: Sequence[NewOp], workflow_id: str = "w1") -> None:
    """Store a workflow of ``ops``."""
    store.submit(NewWorkflow(id=workflow_id, site=SITE, name="test", ops=tuple(ops)))


def claim(store: Store, limit: int = 10, worker: str = "worker-a", **values: Any) -> Claim:
    """Claim for a worker on machine ``m1``."""
    request: dict[str, Any] = {"worker_id": worker, "machine": "m1", "limit": limit, "lease_duration": LEASE}
    return store.claim(ClaimRequest(**(request | values)))


def claim_one(store: Store, op_id: str | None = None, worker: str = "worker-a") -> LeasedOp:
    """Claim a single op, checking that it is the one expected."""
    (leased,) = claim(store, limit=1, worker=worker).leased
    assert op_id is None or leased.op.id == op_id
    return leased


def settle(store: Store, *pairs: tuple[LeasedOp, Outcome]) -> SettleReport:
    """Commit outcomes in one group."""
    return store.settle([Settlement(leased.lease, outcome) for leased, outcome in pairs])


def succeed(store: Store, leased: LeasedOp, *emitted: NewOp, **values: Any) -> SettleReport:
    """Commit one success."""
    return settle(store, (leased, Succeeded(Result(emitted=emitted, **values))))


def run_all(store: Store, limit: int = 100) -> list[str]:
    """Claim and succeed until nothing is claimable; the ids in the order of their claims."""
    ran: list[str] = []
    while leased := claim(store, limit).leased:
        ran.extend(item.op.id for item in leased)
        settle(store, *((item, Succeeded(Result())) for item in leased))
    return ran


def statuses(store: Store, workflow_id: str = "w1") -> dict[str, str]:
    """Op id to status, as the ``ops`` view shows it."""
    with store.database.read() as connection:
        rows = connection.exec_driver_sql(f"SELECT id, status FROM ops WHERE workflow_id = '{workflow_id}'")
        return {str(row[0]): str(row[1]) for row in rows}


def attempt_states(store: Store, op_id: str) -> list[str]:
    """How the op's claims ended, in order."""
    query = f"SELECT a.state FROM attempts a WHERE a.op_id = '{op_id}' ORDER BY a.number"
    with store.database.read() as connection:
        return [str(row[0]) for row in connection.exec_driver_sql(query)]
