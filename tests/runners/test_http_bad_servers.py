"""Servers that misbehave: each ends in a classified error, and the next fetch works (docs/reference/http-fetch.md)."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import tracemalloc
import zlib
from collections.abc import Callable, Iterator

import pytest
import zstandard

from engine.clock import MILLISECOND
from engine.errors import OpError
from engine.runners.http import HttpRunner
from tests.runners.ops import Context, body_of, data_of, fetch, fetch_failing, fetch_op, get, with_runner
from tests.servers import (
    Route,
    gzip_bomb,
    half_closed,
    hangs_up,
    huge,
    malformed_headers,
    never_answers,
    page,
    raw,
    redirect,
    redirect_loop,
    refused,
    resets,
    serve,
    stalls,
    status,
)

#: Long enough for a request to arrive on a busy machine.
SHORT = 800 * MILLISECOND


@contextlib.contextmanager
def held_at_most(size: int) -> Iterator[None]:
    """Check that never more than ``size`` bytes of Python objects are added, the server's included."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < size
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("route", "code", "retryable"),
    [
        pytest.param(redirect_loop, "too_many_redirects", False, id="redirect loop"),
        pytest.param(hangs_up, "transport_error", True, id="hangs up"),
        pytest.param(malformed_headers, "transport_error", True, id="malformed headers"),
        pytest.param(raw(b"not http at all\r\n\r\n"), "transport_error", True, id="not http"),
        pytest.param(raw(b"HTTP/1.1 2OO OK\r\n\r\n"), "transport_error", True, id="malformed status"),
        pytest.param(raw(b"HTTP/1.1 200 OK\r\nX: " + b"y" * 200_000), "transport_error", True, id="endless head"),
        pytest.param(
            raw(b"HTTP/1.1 200 OK\r\nContent-Length: 1, 2\r\n\r\nab"), "transport_error", True, id="two lengths"
        ),
        pytest.param(never_answers, "transport_error", True, id="never answers"),
        pytest.param(stalls, "transport_error", True, id="stalls in the body"),
        pytest.param(half_closed, "read_response_error", True, id="half closed"),
        pytest.param(resets, "read_response_error", True, id="resets in the body"),
        pytest.param(
            raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"),
            "read_response_error",
            True,
            id="chunks without end",
        ),
        pytest.param(
            raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nhello\r\n"),
            "read_response_error",
            True,
            id="malformed chunks",
        ),
        pytest.param(page(b"no gzip", content_encoding="gzip"), "read_response_error", True, id="no gzip"),
        pytest.param(
            page(gzip.compress(b"cut off" * 99)[:-9], content_encoding="gzip"),
            "read_response_error",
            True,
            id="cut gzip",
        ),
        pytest.param(page(b"no zstd", content_encoding="zstd"), "read_response_error", True, id="no zstd"),
        pytest.param(
            page(zstandard.compress(b"cut off" * 99)[:-3], content_encoding="zstd"),
            "read_response_error",
            True,
            id="cut zstd",
        ),
        pytest.param(redirect("http://[::1/"), "transport_error", True, id="redirect to no url"),
        pytest.param(redirect("ftp://files.example/"), "invalid_request", False, id="redirect off the web"),
        pytest.param(redirect("http://a..b/"), "transport_error", True, id="redirect to no host"),
        pytest.param(huge(100_000_000), "body_too_large", False, id="huge"),
        pytest.param(huge(100_000_000, announced=True), "body_too_large", False, id="huge and announced"),
        pytest.param(gzip_bomb(100_000_000), "body_too_large", False, id="gzip bomb"),
    ],
)
def test_misbehaviour_is_classified_and_disturbs_nothing_else(route: Route, code: str, retryable: bool) -> None:
    """HTTP-20, HTTP-40, HTTP-43."""

    async def work(runner: HttpRunner) -> OpError:
        bad = Context(fetch_op(get(f"{server.url}/bad", timeout="5s" if code != "transport_error" else "150ms")))
        good = Context(fetch_op(get(f"{server.url}/good")))
        with pytest.raises(OpError) as caught:
            await runner.run(bad.run)
        assert body_of(await runner.run(good.run)) == b"good"
        return caught.value

    with serve({"/bad": route, "/good": page("good")}) as server:
        error = with_runner(work, max_bytes=1_000_000)
    assert (error.code, error.retryable) == (code, retryable)
    assert server.url in error.message
    assert error.retry_after is None


def test_a_refused_connection_is_a_transport_error() -> None:
    """HTTP-40."""
    with refused() as url:
        error, evidence = fetch_failing(get(f"{url}/"))
    assert (error.code, error.retryable) == ("transport_error", True)
    assert evidence.artifacts == ()


