"""What operators do, dedup keys, and the status a workflow shows (STORE-20 to STORE-26)."""

from __future__ import annotations

import json

import pytest

from engine.errors import OpError, UsageError
from engine.model import EdgeKind, NewOp, NewWorkflow, Result, WorkflowStatus
from engine.outcome import Failed, Fenced, Interrupted, Outcome, RetryAt, Succeeded
from engine.store.reads import open_reads
from engine.store.store import Store
from engine.store.types import LostLease
from tests.factories import (
    LEASE,
    SITE,
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

BROKEN = OpError("runner_error", "it broke")
DONE = Succeeded(Result())
BAD = Failed(BROKEN)


def end(store: Store, **outcomes: Outcome) -> None:
    """Run what is ready until nothing is, each op to the outcome given by its id (success where none is)."""
    while leased := claim(store).leased:
        settle(store, *((item, outcomes.get(item.op.id, DONE)) for item in leased))


def code(store: Store, op_id: str, workflow_id: str = "w1") -> str | None:
    """The error code scripts see of an op."""
    reads = open_reads(store.url)
    try:
        shown = reads.dependency(workflow_id, op_id)
    finally:
        reads.close()
    error = json.loads(shown or "{}").get("error")
    return None if error is None else str(error["code"])


def test_cancel_ends_everything_and_takes_the_leases_away(store: Store) -> None:
    submit(store, [new_op("done"), new_op("running"), new_op("ready"), new_op("waits", after=["running"])])
    succeed(store, claim_one(store, "done"))
    running = claim_one(store, "running")
    assert store.cancel("w1") == 3
    assert statuses(store) == {"done": "succeeded", "running": "canceled", "ready": "canceled", "waits": "canceled"}
    assert {code(store, op_id) for op_id in ("running", "ready", "waits")} == {"canceled"}
    assert store.workflow_status("w1") is WorkflowStatus.CANCELED
    assert store.lost([running.lease.token]) == {running.lease.token}


@pytest.mark.parametrize(
    "outcome", [DONE, BAD, RetryAt(0, BROKEN), Interrupted("stopped")], ids=lambda o: type(o).__name__
)
def test_nothing_completes_after_a_cancel(store: Store, outcome: Outcome) -> None:
    submit(store, [new_op("a"), new_op("b", after=["a"])])
    running = claim_one(store, "a")
    store.cancel("w1")
    assert settle(store, (running, outcome)).verdicts == (LostLease(),)
    assert statuses(store) == {"a": "canceled", "b": "canceled"}
    assert store.workflow_status("w1") is WorkflowStatus.CANCELED
    assert attempt_states(store, "a") == ["canceled"]


def test_a_canceled_op_that_ran_is_handed_out_once_more_to_close_its_inbox_key(store: Store, clock: FakeClock) -> None:
    submit(store, [new_op("ran"), new_op("waited")])
    generation = claim_one(store, "ran").op.generation
    store.cancel("w1")
    assert not store.idle("m1")
    (duty,) = claim(store).leased
    assert duty.op.id == "ran"
    assert duty.fence == (generation,)
    assert duty.planned is not None
    assert duty.planned.code == "canceled"
    assert claim(store).leased == (), "somebody is at it"
    clock.advance(LEASE + 1)
    (again,) = claim(store).leased
    settle(store, (again, Fenced()))
    assert store.idle("m1")
    assert statuses(store) == {"ran": "canceled", "waited": "canceled"}
    assert store.workflow_status("w1") is WorkflowStatus.CANCELED


def test_cancel_leaves_what_succeeded_alone_and_refuses_what_it_does_not_know(store: Store) -> None:
    submit(store, [new_op("a")])
    end(store)
    assert store.cancel("w1") == 0
    assert store.workflow_status("w1") is WorkflowStatus.SUCCEEDED
    with pytest.raises(UsageError, match='no workflow "w2"'):
        store.cancel("w2")


def test_cancel_of_one_workflow_leaves_the_others_alone(store: Store) -> None:
    submit(store, [new_op("a")], "w1")
    submit(store, [new_op("a")], "w2")
    store.cancel("w1")
    assert run_all(store) == ["a"]
    assert store.workflow_status("w2") is WorkflowStatus.SUCCEEDED


def test_only_a_failed_op_can_be_retried(store: Store) -> None:
    submit(store, [new_op("bad"), new_op("good"), new_op("dependent", after=["bad"])])
    with pytest.raises(UsageError, match=r'"good" of workflow "w1" is ready; only a failed op'):
        store.retry("good")
    end(store, bad=BAD)
    with pytest.raises(UsageError, match="is succeeded"):
        store.retry("good")
    with pytest.raises(UsageError, match="is canceled"):
        store.retry("dependent")
    with pytest.raises(UsageError, match='no op "nobody"'):
        store.retry("nobody")
    assert statuses(store) == {"bad": "failed", "good": "succeeded", "dependent": "canceled"}


def test_retry_asks_for_the_workflow_where_the_id_is_ambiguous(store: Store) -> None:
    for workflow in ("w1", "w2"):
        submit(store, [new_op("a")], workflow)
    end(store, a=BAD)
    with pytest.raises(UsageError, match=r"several workflows \(w1, w2\).*--workflow"):
        store.retry("a")
    assert store.retry("a", "w2") == 1
    assert (statuses(store, "w1"), statuses(store, "w2")) == ({"a": "failed"}, {"a": "ready"})
    with pytest.raises(UsageError, match='no op "a" in workflow "w3"'):
        store.retry("a", "w3")


def test_a_retried_op_starts_afresh(store: Store) -> None:
    submit(store, [new_op("a")])
    end(store, a=BAD)
    store.retry("a")
    assert store.workflow_status("w1") is WorkflowStatus.RUNNING
    assert code(store, "a") is None
    leased = claim_one(store, "a")
    assert (leased.lease.attempt, leased.lease.earlier_claims) == (1, 1)
    succeed(store, leased)
    assert store.workflow_status("w1") is WorkflowStatus.SUCCEEDED
    assert attempt_states(store, "a") == ["failed", "succeeded"]


def test_a_revived_dependent_waits_for_all_it_waited_for(store: Store) -> None:
    submit(store, [new_op("bad"), new_op("slow"), new_op("join", after=["bad", "slow"]), new_op("end", after=["join"])])
    bad, slow = claim(store).leased
    settle(store, (bad, BAD))
    assert store.retry("bad") == 3
    succeed(store, claim_one(store, "bad"))
    assert statuses(store)["join"] == "pending"
    succeed(store, slow)
    assert run_all(store) == ["join", "end"]
    assert store.workflow_status("w1") is WorkflowStatus.SUCCEEDED


def test_a_dependent_of_two_failed_ops_comes_back_when_both_were_retried(store: Store) -> None:
    submit(store, [new_op("x"), new_op("y"), new_op("join", after=["x", "y"]), new_op("end", after=["join"])])
    end(store, x=BAD, y=BAD)
    assert statuses(store)["join"] == "canceled"
    store.retry("x")
    end(store)
    assert statuses(store) == {"x": "succeeded", "y": "failed", "join": "canceled", "end": "canceled"}
    store.retry("y")
    end(store)
    assert statuses(store) == dict.fromkeys(("x", "y", "join", "end"), "succeeded")
    assert store.workflow_status("w1") is WorkflowStatus.SUCCEEDED


def test_an_optional_dependent_that_ran_already_is_not_run_again(store: Store) -> None:
    submit(store, [new_op("a"), new_op("report", after=[("a", EdgeKind.TERMINAL)])])
    end(store, a=BAD)
    assert store.retry("a") == 1
    assert run_all(store) == ["a"]
    assert store.workflow_status("w1") is WorkflowStatus.SUCCEEDED


def test_an_op_fenced_in_its_inbox_gets_a_new_generation_when_it_is_retried(store: Store, clock: FakeClock) -> None:
    """The old key is closed for good: under it nothing could ever be written again."""
    submit(store, [new_op("a")])
    for _ in range(3):
        leased = claim_one(store, "a")
        store.settle([], [(leased.lease.token, clock.now())])
        clock.advance(LEASE + 1)
        store.sweep()
    settle(store, (claim_one(store, "a"), Fenced()))
    store.retry("a")
    fresh = claim_one(store, "a")
    assert fresh.op.generation == leased.op.generation + 1
    assert fresh.planned is None


def test_an_op_that_merely_failed_keeps_its_generation_when_it_is_retried(store: Store) -> None:
    """Its predecessor's transaction may still be on its way: both must collide."""
    submit(store, [new_op("a")])
    first = claim_one(store, "a")
    settle(store, (first, BAD))
    store.retry("a")
    assert claim_one(store, "a").op.generation == first.op.generation


def emit_twice(store: Store, first: NewOp, second: NewOp, *more: NewOp) -> None:
    """Two ops of one workflow emit one op each, one after the other."""
    submit(store, [new_op("one"), new_op("two")])
    one, two = claim(store).leased
    succeed(store, one, first)
    succeed(store, two, second, *more)


def test_a_key_that_is_taken_drops_the_op_and_leaves_an_alias(store: Store) -> None:
    emit_twice(store, new_op("p1", dedup_key="page"), new_op("p2", dedup_key="page", input="2"))
    assert set(statuses(store)) == {"one", "two", "p1"}
    succeed(store, claim_one(store, "p1"), data='"the page"')
    reads = open_reads(store.url)
    try:
        assert reads.standing("w1", "js", "page") == "p1"
        shown = json.loads(reads.dependency("w1", "p2") or "null")
        assert reads.dependency("w2", "p2") is None
    finally:
        reads.close()
    assert (shown["opID"], shown["data"]) == ("p1", "the page")


def test_a_key_stays_taken_when_its_op_is_over(store: Store) -> None:
    submit(store, [new_op("one"), new_op("two")])
    one, two = claim(store).leased
    succeed(store, one, new_op("p1", dedup_key="page"))
    settle(store, (claim_one(store, "p1"), BAD))
    succeed(store, two, new_op("p2", dedup_key="page"), new_op("after", after=["p2"]))
    assert statuses(store) == {"one": "succeeded", "two": "succeeded", "p1": "failed", "after": "canceled"}


@pytest.mark.parametrize(
    "second",
    [new_op("p2", dedup_key="page", kind="http/fetch"), new_op("p2", dedup_key="Page"), new_op("p2")],
    ids=["another kind", "another key", "no key"],
)
def test_another_kind_or_key_is_another_op(store: Store, second: NewOp) -> None:
    emit_twice(store, new_op("p1", dedup_key="page"), second)
    assert run_all(store) == ["p1", "p2"]


def test_ops_without_a_key_are_never_dropped(store: Store) -> None:
    emit_twice(store, new_op("p1"), new_op("p2"))
    assert run_all(store) == ["p1", "p2"]


def test_the_same_key_in_two_workflows_is_two_ops(store: Store) -> None:
    for workflow in ("w1", "w2"):
        submit(store, [new_op("a", dedup_key="page")], workflow)
    assert run_all(store) == ["a", "a"]


def test_one_submission_with_a_key_twice_stores_it_once(store: Store) -> None:
    submit(store, [new_op("a", dedup_key="k"), new_op("b", dedup_key="k"), new_op("after", after=["b"])])
    assert run_all(store) == ["a", "after"]
    assert store.workflow_status("w1") is WorkflowStatus.SUCCEEDED


def test_an_alias_can_be_depended_on_and_retried_like_the_op_that_stands(store: Store) -> None:
    emit_twice(
        store, new_op("p1", dedup_key="page"), new_op("p2", dedup_key="page"), new_op("after", after=["p2", "p1"])
    )
    settle(store, (claim_one(store, "p1"), BAD))
    assert statuses(store)["after"] == "canceled"
    assert store.retry("p2") == 2
    assert run_all(store) == ["p1", "after"]


def test_a_workflow_shows_what_its_ops_are(store: Store, clock: FakeClock) -> None:
    submit(store, [new_op("a", not_before=clock.now() + 1), new_op("b", after=["a"])])
    assert store.workflow_status("w1") is WorkflowStatus.RUNNING, "delayed is ready, and ready is running"
    clock.advance(1)
    leased = claim_one(store, "a")
    assert store.workflow_status("w1") is WorkflowStatus.RUNNING
    settle(store, (leased, RetryAt(clock.now() + 1, BROKEN)))
    assert store.workflow_status("w1") is WorkflowStatus.RUNNING, "waiting for a retry"
    clock.advance(1)
    succeed(store, claim_one(store, "a"))
    assert store.workflow_status("w1") is WorkflowStatus.RUNNING
    succeed(store, claim_one(store, "b"))
    assert store.workflow_status("w1") is WorkflowStatus.SUCCEEDED
    assert store.workflow_status("w2") is None


@pytest.mark.parametrize(
    ("ops", "outcomes", "status"),
    [
        ([], {}, "succeeded"),
        ([new_op("a"), new_op("b")], {}, "succeeded"),
        ([new_op("a"), new_op("b")], {"b": BAD}, "failed"),
        ([new_op("a"), new_op("b", after=["a"])], {"a": BAD}, "failed"),
        ([new_op("a"), new_op("b", after=[("a", EdgeKind.TERMINAL)])], {"a": BAD}, "failed"),
        ([new_op("a"), new_op("b", after=["nobody"])], {}, "failed"),
        ([new_op("a"), new_op("b", after=[("nobody", EdgeKind.TERMINAL)])], {}, "succeeded"),
    ],
    ids=["no ops", "all well", "one failed", "one canceled", "an optional one failed", "unknown", "unknown, optional"],
)
def test_a_workflow_ends_as_its_ops_did(
    store: Store, ops: list[NewOp], outcomes: dict[str, Outcome], status: str
) -> None:
    store.submit(NewWorkflow(id="w1", site=SITE, name="n", ops=tuple(ops)))
    end(store, **outcomes)
    assert store.workflow_status("w1") == status
    assert store.idle("m1")


def test_a_failure_shows_only_when_nothing_runs_any_more(store: Store) -> None:
    submit(store, [new_op("a"), new_op("b")])
    a, b = claim(store).leased
    settle(store, (a, BAD))
    assert store.workflow_status("w1") is WorkflowStatus.RUNNING
    succeed(store, b)
    assert store.workflow_status("w1") is WorkflowStatus.FAILED


def test_cancel_after_a_failure_and_retry_after_a_cancel_are_shown(store: Store) -> None:
    submit(store, [new_op("a"), new_op("b"), new_op("c", after=["a"])])
    a, _ = claim(store).leased
    settle(store, (a, BAD))
    store.cancel("w1")
    assert store.workflow_status("w1") is WorkflowStatus.CANCELED
    assert store.retry("a") == 2
    assert store.workflow_status("w1") is WorkflowStatus.RUNNING
    end(store, b=Fenced())
    assert statuses(store) == {"a": "succeeded", "b": "canceled", "c": "succeeded"}
    assert store.workflow_status("w1") is WorkflowStatus.FAILED
