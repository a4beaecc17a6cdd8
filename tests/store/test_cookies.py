"""Cookie jars: what ops of a workflow put into it side by side stays."""

from __future__ import annotations

import json

from engine.errors import OpError
from engine.model import Result
from engine.outcome import Failed, Succeeded
from engine.store.store import Store
from tests.factories import claim, new_op, settle, submit


def jar(store: Store, workflow_id: str = "w1") -> object:
    """The jar as a value."""
    stored = store.cookies(workflow_id)
    return None if stored is None else json.loads(stored)


def test_cookies_of_ops_that_ran_side_by_side_are_all_kept(store: Store) -> None:
    """HTTP-61: neither in one commit nor in two does an op undo what another one put into the jar."""
    submit(store, [new_op("a"), new_op("b"), new_op("c")])
    assert jar(store) is None
    first, second, third = claim(store).leased
    settle(
        store,
        (first, Succeeded(Result(cookies='{"x": {"value": "1"}, "y": {"value": "1"}}'))),
        (second, Succeeded(Result(cookies='{"y": {"value": "2"}}'))),
    )
    settle(store, (third, Succeeded(Result(cookies='{"x": null, "z": {"value": "3"}}'))))
    assert jar(store) == {"y": {"value": "2"}, "z": {"value": "3"}}


def test_a_failed_op_keeps_its_cookies_too(store: Store) -> None:
    """HTTP-62."""
    submit(store, [new_op("a")])
    (leased,) = claim(store).leased
    settle(store, (leased, Failed(OpError("http_status_403", "no"), Result(cookies='{"x": {"value": "1"}}'))))
    assert jar(store) == {"x": {"value": "1"}}


def test_each_workflow_has_its_own_jar(store: Store) -> None:
    """HTTP-60."""
    submit(store, [new_op("a")], "w1")
    submit(store, [new_op("a")], "w2")
    one, two = sorted(claim(store).leased, key=lambda item: item.op.workflow.id)
    settle(store, (one, Succeeded(Result(cookies='{"x": 1}'))), (two, Succeeded(Result())))
    assert jar(store, "w1") == {"x": 1}
    assert jar(store, "w2") is None
