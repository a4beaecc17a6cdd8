"""Ops that let others go on before they end, and that emit while they run (HOOK-90 to HOOK-93)."""

from __future__ import annotations

import pytest

from engine.clock import SECOND
from engine.errors import LeaseLost, OpError
from engine.model import EdgeKind, Result
from engine.outcome import RetryAt, Succeeded
from engine.store.store import Store
from tests.factories import claim, claim_one, new_op, settle, statuses, submit
from tests.fakes import FakeClock


def test_an_op_that_says_so_holds_nobody_up(store: Store) -> None:
    submit(store, [new_op("bg"), new_op("next", [("bg", EdgeKind.BEGUN)]), new_op("seal", [("bg", EdgeKind.SETTLED)])])
    running = claim_one(store, "bg")
    assert claim(store).leased == ()
    store.begun(running.lease)
    store.begun(running.lease)
    assert statuses(store) == {"bg": "running", "next": "ready", "seal": "pending"}
    settle(store, (running, Succeeded(Result())))
    assert statuses(store) == {"bg": "succeeded", "next": "ready", "seal": "ready"}


def test_an_op_that_never_says_so_holds_others_up_until_its_first_attempt_is_over(
    store: Store, clock: FakeClock
) -> None:
    submit(store, [new_op("bg"), new_op("next", [("bg", EdgeKind.BEGUN)])])
    running = claim_one(store, "bg")
    settle(store, (running, RetryAt(clock.now() + SECOND, OpError("x", "x", retryable=True))))
    assert statuses(store)["next"] == "ready"


def test_ops_emitted_by_a_running_op_stay_whatever_becomes_of_it(store: Store, clock: FakeClock) -> None:
    submit(store, [new_op("a")])
    running = claim_one(store, "a")
    store.emit(running.lease, [new_op("child"), new_op("after", ["child", ("a", EdgeKind.SETTLED)])])
    assert claim_one(store).op.id == "child"
    store.emit(running.lease, [new_op("child")])
    settle(store, (running, RetryAt(clock.now() + SECOND, OpError("x", "x", retryable=True))))
    assert set(statuses(store)) == {"a", "child", "after"}


def test_a_lost_lease_emits_nothing_and_lets_nobody_go_on(store: Store) -> None:
    submit(store, [new_op("a"), new_op("next", [("a", EdgeKind.BEGUN)])])
    running = claim_one(store, "a")
    store.cancel("w1")
    with pytest.raises(LeaseLost):
        store.emit(running.lease, [new_op("child")])
    with pytest.raises(LeaseLost):
        store.begun(running.lease)
    assert "child" not in statuses(store)


def test_an_id_that_means_another_op_is_refused(store: Store) -> None:
    submit(store, [new_op("a"), new_op("b", ["a"])])
    running = claim_one(store, "a")
    with pytest.raises(OpError, match="duplicate_op_id"):
        store.emit(running.lease, [new_op("b", input='{"other": 1}')])
