"""``defer``."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.lifecycle.rig import Rig


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    made = Rig(tmp_path_factory.mktemp("defer"))
    yield made
    made.close()


def test_deferred_functions_run_when_the_hook_has_ended_the_last_first(rig: Rig) -> None:
    """JOBHOOK-40 and JOBHOOK-41."""
    hook = """function open(name) { defer(() => log("close " + name)) }
      async function before_fetch(r) {
        open("a"); open("b");
        await sleep(1); log("awake");
        return r; }"""
    assert rig.run(hook, "before_fetch", {}).is_table
    assert rig.messages == ["awake", "close b", "close a"]


def test_deferred_functions_run_after_a_throw_and_after_a_rejection(rig: Rig) -> None:
    """JOBHOOK-40."""
    for failure in ("throw new Error('x')", "return Promise.reject(new Error('x'))"):
        called = rig.run(f"function before_fetch() {{ defer(() => log('closed')); {failure} }}", "before_fetch", {})
        assert called.outcome == "threw"
        assert rig.messages[0] == "closed"


def test_what_is_returned_is_fixed_before_deferred_functions_run(rig: Rig) -> None:
    """JOBHOOK-40."""
    called = rig.run(
        "function before_fetch(r) { defer(() => { r.url = 'late' }); return r }", "before_fetch", {"url": "u"}
    )
    assert called.value == {"url": "u"}


def test_each_call_has_a_queue_of_its_own(rig: Rig) -> None:
    """JOBHOOK-42."""
    hooks = rig.load(
        "function filter_item(i) { defer(() => log('of ' + i.fields.n)); log('at ' + i.fields.n); return i }"
    )
    items = [[{"fields": {"n": str(n)}, "matches": []}] for n in range(3)]
    assert len(hooks.call_each("filter_item", items, rig.new_cycle("deals/1/each"))) == 3
    logged = [line.message for line in hooks.take_logs()]
    assert logged == ["at 0", "of 0", "at 1", "of 1", "at 2", "of 2"]


def test_nothing_a_hook_left_running_reaches_the_next_call(rig: Rig) -> None:
    """JOBHOOK-42: an unfinished promise of one call neither goes on nor defers in another."""
    rig.run(
        """function filter_item(i) {
             setTimeout(() => { log("timer"); defer(() => log("stray")) }, 1);
             (async () => { await sleep(1); log("stray"); defer(() => log("stray")) })();
             return i; }
           async function before_store(items) { await sleep(30); return items }""",
        "filter_item",
        {"fields": {}, "matches": []},
    )
    assert rig.call("before_store", []).is_table
    assert rig.messages == []


def test_a_deferred_function_that_throws_is_logged_and_the_rest_run(rig: Rig) -> None:
    """JOBHOOK-43."""
    hook = """function before_fetch(r) {
        defer(() => log("first")); defer(() => { throw new Error("broken") }); defer(() => log("last")); return r }"""
    assert rig.run(hook, "before_fetch", {}).is_table
    assert rig.messages[0] == "last"
    assert rig.logs[1][0] == "error"
    assert rig.logs[1][1].startswith("deferred function: Error: broken")
    assert rig.messages[2] == "first"


ASYNCHRONOUS = (
    "sleep(1)",
    "http_get('http://x')",
    "http_post('http://x', '')",
    "http_request({ url: 'http://x' })",
    "http_multipart('http://x', {})",
    *(
        f"{prefix}_{verb}('k', '1')"
        for prefix in ("store", "global_store", "batch")
        for verb in ("get", "set", "delete")
    ),
    *(f"{prefix}_incr('k')" for prefix in ("store", "global_store", "batch")),
    "db_exec('CREATE TABLE t (a)')",
    "db_query('SELECT 1')",
    "fs_read('a.txt')",
    "notify('t')",
)


def test_asynchronous_functions_are_refused_in_a_deferred_function(rig: Rig) -> None:
    """JOBHOOK-44."""
    calls = ", ".join(f"() => {call}" for call in ASYNCHRONOUS)
    hook = f"""function before_fetch(r) {{
        for (const call of [{calls}]) defer(() => {{ call(); log("went on") }});
        defer(() => {{ log("log"); env_get("A"); json_decode(json_encode([1])) }});
        defer(() => {{ print(""); dump(copy(deep_copy({{}}))) }});
        return r }}"""
    assert rig.run(hook, "before_fetch", {}).is_table
    refusals = [message for level, message in rig.logs if level == "error"]
    assert len(refusals) == len(ASYNCHRONOUS)
    for call, message in zip(reversed(ASYNCHRONOUS), refusals, strict=True):
        refused = f"{call.partition('(')[0]} cannot be called in a deferred function: only synchronous functions can"
        assert refused in message
    assert "went on" not in rig.messages
    assert rig.messages[0] == "log"


def test_a_deferred_function_is_not_waited_for(rig: Rig) -> None:
    """JOBHOOK-44."""
    hook = "function before_fetch(r) { defer(async () => { log('began'); await http_get('http://x') }); return r }"
    assert rig.run(hook, "before_fetch", {}).is_table
    assert rig.logs[:2] == [("info", "began"), ("warning", "deferred function must be synchronous")]
    assert "http_get cannot be called" in rig.logs[2][1]


def test_what_a_deferred_function_defers_runs_in_the_next_round(rig: Rig) -> None:
    """JOBHOOK-41."""
    hook = """function before_fetch(r) {
        defer(() => log("1")); defer(() => { log("2"); defer(() => log("4")); defer(() => log("3")) }); return r }"""
    rig.run(hook, "before_fetch", {})
    assert rig.messages == ["2", "1", "3", "4"]


def test_what_deferred_functions_put_into_ctx_is_there_for_the_next_hook(rig: Rig) -> None:
    """JOBHOOK-45."""
    rig.run(
        """function before_fetch(r, ctx) { defer(() => { ctx.shared.closed = true; ctx.mine = 1 }); throw new Error() }
           function after_extract(items, ctx) { log(ctx.shared.closed, ctx.mine); return items }""",
        "before_fetch",
        {},
    )
    rig.call("after_extract", [])
    assert rig.messages[-1] == "true 1"


def test_lifecycle_hooks_and_the_end_of_an_iteration_have_a_queue_too(rig: Rig) -> None:
    """JOBHOOK-42."""
    stages = ("on_success", "on_error", "on_finally", "on_finished")
    rig.load("", "\n".join(f"function {name}() {{ defer(() => log('after {name}')) }}" for name in stages))
    rig.logs.clear()
    for stage in stages:
        rig.call(stage)
    assert rig.messages == [f"after {name}" for name in stages]


def test_defer_belongs_into_a_hook(rig: Rig) -> None:
    """JOBHOOK-40."""
    with pytest.raises(Exception, match="defer belongs into a hook"):
        rig.load("defer(() => 0)")
    called = rig.run("function before_fetch() { defer(5) }", "before_fetch", {})
    assert "defer expects a function" in called.error
