"""Durable timers of single ops: ``delay`` and ``notBefore`` of what a script emits (JS-65)."""

from __future__ import annotations

from typing import Any

import pytest

from engine.clock import MILLISECOND, SECOND
from engine.js.hostcall import HostError
from engine.js.spec import new_op
from engine.model import Result
from engine.outcome import Succeeded
from tests.factories import claim, claim_one, settle, submit, succeed
from tests.factories import new_op as stored_op
from tests.schedules.agenda import Agenda, at
from tests.worker.lab import Lab, js

NOW = at("2026-01-31 12:00")


def not_before(**spec: Any) -> int:
    told = {"kind": "js"} | spec
    return new_op(told, default_id="x", site="shop", parent_id=None, workflow_id="w", now=NOW).not_before


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, 0),
        ({"delay": "1m30s"}, NOW + 90 * SECOND),
        ({"delay": 250}, NOW + 250 * MILLISECOND),
        ({"delay": 0}, NOW),
        ({"notBefore": "2026-01-31T13:00:00Z"}, NOW + 3600 * SECOND),
        ({"notBefore": "2026-01-31T14:00:00.5+01:00"}, NOW + 3600 * SECOND + SECOND // 2),
        ({"notBefore": NOW // MILLISECOND + 7}, NOW + 7 * MILLISECOND),
        ({"notBefore": "2026-01-31T13:00:00Z", "delay": "1s"}, NOW + SECOND),
    ],
)
def test_the_instant_an_op_is_held_back_to(spec: dict[str, Any], expected: int) -> None:
    assert not_before(**spec) == expected


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"delay": "soon"}, "delay"),
        ({"delay": -1}, "delay"),
        ({"notBefore": "tomorrow"}, "not an RFC3339 time"),
        ({"notBefore": "2026-01-31T13:00:00"}, "no zone"),
        ({"notBefore": 1e17}, "out of range"),
    ],
)
def test_an_instant_that_makes_no_sense_throws(spec: dict[str, Any], message: str) -> None:
    with pytest.raises(HostError, match=message):
        not_before(**spec)


def test_an_op_is_held_back_though_its_dependencies_are_met(agenda: Agenda) -> None:
    store, clock = agenda.store, agenda.clock
    submit(store, [stored_op("a"), stored_op("later", ["a"], not_before=clock.now() + 90 * SECOND)])
    succeed(store, claim_one(store, "a"))
    found = claim(store)
    assert (found.leased, found.next_due) == ((), clock.now() + 90 * SECOND), "a worker may sleep until then"
    clock.advance(90 * SECOND)
    settle(store, (claim_one(store, "later"), Succeeded(Result())))


def test_what_a_script_emits_with_a_delay_starts_that_much_later(lab: Lab) -> None:
    lab.write(
        "scripts/later.js",
        "module.exports = (ctx) => ctx.emit({id: 'b', kind: 'js', delay: 300, metadata: {script: 'b.js'}})",
    )
    lab.write("scripts/b.js", "module.exports = () => 1")
    assert lab.run(js("a", "later.js")) == {"a": "succeeded", "b": "succeeded"}
    store = lab.store()
    with store.database.read() as connection:
        query = "SELECT o.id, o.created_at, t.claimed_at FROM op o JOIN attempt t ON t.op_pk = o.pk ORDER BY o.pk"
        rows = {row.id: row for row in connection.exec_driver_sql(query)}
    store.close()
    assert rows["b"].claimed_at >= rows["a"].claimed_at + 300 * MILLISECOND
