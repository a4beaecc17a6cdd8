"""Readiness, failure and dangling dependencies of a workflow's ops."""

from __future__ import annotations

import pytest

from engine.errors import OpError, SubmissionRefused
from engine.model import EdgeKind, NewWorkflow, Result, WorkflowStatus
from engine.outcome import Failed, RetryAt, Succeeded
from engine.store.store import Store
from engine.store.types import Refused
from tests.factories import claim, claim_one, new_op, run_all, settle, statuses, submit, succeed

BROKEN = OpError("runner_error", "it broke")


def test_ops_run_after_what_they_depend_on(store: Store) -> None:
    submit(store, [new_op("c", after=["a", "b"]), new_op("a"), new_op("b", after=["a"])])
    assert run_all(store) == ["a", "b", "c"]
    assert store.workflow_status("w1") is WorkflowStatus.SUCCEEDED


def test_a_workflow_without_ops_succeeds_at_once_with_a_warning(store: Store) -> None:
    submitted = store.submit(NewWorkflow(id="empty", site="shop", name="n"))
    assert submitted.warning
    assert store.workflow_status("empty") is WorkflowStatus.SUCCEEDED


def test_a_taken_workflow_id_is_refused_and_changes_nothing(store: Store) -> None:
    submit(store, [new_op("a")])
    with pytest.raises(SubmissionRefused, match="w1"):
        submit(store, [new_op("b")])
    assert statuses(store) == {"a": "ready"}


def test_a_repeated_id_in_one_submission_is_refused_whole(store: Store) -> None:
    with pytest.raises(SubmissionRefused, match='"a"') as refused:
        submit(store, [new_op("a"), new_op("a")])
    assert refused.value.code == "duplicate_op_id"
    assert store.workflow_status("w1") is None


def test_a_cycle_in_one_submission_is_refused_and_spelled_out(store: Store) -> None:
    with pytest.raises(SubmissionRefused, match=r"a -> b -> a|b -> a -> b") as refused:
        submit(store, [new_op("a", after=["b"]), new_op("b", after=["a"])])
    assert refused.value.code == "dependency_cycle"


def test_a_failed_required_dependency_cancels_dependents_all_the_way_down(store: Store) -> None:
    submit(store, [new_op("a"), new_op("b", after=["a"]), new_op("c", after=["b"])])
    settle(store, (claim_one(store, "a"), Failed(BROKEN)))
    assert statuses(store) == {"a": "failed", "b": "canceled", "c": "canceled"}
    assert store.workflow_status("w1") is WorkflowStatus.FAILED


def test_an_optional_dependency_counts_when_it_ended_in_any_state(store: Store) -> None:
    submit(store, [new_op("a"), new_op("join", after=[("a", EdgeKind.TERMINAL)])])
    settle(store, (claim_one(store, "a"), Failed(BROKEN)))
    assert run_all(store) == ["join"]
    assert store.workflow_status("w1") is WorkflowStatus.FAILED


def test_a_settled_dependency_counts_when_the_first_attempt_ended(store: Store) -> None:
    submit(store, [new_op("a"), new_op("seal", after=[("a", EdgeKind.SETTLED)])])
    leased = claim_one(store, "a")
    settle(store, (leased, RetryAt(store.clock.now() + 1_000_000, BROKEN)))
    assert claim_one(store).op.id == "seal"


def test_a_forward_reference_is_satisfied_when_the_op_is_emitted_and_done(store: Store) -> None:
    submit(store, [new_op("late", after=["unknown-yet"]), new_op("emitter")])
    succeed(store, claim_one(store, "emitter"), new_op("unknown-yet"))
    assert run_all(store) == ["unknown-yet", "late"]


def test_waiting_for_an_id_nobody_emitted_is_canceled_naming_the_id(store: Store) -> None:
    submit(store, [new_op("late", after=["nobody"]), new_op("other")])
    run_all(store)
    assert statuses(store) == {"late": "canceled", "other": "succeeded"}
    with store.database.read() as connection:
        error = connection.exec_driver_sql("SELECT error_json FROM results WHERE op_id = 'late'").scalar_one()
    assert "unknown_dependency" in error
    assert "nobody" in error


