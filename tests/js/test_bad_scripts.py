"""Scripts that go wrong end in one classified error, at the author's position (JS-20 to JS-29)."""

from __future__ import annotations

from typing import Any

import pytest

from engine.errors import OpError
from tests.js.harness import Bench


def failure(bench: Bench, body: str, **limits: Any) -> OpError:
    """The error of a script whose function has this body."""
    with pytest.raises(OpError) as caught:
        bench.run(f"module.exports = function (ctx) {{{body}}};", **limits)
    return caught.value


def test_a_throw_names_script_line_and_column(bench: Bench) -> None:
    error = failure(bench, "\n  const x = 1;\n  throw new Error('boom');\n")
    assert (error.code, error.message, error.retryable) == ("runner_error", "boom", False)
    assert (error.details["script"], error.details["line"], error.details["column"]) == ("scripts/main.js", 3, 9)


def test_positions_on_the_first_line_are_the_authors(bench: Bench) -> None:
    with pytest.raises(OpError) as caught:
        bench.run("module.exports = () => { null.x }")
    assert (caught.value.details["line"], caught.value.details["column"]) == (1, 31)


def test_a_rejection_keeps_its_message_and_stack(bench: Bench) -> None:
    error = failure(bench, "return Promise.reject(new TypeError('late'))")
    assert error.message == "TypeError: late"
    assert "main.js:1" in error.details["stack"]


def test_a_thrown_error_may_say_that_it_is_retryable(bench: Bench) -> None:
    assert failure(bench, "throw Object.assign(new Error('x'), {retryable: true})").retryable


def test_an_authors_code_goes_into_the_details(bench: Bench) -> None:
    error = failure(bench, "throw Object.assign(new Error('x'), {code: 'E_SHOP'})")
    assert (error.code, error.details["code"]) == ("runner_error", "E_SHOP")


def test_a_syntax_error_names_line_and_column(bench: Bench) -> None:
    error = failure(bench, "\n  let a = ;\n")
    assert error.message == "SyntaxError: scripts/main.js:2:11: Unexpected token ';'"


def test_a_syntax_error_in_a_shared_module_names_that_module(bench: Bench) -> None:
    (bench.folder / "lib.js").write_text("\n\nfoo bar\n")
    error = failure(bench, "require('./lib')")
    assert error.details["script"] == "scripts/lib.js"
    assert error.details["line"] == 3


def test_a_script_that_exports_no_function_is_told_so(bench: Bench) -> None:
    with pytest.raises(OpError, match="exports no function"):
        bench.run("module.exports = 3")


def test_a_promise_that_can_never_settle_is_reported_at_once(bench: Bench) -> None:
    assert failure(bench, "return new Promise(() => {})", seconds=60).code == "js_never_settled"


@pytest.mark.parametrize(
    "body",
    [
        "while (true) {}",
        "const f = () => Promise.resolve().then(f); f()",
        "return new Promise(() => setInterval(() => {}, 1))",
        "/(a+)+b/.test('a'.repeat(40))",
        "try { while (true) {} } catch (e) { return 1 }",
    ],
    ids=["loop", "microtasks", "timers", "regex", "caught"],
)
def test_whatever_spins_is_stopped_at_the_time_limit(bench: Bench, body: str) -> None:
    assert failure(bench, body, seconds=0.4).code == "js_timeout"


def test_a_script_that_fills_the_heap_is_stopped(bench: Bench) -> None:
    error = failure(
        bench, "const all = []; while (true) all.push('x'.repeat(1000) + all.length)", seconds=30, heap_mb=32
    )
    assert error.code == "js_memory"


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ("{a: [1, {b: NaN}]}", "result.a[1].b"),
        ("Infinity", "result"),
        ("{n: 10n}", "result.n"),
        ("[() => 1]", "result[0]"),
        ("{s: Symbol('x')}", "result.s"),
    ],
)
def test_what_json_cannot_hold_fails_with_its_path(bench: Bench, value: str, path: str) -> None:
    error = failure(bench, f"return {value}")
    assert error.code == "invalid_result"
    assert path in error.message


def test_a_cycle_fails_with_its_path(bench: Bench) -> None:
    error = failure(bench, "const o = {a: {}}; o.a.back = o; return o")
    assert error.code == "invalid_result"
    assert "result.a.back is a cycle" in error.message


def test_the_same_object_twice_is_no_cycle(bench: Bench) -> None:
    assert bench.run("const o = {}; module.exports = () => [o, o]") == "[{},{}]"


def test_an_artifact_without_a_body_throws_and_can_be_caught(bench: Bench) -> None:
    answer = bench.run(
        "module.exports = (ctx) => { try { ctx.writeArtifact({name: 'x'}) } catch (e) { return e.message } }"
    )
    assert "no body" in answer


def test_a_script_cannot_break_the_bridge(bench: Bench) -> None:
    answer = bench.run(
        """module.exports = (ctx) => {
          JSON.parse = JSON.stringify = () => "broken";
          Array.prototype.push = Array.prototype.map = () => { throw new Error("mine") };
          String.prototype.charCodeAt = () => 0;
          ctx.log("still here");
          return 7;
        }"""
    )
    assert answer == "7"
    assert bench.host is not None
    assert [line.message for line in bench.host.effects.logs] == ["still here"]


def test_nothing_of_the_host_is_left_in_reach(bench: Bench) -> None:
    answer = bench.run("module.exports = () => Object.getOwnPropertyNames(globalThis).filter(n => n.startsWith('$'))")
    assert answer == "[]"
