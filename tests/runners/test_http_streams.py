"""Connections below the requests: TLS, tunnels, those that are kept (docs/reference/http-fetch.md)."""

from __future__ import annotations

import asyncio
import contextlib
import select
import socket
import ssl
from collections.abc import Callable, Iterator

import pytest

from engine.errors import OpError
from engine.runners.cycle_fetch import kind_of
from engine.runners.http import HttpRunner
from tests.runners.h2server import serve_h2
from tests.runners.ops import Context, body_of, fetch_op, get, with_runner
from tests.runners.socks import serve_socks
from tests.runners.test_http_connections import TLS, Gathering, fetch_all
from tests.servers import Call, Server, never_answers, page, refused, serve, status


@pytest.fixture
def tls(monkeypatch: pytest.MonkeyPatch) -> ssl.SSLContext:
    """What a server needs whose certificate the worker trusts; it speaks HTTP/1.1 only."""
    monkeypatch.setenv("SSL_CERT_FILE", str(TLS / "cert.pem"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(TLS / "cert.pem", TLS / "key.pem")
    context.set_alpn_protocols(["http/1.1"])
    return context


async def body(runner: HttpRunner, url: str, **request: object) -> bytes:
    """What a fetch of ``url`` brings."""
    return body_of(await runner.run(Context(fetch_op(get(url, **request))).run))


def tunnels(call: Call) -> None:
    """A proxy that connects to wherever it is asked to."""
    host, _, port = call.request.target.rpartition(":")
    with socket.create_connection((host, int(port))) as far:
        call.send(b"HTTP/1.1 200 Go ahead\r\n\r\n")
        sockets = {call.socket: far, far: call.socket}
        while True:
            for source in select.select(list(sockets), [], [])[0]:
                data = source.recv(65536)
                if not data:
                    raise ConnectionResetError
                sockets[source].sendall(data)


def test_encrypted_http_1_connections_are_opened_side_by_side_and_kept(tls: ssl.SSLContext) -> None:
    """HTTP-53, HTTP-58: nobody waits for a connection that takes one request at a time."""
    large = b"z" * 3_000_000

    async def work(runner: HttpRunner) -> None:
        await fetch_all(runner, *[f"{server.url}/{n}" for n in range(4)])
        assert await body(runner, f"{server.url}/large", method="POST", body="y" * 2_000_000) == large

    with serve({"/large": page(large), "*": Gathering(4)}, tls) as server:
        with_runner(work)
        assert server.peak == 4
        assert {request.connection for request in server.requests} == {1, 2, 3, 4}
        assert server.requests[-1].body == b"y" * 2_000_000


def test_the_first_requests_to_an_http_2_server_share_a_connection(tls: ssl.SSLContext) -> None:
    """HTTP-58: they wait for it together."""
    with serve_h2(TLS) as server:
        with_runner(lambda runner: fetch_all(runner, *[f"{server.url}/{n}" for n in range(5)]))
        assert (server.connections, len(server.requests)) == (1, 5)


@contextlib.contextmanager
def tunnelling() -> Iterator[tuple[str, Callable[[], int]]]:
    """An HTTP proxy, and how many tunnels it made."""
    with serve(tunnels) as proxy:
        yield proxy.url, lambda: len(proxy.requests)


@contextlib.contextmanager
def socks() -> Iterator[tuple[str, Callable[[], int]]]:
    """A SOCKS proxy, and how many connections it made."""
    with serve_socks() as proxy:
        yield proxy.url, lambda: len(proxy.targets)


@pytest.mark.parametrize("proxying", [tunnelling, socks])
def test_encrypted_connections_through_proxies_are_kept(
    proxying: Callable[[], contextlib.AbstractContextManager[tuple[str, Callable[[], int]]]], tls: ssl.SSLContext
) -> None:
    """HTTP-53, HTTP-56."""

    async def work(runner: HttpRunner) -> None:
        for name in ("a", "b"):
            assert await body(runner, f"{server.url}/{name}", proxy=proxy) == b"secret"

    with serve(page("secret"), tls) as server, proxying() as (proxy, made):
        with_runner(work)
        assert (server.paths(), made()) == (["/a", "/b"], 1)


def test_a_proxy_that_makes_no_tunnel_is_a_transport_error() -> None:
    """HTTP-40, HTTP-56."""

    async def work(runner: HttpRunner) -> OpError:
        with pytest.raises(OpError) as caught:
            await body(runner, "https://shop.example/", proxy=proxy.url)
        return caught.value

    with serve(status(403, reason="No way")) as proxy:
        error = with_runner(work)
    assert (error.code, error.retryable) == ("transport_error", True)
    assert "403 No way" in error.message


def test_a_server_that_hangs_up_between_two_requests_costs_nothing() -> None:
    """HTTP-55: not even where the request must not be repeated."""

    def once(call: Call) -> None:
        call.reply(b"x")
        call.socket.shutdown(socket.SHUT_RDWR)
        raise ConnectionResetError

    async def work(runner: HttpRunner) -> None:
        for seen in (1, 2, 3):
            assert await body(runner, f"{server.url}/", method="POST", body="buy") == b"x"
            server.wait(lambda server, seen=seen: server.left == seen)  # type: ignore[misc]

    with serve(once) as server:
        with_runner(work)
        assert [request.connection for request in server.requests] == [1, 2, 3]


def test_what_follows_an_answer_is_not_taken_for_the_next() -> None:
    """HTTP-53: a server that says more than it announced is not asked again on that connection."""
    smuggled = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nwrong"

    def talkative(call: Call) -> None:
        call.send(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nright" + smuggled)

    async def work(runner: HttpRunner) -> list[bytes]:
        return [await body(runner, f"{server.url}/{n}") for n in range(3)]

    with serve(talkative) as server:
        assert with_runner(work) == [b"right"] * 3
        assert [request.connection for request in server.requests] == [1, 2, 3]


def test_a_canceled_fetch_leaves_no_connection_behind_in_a_proxy(tls: ssl.SSLContext) -> None:
    """HTTP-52: whoever hangs in the handshake behind a proxy is hung up on too."""

    def silent(call: Call) -> None:
        call.send(b"HTTP/1.1 200 Go ahead\r\n\r\n")
        call.socket.settimeout(60)
        while call.socket.recv(65536):
            pass
        raise ConnectionResetError

    async def work(runner: HttpRunner) -> None:
        fetching = asyncio.create_task(body(runner, "https://shop.example/", proxy=proxy.url))
        await asyncio.to_thread(proxy.wait, _asked_once)
        fetching.cancel()
        with pytest.raises(asyncio.CancelledError):
            await fetching
        await asyncio.to_thread(proxy.wait, lambda seen: seen.left == 1)

    with serve(silent) as proxy:
        with_runner(work)


def _asked_once(server: Server) -> bool:
    return len(server.requests) == 1


@pytest.mark.parametrize(
    ("url", "request_", "kind"),
    [
        ("http://no-such-host.invalid/", {}, "dns"),
        ("GONE/", {}, "connect"),
        ("SERVER/hangs", {"timeout": "150ms"}, "timeout"),
        ("SECURE/", {}, "tls"),
        ("https://shop.example/", {"proxy": "SERVER"}, "proxy"),
    ],
)
def test_the_kind_of_a_failure_can_be_told(url: str, request_: dict[str, str], kind: str) -> None:
    """JOB-409: from what really happens to a connection."""

    async def work(runner: HttpRunner) -> str:
        with pytest.raises(OpError) as caught:
            await body(runner, placed(url), **{name: placed(value) for name, value in request_.items()})
        return kind_of(caught.value)

    def placed(text: str) -> str:
        secure = server.url.replace("http:", "https:")
        return text.replace("GONE", gone).replace("SERVER", server.url).replace("SECURE", secure)

    routes = {"/hangs": never_answers, "*": status(403)}
    with serve(routes) as server, refused() as gone:
        assert with_runner(work) == kind