def test_an_unknown_host_is_a_transport_error() -> None:
    """HTTP-40."""
    error, _ = fetch_failing(get("http://no-such-host.invalid/"))
    assert (error.code, error.retryable) == ("transport_error", True)


def test_plain_http_where_tls_is_wanted_is_a_transport_error() -> None:
    """HTTP-40."""
    with serve(page("")) as server:
        error, _ = fetch_failing(get(server.url.replace("http:", "https:") + "/", timeout="5s"))
    assert (error.code, error.retryable) == ("transport_error", True)


@pytest.mark.parametrize("route", [never_answers, stalls], ids=["no head", "no body"])
def test_a_timeout_says_how_long_it_waited_and_hangs_up(route: Route) -> None:
    """HTTP-50."""
    with serve(route) as server:
        error, _ = fetch_failing(get(f"{server.url}/", timeout="800ms"))
        server.wait(lambda seen: seen.left == 1)
    assert "no complete answer within 0.8 s" in error.message


def test_the_timeout_spans_all_redirects() -> None:
    """HTTP-50: ten hops do not have ten times the time."""
    with serve({"/a": redirect("/b"), "/b": never_answers}) as server:
        error, _ = fetch_failing(get(f"{server.url}/a"), timeout=SHORT)
        assert server.paths() == ["/a", "/b"]
    assert "/b: no complete answer within 0.8 s" in error.message


@pytest.mark.parametrize(
    "route",
    [huge(100_000_000), huge(100_000_000, announced=True), gzip_bomb(400_000_000)],
    ids=["", "announced", "bomb"],
)
def test_a_huge_body_is_refused_without_being_held(route: Route) -> None:
    """HTTP-43: the cap is on the decoded stream."""
    with serve(route) as server, held_at_most(30_000_000):
        error, evidence = fetch_failing(get(f"{server.url}/"), max_bytes=4_000_000)
    assert (error.code, error.retryable) == ("body_too_large", False)
    assert "larger than 4000000 bytes" in error.message
    assert evidence.artifacts == ()


def test_a_zstd_bomb_is_refused_without_being_held() -> None:
    """HTTP-43: four bytes of zstd can stand for 128 KiB."""
    writer = zstandard.ZstdCompressor(level=1).compressobj()
    bomb = b"".join(writer.compress(bytes(1 << 20)) for _ in range(300)) + writer.flush()
    with serve(page(bomb, content_encoding="zstd")) as server, held_at_most(50_000_000):
        error, _ = fetch_failing(get(f"{server.url}/"), max_bytes=4_000_000)
    assert error.code == "body_too_large"


def test_a_bomb_in_a_bomb_is_refused() -> None:
    """HTTP-43."""
    nested = gzip.compress(gzip.compress(bytes(50_000_000)))
    with serve(page(nested, content_encoding="gzip, gzip")) as server:
        error, _ = fetch_failing(get(f"{server.url}/"), max_bytes=1_000_000)
    assert error.code == "body_too_large"


def test_a_large_body_that_nobody_keeps_is_not_held() -> None:
    """HTTP-31: only its length is asked for."""
    with serve(huge(60_000_000)) as server, held_at_most(20_000_000):
        data = data_of(fetch({"request": {"url": f"{server.url}/"}}))
    assert data["response"]["contentLength"] == 60_000_000


def test_a_body_of_exactly_the_limit_is_fine() -> None:
    """HTTP-43."""
    with serve(page(b"x" * 1000)) as server:
        assert len(body_of(fetch(get(f"{server.url}/", maxBytes=1000)))) == 1000
        error, _ = fetch_failing(get(f"{server.url}/", maxBytes=999))
    assert error.code == "body_too_large"


def test_the_body_of_a_redirect_does_not_count() -> None:
    """HTTP-23."""
    with serve({"/a": redirect("/b", body=b"x" * 500_000), "/b": page("b")}) as server:
        assert body_of(fetch(get(f"{server.url}/a"), max_bytes=1000)) == b"b"


def deflate(body: bytes, window: int) -> bytes:
    """``body`` in a zlib stream, raw where ``window`` is negative."""
    writer = zlib.compressobj(wbits=window)
    return writer.compress(body) + writer.flush()


BODY = b"caf\xe9 " * 5000


