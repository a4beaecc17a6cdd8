"""httpx's transport over connections that tell cheaply whether they are still alive.

Before every request the pool asks each idle connection whether its peer has closed it. Underneath that resolves every
attribute of the socket anew, address and peer included, which on a busy worker costs more than the request.
"""

from __future__ import annotations

import select
import ssl
from collections.abc import Awaitable, Iterable
from typing import Any

import httpcore
import httpx


class PooledTransport(httpx.AsyncHTTPTransport):
    """``httpx.AsyncHTTPTransport``, with ``limits`` and ``proxy`` as there."""

    def __init__(self, verify: ssl.SSLContext, limits: httpx.Limits, proxy: str | None) -> None:
        super().__init__(verify=verify, http2=True, limits=limits, proxy=proxy)
        # httpx has no parameter for it; a SOCKS proxy connects by itself and keeps its own
        if hasattr(self._pool, "_network_backend"):
            self._pool._network_backend = _Backend()


class _Backend(httpcore.AnyIOBackend):
    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - httpcore's interface
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        return _Stream(await super().connect_tcp(host, port, timeout, local_address, socket_options))


class _Stream(httpcore.AsyncNetworkStream):
    """Looks its socket up once."""

    def __init__(self, inner: httpcore.AsyncNetworkStream) -> None:
        self._inner = inner
        self._poll: select.poll | None = None

    def read(self, max_bytes: int, timeout: float | None = None) -> Awaitable[bytes]:  # type: ignore[override]
        return self._inner.read(max_bytes, timeout)

    def write(self, buffer: bytes, timeout: float | None = None) -> Awaitable[None]:  # type: ignore[override]
        return self._inner.write(buffer, timeout)

    def aclose(self) -> Awaitable[None]:  # type: ignore[override]
        return self._inner.aclose()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - httpcore's interface
    ) -> httpcore.AsyncNetworkStream:
        return _Stream(await self._inner.start_tls(ssl_context, server_hostname, timeout))

    def get_extra_info(self, info: str) -> Any:
        return self._is_readable() if info == "is_readable" else self._inner.get_extra_info(info)

    def _is_readable(self) -> bool:
        if self._poll is None:
            socket = self._inner.get_extra_info("socket")
            if socket is None or socket.fileno() < 0:
                return True
            self._poll = select.poll()
            self._poll.register(socket.fileno(), select.POLLIN)
        return bool(self._poll.poll(0))
