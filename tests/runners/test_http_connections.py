"""Connections: kept, bounded per host, and through the right proxy (docs/reference/http-fetch.md)."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from engine.errors import OpError
from engine.plugins.site import HttpSettings
from engine.runners.http import HttpRunner
from tests.runners.h2server import serve_h2
from tests.runners.ops import Context, body_of, fetch, fetch_failing, fetch_op, get, with_runner
from tests.servers import Call, Server, hangs_up, in_turn, page, redirect, refused, serve

TLS = Path(__file__).parent / "tls"


async def fetch_all(runner: HttpRunner, *urls: str) -> None:
    """Fetch side by side."""
    async with asyncio.TaskGroup() as group:
        for url in urls:
            group.create_task(runner.run(Context(fetch_op(get(url))).run))


def test_a_connection_is_used_again() -> None:
    """HTTP-53."""

    async def work(runner: HttpRunner) -> None:
        for path in ("/a", "/b", "/c"):
            await fetch_all(runner, server.url + path)

    with serve({"/a": redirect("/b", body=b"gone"), "*": page("x")}) as server:
        with_runner(work)
        assert [request.connection for request in server.requests] == [1, 1, 1, 1]


class Gathering:
    """A route that answers nobody before ``size`` requests are there at once, or somebody says so."""

    def __init__(self, size: int) -> None:
        self.barrier = threading.Barrier(size)

    def __call__(self, call: Call) -> None:
        self.barrier.wait(20)
        call.reply(b"x")


def test_no_more_than_eight_requests_to_one_host_at_once() -> None:
    """HTTP-54: sixteen ops, in two rounds of exactly eight."""
    with serve(Gathering(8)) as server:
        with_runner(lambda runner: fetch_all(runner, *[f"{server.url}/{n}" for n in range(16)]))
        assert len(server.requests) == 16
        assert server.peak == 8


def test_hosts_do_not_wait_for_each_other() -> None:
    """HTTP-54."""
    together = Gathering(4)
    with serve(together) as one:
        other = one.url.replace("127.0.0.1", "localhost")
        urls = [one.url, one.url, other, other]
        with_runner(lambda runner: fetch_all(runner, *urls), per_host=2)
        assert one.peak == 4


def test_waiting_for_a_place_is_neither_start_nor_time_of_the_op() -> None:
    """HTTP-54: an op that waits has not begun, and does not time out."""

    async def work(runner: HttpRunner) -> tuple[int, int]:
        first, second = (Context(fetch_op(get(server.url, timeout=timeout))) for timeout in ("20s", 1))
        holding = asyncio.create_task(runner.run(first.run))
        await asyncio.to_thread(server.wait, lambda seen: len(seen.requests) == 1)
        waiting = asyncio.create_task(runner.run(second.run))
        done, _ = await asyncio.wait([waiting], timeout=0.05)
        assert not done
        starts = (first.starts, second.starts)
        waiting.cancel()
        released.set()
        await holding
        return starts

    released = threading.Event()

    def hold(call: Call) -> None:
        released.wait(20)
        call.reply(b"x")

    with serve(hold) as server:
        assert with_runner(work, per_host=1) == (1, 0)


def test_a_canceled_waiter_leaves_its_place_to_the_next() -> None:
    """HTTP-54."""

    async def work(runner: HttpRunner) -> None:
        holding = asyncio.create_task(runner.run(Context(fetch_op(get(server.url))).run))
        await asyncio.to_thread(server.wait, lambda seen: len(seen.requests) == 1)
        waiting = asyncio.create_task(runner.run(Context(fetch_op(get(server.url))).run))
        await asyncio.sleep(0)
        waiting.cancel()
        holding.cancel()
        await asyncio.gather(waiting, holding, return_exceptions=True)
        await fetch_all(runner, server.url)

    with serve(in_turn(lambda call: call.wait_for_client_to_leave(), page("x"))) as server:
        with_runner(work, per_host=1)


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS"])
def test_a_kept_connection_that_died_costs_no_attempt(method: str) -> None:
    """HTTP-55."""

    async def work(runner: HttpRunner) -> None:
        for _ in range(3):
            await runner.run(Context(fetch_op(get(f"{server.url}/", method=method))).run)

    seen: dict[int, int] = {}

    def answer(call: Call) -> None:
        seen[call.request.connection] = seen.get(call.request.connection, 0) + 1
        if seen[call.request.connection] > 1:
            hangs_up(call)
        call.reply(b"x")

    with serve(answer) as server:
        with_runner(work)
        assert [request.connection for request in server.requests] == [1, 1, 2, 2, 3]


def test_what_must_not_happen_twice_is_not_sent_twice() -> None:
    """HTTP-55."""

    async def work(runner: HttpRunner) -> OpError:
        await fetch_all(runner, f"{server.url}/")
        with pytest.raises(OpError) as caught:
            await runner.run(Context(fetch_op(get(f"{server.url}/", method="POST", body="buy"))).run)
        return caught.value

    with serve(in_turn(page("x"), hangs_up)) as server:
        error = with_runner(work)
        assert [request.method for request in server.requests] == ["GET", "POST"]
    assert (error.code, error.retryable) == ("transport_error", True)


def test_a_fresh_connection_that_dies_is_an_error_at_once() -> None:
    """HTTP-55."""
    with serve(hangs_up) as server:
        fetch_failing(get(f"{server.url}/"))
        assert len(server.requests) == 1


# ---- proxies


def proxied(server: Server) -> list[str]:
    """The absolute targets a proxy was asked for."""
    return [request.target for request in server.requests]


def test_the_workers_proxy_and_the_sites() -> None:
    """HTTP-56: the site's wins; a proxy that was asked for is used for loopback too."""
    with serve(page("by a")) as a, serve(page("by b")) as b:
        assert body_of(fetch(get("http://shop.example/x"), proxy=a.url)) == b"by a"
        assert body_of(fetch(get("http://127.0.0.1:1/y"), proxy=a.url)) == b"by a"
        assert body_of(fetch(get("http://shop.example/z"), http=HttpSettings(proxy=b.url), proxy=a.url)) == b"by b"
        assert proxied(a) == ["http://shop.example/x", "http://127.0.0.1:1/y"]
        assert proxied(b) == ["http://shop.example/z"]


