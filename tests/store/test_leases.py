"""Leases that expire, attempts that count, and failures that are tried again (STORE-27 to STORE-30)."""

from __future__ import annotations

import json
from random import Random

import pytest

from engine.clock import SECOND, Micros
from engine.errors import OpError
from engine.model import BackoffKind, Result, RetryPolicy, WorkflowStatus
from engine.outcome import Failed, Fenced, Interrupted, RetryAt, Succeeded, failure
from engine.store.store import Store
from engine.store.types import Applied, LeasedOp, LostLease
from tests.factories import (
    LEASE,
    attempt_states,
    claim,
    claim_one,
    new_op,
    run_all,
    settle,
    statuses,
    submit,
    succeed,
)
from tests.fakes import FakeClock

MAX_LOST = 3  # as the fixture opens the store
BUSY = OpError("busy", "come back later", retryable=True)


def start(store: Store, leased: LeasedOp) -> LeasedOp:
    """The op's code begins."""
    store.settle([], [(leased.lease.token, store.clock.now())])
    return leased


def lose(store: Store, clock: FakeClock) -> None:
    """All leases expire and are taken back."""
    clock.advance(LEASE + 1)
    assert store.sweep() > 0


def fail(store: Store, leased: LeasedOp, error: OpError = BUSY) -> None:
    """The op fails; its policy decides what follows."""
    ended = failure(leased.op, leased.lease, error, Result(), store.clock.now(), Random(1))
    (verdict,) = settle(store, (leased, ended)).verdicts
    assert verdict == Applied()


def error_of(store: Store, op_id: str) -> dict[str, object]:
    """The error of the op's result row."""
    with store.database.read() as connection:
        query = f"SELECT error_json FROM results WHERE op_id = '{op_id}'"
        found: dict[str, object] = json.loads(connection.exec_driver_sql(query).scalar_one())
        return found


def test_an_expired_lease_is_an_attempt_that_was_lost_and_the_op_runs_again(store: Store, clock: FakeClock) -> None:
    submit(store, [new_op("a")])
    zombie = start(store, claim_one(store, "a"))
    lose(store, clock)
    assert attempt_states(store, "a") == ["lease_lost"]
    successor = claim_one(store, "a", worker="worker-b")
    assert successor.lease.token != zombie.lease.token
    assert (successor.lease.attempt, successor.lease.earlier_claims) == (1, 1)
    assert succeed(store, zombie, data="1").verdicts == (LostLease(),)
    assert statuses(store) == {"a": "running"}
    assert succeed(store, successor, data="2").verdicts == (Applied(),)
    assert attempt_states(store, "a") == ["lease_lost", "succeeded"]


def test_a_lease_holds_to_its_last_instant(store: Store, clock: FakeClock) -> None:
    submit(store, [new_op("a")])
    claim_one(store, "a")
    clock.advance(LEASE)
    assert store.sweep() == 0
    clock.advance(1)
    assert store.sweep() == 1
    assert store.sweep() == 0


def test_an_outcome_that_comes_late_but_before_anyone_took_the_op_still_counts(store: Store, clock: FakeClock) -> None:
    submit(store, [new_op("a")])
    slow = claim_one(store, "a")
    clock.advance(10 * LEASE)
    assert succeed(store, slow).verdicts == (Applied(),)


def test_a_heartbeat_extends_what_is_held_and_names_what_is_lost(store: Store, clock: FakeClock) -> None:
    submit(store, [new_op("a"), new_op("b")])
    kept, given_up = claim(store).leased
    clock.advance(LEASE)
    assert store.heartbeat("worker-a", [kept.lease.token], LEASE) == frozenset()
    clock.advance(1)
    assert store.sweep() == 1
    both = [kept.lease.token, given_up.lease.token]
    assert store.heartbeat("worker-a", both, LEASE) == store.lost(both) == {given_up.lease.token}
    assert statuses(store) == {"a": "running", "b": "ready"}


