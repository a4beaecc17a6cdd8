"""A response's body, decoded in bounded steps: a bomb never inflates further than its reader wants to read."""

from __future__ import annotations

import io
import zlib
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from typing import Protocol

import httpx
import zstandard

#: What a request offers, unless the op says otherwise.
ACCEPTED = "gzip, deflate, zstd"

_STEP = 256 << 10
#: A zstd block of 4 bytes can stand for 128 KiB: fed in such slices one step stays below 10 MiB.
_ZSTD_SLICE = 256
_MEMBER = b"\x1f\x8b"


class BodyTooLarge(Exception):
    """The decoded body passed its limit."""


class BadEncoding(Exception):
    """The body is not what its ``Content-Encoding`` says, or ends too early."""


class Kept(Protocol):
    """What takes the decoded pieces."""

    def write(self, piece: bytes, /) -> object: ...


class Nowhere:
    """For bodies that nobody wants: only their size counts."""

    def write(self, piece: bytes, /) -> None: ...


async def read_body(response: httpx.Response, limit: int, kept: io.BytesIO | Nowhere) -> int:
    """Read and decode the whole body into ``kept``; its size in bytes.

    Raises BodyTooLarge above ``limit`` bytes, BadEncoding, and what httpx raises.
    """
    decoders = _decoders(response.headers.get_list("content-encoding", split_commas=True))
    declared = response.headers.get("content-length", "")
    if not decoders and response.request.method != "HEAD" and declared.isdecimal() and int(declared[:20]) > limit:
        raise BodyTooLarge
    size = 0
    async for raw in _raw(response):
        for piece in _decoded(raw, decoders):
            size += len(piece)
            if size > limit:
                raise BodyTooLarge
            kept.write(piece)
    for decoder in decoders:
        decoder.close()
    return size


async def skip_body(response: httpx.Response, limit: int) -> None:
    """Read what is left so that the connection can be used again, unless it is more than ``limit`` raw bytes."""
    size = 0
    async for raw in _raw(response):
        size += len(raw)
        if size > limit:
            return


def _raw(response: httpx.Response) -> AsyncIterator[bytes]:
    assert isinstance(response.stream, httpx.AsyncByteStream)
    return aiter(response.stream)


class Decoder(Protocol):
    """One content coding, undone piece by piece."""

    def decode(self, data: bytes) -> Iterator[bytes]:
        """The decoded bytes of ``data``, in pieces of bounded size. Raises BadEncoding."""
        ...

    def close(self) -> None:
        """The body is over. Raises BadEncoding where the coded stream is not."""
        ...


class _Zlib:
    """gzip (of one or several members), or deflate with or without its zlib header."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._stream = zlib.decompressobj(31) if name == "gzip" else None
        self._began = False

    def decode(self, data: bytes) -> Iterator[bytes]:
        while data:
            if self._stream is None:
                has_header = data[0] & 0x0F == 8
                self._stream = zlib.decompressobj(15 if has_header else -15)
            if self._stream.eof:
                if self._name == "deflate" or not data.startswith(_MEMBER[: len(data)]):
                    return  # padding after the end, which everybody ignores
                self._stream = zlib.decompressobj(31)
            self._began = True
            try:
                yield self._stream.decompress(data, _STEP)
            except zlib.error as error:
                raise BadEncoding(f"the body is not {self._name}: {error}") from error
            data = self._stream.unused_data if self._stream.eof else self._stream.unconsumed_tail

    def close(self) -> None:
        if self._began and self._stream is not None and not self._stream.eof:
            raise BadEncoding(f"the {self._name} body ends too early")


class _Zstd:
    """zstd, of one or several frames."""

    def __init__(self) -> None:
        self._frames = zstandard.ZstdDecompressor(max_window_size=128 << 20)
        self._stream = self._frames.decompressobj()
        self._open = False

    def decode(self, data: bytes) -> Iterator[bytes]:
        for start in range(0, len(data), _ZSTD_SLICE):
            rest = data[start : start + _ZSTD_SLICE]
            while rest:
                if self._stream.eof:
                    self._stream = self._frames.decompressobj()
                try:
                    yield self._stream.decompress(rest)
                except zstandard.ZstdError as error:
                    raise BadEncoding(f"the body is not zstd: {error}") from error
                rest = self._stream.unused_data
                self._open = not self._stream.eof

    def close(self) -> None:
        if self._open:
            raise BadEncoding("the zstd body ends too early")


def _decoders(codings: Iterable[str]) -> Sequence[Decoder]:
    """What undoes the codings, the one applied last first; a body in an unknown coding stays as it came."""
    decoders: list[Decoder] = []
    for coding in codings:
        match coding.strip().lower():
            case "" | "identity":
                continue
            case "gzip" | "x-gzip":
                decoders.append(_Zlib("gzip"))
            case "deflate":
                decoders.append(_Zlib("deflate"))
            case "zstd":
                decoders.append(_Zstd())
            case _:
                return ()
    return decoders[::-1]


def _decoded(raw: bytes, decoders: Sequence[Decoder]) -> Iterator[bytes]:
    if not decoders:
        yield raw
        return
    for piece in decoders[0].decode(raw):
        yield from _decoded(piece, decoders[1:])
