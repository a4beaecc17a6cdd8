"""``ctx`` and the hooks of a cycle's end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from engine.lifecycle.hooks import Hooks
from engine.lifecycle.journal import Journal
from tests.lifecycle.rig import Rig

ENVELOPE = {"ok": True, "request": {"url": "u"}, "response": {"status": 200, "body": "<html>"}}


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    made = Rig(tmp_path_factory.mktemp("ctx"))
    yield made
    made.close()


def fresh(rig: Rig, hooks: str, defer: str | None = None, **cycle: Any) -> Hooks:
    """These scripts in a new cycle."""
    rig.next_cycle(**cycle)
    rig.logs.clear()
    return rig.load(hooks, defer)


def test_one_ctx_goes_through_every_hook_of_a_cycle_and_no_other(rig: Rig) -> None:
    """JOBHOOK-30."""
    scripts = """function before_fetch(r, ctx) { ctx.shared.n = [1]; ctx.own = { a: 1 }; return r }
      function after_extract(i, ctx) { log(JSON.stringify([ctx.shared, ctx.own])); ctx.shared.n.push(2); return i }
      function before_store(i, ctx) { log(JSON.stringify([ctx.shared, ctx.own])); return i }"""
    fresh(rig, scripts)
    rig.call("before_fetch", {})
    rig.call("after_extract", [])
    rig.call("before_store", [])
    assert rig.messages == ['[{"n":[1]},{"a":1}]', '[{"n":[1,2]},{"a":1}]']
    fresh(rig, scripts)
    rig.call("before_store", [])
    assert rig.messages == ["[{},null]"]


def test_the_last_fetch_is_read_when_a_hook_looks_at_it_and_absent_before_there_is_one(rig: Rig) -> None:
    """JOBHOOK-32."""
    reads: list[int] = []

    def read() -> dict[str, Any]:
        reads.append(1)
        return ENVELOPE

    scripts = """function before_fetch(r, ctx) { log("last_fetch" in ctx, ctx.last_fetch); return r }
      function after_fetch(f) { return f }
      function after_extract(items, ctx) { log(ctx.last_fetch.response.body, ctx.last_fetch.ok); return items }"""
    fresh(rig, scripts)
    rig.call("before_fetch", {})
    rig.cycle.last_fetch = read
    rig.call("after_fetch", ENVELOPE)
    assert reads == []
    rig.call("after_extract", [])
    assert reads == [1]
    assert rig.messages == ["false undefined", "<html> true"]


def test_what_belongs_to_the_engine_can_be_changed_by_a_hook_for_itself_only(rig: Rig) -> None:
    """JOBHOOK-32."""
    scripts = """function before_store(items, ctx) {
        log(ctx.selector_matches, ctx.telemetry.job_name, ctx.last_fetch.ok);
        ctx.selector_matches = 99; ctx.last_fetch = null; ctx.telemetry.job_name = "x"; ctx.telemetry = 5;
        log(ctx.selector_matches, ctx.last_fetch, ctx.telemetry);
        return items }"""
    telemetry = {"job_name": "Deals", "stages": []}
    fresh(rig, scripts, selector_matches=3, telemetry=telemetry, last_fetch=lambda: ENVELOPE)
    rig.call("before_store", [])
    rig.call("before_store", [], seq=1)
    assert rig.messages == ["3 Deals true", "99 null 5"] * 2
    assert rig.cycle.kept == {"shared": {}}


def test_the_number_of_the_worker_can_be_read_and_its_assignment_is_an_error(rig: Rig) -> None:
    """JOBHOOK-31."""
    fresh(rig, "function before_fetch(r, ctx) { log(ctx.worker_id); ctx.worker_id = 9; return r }", worker_id=3)
    called = rig.call("before_fetch", {})
    assert rig.messages[0] == "3"
    assert called.outcome == "threw"
    assert "ctx.worker_id is read-only" in called.error


def test_the_records_of_a_stage_are_the_same_by_name_and_in_order(rig: Rig) -> None:
    """JOBHOOK-33."""
    stages = [{"name": "fetch", "status": "success"}, {"name": "store", "status": "inactive"}]
    telemetry = {"job_name": "Deals", "total_duration_ms": 12.5, "stages": stages}
    scripts = """function on_success({ telemetry: t }) {
        log(t.total_duration_ms, t.map.fetch === t.stages[0], t.map.store.status) }"""
    fresh(rig, "", scripts, telemetry=telemetry)
    rig.call("on_success")
    assert rig.messages == ["12.5 true inactive"]


def test_a_call_tells_how_long_it_took_and_what_heap_is_in_use(rig: Rig) -> None:
    """JOBHOOK-33."""
    fresh(rig, "async function before_fetch(r) { r.x = new Array(1e5).fill(1.5); await sleep(20); return r }")
    called = rig.call("before_fetch", {})
    assert called.duration_ms >= 20
    assert called.heap_bytes > called.heap_delta_bytes > 800_000


def test_ctx_keeps_what_json_holds_and_says_what_it_drops(rig: Rig) -> None:
    """JOBHOOK-30."""
    scripts = """function before_fetch(r, ctx) {
        ctx.shared.f = () => 0; ctx.shared.list = [1n, 2]; ctx.shared.day = new Date(0); ctx.nan = NaN;
        ctx.loop = { }; ctx.loop.self = ctx.loop; ctx.gone = undefined; ctx.text = "kept"; return r }"""
    fresh(rig, scripts)
    assert rig.call("before_fetch", {}).is_table
    day = "1970-01-01T00:00:00.000Z"
    assert rig.cycle.kept == {"shared": {"list": [None, 2], "day": day}, "loop": {}, "text": "kept"}
    assert sorted(rig.messages) == [
        "ctx.loop.self is a cycle, which ctx cannot keep: dropped",
        "ctx.nan is NaN, which ctx cannot keep: dropped",
        "ctx.shared.f is a function, which ctx cannot keep: dropped",
        "ctx.shared.list.0 is a bigint, which ctx cannot keep: dropped",
    ]


def test_hooks_of_a_cycles_end_need_defer_js(rig: Rig) -> None:
    """JOBHOOK-2."""
    ends = "function on_success() {} function on_error() {} function on_finally() {} function on_finished() {}"
    assert fresh(rig, ends).present == {"on_finished"}
    assert fresh(rig, ends, "").present == {"on_success", "on_error", "on_finally", "on_finished"}
    assert fresh(rig, "", "function on_finished() {}").present == {"on_finished"}


def test_both_scripts_share_one_scope_and_defer_js_wins(rig: Rig) -> None:
    """JOBHOOK-1."""
    hooks = """const BASE = "base"; function shared() { return BASE + late() } function twice() { return "hooks" }
      function before_fetch() { log(shared(), twice()); return null }"""
    fresh(
        rig,
        hooks,
        "function late() { return '!' } function twice() { return 'defer' } function on_finally() { log(shared()) }",
    )
    rig.call("before_fetch", {})
    rig.call("on_finally")
    assert rig.messages == ["base! defer", "base!"]


def test_hooks_may_be_arrow_functions_and_constants(rig: Rig) -> None:
    """JOBHOOK-1."""
    hooks = fresh(rig, "const before_fetch = async (r) => r; let after_extract = 5; var before_store = (i) => i")
    assert hooks.present == {"before_fetch", "before_store"}


def test_hooks_of_a_cycles_end_read_all_of_ctx_and_may_wait(rig: Rig) -> None:
    """JOBHOOK-10 and JOBHOOK-30."""
    end = """async function on_error(err, ctx) {
        await sleep(1); await store_set("last", err);
        log(typeof err, err, await store_get("last"), ctx.shared.a, ctx.last_fetch.ok, ctx.selector_matches) }"""
    fresh(rig, "function before_fetch(r, ctx) { ctx.shared.a = 'kept'; return r }", end, last_fetch=lambda: ENVELOPE)
    rig.cycle.selector_matches = 4
    rig.call("before_fetch", {})
    rig.call("on_error", "http status: 500")
    assert rig.messages == ["string http status: 500 http status: 500 kept true 4"]


def test_the_ctx_of_a_cycle_is_wiped_when_it_is_over(rig: Rig) -> None:
    """JOBHOOK-34."""
    fresh(rig, "function before_fetch(r, ctx) { ctx.shared.a = 1; return r }")
    rig.call("before_fetch", {})
    journal = Journal(rig.database, rig.cycle.cycle_id)
    assert journal.latest_ctx() == '{"shared":{"a":1}}'
    journal.forget()
    assert journal.latest_ctx() is None
    assert journal.stage("before_fetch") is None


def test_the_end_of_an_iteration_reads_what_its_cycles_counted(rig: Rig) -> None:
    """JOBHOOK-34 and JOBHOOK-72."""
    scripts = """async function on_finally(ctx) { await batch_incr(ctx.shared.how || "fine", 0, 1) }
      async function on_finished() { log(await batch_get("fine"), await batch_get("bad") ?? 0, arguments.length) }"""
    for _ in range(3):
        fresh(rig, "", scripts, iteration_id="deals/7")
        rig.call("on_finally")
    rig.cycle = rig.new_cycle("deals/7", iteration_id="deals/7")
    rig.call("on_finished")
    assert rig.messages == ["3 0 0"]
