"""What hooks get, and what their returns mean."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from engine.errors import OpError
from engine.lifecycle import verdicts
from engine.lifecycle.scripts import HOOKS, PIPELINE_HOOKS, Called
from tests.lifecycle.rig import Rig

REQUEST = {
    "url": "https://shop.example/",
    "method": "GET",
    "headers": {"Accept": "*/*", "X-Old": "1"},
    "timeout": 30,
    "proxy": None,
    "max_body_size": 10,
}
RESPONSE = {"status": 200, "url": "https://shop.example/", "body": "<p>", "headers": {}, "time_ms": 1, "size": 3}
GOOD = {"ok": True, "request": REQUEST, "response": RESPONSE}
FORBIDDEN = verdicts.envelope(REQUEST, {**RESPONSE, "status": 403})
UNREACHED = verdicts.failed(REQUEST, "connection refused", "connect")
ITEMS = [{"fields": {"t": "a"}, "matches": ["rust"]}, {"fields": {"t": "b"}, "matches": []}]
PAYLOAD = {"job_name": "Deals", "item_count": 1, "items": [{"t": "a", "keywords": ["rust"]}]}

VALUES: dict[str, Any] = {
    "before_fetch": REQUEST,
    "override_fetch": REQUEST,
    "after_fetch": GOOD,
    "override_extract": RESPONSE,
    "after_extract": ITEMS,
    "filter_item": ITEMS[0],
    "before_store": ITEMS,
    "before_notify": ITEMS,
    "before_webhook": PAYLOAD,
}


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    made = Rig(tmp_path_factory.mktemp("returns"))
    yield made
    made.close()


def verdict(stage: str, called: Called) -> Any:
    """What the pipeline does after a call with the usual value."""
    match stage:
        case "before_fetch":
            return verdicts.request_after(called, REQUEST)
        case "override_fetch":
            return verdicts.fetched(called, REQUEST)
        case "after_fetch":
            return verdicts.after_fetch(called, GOOD)
        case "override_extract":
            return verdicts.extracted(called)
        case "filter_item":
            return verdicts.kept(called, ITEMS[0])
        case "before_webhook":
            return verdicts.payload_after(called, PAYLOAD)
    return verdicts.items_after(called, ITEMS)


SKIPPED: dict[str, Any] = {
    "before_fetch": None,
    "override_fetch": verdicts.failed(REQUEST, "override_fetch must return a response table"),
    "after_fetch": verdicts.AfterFetch("skip", GOOD),
    "override_extract": [],
    "after_extract": None,
    "filter_item": None,
    "before_store": None,
    "before_notify": None,
    "before_webhook": None,
}
UNCHANGED: dict[str, Any] = {
    **VALUES,
    "override_fetch": SKIPPED["override_fetch"],
    "after_fetch": verdicts.AfterFetch("continue", GOOD),
    "override_extract": [],
}


def each(body: str) -> str:
    """All pipeline hooks with one body."""
    return "\n".join(f"function {stage}(value, ctx) {{ {body} }}" for stage in PIPELINE_HOOKS)


def test_hooks_get_a_value_and_ctx_errors_a_text_and_the_end_of_an_iteration_nothing(rig: Rig) -> None:
    """JOBHOOK-10."""
    told = "log(Array.from(arguments, (a) => (a && a.shared ? 'ctx' : typeof a)).join());"
    rig.load("\n".join(f"function {name}() {{ {told} return null }}" for name in HOOKS), "")
    rig.logs.clear()
    for stage in HOOKS:
        arguments = {"on_error": ["it broke"]}.get(stage, [VALUES[stage]] if stage in VALUES else [])
        rig.call(stage, *arguments)
    assert rig.messages == ["object,ctx"] * 9 + ["ctx", "string,ctx", "ctx", ""]


def test_a_returned_value_takes_the_place_of_the_argument_and_a_mere_change_of_it_does_nothing(rig: Rig) -> None:
    """JOBHOOK-11."""
    changed = rig.run("function before_fetch(r) { r.url += '?p=2'; return r }", "before_fetch", REQUEST)
    assert verdict("before_fetch", changed)["url"] == "https://shop.example/?p=2"
    given = [{"fields": {"t": "a"}, "matches": []}]
    called = rig.run("function after_extract(items) { items[0].fields.t = 'z'; return true }", "after_extract", given)
    assert verdicts.items_after(called, given) == [{"fields": {"t": "a"}, "matches": []}]


@pytest.mark.parametrize("nothing", ["return", "return null", "return false"])
def test_null_undefined_and_false_skip_and_only_a_forgotten_return_warns(rig: Rig, nothing: str) -> None:
    """JOBHOOK-12."""
    rig.run(each(nothing), "before_fetch", REQUEST)
    rig.logs.clear()
    for seq, stage in enumerate(PIPELINE_HOOKS):
        called = rig.call(stage, VALUES[stage], seq=seq + 1)
        assert (stage, verdict(stage, called)) == (stage, SKIPPED[stage])
    warnings = [("warning", f"{stage} returned undefined: treated as skip") for stage in PIPELINE_HOOKS]
    assert rig.logs == (warnings if nothing == "return" else [])


def test_an_empty_array_or_object_is_what_it_is(rig: Rig) -> None:
    """JOBHOOK-11: no items are not all items."""
    rig.run(each("return []"), "before_fetch", REQUEST)
    for seq, stage in enumerate(("override_extract", "after_extract", "before_store", "before_notify")):
        assert verdict(stage, rig.call(stage, VALUES[stage], seq=seq)) == []
    sent = rig.run("function before_webhook() { return {} }", "before_webhook", PAYLOAD)
    assert verdict("before_webhook", sent) == {}
    page = rig.run("function after_fetch() { return { response: { body: '' } } }", "after_fetch", GOOD)
    assert verdict("after_fetch", page).envelope["response"]["body"] == ""


@pytest.mark.parametrize("value", ["0", "''", "NaN", "true", "'text'", "7", "async () => 0"])
def test_any_other_value_that_is_no_object_goes_on_with_what_there_was(rig: Rig, value: str) -> None:
    """JOBHOOK-13."""
    rig.run(each(f"return {value}"), "before_fetch", REQUEST)
    for seq, stage in enumerate(PIPELINE_HOOKS):
        assert verdict(stage, rig.call(stage, VALUES[stage], seq=seq + 1)) == UNCHANGED[stage], stage


def test_a_hook_that_throws_or_rejects_is_reported_and_passed_over(rig: Rig) -> None:
    """JOBHOOK-14 and JOBHOOK-15."""
    for body in ("throw new TypeError('no')", "return Promise.reject(new TypeError('no'))"):
        rig.run(each(body), "before_fetch", REQUEST)
        rig.logs.clear()
        for seq, stage in enumerate(PIPELINE_HOOKS):
            called = rig.call(stage, VALUES[stage], seq=seq + 1)
            assert called.outcome == "threw"
            assert called.error.startswith("TypeError: no (hooks.js:")
            expected = verdicts.failed(REQUEST, called.error) if stage == "override_fetch" else UNCHANGED[stage]
            assert verdict(stage, called) == expected, stage
            assert rig.logs[-1][0] == "error"
            assert rig.logs[-1][1].startswith(f"{stage} of job Deals failed: TypeError: no (hooks.js:")


def test_a_failed_fetch_stays_failed_when_after_fetch_throws(rig: Rig) -> None:
    """JOBHOOK-15."""
    called = rig.run("function after_fetch() { throw new Error('no') }", "after_fetch", UNREACHED)
    assert verdicts.after_fetch(called, UNREACHED) == verdicts.AfterFetch("failed", UNREACHED, "connection refused")


def test_returns_of_lifecycle_hooks_are_ignored(rig: Rig) -> None:
    """JOBHOOK-10."""
    rig.load("function on_finished() { return 10n }", "function on_success() { const a = {}; a.a = a; return a }")
    for stage in ("on_success", "on_finished"):
        called = rig.call(stage, seq=9)
        assert (called.outcome, called.nil, called.is_table) == ("returned", False, False)


@pytest.mark.parametrize(
    ("stage", "value", "message"),
    [
        ("before_fetch", "[]", "must return an object"),
        ("before_fetch", "{ url: 5 }", "url must be a string"),
        ("before_fetch", "{ headers: [] }", "headers must be an object"),
        ("before_fetch", "{ headers: { a: {} } }", "header a must be a string"),
        ("before_fetch", "{ timeout: '3' }", "timeout must be a positive number"),
        ("override_fetch", "{}", "must return {status, body, url, headers} or {error}"),
        ("override_fetch", "{ status: 'ok' }", "status must be a whole number"),
        ("after_fetch", "{ response: 'x' }", "response must be an object"),
        ("after_fetch", "{ response: { body: 5 } }", "body must be a string"),
        ("after_extract", "{}", "must return an array"),
        ("before_store", "{ items: [] }", "must return an array"),
        ("after_extract", "[{ title: 'x' }]", "item 0 has no fields object"),
        ("filter_item", "[]", "must return its item"),
        ("filter_item", "{ fields: [] }", "no fields object"),
        ("after_extract", "[{ fields: { f() {} } }]", "field f is a function"),
        ("before_webhook", "{ n: 1n }", "BigInt"),
        ("before_webhook", "10n", "BigInt"),
        ("before_webhook", "(() => { const a = {}; a.a = a; return a })()", "circular"),
    ],
)
def test_what_has_the_wrong_shape_is_an_error_of_the_hook(rig: Rig, stage: str, value: str, message: str) -> None:
    """JOBHOOK-16."""
    called = rig.run(f"function {stage}() {{ return {value} }}", stage, VALUES[stage])
    assert called.outcome == "threw"
    assert message in called.error
    assert not called.is_table


def test_entries_that_are_no_items_are_dropped(rig: Rig) -> None:
    """JOBHOOK-17."""
    called = rig.run("function after_extract(items) { return [1, null, [], 'x', items[1]] }", "after_extract", ITEMS)
    assert called.value == [ITEMS[1]]


def test_field_values_become_texts_as_javascript_writes_them(rig: Rig) -> None:
    """JOBHOOK-17."""
    fields = "{ a: 'x', b: 1.0, c: 1e21, d: true, e: null, f: undefined, g: [1, 'z'], h: { k: 1 }, i: NaN }"
    called = rig.run(f"function filter_item() {{ return {{ fields: {fields} }} }}", "filter_item", ITEMS[0])
    texts = {
        "a": "x",
        "b": "1",
        "c": "1e+21",
        "d": "true",
        "e": "",
        "f": "",
        "g": '[1,"z"]',
        "h": '{"k":1}',
        "i": "NaN",
    }
    assert called.value["fields"] == texts


def test_matches_are_the_engines_whatever_a_hook_does_to_them(rig: Rig) -> None:
    """JOBHOOK-18."""
    hook = """function before_store(items) {
        items[0].matches.push("bought");
        return [{ ...items[0], fields: { t: "copy" } }, items[1], { fields: { t: "new" }, matches: ["mine"] }];
    }"""
    called = rig.run(hook, "before_store", ITEMS)
    assert [(item["fields"]["t"], item["matches"]) for item in called.value] == [
        ("copy", ["rust"]),
        ("b", []),
        ("new", []),
    ]
    kept = rig.run("function filter_item(i) { i.matches = ['mine']; return i }", "filter_item", ITEMS[0])
    assert kept.value["matches"] == ["rust"]
    made = rig.run(
        "function override_extract() { return [{ fields: {}, matches: ['m'] }] }", "override_extract", RESPONSE
    )
    assert verdicts.extracted(made) == [{"fields": {}, "matches": []}]


def test_a_request_keeps_what_the_hook_left_out_and_loses_all_headers_it_left_out(rig: Rig) -> None:
    """JOBHOOK-19."""
    hook = (
        "function before_fetch(r) { return { headers: { 'X-New': 2, gone: null }, proxy: 'http://p:1', timeout: 5 } }"
    )
    request = verdict("before_fetch", rig.run(hook, "before_fetch", REQUEST))
    assert request == {**REQUEST, "headers": {"X-New": "2"}, "proxy": "http://p:1", "timeout": 5}


def test_override_fetch_stands_for_a_fetch_good_or_bad(rig: Rig) -> None:
    """JOBHOOK-20."""

    def fetched(value: str) -> dict[str, Any]:
        called = rig.run(f"function override_fetch(r) {{ return {value} }}", "override_fetch", REQUEST)
        return verdicts.fetched(called, REQUEST)

    good = fetched("{ status: 201, body: 'ä', url: r.url + 'x', headers: { a: 1 } }")
    assert good["ok"]
    assert good["request"] == REQUEST
    answer = {key: good["response"][key] for key in ("status", "url", "body", "headers", "size")}
    assert answer == {"status": 201, "url": "https://shop.example/x", "body": "ä", "headers": {"a": "1"}, "size": 2}
    refused = fetched("{ status: 503, body: 'later' }")
    assert not refused["ok"]
    assert refused["error"] == {"message": "http status: 503", "kind": "http"}
    assert refused["response"]["body"] == "later"
    broken = fetched("{ error: 'no network', status: 200, body: 'x' }")
    assert broken == verdicts.failed(REQUEST, "no network")


def test_of_a_good_fetch_only_the_body_can_be_changed(rig: Rig) -> None:
    """JOBHOOK-21."""
    hook = """function after_fetch(f) {
        f.ok = false; f.request.url = "x"; f.response = { body: "new", status: 500, url: "y" }; return f }"""
    assert verdict("after_fetch", rig.run(hook, "after_fetch", GOOD)) == verdicts.AfterFetch(
        "continue", {**GOOD, "response": {**RESPONSE, "body": "new"}}
    )
    assert (
        verdict("after_fetch", rig.run("function after_fetch() { return {} }", "after_fetch", GOOD))
        == UNCHANGED["after_fetch"]
    )


@pytest.mark.parametrize(
    ("failure", "returned", "body"),
    [
        (UNREACHED, "{ response: { status: 200, body: 'cached' } }", "cached"),
        (UNREACHED, "{ status: 200, body: 'top' }", "top"),
        (FORBIDDEN, "{ response: { status: 200, url: 'https://x.example/', body: 'cached' } }", "cached"),
        (FORBIDDEN, "f", "<p>"),
        (UNREACHED, "f", None),
        (UNREACHED, "true", None),
        (FORBIDDEN, "true", None),
    ],
)
def test_a_failed_fetch_can_be_answered_for(rig: Rig, failure: dict[str, Any], returned: str, body: str | None) -> None:
    """JOBHOOK-22."""
    called = rig.run(f"function after_fetch(f) {{ return {returned} }}", "after_fetch", failure)
    after = verdicts.after_fetch(called, failure)
    if body is None:
        assert (after.state, after.error) == ("failed", failure["error"]["message"])
    else:
        assert (after.state, after.envelope["response"]["body"]) == ("continue", body)


def test_no_fetch_means_no_ending_of_it(rig: Rig) -> None:
    """JOBHOOK-3: a hook that is not there costs nothing and changes nothing."""
    rig.load("function before_fetch(r) { return r }")
    called = rig.call("after_fetch", FORBIDDEN)
    assert called.outcome == "absent"
    assert verdicts.after_fetch(called, FORBIDDEN).state == "failed"
    assert verdicts.after_fetch(called, GOOD) == UNCHANGED["after_fetch"]
    assert verdicts.extracted(called) is None


def test_a_webhook_payload_reads_flat_and_in_fields_and_is_sent_flat(rig: Rig) -> None:
    """JOBHOOK-23."""
    hook = """function before_webhook(p) {
        const item = p.items[0];
        log(item.t, item.fields.t, item.matches[0], item.keywords[0]);
        log("keywords" in item.fields, Object.keys(item.fields));
        item.fields.t = "b"; item.matches.push("go");
        return p; }"""
    called = rig.run(hook, "before_webhook", PAYLOAD)
    assert called.value == {"job_name": "Deals", "item_count": 1, "items": [{"t": "b", "keywords": ["rust", "go"]}]}
    assert rig.messages == ["a a rust rust", 'false ["t"]']
    any_shape = rig.run("function before_webhook(p) { return [p.items[0].fields, null] }", "before_webhook", PAYLOAD)
    assert any_shape.value == [{"t": "a"}, None]


@pytest.mark.parametrize(
    ("files", "place"),
    [
        ({"hooks.js": "let a = 1;\nlet b = ;"}, ("hooks.js", 2, 9)),
        ({"hooks.js": "function f() {\n  gone()\n}\nf()"}, ("hooks.js", 2, 3)),
        ({"hooks.js": "const a = 1", "defer.js": "const a = 2"}, ("defer.js", 1, 1)),
    ],
)
def test_scripts_that_cannot_be_loaded_are_refused_with_their_place(
    rig: Rig, files: dict[str, str], place: tuple[str, int, int]
) -> None:
    """JOBHOOK-3."""
    with pytest.raises(OpError) as refused:
        rig.load(files["hooks.js"], files.get("defer.js"))
    assert refused.value.code == "job_scripts_invalid"
    assert tuple(refused.value.details.values()) == place
    assert refused.value.message.startswith("{}:{}:{}: ".format(*place))
