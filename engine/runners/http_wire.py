"""The connections of one worker: pooled, through the right proxy, and not too many to one host at once."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import re
import ssl
from collections.abc import AsyncIterator
from functools import cached_property, lru_cache
from urllib.request import getproxies, proxy_bypass

import h2.exceptions
import httpx

from engine.errors import OpError
from engine.runners.http_transport import PooledTransport

#: What a request that never got an answer may be sent again for: nothing happens twice by it.
_REPEATABLE = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
_REPEATS = 3
_LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=100, keepalive_expiry=20.0)

#: Everything that sending a request or reading its answer can end in, beside cancellation.
WIRE_ERRORS = (httpx.HTTPError, httpx.StreamError, h2.exceptions.H2Error, OSError, ValueError)


class Wire:
    """Pools of connections, one for each proxy that is in use."""

    def __init__(self) -> None:
        self._pools: dict[str | None, httpx.AsyncHTTPTransport] = {}
        self._trust: ssl.SSLContext | None = None
        self._readying = asyncio.Lock()

    async def ready(self) -> None:
        """Read the certificate authorities, once: that takes a while, and is nobody's request time.

        Raises OpError ``transport_error``.
        """
        async with self._readying:
            if self._trust is None:
                try:
                    self._trust = await asyncio.to_thread(
                        _authorities, os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")
                    )
                except OSError as error:
                    message = f"the certificate authorities cannot be read: {said(error)}"
                    raise OpError("transport_error", message, retryable=True) from error

    async def send(self, request: httpx.Request, proxy: str | None) -> httpx.Response:
        """The head of the answer; its body is still to be read, and the response to be closed.

        ``proxy`` None means whatever the environment says. A kept connection that turns out to be dead is no answer:
        a request that may be repeated goes out again. Raises OpError ``transport_error``.
        """
        repeats = 0
        while True:
            attempt = _Attempt()
            request.extensions = {"trace": attempt.trace}
            try:
                response = await self._pool(request.url, proxy).handle_async_request(request)
            except WIRE_ERRORS as error:
                stale = attempt.reused and isinstance(error, _BROKEN)
                if stale and request.method in _REPEATABLE and repeats < _REPEATS:
                    repeats += 1
                    continue
                through = f" (through the proxy {shown(httpx.URL(proxy))})" if proxy else ""
                message = f"{shown(request.url)}{through}: {said(error)}"
                raise OpError("transport_error", message, retryable=True) from error
            response.request = request
            return response

    async def aclose(self) -> None:
        """Close all connections."""
        pools, self._pools = self._pools, {}
        for pool in pools.values():
            await pool.aclose()

    def _pool(self, url: httpx.URL, proxy: str | None) -> httpx.AsyncHTTPTransport:
        through = proxy or self._environment(url)
        if through not in self._pools:
            assert self._trust is not None, "Wire.ready() comes first"
            try:
                self._pools[through] = PooledTransport(self._trust, _LIMITS, through)
            except (httpx.InvalidURL, ValueError) as error:
                named = re.sub(r"//[^/]*@", "//***@", str(through))
                raise OpError("transport_error", f'the proxy "{named}" is not usable: {error}', True) from error
        return self._pools[through]

    def _environment(self, url: httpx.URL) -> str | None:
        """The proxy that the environment wants for ``url``; loopback is never reached through one."""
        found = self._proxies.get(url.scheme) or self._proxies.get("all")
        if not found or _is_loopback(url.host) or proxy_bypass(url.netloc.decode()):
            return None
        return found if "://" in found else f"http://{found}"

    @cached_property
    def _proxies(self) -> dict[str, str]:
        return getproxies()


@lru_cache(maxsize=4)
def _authorities(_file: str | None, _folder: str | None) -> ssl.SSLContext:
    """The shipped certificate authorities and the machine's own, or those the environment names."""
    context = httpx.create_ssl_context()
    context.load_default_certs()
    return context


_BROKEN = (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError, httpx.CloseError)


class _Attempt:
    """Learns whether one sending of a request opened a connection of its own."""

    def __init__(self) -> None:
        self.reused = True

    async def trace(self, event: str, _details: object) -> None:
        """httpcore's trace hook."""
        if event.endswith(".connect_tcp.started"):
            self.reused = False


class HostGates:
    """Lets at most ``limit`` requests to one host pass at once."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._gates: dict[str, asyncio.Semaphore] = {}
        self._inside: dict[str, int] = {}

    @contextlib.asynccontextmanager
    async def passing(self, host: str) -> AsyncIterator[None]:
        """Wait for a place; hosts that nobody asks for any more are forgotten."""
        gate = self._gates.setdefault(host, asyncio.Semaphore(self._limit))
        self._inside[host] = self._inside.get(host, 0) + 1
        try:
            async with gate:
                yield
        finally:
            self._inside[host] -= 1
            if not self._inside[host]:
                del self._inside[host], self._gates[host]


def shown(url: httpx.URL) -> str:
    """``url`` for a message: without its password."""
    return str(url.copy_with(username=url.username, password="***")) if url.password else str(url)


def said(error: BaseException) -> str:
    """What an error says, or at least what it is called."""
    return str(error) or type(error).__name__


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
