"""Cookies of a workflow (docs/reference/http-fetch.md)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from engine.errors import OpError
from engine.model import JsonText, Result
from engine.plugins.site import HttpSettings
from engine.runners.base import RunFailed
from tests.runners.ops import Context, fetch, fetch_op, get, with_runner
from tests.servers import Call, page, serve

KEEPING = HttpSettings(cookies="workflow")


def sets(*cookies: str, status: int = 200, location: str = "") -> Any:
    """An answer that sets cookies."""
    headers = [("Set-Cookie", cookie) for cookie in cookies] + ([("Location", location)] if location else [])
    return lambda call: call.reply(b"", status, headers)


def changed(result: Result) -> dict[str, Any]:
    """Name to value (None = gone) of the cookies an op changed."""
    changes = json.loads(result.cookies) if result.cookies else {}
    return {key.rpartition(";")[2]: cookie and cookie["value"] for key, cookie in changes.items()}


def merged(jar: JsonText | None, result: Result) -> JsonText:
    """The jar after the engine DB took the op's changes."""
    cookies = {**json.loads(jar or "{}"), **json.loads(result.cookies or "{}")}
    return json.dumps({key: cookie for key, cookie in cookies.items() if cookie is not None})


def test_by_default_no_cookie_survives_its_response() -> None:
    """HTTP-60: not even within one runner and one workflow."""

    async def work(runner: Any) -> list[Result]:
        context = Context(fetch_op(get(f"{server.url}/")))
        return [await runner.run(context.run), await runner.run(context.run)]

    with serve({"/": sets("a=1")}) as server:
        results = with_runner(work)
        assert ["cookie" in request.headers for request in server.requests] == [False, False]
    assert [result.cookies for result in results] == [None, None]


def test_not_even_across_a_redirect() -> None:
    """HTTP-60."""
    with serve({"/a": sets("a=1", status=302, location="/b"), "/b": page("")}) as server:
        fetch(get(f"{server.url}/a"))
        assert "cookie" not in server.requests[1].headers


def test_a_workflow_sends_what_it_was_given() -> None:
    """HTTP-61."""
    with serve({"/login": sets("session=abc; Path=/; HttpOnly", "theme=dark"), "/list": page("")}) as server:
        first = fetch(get(f"{server.url}/login"), http=KEEPING)
        jar = merged(None, first)
        second = fetch(get(f"{server.url}/list"), http=KEEPING, cookies=jar)
        assert sorted(server.requests[1].headers["cookie"].split("; ")) == ["session=abc", "theme=dark"]
    assert changed(first) == {"session": "abc", "theme": "dark"}
    assert second.cookies is None


def test_changes_are_only_what_changed() -> None:
    """HTTP-61: so that ops running side by side do not undo each other's."""
    answers = {"/one": sets("a=1", "b=1"), "/two": sets("b=2", "a=1"), "/three": sets("a=gone; Max-Age=0", "c=3")}
    with serve(answers) as server:
        jar = merged(None, fetch(get(f"{server.url}/one"), http=KEEPING))
        second = fetch(get(f"{server.url}/two"), http=KEEPING, cookies=jar)
        jar = merged(jar, second)
        third = fetch(get(f"{server.url}/three"), http=KEEPING, cookies=jar)
    assert changed(second) == {"b": "2"}
    assert changed(third) == {"a": None, "c": "3"}


def test_cookies_of_redirects_count() -> None:
    """HTTP-61."""
    with serve({"/a": sets("a=1", status=302, location="/b"), "/b": sets("b=2")}) as server:
        result = fetch(get(f"{server.url}/a"), http=KEEPING)
        assert server.requests[1].headers["cookie"] == "a=1"
    assert changed(result) == {"a": "1", "b": "2"}


def test_cookies_go_where_they_belong() -> None:
    """HTTP-61: path, host and secure are honoured; foreign domains are refused."""
    cookies = ("deep=1; Path=/deep", "safe=1; Secure", "other=1; Domain=example.com", "here=1")
    with serve({"/": sets(*cookies), "/x": page(""), "/deep/x": page("")}) as server:
        jar = merged(None, fetch(get(f"{server.url}/"), http=KEEPING))
        fetch(get(f"{server.url}/x"), http=KEEPING, cookies=jar)
        fetch(get(f"{server.url}/deep/x"), http=KEEPING, cookies=jar)
        fetch(get(f"{server.url.replace('127.0.0.1', 'localhost')}/x"), http=KEEPING, cookies=jar)
        sent = [request.headers.get("cookie", "") for request in server.requests[1:]]
    assert sent[0] == "here=1"
    assert sorted(sent[1].split("; ")) == ["deep=1", "here=1"]
    assert sent[2] == ""


def test_a_cookie_header_of_the_op_stands_beside_the_jar() -> None:
    """HTTP-63: of one name the op's is sent."""
    with serve({"/": sets("a=jar", "b=jar"), "/x": page("")}) as server:
        jar = merged(None, fetch(get(f"{server.url}/"), http=KEEPING))
        fetch(get(f"{server.url}/x", headers={"cookie": "a=mine; c=mine"}), http=KEEPING, cookies=jar)
        assert server.requests[1].headers["cookie"] == "a=mine; c=mine; b=jar"


def test_a_failed_fetch_keeps_its_cookies() -> None:
    """HTTP-62: a page that refuses may set what the next attempt needs."""
    with serve({"/": sets("challenge=1", status=503)}) as server, pytest.raises(RunFailed) as caught:
        fetch(get(f"{server.url}/"), http=KEEPING)
    assert changed(caught.value.evidence) == {"challenge": "1"}


@pytest.mark.parametrize(
    "cookie", ["", "=", ";;;", "a", "a=1; Expires=never", "a=1; Max-Age=soon", "a=1; Path=", "a=\xff", "a=1; Domain=.."]
)
def test_strange_cookies_disturb_nobody(cookie: str) -> None:
    """HTTP-61."""

    def answer(call: Call) -> None:
        call.reply(b"", 200, [("Set-Cookie", cookie), ("Set-Cookie", "fine=1")])

    with serve({"/": answer}) as server:
        try:
            result = fetch(get(f"{server.url}/"), http=KEEPING)
            fetch(get(f"{server.url}/"), http=KEEPING, cookies=merged(None, result))
        except OpError as error:
            raise AssertionError(error) from error
    assert changed(result)["fine"] == "1"
