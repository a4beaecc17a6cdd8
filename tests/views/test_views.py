"""Read models on both dialects: what people see agrees with what the store did."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.clock import SECOND
from engine.errors import DatabaseRefused, OpError, UsageError
from engine.model import Artifact, LogLine, Result
from engine.outcome import Failed, RetryAt
from engine.store.store import Store
from engine.views.reader import Views
from engine.views.types import DependencyView
from tests.factories import claim_one, new_op, settle, submit, succeed
from tests.fakes import FakeClock


@pytest.fixture
def store(engine_url: str, clock: FakeClock) -> Iterator[Store]:
    opened = Store.open(engine_url, clock=clock)
    yield opened
    opened.close()


@pytest.fixture
def views(store: Store, engine_url: str) -> Iterator[Views]:
    opened = Views(engine_url)
    yield opened
    opened.close()


def test_a_workflow_shows_its_ops_by_status_and_queue(store: Store, views: Views) -> None:
    submit(store, [new_op("a", queue="fast"), new_op("b", queue="slow", after=["a"]), new_op("c", queue="slow")])
    succeed(store, claim_one(store, "a"))
    view = views.workflow("w1")
    assert (view.id, view.site, view.status) == ("w1", "shop", "running")
    assert view.ops == {"pending": 0, "ready": 2, "running": 0, "succeeded": 1, "failed": 0, "canceled": 0}
    assert [(one.queue, dict(one.ops)) for one in view.queues] == [("fast", {"succeeded": 1}), ("slow", {"ready": 2})]
    assert view.failures == ()


def test_a_workflow_shows_why_ops_failed(store: Store, views: Views) -> None:
    submit(store, [new_op("a"), new_op("b", after=["a"])])
    settle(store, (claim_one(store, "a"), Failed(OpError("runner_error", "boom"))))
    failures = views.workflow("w1").failures
    assert [(one.op_id, one.status, one.error.code) for one in failures] == [
        ("a", "failed", "runner_error"),
        ("b", "canceled", "dependency_failed"),
    ]


def test_an_op_shows_every_attempt_and_what_it_left(store: Store, views: Views, clock: FakeClock) -> None:
    submit(store, [new_op("a"), new_op("b", after=["a"], input='{"x": 1}', metadata={"script": "b.js"})])
    succeed(store, claim_one(store, "a"))
    settle(store, (claim_one(store, "b"), RetryAt(clock.now() + SECOND, OpError("busy", "later", retryable=True))))
    waiting = views.op("b")
    assert (waiting.status, waiting.ready_at) == ("ready", clock.now() + SECOND)
    clock.advance(SECOND)
    page = Artifact(
        id="p", name="page", kind="body", content_type="text/html", metadata={}, sha256="00", size=3, body=b"abc"
    )
    log = LogLine(at=clock.now(), message="hello")
    result = Result(data='{"n":2}', artifacts=(page,), logs=(log,))
    succeed(store, claim_one(store, "b"), data=result.data, artifacts=result.artifacts, logs=result.logs)
    view = views.op("b", "w1")
    assert (view.status, view.input, view.data, view.error) == ("succeeded", {"x": 1}, {"n": 2}, None)
    assert [(one.number, one.state, one.error and one.error.code) for one in view.attempts] == [
        (1, "retried", "busy"),
        (2, "succeeded", None),
    ]
    assert view.dependencies == (DependencyView(op_id="a", required=True, status="succeeded"),)
    assert [(one.id, one.size) for one in view.artifacts] == [("p", 3)]
    assert [one.message for one in view.logs] == ["hello"]


def test_a_dependency_nobody_emitted_yet_is_unknown(store: Store, views: Views) -> None:
    submit(store, [new_op("a"), new_op("b", after=["later"])])
    assert views.op("b").dependencies == (DependencyView(op_id="later", required=True, status="unknown"),)
    assert sum(views.workflow("w1").ops.values()) == 2
    with pytest.raises(UsageError):
        views.op("later")


def test_unknown_and_ambiguous_ids_are_user_errors(store: Store, views: Views) -> None:
    submit(store, [new_op("a")], "first-workflow")
    submit(store, [new_op("a")], "other")
    with pytest.raises(UsageError, match=r'^no workflow "first-workflw"; did you mean "first-workflow"\?$'):
        views.workflow("first-workflw")
    with pytest.raises(UsageError, match="say which with --workflow"):
        views.op("a")
    assert views.op("a", "other").workflow_id == "other"


def test_the_engine_counts_what_it_holds(store: Store, views: Views, clock: FakeClock) -> None:
    submit(store, [new_op("a"), new_op("b"), new_op("c")])
    succeed(store, claim_one(store))
    claim_one(store)
    view = views.engine(clock.now())
    assert (view.exists, view.initialized, view.up_to_date) == (True, True, True)
    assert view.current_version == view.latest_known_migration
    assert view.counts is not None
    assert view.counts.workflow_status == {"running": 1}
    assert (view.counts.ops["ready"], view.counts.ops["running"], view.counts.ops["succeeded"]) == (1, 1, 1)
    assert (view.counts.leases_active, view.counts.leases_expired, view.counts.results) == (1, 0, 1)
    clock.advance(3600 * SECOND)
    later = views.engine(clock.now())
    assert later.counts is not None
    assert (later.counts.leases_active, later.counts.leases_expired) == (0, 1)


def test_looking_creates_nothing(tmp_path: Path) -> None:
    views = Views(str(tmp_path / "none" / "engine.db"))
    view = views.engine(0)
    assert (view.exists, view.initialized, view.counts, view.current_version) == (False, False, None, None)
    assert [one.applied_at for one in view.migrations] == [None] * len(view.migrations)
    with pytest.raises(DatabaseRefused, match="there is no engine database at"):
        views.workflow("w")
    views.close()
    assert list(tmp_path.iterdir()) == []