def test_an_optional_dependency_nobody_emitted_counts_as_resolved(store: Store) -> None:
    submit(store, [new_op("late", after=[("nobody", EdgeKind.TERMINAL)]), new_op("other")])
    assert run_all(store) == ["other", "late"]


def test_a_cycle_made_by_two_emissions_is_canceled_and_spelled_out(store: Store) -> None:
    submit(store, [new_op("one"), new_op("two")])
    first, second = claim(store).leased
    succeed(store, first, new_op("x", after=["y"]))
    succeed(store, second, new_op("y", after=["x"]))
    assert statuses(store)["x"] == statuses(store)["y"] == "canceled"
    with store.database.read() as connection:
        error = connection.exec_driver_sql("SELECT error_json FROM results WHERE op_id = 'x'").scalar_one()
    assert "dependency_cycle" in error
    assert " -> " in error


def test_emitting_the_same_op_again_is_no_change(store: Store) -> None:
    submit(store, [new_op("one"), new_op("two")])
    first, second = claim(store).leased
    succeed(store, first, new_op("child", input='{"n":1}'))
    succeed(store, second, new_op("child", input='{"n":1}'))
    assert run_all(store) == ["child"]


def test_a_taken_id_with_other_content_refuses_the_emitter_alone(store: Store) -> None:
    submit(store, [new_op("one"), new_op("two"), new_op("three")])
    first, second, third = claim(store).leased
    report = settle(
        store,
        (first, Succeeded(Result(emitted=(new_op("child", input="1"),)))),
        (second, Succeeded(Result(emitted=(new_op("child", input="2"),)))),
        (third, Succeeded(Result())),
    )
    refused = report.verdicts[1]
    assert isinstance(refused, Refused)
    assert refused.error.code == "duplicate_op_id"
    assert statuses(store) == {"one": "succeeded", "two": "running", "three": "succeeded", "child": "ready"}


def test_a_taken_dedup_key_is_not_stored_twice_and_dependencies_follow(store: Store) -> None:
    submit(store, [new_op("one"), new_op("two")])
    first, second = claim(store).leased
    succeed(store, first, new_op("p1", dedup_key="page", input="1"))
    succeed(store, second, new_op("p2", dedup_key="page", input="2"), new_op("after", after=["p2"]))
    assert run_all(store) == ["p1", "after"]


def test_two_emitters_of_one_dedup_key_in_one_group_agree(store: Store) -> None:
    submit(store, [new_op("one"), new_op("two")])
    first, second = claim(store).leased
    settle(
        store,
        (first, Succeeded(Result(emitted=(new_op("p1", dedup_key="page"),)))),
        (second, Succeeded(Result(emitted=(new_op("p2", dedup_key="page"), new_op("after", after=["p2"]))))),
    )
    assert run_all(store) == ["p1", "after"]


def test_a_forward_reference_to_a_deduplicated_id_follows_the_op_that_stands(store: Store) -> None:
    submit(store, [new_op("waits", after=["p2"]), new_op("one"), new_op("two")])
    first, second = claim(store).leased
    succeed(store, first, new_op("p1", dedup_key="page"))
    succeed(store, second, new_op("p2", dedup_key="page"))
    assert run_all(store) == ["p1", "waits"]


def test_a_dependency_on_an_op_that_failed_before_cancels_the_new_one(store: Store) -> None:
    submit(store, [new_op("bad"), new_op("emitter")])
    bad, emitter = claim(store).leased
    settle(store, (bad, Failed(BROKEN)))
    succeed(store, emitter, new_op("child", after=["bad"]))
    assert statuses(store)["child"] == "canceled"


def test_retry_revives_exactly_the_dependents_canceled_because_of_it(store: Store) -> None:
    submit(
        store,
        [new_op("a"), new_op("x"), new_op("b", after=["a"]), new_op("c", after=["b"]), new_op("d", after=["x"])],
    )
    for leased in claim(store).leased:
        settle(store, (leased, Failed(BROKEN)))
    assert store.retry("a") == 3
    assert run_all(store) == ["a", "b", "c"]
    assert statuses(store)["d"] == "canceled"
    assert store.workflow_status("w1") is WorkflowStatus.FAILED
    store.retry("x")
    run_all(store)
    assert store.workflow_status("w1") is WorkflowStatus.SUCCEEDED