@pytest.mark.parametrize(
    ("coding", "encode"),
    [
        ("gzip", gzip.compress),
        ("x-gzip", gzip.compress),
        ("GZIP", gzip.compress),
        ("gzip", lambda body: gzip.compress(body[:9000]) + gzip.compress(body[9000:])),
        ("gzip", lambda body: gzip.compress(body) + b"\0\0padding"),
        ("deflate", lambda body: deflate(body, 15)),
        ("deflate", lambda body: deflate(body, -15)),
        ("zstd", zstandard.compress),
        ("zstd", lambda body: zstandard.compress(body[:9000]) + zstandard.compress(body[9000:])),
        ("deflate, gzip", lambda body: gzip.compress(deflate(body, 15))),
        ("identity", lambda body: body),
        ("rot13", lambda body: body),
        ("gzip, rot13", lambda body: body),
    ],
)
def test_codings_are_undone_and_unknown_ones_left(coding: str, encode: Callable[[bytes], bytes]) -> None:
    """HTTP-33."""
    with serve(page(encode(BODY), content_encoding=coding)) as server:
        result = fetch(get(f"{server.url}/"))
    assert body_of(result) == BODY
    assert data_of(result)["response"]["contentLength"] == len(BODY)


@pytest.mark.parametrize("coding", ["gzip", "deflate", "zstd"])
def test_an_empty_body_needs_no_decoding(coding: str) -> None:
    """HTTP-33."""
    with serve(page(b"", content_encoding=coding)) as server:
        assert body_of(fetch(get(f"{server.url}/"))) == b""


def test_empty_and_non_utf_8_bodies_stay_what_they_are() -> None:
    """HTTP-31."""
    with serve({"/empty": page(b""), "/latin": page(b"\xe9\xff\0", content_type="text/html")}) as server:
        assert body_of(fetch(get(f"{server.url}/empty"))) == b""
        assert body_of(fetch(get(f"{server.url}/latin"))) == b"\xe9\xff\0"


def test_a_body_until_the_end_of_the_connection_is_whole() -> None:
    with serve(raw(b"HTTP/1.0 200 OK\r\n\r\nold but fine")) as server:
        assert body_of(fetch(get(f"{server.url}/"))) == b"old but fine"


def test_response_headers_outside_of_ascii_are_data() -> None:
    """HTTP-30: whatever a header holds, the op's data is JSON."""
    answer = "HTTP/1.1 200 Größe\r\nX-Town: Zürich\r\nx-Raw: \xff\r\nContent-Length: 0\r\n\r\n".encode("latin-1")
    with serve(raw(answer)) as server:
        headers = data_of(fetch(get(f"{server.url}/")))["response"]["headers"]
    assert headers["X-Town"] == ["Zürich"]
    assert headers["X-Raw"] == ["\xff"]


def test_repeated_response_headers_are_all_there() -> None:
    """HTTP-30."""
    with serve(lambda call: call.reply(b"", headers=[("Set-Cookie", "a=1"), ("set-cookie", "b=2")])) as server:
        headers = data_of(fetch(get(f"{server.url}/")))["response"]["headers"]
    assert headers["Set-Cookie"] == ["a=1", "b=2"]


def test_an_error_page_larger_than_the_limit_is_too_large() -> None:
    """HTTP-43."""
    with serve(status(500, b"x" * 2000)) as server:
        error, _ = fetch_failing(get(f"{server.url}/"), max_bytes=1000)
    assert error.code == "body_too_large"


def test_canceling_hangs_up_at_once() -> None:
    """HTTP-52."""

    async def work(runner: HttpRunner) -> None:
        context = Context(fetch_op(get(f"{server.url}/")))
        fetching = asyncio.create_task(runner.run(context.run))
        await asyncio.to_thread(server.wait, lambda seen: len(seen.requests) == 1)
        fetching.cancel()
        with pytest.raises(asyncio.CancelledError):
            await fetching
        await asyncio.to_thread(server.wait, lambda seen: seen.left == 1)

    with serve(never_answers) as server:
        with_runner(work)


def test_canceling_in_the_body_hangs_up_at_once() -> None:
    """HTTP-52."""

    async def work(runner: HttpRunner) -> None:
        context = Context(fetch_op(get(f"{server.url}/")))
        fetching = asyncio.create_task(runner.run(context.run))
        await asyncio.to_thread(server.wait, lambda seen: len(seen.requests) == 1)
        fetching.cancel()
        with pytest.raises(asyncio.CancelledError):
            await fetching
        await asyncio.to_thread(server.wait, lambda seen: seen.left == 1)
        good = Context(fetch_op(get(f"{server.url}/good")))
        assert body_of(await runner.run(good.run)) == b"good"

    with serve({"/": stalls, "/good": page("good")}) as server:
        with_runner(work)


def test_details_of_an_error_status_are_json() -> None:
    """HTTP-41."""
    with serve(raw(b"HTTP/1.1 418 \xff\r\nX: \xff\r\nContent-Length: 0\r\n\r\n")) as server:
        error, _ = fetch_failing(get(f"{server.url}/"))
    assert error.code == "http_status_418"
    json.dumps(error.details).encode()