def test_one_runner_keeps_proxies_apart() -> None:
    """HTTP-56."""

    async def work(runner: HttpRunner) -> None:
        for proxy in (a.url, None, b.url, a.url):
            context = Context(fetch_op(get(f"{direct.url}/")), HttpSettings(proxy=proxy))
            await runner.run(context.run)

    with serve(page("a")) as a, serve(page("b")) as b, serve(page("direct")) as direct:
        with_runner(work)
        assert (len(a.requests), len(b.requests), len(direct.requests)) == (2, 1, 1)


@pytest.mark.parametrize("name", ["http_proxy", "HTTP_PROXY", "all_proxy"])
def test_the_environments_proxy_but_never_for_loopback(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """HTTP-57."""
    with serve(page("proxied")) as proxy, serve(page("direct")) as server:
        monkeypatch.setenv(name, proxy.url)
        assert body_of(fetch(get("http://shop.example/"))) == b"proxied"
        for host in ("127.0.0.1", "localhost"):
            assert body_of(fetch(get(server.url.replace("127.0.0.1", host) + "/"))) == b"direct"
        with refused() as nobody:
            for host in ("127.0.0.2", "[::1]", "x.localhost"):
                error, _ = fetch_failing(get(nobody.replace("127.0.0.1", host) + "/"))
                assert error.code == "transport_error"
        assert len(proxy.requests) == 1


def test_a_redirect_to_loopback_leaves_the_environments_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """HTTP-57."""
    with serve(page("direct")) as server, serve(redirect(f"{server.url}/")) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        assert body_of(fetch(get("http://shop.example/"))) == b"direct"


def test_no_proxy_names_exceptions(monkeypatch: pytest.MonkeyPatch) -> None:
    """HTTP-57."""
    with serve(page("proxied")) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url.removeprefix("http://"))
        monkeypatch.setenv("no_proxy", "invalid,other.example")
        assert body_of(fetch(get("http://shop.example/"))) == b"proxied"
        error, _ = fetch_failing(get("http://no-such-host.invalid/"))
    assert error.code == "transport_error"
    assert len(proxy.requests) == 1


def test_a_proxy_that_is_not_there_or_none_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """HTTP-56."""
    with refused() as gone:
        error, _ = fetch_failing(get("http://shop.example/"), proxy=gone)
    assert (error.code, error.retryable) == ("transport_error", True)
    monkeypatch.setenv("http_proxy", "gopher://old.example")
    error, _ = fetch_failing(get("http://shop.example/"))
    assert (error.code, error.retryable) == ("transport_error", True)
    assert "gopher://old.example" in error.message


# ---- TLS and HTTP/2


def test_http_2_where_the_server_offers_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """HTTP-58: several requests share one connection."""
    monkeypatch.setenv("SSL_CERT_FILE", str(TLS / "cert.pem"))

    async def work(runner: HttpRunner) -> str:
        await fetch_all(runner, f"{server.url}/first")
        await fetch_all(runner, *[f"{server.url}/{n}" for n in range(5)])
        given = get(f"{server.url}/form", method="POST", form={"a": "1"}, headers={"Connection": "keep-alive"})
        return (await runner.run(Context(fetch_op(given)).run)).data

    with serve_h2(TLS) as server:
        data = with_runner(work)
        assert server.connections == 1
        assert len(server.requests) == 7
        assert server.requests[-1] == ("POST", "/form", b"a=1")
    assert '"status":"200 OK"' in data
    assert '"X-Protocol":["h2"]' in data


def test_a_certificate_nobody_vouches_for_is_a_transport_error() -> None:
    """HTTP-58."""
    with serve_h2(TLS) as server:
        error, _ = fetch_failing(get(f"{server.url}/"))
    assert (error.code, error.retryable) == ("transport_error", True)
    assert "certificate" in error.message.lower()


def test_certificates_that_cannot_be_read_are_a_transport_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """HTTP-58."""
    monkeypatch.setenv("SSL_CERT_FILE", "/no/such/file.pem")
    error, _ = fetch_failing(get("https://127.0.0.1:1/"))
    assert (error.code, error.retryable) == ("transport_error", True)
