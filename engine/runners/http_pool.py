"""Connections that are kept and used again.

httpcore's own pool looks through all connections several times for each request, asks each of them whether its peer has
closed it, and gives one idle connection to many requests at once, of which all but one then try again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeAlias

import httpcore

#: Opens a connection to an origin. Raises httpcore's errors.
Opener: TypeAlias = Callable[[httpcore.Origin], Awaitable[httpcore.AsyncConnectionInterface]]
_Key: TypeAlias = tuple[bytes, bytes, int]

_MOST_IDLE = 100
_BROKEN = (httpcore.RemoteProtocolError, httpcore.ReadError, httpcore.WriteError)


class Stale(Exception):
    """A kept connection turned out to be dead: the request got no answer."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


class Pool:
    """The connections of one way out."""

    def __init__(self, opener: Opener) -> None:
        self._open = opener
        self._connections: dict[_Key, list[httpcore.AsyncConnectionInterface]] = {}
        self._first: dict[_Key, asyncio.Event] = {}

    async def send(self, request: httpcore.Request) -> httpcore.Response:
        """The head of the answer. Raises Stale and httpcore's errors."""
        while True:
            connection, kept = await self._connection(request.url.origin)
            try:
                return await connection.handle_async_request(request)
            except httpcore.ConnectionNotAvailable:
                continue
            except _BROKEN as error:
                if kept:
                    raise Stale(error) from error
                await _discard(connection)
                raise
            except BaseException:
                if not kept:
                    await _discard(connection)
                raise

    async def aclose(self) -> None:
        """Close all connections."""
        connections = list(self._all())
        self._connections.clear()
        for connection in connections:
            await connection.aclose()

    async def _connection(self, origin: httpcore.Origin) -> tuple[httpcore.AsyncConnectionInterface, bool]:
        """A connection to ``origin``, and whether it was there before."""
        key = (origin.scheme, origin.host, origin.port)
        while True:
            kept = await self._kept(key)
            if kept is not None:
                return kept, True
            if key not in self._first:
                return await self._opened(key, origin), False
            await self._first[key].wait()

    async def _kept(self, key: _Key) -> httpcore.AsyncConnectionInterface | None:
        """The one used last, since the others may not be needed much longer."""
        for connection in self._connections.get(key, [])[::-1]:
            if not connection.is_available():
                continue
            if not connection.has_expired():
                return connection
            await connection.aclose()
        return None

    async def _opened(self, key: _Key, origin: httpcore.Origin) -> httpcore.AsyncConnectionInterface:
        await self._tidy()
        first = asyncio.Event()
        # whether a server takes several requests at once is only known when it was connected to
        if origin.scheme == b"https" and key not in self._connections:
            self._first[key] = first
        try:
            connection = await self._open(origin)
            self._connections.setdefault(key, []).append(connection)
            return connection
        finally:
            if self._first.get(key) is first:
                del self._first[key]
            first.set()

    async def _tidy(self) -> None:
        """Forget connections that are gone; close those that have been idle for long, or are too many."""
        idle = [connection for connection in self._all() if connection.is_idle()]
        kept = [connection for connection in idle if not connection.has_expired()]
        for connection in {*idle} - {*kept[-_MOST_IDLE:]}:
            await connection.aclose()
        for key, connections in list(self._connections.items()):
            connections[:] = [connection for connection in connections if not connection.is_closed()]
            if not connections:
                del self._connections[key]

    def _all(self) -> Iterator[httpcore.AsyncConnectionInterface]:
        for connections in self._connections.values():
            yield from connections


async def _discard(connection: httpcore.AsyncConnectionInterface) -> None:
    """Close a connection that came to nothing, unless others use it already."""
    if not connection.is_available():
        await connection.aclose()
