"""Hooks that run away, and what further host functions leave open."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from engine.js.hostcall import HostError
from engine.lifecycle.extensions import Extension
from engine.lifecycle.hooks import Called
from engine.lifecycle.later import Rejected, Resources
from tests.lifecycle.rig import Rig


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    made = Rig(tmp_path_factory.mktemp("limits"))
    yield made
    made.close()


LATE = "the hook ran longer than 0.25 s and was stopped"


@pytest.mark.parametrize("body", ["while (true);", "return sleep(1e6)"])
def test_a_hook_that_does_not_end_is_ended_and_its_deferred_functions_run(rig: Rig, body: str) -> None:
    """JOBHOOK-24."""
    rig.settings = {"hook_seconds": 0.25}
    try:
        called = rig.run(
            f"""function before_fetch(r, ctx) {{ ctx.shared.a = 1; defer(() => log("closed")); {body} }}
                function after_fetch(f) {{ log("next"); return f }}""",
            "before_fetch",
            {},
        )
    finally:
        rig.settings = {}
    assert (called.outcome, called.error) == ("threw", LATE)
    assert rig.messages[0] == "closed"
    assert rig.call("after_fetch", {"ok": True}).is_table
    assert rig.messages[-1] == "next"


def test_a_promise_that_nothing_can_settle_is_an_error_at_once(rig: Rig) -> None:
    """JOBHOOK-24."""
    called = rig.run(
        "function before_fetch() { defer(() => log('x')); return new Promise(() => 0) }", "before_fetch", {}
    )
    assert "can never settle" in called.error
    assert called.duration_ms < 30_000
    assert rig.messages[0] == "x"


def test_what_a_hook_leaves_behind_without_an_end_costs_only_its_isolate(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """JOBHOOK-42: an endless chain of promises cannot be stopped, only left."""
    monkeypatch.setattr("engine.js.v8._STOP_SECONDS", 0.1)
    rig.settings = {"hook_seconds": 0.25}
    try:
        called = rig.run(
            "function before_fetch(r) { (async () => { for (;;) await 0 })(); return r }", "before_fetch", {}
        )
    finally:
        rig.settings = {}
    assert called.is_table
    assert rig.call("before_fetch", {}, seq=1).is_table


def test_a_hook_that_needs_too_much_memory_is_an_error_of_the_hook(rig: Rig) -> None:
    """JOBHOOK-25."""
    rig.settings = {"heap_bytes": 24 << 20}
    try:
        called = rig.run(
            """function before_fetch() { const a = []; for (;;) a.push(new Array(1e5).fill(a.length)) }
               function after_fetch(f) { return f }""",
            "before_fetch",
            {},
        )
    finally:
        rig.settings = {}
    assert called.error == "the hook needed more than 24 MB of heap"
    assert rig.call("after_fetch", {"ok": True}).is_table


def test_a_hook_that_took_its_process_along_is_passed_over_when_its_op_runs_again(rig: Rig) -> None:
    """JOBHOOK-26."""
    rig.next_cycle()
    hooks = rig.load("function before_fetch() { log('called') } function after_fetch(f) { return f }")
    assert hooks.call("after_fetch", [{"ok": True}], rig.cycle).is_table
    hooks = rig.load("function before_fetch() { log('called') } function after_fetch(f) { return f }")
    hooks.blame("the process was killed")
    assert hooks.call("after_fetch", [{"ok": True}], rig.cycle).replayed
    called = hooks.call("before_fetch", [{}], rig.cycle)
    assert (called.outcome, called.error) == ("threw", "the process was killed")
    assert "called" not in [line.message for line in hooks.take_logs()]
    assert hooks.call("before_fetch", [{}], rig.cycle).replayed
    assert not hooks.call("before_fetch", [{}], rig.cycle, 1).replayed


def test_of_many_items_the_one_that_takes_its_process_along_is_found(rig: Rig) -> None:
    """JOBHOOK-26: two more runs, whatever their number."""
    hooks = "function filter_item(i, ctx) { log(i.fields.n); return i }"
    items = [[{"fields": {"n": str(n)}, "matches": []}] for n in range(5)]
    cycle_id = rig.next_cycle().cycle_id

    def run(blame: str, killer: str) -> list[str]:
        """The hook's own log lines; the process dies while ``killer`` is being looked at."""
        cycle = rig.new_cycle(cycle_id)
        loaded = rig.load(hooks)
        loaded.blame(blame)
        finish = cycle.journal.finish_all

        def dies(ended: Any, ctx_json: str, writes: Any) -> None:
            if any(f'"n":"{killer}"' in item.result_json for item in ended):
                raise ConnectionError("killed")
            finish(ended, ctx_json, writes)

        cycle.journal.finish_all = dies  # type: ignore[method-assign]
        with contextlib.suppress(ConnectionError):
            results.append(loaded.call_each("filter_item", items, cycle))
        return [line.message for line in loaded.take_logs() if line.level == "info"]

    results: list[list[Called]] = []
    assert run("", "3") == ["0", "1", "2", "3", "4"]
    assert run("killed", "3") == ["0", "1", "2", "3"]
    assert run("killed", "3") == ["4"]
    (called,) = results
    assert [one.outcome for one in called] == ["returned"] * 3 + ["threw", "returned"]


