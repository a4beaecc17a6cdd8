"""The connections of one worker: pooled, through the right proxy, and not too many to one host at once."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import re
import ssl
from collections.abc import AsyncIterable, AsyncIterator, Callable
from functools import cached_property, lru_cache
from urllib.request import getproxies, proxy_bypass

import h2.exceptions
import httpcore
import httpx

from engine.errors import OpError
from engine.runners.http_pool import Pool, Stale
from engine.runners.http_stream import Network
from engine.runners.http_transport import opener

#: What a request that never got an answer may be sent again for: nothing happens twice by it.
_REPEATABLE = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
_REPEATS = 3
#: Everything that sending a request or reading its answer can end in, beside cancellation.
WIRE_ERRORS = (
    httpcore.NetworkError,
    httpcore.ProtocolError,
    httpcore.ProxyError,
    httpcore.TimeoutException,
    h2.exceptions.H2Error,
    OSError,
    ValueError,
)


class Wire:
    """Pools of connections, one for each proxy that is in use."""

    def __init__(self) -> None:
        self._pools: dict[str | None, Pool] = {}
        self._network = Network()
        self._trust: ssl.SSLContext | None = None
        self._readying = asyncio.Lock()

    async def ready(self) -> None:
        """Read the certificate authorities, once: that takes a while, and is nobody's request time.

        Raises OpError ``transport_error``.
        """
        if self._trust is not None:
            return
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
        sent = _Sent(request)
        repeats = _REPEATS if request.method in _REPEATABLE else 0
        while True:
            try:
                answer = await self._pool(request.url, proxy).send(sent)
                break
            except Stale as stale:
                if not repeats:
                    raise _failed(request, proxy, stale.error) from stale.error
                repeats -= 1
            except WIRE_ERRORS as error:
                raise _failed(request, proxy, error) from error
        assert isinstance(answer.stream, AsyncIterable)
        return httpx.Response(
            answer.status,
            headers=answer.headers,
            stream=answer.stream if isinstance(answer.stream, httpx.AsyncByteStream) else _Body(answer.stream),
            extensions=answer.extensions,
            request=request,
        )

    async def aclose(self) -> None:
        """Close all connections."""
        pools, self._pools = self._pools, {}
        for pool in pools.values():
            await pool.aclose()

    def _pool(self, url: httpx.URL, proxy: str | None) -> Pool:
        through = proxy or self._environment(url)
        if through not in self._pools:
            assert self._trust is not None, "Wire.ready() comes first"
            try:
                self._pools[through] = Pool(opener(self._network, self._trust, through))
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


class _Sent(httpcore.Request):
    """httpx's request taken over as it is: httpcore's own constructor would look at every header again."""

    def __init__(self, request: httpx.Request) -> None:
        assert isinstance(request.stream, httpx.AsyncByteStream)
        url = request.url
        self.method = request.method.encode("ascii")
        self.url = httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path)
        self.headers = request.headers.raw
        self.stream = request.stream
        self.extensions = {}


class _Body(httpx.AsyncByteStream):
    """A body from httpcore's connections."""

    def __init__(self, inner: AsyncIterable[bytes]) -> None:
        self._inner = inner

    def __aiter__(self) -> AsyncIterator[bytes]:
        return aiter(self._inner)

    async def aclose(self) -> None:
        if hasattr(self._inner, "aclose"):
            await self._inner.aclose()


def _failed(request: httpx.Request, proxy: str | None, error: Exception) -> OpError:
    through = f" (through the proxy {shown(httpx.URL(proxy))})" if proxy else ""
    return OpError("transport_error", f"{shown(request.url)}{through}: {said(error)}", retryable=True)


class HostGates:
    """Lets at most ``limit`` requests to one host pass at once."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._gates: dict[str, _Gate] = {}

    def passing(self, host: str) -> _Gate:
        """Wait for a place; hosts that nobody asks for any more are forgotten."""
        gate = self._gates.get(host)
        if gate is None:
            gate = self._gates[host] = _Gate(self._limit, lambda: self._gates.pop(host))
        return gate


class _Gate:
    def __init__(self, limit: int, forget: Callable[[], object]) -> None:
        self._places = asyncio.Semaphore(limit)
        self._inside = 0
        self._forget = forget

    async def __aenter__(self) -> None:
        self._inside += 1
        try:
            await self._places.acquire()
        except BaseException:
            self._leave()
            raise

    async def __aexit__(self, *_: object) -> None:
        self._places.release()
        self._leave()

    def _leave(self) -> None:
        self._inside -= 1
        if not self._inside:
            self._forget()


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
