"""HTTP from hooks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.lifecycle.rig import Rig
from tests.servers import Call, Server, page, redirect, serve, status


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    made = Rig(tmp_path_factory.mktemp("http"))
    made.settings = {"user_agent": "watcher/1"}
    yield made
    made.close()


def echo(call: Call) -> None:
    """The request, as JSON."""
    told = {"method": call.request.method, "headers": dict(call.request.headers), "body": call.request.body.decode()}
    call.reply(json.dumps(told).encode(), headers={"Content-Type": "application/json"})


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    routes = {
        "/": page("grün".encode("latin-1"), content_type="text/plain; charset=iso-8859-1"),
        "/echo": echo,
        "/moved": redirect("/"),
        "/gone": status(404, b"not here"),
        "/broken": status(500, b"oops"),
        "/large": page("x" * 3_000_000),
        "/silent": lambda call: call.wait_for_client_to_leave(),
    }
    with serve(routes) as running:
        yield running


def fetched(rig: Rig, call: str) -> Any:
    """What a call of a hook gives; of a failure its members."""
    hook = f"""async function override_extract(response) {{
        try {{ log(json_encode(await {call})) }}
        catch (e) {{ log(json_encode({{ failed: e instanceof Error, message: e.message, ...e }})) }}
        return [] }}"""
    called = rig.run(hook, "override_extract", {})
    assert called.outcome == "returned", called.error
    return json.loads(rig.messages[0])


def test_any_response_is_an_answer(rig: Rig, server: Server) -> None:
    """JOBHOOK-60 and JOBHOOK-61."""
    answer = fetched(rig, f"http_get('{server.url}/moved', {{ 'X-A': 1 }})")
    assert answer.pop("time_ms") >= 0
    assert answer.pop("headers")["content-type"] == "text/plain; charset=iso-8859-1"
    assert answer == {"status": 200, "body": "grün", "url": f"{server.url}/", "size": 4}
    assert server.requests[-1].headers["x-a"] == "1"
    assert server.requests[-1].headers["user-agent"] == "watcher/1"
    for path, code, body in (("/gone", 404, "not here"), ("/broken", 500, "oops")):
        answer = fetched(rig, f"http_get('{server.url}{path}')")
        assert (answer["status"], answer["body"]) == (code, body)


def test_a_posted_body_is_a_form_unless_it_says_otherwise(rig: Rig, server: Server) -> None:
    """JOBHOOK-60."""
    sent = json.loads(fetched(rig, f"http_post('{server.url}/echo', 'a=1&b=ä')")["body"])
    assert (sent["method"], sent["body"]) == ("POST", "a=1&b=ä")
    assert sent["headers"]["content-type"] == "application/x-www-form-urlencoded"
    named = f"http_post('{server.url}/echo', json_encode({{ a: 1 }}), {{ 'Content-Type': 'application/json' }})"
    sent = json.loads(fetched(rig, named)["body"])
    assert (sent["headers"]["content-type"], sent["body"]) == ("application/json", '{"a":1}')
    assert "must be a string" in fetched(rig, f"http_post('{server.url}/echo', {{ a: 1 }})")["message"]


def test_a_request_names_its_method_and_headers(rig: Rig, server: Server) -> None:
    """JOBHOOK-60."""
    options = (
        f"{{ method: 'put', url: '{server.url}/echo', body: new Uint8Array([104, 105]), headers: {{ 'X-B': 'z' }} }}"
    )
    sent = json.loads(fetched(rig, f"http_request({options})")["body"])
    assert (sent["method"], sent["body"], sent["headers"]["x-b"]) == ("PUT", "hi", "z")
    assert "url is missing" in fetched(rig, "http_request({})")["message"]


def test_a_multipart_request_holds_fields_and_files(rig: Rig, server: Server) -> None:
    """JOBHOOK-60."""
    fields = "{ title: 'a', n: 1, doc: { content: 'text', filename: 'a.txt', content_type: 'text/plain' } }"
    sent = json.loads(fetched(rig, f"http_multipart('{server.url}/echo', {fields})")["body"])
    assert sent["headers"]["content-type"].startswith("multipart/form-data; boundary=")
    assert 'name="title"\r\n\r\na\r\n' in sent["body"]
    assert 'name="doc"; filename="a.txt"\r\nContent-Type: text/plain\r\n\r\ntext\r\n' in sent["body"]


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        ("http_get('http://127.0.0.1:1/')", "connect"),
        ("http_get('http://nowhere.invalid/')", "dns"),
        ("http_get('not a url')", "http"),
        ("http_request({ url: 'URL/', proxy: 'http://127.0.0.1:1' })", "proxy"),
        ("http_request({ url: 'URL/silent', timeout: 0.2 })", "timeout"),
        ("http_request({ url: 'URL/large', max_body_size: 2 })", "size"),
        ("http_get('URL/'.replace('http:', 'https:'))", "tls"),
    ],
)
def test_a_failed_transport_rejects_with_its_kind(rig: Rig, server: Server, call: str, kind: str) -> None:
    """JOBHOOK-61 and JOBHOOK-62."""
    failure = fetched(rig, call.replace("URL", server.url))
    assert failure["failed"]
    assert failure["kind"] == kind, failure
    assert failure["error"]
    assert failure.get("proxy") == ("http://127.0.0.1:1" if kind == "proxy" else None)


def test_what_fits_the_limit_arrives_whole(rig: Rig, server: Server) -> None:
    """JOBHOOK-62."""
    assert fetched(rig, f"http_get('{server.url}/large').then((r) => [r.size, r.body.length])") == [
        3_000_000,
        3_000_000,
    ]


def test_requests_of_one_hook_run_side_by_side(rig: Rig) -> None:
    """JOBHOOK-63: each answer waits until both requests are there."""

    def together(call: Call) -> None:
        running.wait(lambda server: len(server.requests) == 2)
        call.reply(b"ok")

    with serve(together) as running:
        both = (
            f"Promise.all(['a', 'b'].map((p) => http_get('{running.url}/' + p))).then((all) => all.map((r) => r.body))"
        )
        assert fetched(rig, both) == ["ok", "ok"]


def test_requests_of_hooks_leave_the_last_fetch_alone(rig: Rig, server: Server) -> None:
    """JOBHOOK-63."""
    hook = f"""async function after_extract(items, ctx) {{
        await http_get('{server.url}/'); log(ctx.last_fetch.response.body); return items }}"""
    rig.next_cycle(last_fetch=lambda: {"response": {"body": "page"}})
    rig.logs.clear()
    rig.load(hook)
    rig.call("after_extract", [])
    assert rig.messages == ["page"]