JAVASCRIPT = """
$extensions.push(() => $offer("door", {
  open: (name) => $later("door.open", name),
  close: (id) => $directly("door.close", id),
}));"""


class Doors:
    """Host functions with something to close."""

    def __init__(self) -> None:
        self.closed: list[str] = []
        self.threads: set[int] = set()

    def open(self, resources: Resources, name: Any) -> int:
        self.threads.add(threading.get_ident())
        if name == "stuck":
            raise Rejected("the door is stuck", kind="rust")
        return resources.add(name, lambda: self.closed.append(str(name)))

    def close(self, resources: Resources, number: Any) -> str:
        name: str = resources.get(number)
        resources.close(number)
        return name

    def extension(self) -> Extension:
        return Extension(JAVASCRIPT, {"door.open": self.open}, {"door.close": self.close})


@pytest.fixture
def doors(rig: Rig) -> Iterator[Doors]:
    made = Doors()
    rig.extensions = (made.extension(),)
    yield made
    rig.extensions = ()


def test_further_host_functions_run_on_threads_and_close_in_deferred_functions(rig: Rig, doors: Doors) -> None:
    """JOBHOOK-44."""
    hook = """async function override_fetch(r) {
        const ids = await Promise.all(["a", "b"].map((name) => door.open(name)));
        defer(() => log(door.close(ids[0])));
        await door.open("stuck").catch((e) => log(e.message, e.kind));
        return { status: 200, body: "" } }"""
    assert rig.run(hook, "override_fetch", {}).is_table
    assert rig.messages == ["the door is stuck rust", "a"]
    assert doors.closed == ["a", "b"]
    assert threading.get_ident() not in doors.threads


def test_what_a_hook_leaves_open_is_closed_the_last_first_whatever_became_of_it(rig: Rig, doors: Doors) -> None:
    hook = """async function override_fetch(r) {
        await door.open("a"); await door.open("b");
        if (r.end === "throw") throw new Error("x");
        await new Promise(() => 0) }"""
    for end in ("throw", "hang"):
        doors.closed.clear()
        assert rig.run(hook, "override_fetch", {"end": end}).outcome == "threw"
        assert doors.closed == ["b", "a"]


def test_an_asynchronous_host_function_is_refused_in_a_deferred_one(rig: Rig, doors: Doors) -> None:
    rig.run("function override_fetch(r) { defer(() => door.open('a')); return null }", "override_fetch", {})
    assert "door.open cannot be called in a deferred function" in rig.messages[0]
    assert doors.closed == []


def test_a_thing_that_comes_after_the_end_of_its_hook_is_closed_at_once() -> None:
    def bad() -> None:
        raise ValueError("it cannot be closed")

    resources, closed = Resources(), []
    number = resources.add("early", lambda: closed.append("early"))
    resources.add("bad", bad)
    failures = resources.close_all()
    assert [type(failure) for failure in failures] == [ValueError]
    assert closed == ["early"]
    with pytest.raises(HostError, match="the hook is over"):
        resources.add("late", lambda: closed.append("late"))
    with pytest.raises(HostError, match="closed already"):
        resources.get(number)
    resources.close(number)
    assert closed == ["early", "late"]
