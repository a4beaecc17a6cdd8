"""Bytes over TCP and TLS: httpcore's network interface on asyncio's transports.

Nothing here has a time limit of its own, although the interface knows some: whoever fetches limits the whole fetch.
"""

from __future__ import annotations

import asyncio
import asyncio.sslproto
import select
import socket
import ssl
from collections import deque
from collections.abc import Iterable
from typing import Any

import httpcore

#: Bytes taken from the socket at once.
_BUFFER = 128 << 10
#: Bytes received and not yet read, from which on the peer has to wait.
_ENOUGH = 256 << 10
#: Until the next address of a host is tried beside the one that does not answer (RFC 8305).
_NEXT_ADDRESS = 0.25

# asyncio gives each TLS connection 256 KiB to read into, which adds up where a hundred are kept
asyncio.sslproto.SSLProtocol.max_size = 64 << 10


class Network(httpcore.AsyncNetworkBackend):
    """Opens streams, which share a buffer: a new one for each reading would cost more than the reading."""

    def __init__(self) -> None:
        self._buffer = memoryview(bytearray(_BUFFER))

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - httpcore's interface
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> Stream:
        """A stream to the host. Raises httpcore.ConnectError."""
        loop = asyncio.get_running_loop()
        try:
            _, stream = await loop.create_connection(self._stream, host, port, happy_eyeballs_delay=_NEXT_ADDRESS)
        except OSError as error:
            raise httpcore.ConnectError(str(error)) from error
        return stream

    def _stream(self) -> Stream:
        return Stream(self._buffer)


class Stream(asyncio.BufferedProtocol, httpcore.AsyncNetworkStream):
    """One connection."""

    _transport: asyncio.Transport

    def __init__(self, buffer: memoryview) -> None:
        self._loop = asyncio.get_running_loop()
        self._buffer = buffer
        self._received: deque[bytes] = deque()
        self._size = 0
        self._over = False
        self._error: Exception | None = None
        self._full = False
        self._stirred: asyncio.Future[None] | None = None
        self._drained: asyncio.Future[None] | None = None
        self._poll: select.poll | None = None

    # ---- what asyncio tells

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is there."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where to put what the peer sends; asyncio calls ``buffer_updated`` before it does anything else."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """The peer sent something."""
        self._received.append(bytes(self._buffer[:nbytes]))
        self._size += nbytes
        if self._size >= _ENOUGH:
            self._transport.pause_reading()
        _wake(self._stirred)

    def eof_received(self) -> None:
        """The peer sends no more; asyncio closes the connection."""
        self._over = True
        _wake(self._stirred)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone, with an error or without one."""
        self._over = True
        self._error = exc
        _wake(self._stirred)
        _wake(self._drained)

    def pause_writing(self) -> None:
        """More waits to be sent than should."""
        self._full = True

    def resume_writing(self) -> None:
        """What was waiting has been sent."""
        self._full = False
        _wake(self._drained)

    # ---- what httpcore asks

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109
        """What has arrived, b"" at the end. Raises httpcore.ReadError."""
        while not self._received:
            if self._error is not None:
                raise httpcore.ReadError(str(self._error)) from self._error
            if self._over:
                return b""
            self._stirred = self._loop.create_future()
            try:
                await self._stirred
            finally:
                self._stirred = None
        piece = self._received.popleft()
        if len(piece) > max_bytes:
            self._received.appendleft(piece[max_bytes:])
            piece = piece[:max_bytes]
        was, self._size = self._size, self._size - len(piece)
        if was >= _ENOUGH > self._size and not self._transport.is_closing():
            self._transport.resume_reading()
        return piece

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109
        """Send, waiting while the peer takes no more. Raises httpcore.WriteError."""
        self._check_writable()
        self._transport.write(buffer)
        while self._full:
            self._drained = self._loop.create_future()
            try:
                await self._drained
            finally:
                self._drained = None
            self._check_writable()

    async def aclose(self) -> None:
        """Hang up at once."""
        self._transport.abort()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - httpcore's interface
    ) -> Stream:
        """The same stream, encrypted from here on. Raises httpcore.ConnectError."""
        try:
            encrypted = await self._loop.start_tls(self._transport, self, ssl_context, server_hostname=server_hostname)
        except BaseException as error:
            self._transport.abort()
            if isinstance(error, OSError):
                raise httpcore.ConnectError(str(error)) from error
            raise
        if encrypted is None:
            raise httpcore.ConnectError("the server hung up during the TLS handshake")
        self._transport = encrypted
        return self

    def get_extra_info(self, info: str) -> Any:
        """httpcore's names for what a connection can tell."""
        match info:
            case "is_readable":
                return self._is_readable()
            case "client_addr":
                return self._transport.get_extra_info("sockname")
            case "server_addr":
                return self._transport.get_extra_info("peername")
            case _:
                return self._transport.get_extra_info(info)

    def _check_writable(self) -> None:
        if self._over or self._transport.is_closing():
            raise httpcore.WriteError(str(self._error or "the connection is closed")) from self._error

    def _is_readable(self) -> bool:
        """Whether reading would not wait. The socket is asked: the loop may not have come round to it yet."""
        if self._received or self._over or self._transport.is_closing():
            return True
        if self._poll is None:
            connected: socket.socket = self._transport.get_extra_info("socket")
            self._poll = select.poll()
            self._poll.register(connected.fileno(), select.POLLIN)
        return bool(self._poll.poll(0))


def _wake(waiter: asyncio.Future[None] | None) -> None:
    if waiter is not None and not waiter.done():
        waiter.set_result(None)