def test_a_heartbeat_revives_a_lease_that_expired_but_was_not_taken_back(store: Store, clock: FakeClock) -> None:
    """The laptop slept: what is still its own is extended, whatever the clock says."""
    submit(store, [new_op("a")])
    leased = claim_one(store, "a")
    clock.advance(100 * LEASE)
    assert store.heartbeat("worker-a", [leased.lease.token], LEASE) == frozenset()
    assert store.sweep() == 0


def test_the_leases_of_a_dead_worker_can_be_taken_back_at_once(store: Store) -> None:
    submit(store, [new_op("a"), new_op("b")])
    claim_one(store, "a", worker="dead")
    claim_one(store, "b", worker="alive")
    store.bury_worker("dead")
    assert store.sweep() == 1
    assert statuses(store) == {"a": "ready", "b": "running"}


def test_losses_are_bounded_and_the_last_one_fails_the_op(store: Store, clock: FakeClock) -> None:
    submit(store, [new_op("a", retry=RetryPolicy(max_attempts=100)), new_op("b", after=["a"])])
    for _ in range(MAX_LOST):
        leased = start(store, claim_one(store, "a"))
        assert leased.planned is None
        lose(store, clock)
    resolving = claim_one(store, "a")
    assert resolving.planned is not None
    assert resolving.planned.code == "lease_lost"
    settle(store, (resolving, Fenced()))
    assert statuses(store) == {"a": "failed", "b": "canceled"}
    assert error_of(store, "a")["Code"] == "lease_lost"
    assert store.workflow_status("w1") is WorkflowStatus.FAILED
    assert attempt_states(store, "a") == ["lease_lost"] * MAX_LOST + ["failed"]


def test_an_op_given_up_for_its_losses_is_completed_when_the_inbox_knows_better(store: Store, clock: FakeClock) -> None:
    submit(store, [new_op("a")])
    for _ in range(MAX_LOST):
        start(store, claim_one(store, "a"))
        lose(store, clock)
    succeed(store, claim_one(store, "a"), data="42")
    assert store.workflow_status("w1") is WorkflowStatus.SUCCEEDED


def test_a_claim_that_never_started_counts_as_nothing(store: Store, clock: FakeClock) -> None:
    submit(store, [new_op("a")])
    for _ in range(3 * MAX_LOST):
        leased = claim_one(store, "a")
        assert leased.planned is None
        assert leased.lease.attempt == 1
        lose(store, clock)
    assert run_all(store) == ["a"]


def test_lost_leases_leave_the_attempts_of_the_policy_alone(store: Store, clock: FakeClock) -> None:
    submit(store, [new_op("a", retry=RetryPolicy(max_attempts=2, initial=SECOND))])
    start(store, claim_one(store, "a"))
    lose(store, clock)
    first = start(store, claim_one(store, "a"))
    assert first.lease.attempt == 1
    fail(store, first)
    clock.advance(SECOND)
    start(store, claim_one(store, "a"))
    lose(store, clock)
    second = claim_one(store, "a")
    assert second.lease.attempt == 2
    fail(store, second)
    assert attempt_states(store, "a") == ["lease_lost", "retried", "lease_lost", "failed"]
    assert statuses(store) == {"a": "failed"}


def test_an_interrupted_attempt_is_refunded_and_waits_as_long_as_it_asks(store: Store, clock: FakeClock) -> None:
    submit(store, [new_op("a")])
    settle(store, (claim_one(store, "a"), Interrupted("the site database is busy", clock.now() + SECOND)))
    assert claim(store).next_due == clock.now() + SECOND
    clock.advance(SECOND)
    leased = claim_one(store, "a")
    assert leased.lease.attempt == 1
    assert attempt_states(store, "a") == ["interrupted", "running"]


