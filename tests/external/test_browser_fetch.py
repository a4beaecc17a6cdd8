"""Ops of kind ``browser/fetch`` in Debian's Chromium (docs/reference/browser.md)."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from engine.browser.settings import BrowserSettings
from engine.errors import OpError
from engine.js.charset import decode_body
from engine.plugins.site import HttpSettings
from tests.external.browsing import SCRIPTED, browse, browse_failing, html, kept, patient_runner, response
from tests.runners.ops import Context, fetch_op
from tests.servers import Call, serve, status

pytestmark = pytest.mark.external

PNG = b"\x89PNG\r\n\x1a\n"


def test_the_document_is_kept_as_its_scripts_left_it_with_a_picture() -> None:
    """BRW-20, BRW-21, BRW-22: the shape is that of http/fetch."""
    with serve({"/shop": html(SCRIPTED, headers=(("X-Shop", "1"), ("X-Shop", "2")))}) as server:
        result = browse(
            {"request": {"url": f"{server.url}/shop", "headers": {"Accept-Language": "de"}}, "persistBody": True}
        )
        (asked,) = [one for one in server.requests if one.path == "/shop"]
    assert asked.headers["accept-language"] == "de"
    artifacts = kept(result)
    document, picture = artifacts["http-response-body"], artifacts["screenshot"]
    assert "<title>after</title>" in document.body.decode()
    assert '<p id="price">EUR 42</p>' in document.body.decode()
    assert (document.id, document.content_type) == ("fetch-1:response-body", "text/html")
    assert document.metadata == {"method": "GET", "url": f"{server.url}/shop", "status_code": "200", "charset": "utf-8"}
    assert (picture.id, picture.name, picture.content_type) == ("fetch-1:screenshot", "screenshot.png", "image/png")
    assert picture.body.startswith(PNG)
    data = json.loads(result.data)
    assert data["request"] == {"method": "GET", "url": f"{server.url}/shop", "headers": {"Accept-Language": ["de"]}}
    told = data["response"]
    assert (told["statusCode"], told["status"], told["finalURL"]) == (200, "200 Said", f"{server.url}/shop")
    assert told["headers"]["X-Shop"] == ["1", "2"]
    assert told["contentType"] == "text/html; charset=utf-8"
    assert told["contentLength"] == len(document.body)
    assert (told["bodyArtifactID"], told["screenshotArtifactID"]) == (document.id, picture.id)


def test_what_comes_late_is_waited_for_and_written_in_utf_8() -> None:
    """BRW-11, BRW-21: whatever charset the page was sent in."""
    late = (
        '<meta charset="iso-8859-1"><body><script>setTimeout(() => { document.body.innerHTML ='
        " '<b id=late>\xe4\\u20ac</b>'; history.pushState(null, '', '/moved'); }, 200)</script>"
    ).encode("latin-1")
    with serve({"/": lambda call: call.reply(late, 200, {"Content-Type": "text/html"})}) as server:
        wishes = {"waitFor": "#late", "screenshot": False}
        result = browse({"request": {"url": f"{server.url}/"}, "persistBody": True, "browser": wishes})
    (document,) = result.artifacts
    assert document.body is not None
    told = f"{document.content_type}; charset={document.metadata['charset']}"
    assert '<b id="late">ä€</b>' in decode_body(document.body, told)
    assert response(result)["finalURL"] == f"{server.url}/moved"
    assert "screenshotArtifactID" not in response(result)


def test_headers_stay_with_the_document_and_secrets_with_the_first_host() -> None:
    """BRW-12: neither pictures nor the host a redirect leads to get what was meant for the first."""

    def away(call: Call) -> None:
        port = server.url.rpartition(":")[2]
        call.reply(b"", 302, {"Location": f"http://localhost:{port}/end"})

    shown = html('<img src="/picture.png">')
    with serve({"/start": away, "/end": shown, "/picture.png": status(404)}) as server:
        headers = {"Authorization": "Bearer x", "X-Plain": "1", "User-Agent": "me/1"}
        result = browse({"request": {"url": f"{server.url}/start", "headers": headers}, "persistBody": False})
        seen = {one.path: one.headers for one in server.requests}
    wanted = ("authorization", "x-plain", "user-agent")
    assert [seen["/start"].get(name) for name in wanted] == ["Bearer x", "1", "me/1"]
    assert [seen["/end"].get(name) for name in wanted] == [None, "1", "me/1"]
    assert [seen["/picture.png"].get(name) for name in wanted] == [None, None, "me/1"]
    assert response(result)["finalURL"].endswith("/end")
    assert [artifact.kind for artifact in result.artifacts] == ["screenshot"]


def test_an_error_page_is_evidence_of_its_status() -> None:
    """BRW-23."""
    with serve({"/": html("<p>sorry</p>", 503, (("Retry-After", "7"),))}) as server:
        error, evidence = browse_failing({"request": {"url": f"{server.url}/"}, "persistBody": True})
    assert (error.code, error.retryable, error.retry_after) == ("http_status_503", True, 7_000_000)
    assert error.details["response"]["statusCode"] == 503
    assert b"sorry" in kept(evidence)["http-response-body"].body
    assert kept(evidence)["screenshot"].body.startswith(PNG)


def test_answers_without_a_document() -> None:
    """BRW-21, BRW-22: data is kept as it came; an empty answer is empty; a download belongs to http/fetch."""
    with serve(
        {
            "/data": lambda call: call.reply(b'{"a": 1}', 200, {"Content-Type": "application/json"}),
            "/gone": status(404),
            "/nothing": status(204),
            "/file": lambda call: call.reply(b"PK", 200, {"Content-Type": "application/zip"}),
        }
    ) as server:

        def ask(path: str) -> dict[str, Any]:
            return {"request": {"url": server.url + path}, "persistBody": True}

        data = kept(browse(ask("/data")))["http-response-body"]
        gone, evidence = browse_failing(ask("/gone"))
        nothing = browse(ask("/nothing"))
        file, _ = browse_failing(ask("/file"))
    assert (data.body, data.content_type) == (b'{"a": 1}', "application/json")
    assert gone.code == "http_status_404"
    assert {kind: item.body for kind, item in kept(evidence).items()} == {"http-response-body": b""}
    assert response(nothing)["statusCode"] == 204
    assert (file.code, file.retryable) == ("invalid_request", False)
    assert "http/fetch" in file.message


@pytest.mark.parametrize(
    ("change", "code", "retryable"),
    [
        ({"url": "http://127.0.0.1:1/"}, "invalid_request", False),
        ({"url": "{closed}/"}, "transport_error", True),
        ({"url": "{server}/around"}, "too_many_redirects", False),
        ({"url": "{server}/", "maxBytes": 20}, "body_too_large", False),
        ({"url": "{server}/never", "timeout": "2s"}, "transport_error", True),
        ({"url": "{server}/lost"}, "transport_error", True),
    ],
)
def test_what_goes_wrong_on_the_way_is_told_as_http_fetch_tells_it(
    change: dict[str, Any], code: str, retryable: bool
) -> None:
    """BRW-30."""
    with serve({}) as closed:
        pass
    routes = {
        "/": html("<p>this is longer than twenty bytes</p>"),
        "/around": lambda call: call.reply(b"", 302, {"Location": "/around"}),
        "/never": Call.wait_for_client_to_leave,
        "/lost": html(f"<script>location.href = '{closed.url}'</script>"),
    }
    with serve(routes) as server:
        url = change["url"].replace("{server}", server.url).replace("{closed}", closed.url)
        error, _ = browse_failing({"request": {**change, "url": url}})
    assert (error.code, error.retryable) == (code, retryable), error.message


def test_a_selector_that_never_comes_is_named() -> None:
    """BRW-11."""
    with serve({"/": html("<p>x</p>")}) as server:
        asked = {"request": {"url": f"{server.url}/", "timeout": "2s"}, "browser": {"waitFor": "#never"}}
        error, _ = browse_failing(asked)
    assert (error.code, error.retryable) == ("transport_error", True)
    assert '"#never"' in error.message


def test_a_workflow_s_cookies_are_the_browser_s() -> None:
    """BRW-40: those of the jar are sent, those that scripts and servers set are kept, those that go are gone."""
    stored = {
        "version": 0,
        "name": "session",
        "value": "abc",
        "domain": "127.0.0.1",
        "path": "/",
        "secure": False,
        "expires": None,
        "discard": True,
    }
    for name in ("port", "comment", "comment_url"):
        stored[name] = None
    for name in ("port_specified", "domain_specified", "domain_initial_dot"):
        stored[name] = False
    stored["path_specified"] = True
    old = {**stored, "name": "old"}
    jar = json.dumps({"127.0.0.1;/;session": stored, "127.0.0.1;/;old": old})
    script = '<script>document.cookie = "theme=dark; path=/"; document.cookie = "old=; path=/; max-age=0"</script>'
    with serve({"/": html(script, headers=(("Set-Cookie", "n=1; Path=/; Max-Age=1000"),))}) as server:
        asked = {"request": {"url": f"{server.url}/"}, "browser": {"screenshot": False}}
        result = browse(asked, HttpSettings(cookies="workflow"), jar)
        assert "session=abc" in server.requests[0].headers["cookie"]
        plain = browse(asked, cookies=jar)
        assert "cookie" not in [one for one in server.requests if one.path == "/"][-1].headers
    changed = json.loads(result.cookies or "{}")
    assert {key: one and one["value"] for key, one in changed.items()} == {
        "127.0.0.1;/;theme": "dark",
        "127.0.0.1;/;n": "1",
        "127.0.0.1;/;old": None,
    }
    assert changed["127.0.0.1;/;n"]["expires"] > 0
    assert plain.cookies is None


def test_a_script_can_not_read_files_of_the_machine() -> None:
    """BRW-44."""
    reads = (
        '<script>fetch("file:///etc/passwd").then(r => r.text(), e => "refused").then(t => document.title = t)</script>'
    )
    with serve({"/": html(reads)}) as server:
        wishes = {"waitFor": "title", "screenshot": False}
        result = browse({"request": {"url": f"{server.url}/"}, "persistBody": True, "browser": wishes})
    (document,) = result.artifacts
    assert b"<title>refused</title>" in (document.body or b"")


def test_the_browser_can_be_named(tmp_path: Any) -> None:
    """BRW-31: and one that does not start says so."""
    broken = tmp_path / "chromium"
    broken.write_text("#!/bin/sh\necho cannot be started here >&2\nexit 3\n")
    broken.chmod(0o755)
    error, _ = browse_failing(
        {"request": {"url": "http://127.0.0.1:2/"}}, browser=BrowserSettings(executable=str(broken))
    )
    assert isinstance(error, OpError)
    assert (error.code, error.retryable) == ("browser_failed", True)
    assert str(broken) in error.message


def test_robots_txt_is_obeyed_hop_by_hop() -> None:
    """BRW-60: whether a redirect or a script leads there, a page that is disallowed is not requested."""
    rules = b"User-agent: *\nDisallow: /private\n"
    routes = {
        "/robots.txt": lambda call: call.reply(rules, 200, {"Content-Type": "text/plain"}),
        "/away": lambda call: call.reply(b"", 302, {"Location": "/private/1"}),
        "/leads": html("<p>here</p><script>location.href = '/private/2'</script>"),
    }
    obeying = HttpSettings(robots="obey")
    with serve(routes) as server:

        def ask(path: str) -> dict[str, Any]:
            return {"request": {"url": server.url + path}, "persistBody": True, "browser": {"screenshot": False}}

        first, _ = browse_failing(ask("/private/0"), http=obeying)
        second, _ = browse_failing(ask("/away"), http=obeying)
        third, _ = browse_failing(ask("/leads"), http=obeying)
        for number, error in enumerate((first, second, third)):
            assert (error.code, error.retryable) == ("robots_disallowed", False)
            assert f"/private/{number}" in error.message
        assert [path for path in server.paths() if "private" in path] == []


def test_pages_come_through_the_proxy_of_the_request() -> None:
    """BRW-61."""
    with serve({"/shop": html(SCRIPTED)}) as proxy:
        result = browse({"request": {"url": "http://shop.invalid/shop", "proxy": proxy.url}, "persistBody": True})
        targets = [request.target for request in proxy.requests]
    assert "http://shop.invalid/shop" in targets
    assert b"EUR 42" in kept(result)["http-response-body"].body


def test_a_worker_has_no_more_browsers_than_it_may() -> None:
    """BRW-45: the second page waits for the first one's browser to be gone, and its op has not begun."""
    begun: list[int] = []

    def slowly(call: Call) -> None:
        begun.append(contexts[0].starts + contexts[1].starts)
        html("<p>x</p>")(call)

    async def both() -> None:
        async with patient_runner(most=1) as runner:
            await asyncio.gather(*(runner.run(context.run) for context in contexts))

    with serve({"/": slowly}) as server:
        given = {"request": {"url": f"{server.url}/"}, "browser": {"screenshot": False}}
        contexts = [Context(fetch_op(given, kind="browser/fetch")) for _ in range(2)]
        asyncio.run(both())
    assert begun == [1, 2]
