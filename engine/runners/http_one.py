"""HTTP/1.1 on one connection: the requests of one origin, one after the other."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator
from enum import Enum, auto

import h11
import httpcore
import httpx

_READ = 256 << 10
#: A head that is longer is refused.
_LONGEST_HEAD = 100 << 10


_END = h11.EndOfMessage()


class _State(Enum):
    IDLE = auto()
    BUSY = auto()
    CLOSED = auto()


class Http11Connection(httpcore.AsyncConnectionInterface):
    """A connection that speaks HTTP/1.1, kept for ``keep`` seconds after each use."""

    def __init__(self, origin: httpcore.Origin, stream: httpcore.AsyncNetworkStream, keep: float) -> None:
        self._origin = origin
        self._stream = stream
        self._keep = keep
        self._expires_at = time.monotonic() + keep
        self._state = _State.IDLE
        self._protocol = h11.Connection(h11.CLIENT, max_incomplete_event_size=_LONGEST_HEAD)

    async def handle_async_request(self, request: httpcore.Request) -> httpcore.Response:
        """Send the request; the head of its answer. Raises httpcore's errors."""
        if self._state is not _State.IDLE:
            raise httpcore.ConnectionNotAvailable
        self._state = _State.BUSY
        try:
            await self._send(request)
            await self._read()  # there is nothing to look at yet
            while True:
                event = await self._receive()
                if isinstance(event, h11.Response):
                    break
                if (
                    isinstance(event, h11.InformationalResponse)
                    and event.status_code == httpx.codes.SWITCHING_PROTOCOLS
                ):
                    break
        except BaseException:
            await self.aclose()
            raise
        assert isinstance(event, h11.Response | h11.InformationalResponse)
        return httpcore.Response(
            event.status_code,
            headers=event.headers.raw_items(),
            content=_Body(self),
            extensions={"http_version": b"HTTP/" + event.http_version, "reason_phrase": event.reason},
        )

    async def body(self) -> AsyncIterator[bytes]:
        """What follows the head, piece by piece. Raises httpcore's errors."""
        while True:
            event = await self._receive()
            if not isinstance(event, h11.Data):
                return
            yield event.data

    async def finished(self) -> None:
        """The answer has been read as far as anybody wants: keep the connection if it was read to its end."""
        if self._state is not _State.BUSY:
            return
        over = self._protocol.our_state is h11.DONE and self._protocol.their_state is h11.DONE
        # what a server sends beyond an answer must not become the next one
        if over and not self._protocol.trailing_data[0]:
            self._protocol.start_next_cycle()
            self._state = _State.IDLE
            self._expires_at = time.monotonic() + self._keep
        else:
            await self.aclose()

    async def aclose(self) -> None:
        """Hang up at once."""
        self._state = _State.CLOSED
        await self._stream.aclose()

    def can_handle_request(self, origin: httpcore.Origin) -> bool:
        """Whether this connection leads there."""
        return origin == self._origin

    def is_available(self) -> bool:
        """Whether it may take a request now."""
        return self._state is _State.IDLE

    def is_idle(self) -> bool:
        """Whether nobody uses it."""
        return self._state is _State.IDLE

    def is_closed(self) -> bool:
        """Whether it is of no more use."""
        return self._state is _State.CLOSED

    def has_expired(self) -> bool:
        """Whether it lay idle for too long, or its server hung up."""
        idle = self._state is _State.IDLE
        return idle and (time.monotonic() > self._expires_at or bool(self._stream.get_extra_info("is_readable")))

    def info(self) -> str:
        """For whoever debugs."""
        return f"{self._origin}, HTTP/1.1, {self._state.name}"

    async def _send(self, request: httpcore.Request) -> None:
        try:
            head = h11.Request(method=request.method, target=request.url.target, headers=request.headers)
            written = self._protocol.send(head) or b""
            assert not isinstance(request.stream, bytes)
            async for piece in request.stream:  # type: ignore[union-attr]
                if piece:
                    written += self._protocol.send(h11.Data(piece)) or b""
            written += self._protocol.send(_END) or b""
        except h11.LocalProtocolError as error:
            raise httpcore.LocalProtocolError(str(error)) from error
        # a server that wants no more of the request may have answered all the same
        with contextlib.suppress(httpcore.WriteError):
            await self._stream.write(written)

    async def _receive(self) -> h11.Event | type[h11.PAUSED]:
        while True:
            try:
                event = self._protocol.next_event()
            except h11.RemoteProtocolError as error:
                raise httpcore.RemoteProtocolError(str(error)) from error
            if event is not h11.NEED_DATA:
                return event  # type: ignore[return-value]
            await self._read()

    async def _read(self) -> None:
        data = await self._stream.read(_READ)
        if not data and self._protocol.their_state is h11.SEND_RESPONSE:
            raise httpcore.RemoteProtocolError("Server disconnected without sending a response.")
        self._protocol.receive_data(data)


class _Body(httpx.AsyncByteStream):
    """An answer's body as httpx reads it."""

    def __init__(self, connection: Http11Connection) -> None:
        self._connection: Http11Connection | None = connection

    def __aiter__(self) -> AsyncIterator[bytes]:
        assert self._connection is not None
        return self._connection.body()

    async def aclose(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.finished()