@pytest.mark.parametrize(
    ("policy", "pauses"),
    [
        (RetryPolicy(max_attempts=0), []),
        (RetryPolicy(max_attempts=1), []),
        (RetryPolicy(max_attempts=4, initial=2 * SECOND), [2, 2, 2]),
        (RetryPolicy(max_attempts=3), [1, 1]),
        (RetryPolicy(max_attempts=4, backoff=BackoffKind.LINEAR, initial=2 * SECOND), [2, 4, 6]),
        (RetryPolicy(max_attempts=5, backoff=BackoffKind.EXPONENTIAL, initial=SECOND, multiplier=3), [1, 3, 9, 27]),
        (
            RetryPolicy(max_attempts=5, backoff=BackoffKind.EXPONENTIAL, initial=SECOND, maximum=3 * SECOND),
            [1, 2, 3, 3],
        ),
    ],
    ids=["none", "once", "fixed", "default pause", "linear", "exponential", "capped"],
)
def test_retries_come_after_the_pauses_of_the_policy(
    store: Store, clock: FakeClock, policy: RetryPolicy, pauses: list[int]
) -> None:
    submit(store, [new_op("a", retry=policy)])
    seen: list[int] = []
    fail(store, claim_one(store, "a"))
    while statuses(store) == {"a": "ready"}:
        due = claim(store).next_due
        assert due is not None
        seen.append((due - clock.now()) // SECOND)
        clock.instant = due - 1
        assert claim(store).leased == ()
        clock.advance(1)
        fail(store, claim_one(store, "a"))
    assert seen == pauses
    assert statuses(store) == {"a": "failed"}


@pytest.mark.parametrize(("asked", "waited"), [(30 * SECOND, 30 * SECOND), (SECOND, 5 * SECOND)])
def test_a_pause_the_other_side_asked_for_is_kept_where_it_is_longer(
    store: Store, clock: FakeClock, asked: Micros, waited: Micros
) -> None:
    submit(store, [new_op("a", retry=RetryPolicy(max_attempts=2, initial=5 * SECOND, maximum=10 * SECOND))])
    fail(store, claim_one(store, "a"), OpError("http_status_429", "slow down", retryable=True, retry_after=asked))
    assert claim(store).next_due == clock.now() + waited
    clock.advance(waited - 1)
    assert claim(store).leased == ()
    clock.advance(1)
    assert claim_one(store, "a").lease.attempt == 2


def test_an_error_that_is_not_retryable_is_final_whatever_the_policy(store: Store) -> None:
    submit(store, [new_op("a", retry=RetryPolicy(max_attempts=9))])
    fail(store, claim_one(store, "a"), OpError("runner_error", "a bug"))
    assert attempt_states(store, "a") == ["failed"]


def test_between_tries_the_error_can_be_read_and_success_takes_it_away(store: Store, clock: FakeClock) -> None:
    submit(store, [new_op("a", retry=RetryPolicy(max_attempts=2, initial=SECOND))])
    fail(store, claim_one(store, "a"))
    assert error_of(store, "a")["Code"] == "busy"
    assert store.workflow_status("w1") is WorkflowStatus.RUNNING
    clock.advance(SECOND)
    succeed(store, claim_one(store, "a"), data='{"n":1}')
    with store.database.read() as connection:
        row = connection.exec_driver_sql("SELECT data_json, error_json FROM results WHERE op_id = 'a'").one()
    assert tuple(row) == ('{"n":1}', "null")


def test_an_outcome_sent_twice_is_recognised_and_changes_nothing(store: Store, clock: FakeClock) -> None:
    """The answer to a commit got lost with the connection; meanwhile the op may even run again."""
    submit(store, [new_op("a", retry=RetryPolicy(max_attempts=2)), new_op("b")])
    first, other = claim(store).leased
    again = RetryAt(clock.now(), BUSY)
    settle(store, (first, again))
    assert settle(store, (first, again)).verdicts == (Applied(),)
    running = claim_one(store, "a")
    assert settle(store, (first, Failed(BUSY)), (other, Succeeded(Result()))).verdicts == (Applied(), Applied())
    assert statuses(store) == {"a": "running", "b": "succeeded"}
    succeed(store, running)
    assert attempt_states(store, "a") == ["retried", "succeeded"]
