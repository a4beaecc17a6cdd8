"""Where redirects lead a fetch, and what goes with it (docs/reference/http-fetch.md)."""

from __future__ import annotations

import pytest

from tests.runners.ops import body_of, data_of, fetch, fetch_failing, get
from tests.servers import in_turn, page, redirect, serve, status


def test_redirects_are_followed_to_the_final_url() -> None:
    """HTTP-20."""
    routes = {"/a": redirect("/b", 301), "/b": redirect("c?x=1#top", 307), "/c": page("here")}
    with serve(routes) as server:
        result = fetch(get(f"{server.url}/a"))
        assert server.paths() == ["/a", "/b", "/c"]
    assert data_of(result)["response"]["finalURL"] == f"{server.url}/c?x=1#top"
    assert data_of(result)["request"]["url"] == f"{server.url}/a"
    assert body_of(result) == b"here"


@pytest.mark.parametrize(
    ("code", "method", "then"),
    [
        (301, "POST", "GET"),
        (302, "PUT", "GET"),
        (303, "POST", "GET"),
        (307, "POST", "POST"),
        (308, "PUT", "PUT"),
        (302, "HEAD", "HEAD"),
    ],
)
def test_method_and_body_after_a_redirect(code: int, method: str, then: str) -> None:
    """HTTP-21."""
    with serve({"/a": redirect("/b", code), "/b": page("")}) as server:
        fetch(get(f"{server.url}/a", method=method, body="payload", headers={"Content-Type": "text/plain"}))
        last = server.requests[-1]
    assert last.method == then
    kept = code in (307, 308) or method == "HEAD"
    assert last.body == (b"payload" if kept else b"")
    assert ("content-type" in last.headers) == kept


def test_confidential_headers_stay_with_their_host() -> None:
    """HTTP-22."""
    secrets = {"Authorization": "Bearer x", "Cookie": "a=1", "X-Plain": "kept"}
    with serve({"/": page("")}) as other:
        elsewhere = other.url.replace("127.0.0.1", "localhost")
        with serve({"/near": redirect("/far"), "/far": redirect(f"{elsewhere}/")}) as server:
            fetch(get(f"{server.url}/near", headers=secrets))
            near = server.requests[1].headers
            far = other.requests[0].headers
    assert (near["authorization"], near["cookie"], near["x-plain"]) == ("Bearer x", "a=1", "kept")
    assert "authorization" not in far
    assert "cookie" not in far
    assert far["x-plain"] == "kept"
    assert far["host"].startswith("localhost:")


@pytest.mark.parametrize("wish", [False, 0])
def test_redirects_can_be_left_alone(wish: bool | int) -> None:
    """HTTP-20: a redirect that is not followed is an answer like any other, body included."""
    with serve({"/a": redirect("/b", body=b"moved")}) as server:
        result = fetch(get(f"{server.url}/a", followRedirects=wish))
        assert server.paths() == ["/a"]
    assert data_of(result)["response"]["statusCode"] == 302
    assert body_of(result) == b"moved"


def test_a_redirect_without_location_is_an_answer() -> None:
    """HTTP-20."""
    with serve({"/a": status(302, b"nowhere")}) as server:
        assert body_of(fetch(get(f"{server.url}/a"))) == b"nowhere"


@pytest.mark.parametrize(
    ("given", "settings", "hops"), [({"followRedirects": 2}, {}, 3), ({}, {"max_redirects": 4}, 5)]
)
def test_the_redirect_limit_is_the_requests_or_the_workers(
    given: dict[str, int], settings: dict[str, int], hops: int
) -> None:
    """HTTP-20."""
    with serve({"*": redirect("/again")}) as server:
        error, _ = fetch_failing(get(f"{server.url}/", **given), **settings)
        assert len(server.requests) == hops
    assert (error.code, error.retryable) == ("too_many_redirects", False)


def test_as_many_redirects_as_allowed_are_fine() -> None:
    """HTTP-20."""
    routes = in_turn(*[redirect("/next")] * 10, page("at last"))
    with serve(routes) as server:
        assert body_of(fetch(get(f"{server.url}/"))) == b"at last"
