"""What an operator may forget, and what must stay."""

from __future__ import annotations

import hashlib
import random
from pathlib import Path

import pytest

from engine.clock import SECOND
from engine.errors import UsageError
from engine.model import Artifact, LogLine, Result
from engine.outcome import Succeeded
from engine.store.artifacts import GRACE
from engine.store.retention import Cutoffs, Pruned
from engine.store.store import Store
from tests.factories import claim, new_op, settle, submit
from tests.fakes import FakeClock

DAY = 24 * 3600 * SECOND
OWNED = ("op", "result", "artifact", "attempt", "log_line", "edge")


def page(op_id: str, body: bytes) -> Artifact:
    digest = hashlib.sha256(body).hexdigest()
    return Artifact(
        id=f"{op_id}:body",
        name="body",
        kind="page",
        content_type="text/html",
        metadata={},
        sha256=digest,
        size=len(body),
        body=body,
    )


def finish(store: Store, workflow_id: str, body: bytes = b"a page") -> None:
    """A workflow of two ops, one after the other, each with data, an artifact and a log line."""
    submit(store, [new_op("first"), new_op("second", after=["first"])], workflow_id)
    while leased := claim(store).leased:
        for item in leased:
            line = LogLine(at=store.clock.now(), message="seen")
            result = Result(data='{"n":1}', artifacts=(page(item.op.id, body),), logs=(line,))
            settle(store, (item, Succeeded(result)))


def count(store: Store, *tables: str) -> list[int]:
    with store.database.read() as connection:
        return [connection.exec_driver_sql(f"SELECT count(*) FROM {table}").scalar_one() for table in tables]


def prune_all(store: Store, cutoffs: Cutoffs) -> Pruned:
    total = Pruned()
    while pruned := store.prune(cutoffs):
        total.add(pruned)
    return total


def test_an_ended_workflow_goes_with_all_that_belongs_to_it(store: Store, clock: FakeClock) -> None:
    finish(store, "old")
    clock.advance(30 * DAY)
    pruned = prune_all(store, Cutoffs(workflows=clock.now() - DAY))
    assert (pruned.workflows, pruned.ops) == (1, 2)
    assert count(store, "workflow", *OWNED) == [0, 0, 0, 0, 0, 0, 0]


def test_what_is_young_or_open_stays(store: Store, clock: FakeClock) -> None:
    submit(store, [new_op("waits", not_before=clock.now() + 365 * DAY)], "open")
    clock.advance(30 * DAY)
    finish(store, "young")
    assert prune_all(store, Cutoffs(workflows=clock.now() - DAY, results=clock.now() - DAY)) == Pruned()
    assert count(store, "workflow", "op", "result") == [2, 3, 2]


def test_a_body_goes_when_no_artifact_names_it_any_more(store: Store, clock: FakeClock) -> None:
    finish(store, "one", b"shared")
    finish(store, "two", b"shared")
    clock.advance(30 * DAY)
    assert store.delete_workflow("one") == 2
    prune_all(store, Cutoffs())
    assert count(store, "blob") == [1]
    assert store.delete_workflow("two") == 2
    assert prune_all(store, Cutoffs()).bodies == 1
    assert count(store, "blob") == [0]


def test_a_body_that_was_stored_ahead_of_its_artifact_is_not_collected(store: Store, clock: FakeClock) -> None:
    store.put_blobs([page("x", b"page")])
    clock.advance(GRACE - SECOND)
    assert prune_all(store, Cutoffs()).bodies == 0
    store.put_blobs([page("x", b"page")])
    clock.advance(GRACE - SECOND)
    assert prune_all(store, Cutoffs()).bodies == 0
    clock.advance(2 * SECOND)
    assert prune_all(store, Cutoffs()).bodies == 1


def test_the_body_of_an_op_whose_worker_died_after_its_site_commit_outlasts_any_night(
    store: Store, clock: FakeClock
) -> None:
    """The outcome stands in the site's inbox only, and names the body by its hash."""
    submit(store, [new_op("a")])
    claim(store)
    store.put_blobs([page("a", b"page")])
    clock.advance(30 * DAY)
    assert prune_all(store, Cutoffs(workflows=clock.now())).bodies == 0
    store.sweep()
    (again,) = claim(store).leased
    settle(store, (again, Succeeded(Result())))
    assert prune_all(store, Cutoffs()).bodies == 1


def test_results_artifacts_and_logs_go_at_ages_of_their_own(store: Store, clock: FakeClock) -> None:
    finish(store, "old")
    clock.advance(30 * DAY)
    old = clock.now() - DAY
    assert prune_all(store, Cutoffs(logs=old)).logs == 2
    assert prune_all(store, Cutoffs(artifacts=old)).artifacts == 2
    assert prune_all(store, Cutoffs(results=old)).results == 2
    assert count(store, "workflow", "op", "result", "artifact", "log_line") == [1, 2, 2, 0, 0]


def test_a_workflow_larger_than_a_slice_goes_in_parts(
    store: Store, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.store.retention.SLICE", 3)
    submit(store, [new_op(f"op{number}") for number in range(8)])
    while leased := claim(store).leased:
        settle(store, *((item, Succeeded(Result())) for item in leased))
    clock.advance(DAY)
    slices = []
    while pruned := store.prune(Cutoffs(workflows=clock.now())):
        slices.append((pruned.ops, pruned.workflows))
    assert slices == [(3, 0), (3, 0), (2, 1)]


def test_deleting_what_has_not_ended_is_refused(store: Store) -> None:
    submit(store, [new_op("a")])
    with pytest.raises(UsageError, match="cancel it first"):
        store.delete_workflow("w1")
    with pytest.raises(UsageError, match='no workflow "w2"'):
        store.delete_workflow("w2")


def test_a_canceled_op_whose_inbox_key_is_open_keeps_its_workflow(store: Store, clock: FakeClock) -> None:
    submit(store, [new_op("a")])
    claim(store)
    store.cancel("w1")
    clock.advance(30 * DAY)
    assert prune_all(store, Cutoffs(workflows=clock.now())) == Pruned()
    with pytest.raises(UsageError, match="still has to close"):
        store.delete_workflow("w1")


def test_the_file_shrinks(tmp_path: Path, clock: FakeClock) -> None:
    store = Store.open(tmp_path / "engine.db", clock=clock)
    for number in range(20):
        finish(store, f"w{number}", random.Random(number).randbytes(60_000))
    before = store.size()
    clock.advance(30 * DAY)
    assert prune_all(store, Cutoffs(workflows=clock.now() - DAY)).bodies == 20
    while store.shrink():
        pass
    assert store.size() < before / 2
    store.close()
