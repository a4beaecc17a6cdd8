"""Frames between the worker and its JS children: a JSON header and binary attachments, length-prefixed."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

_SIZES = struct.Struct("=QQ")
#: Room for a result with its artifacts; a child that sends more is broken.
_LARGEST = 1 << 32


@dataclass(frozen=True, slots=True)
class Frame:
    """One message."""

    header: dict[str, Any]
    attachments: tuple[bytes, ...] = ()


_encode = json.JSONEncoder(separators=(",", ":")).encode


def pack(header: dict[str, Any], attachments: Sequence[bytes] = ()) -> bytes:
    """A frame as bytes."""
    if not attachments:
        text = _encode(header).encode()
        return _SIZES.pack(len(text), 0) + text
    sizes = [len(item) for item in attachments]
    text = _encode(header | {"sizes": sizes}).encode()
    return _SIZES.pack(len(text), sum(sizes)) + text + b"".join(attachments)


def _unpack(data: bytes, length: int) -> Frame:
    """A frame whose header has ``length`` bytes and whose attachments are the rest."""
    header = json.loads(data[:length].decode())
    attachments, at = [], length
    for size in header.pop("sizes", ()):
        attachments.append(data[at : at + size])
        at += size
    return Frame(header, tuple(attachments))


def _sizes(prefix: bytes) -> tuple[int, int]:
    text, rest = _SIZES.unpack(prefix)
    if text + rest > _LARGEST:
        raise EOFError("the frame is larger than any that could be meant")
    return text, rest


class ChildChannel:
    """The child's blocking end."""

    def __init__(self, end: socket.socket) -> None:
        self._file = end.makefile("rwb")

    def send(self, header: dict[str, Any], attachments: Sequence[bytes] = ()) -> None:
        """Write one frame."""
        self._file.write(pack(header, attachments))
        self._file.flush()

    def receive(self) -> Frame:
        """Read one frame. Raises EOFError when the worker is gone."""
        text, rest = _sizes(self._exactly(_SIZES.size))
        return _unpack(self._exactly(text + rest), text)

    def _exactly(self, count: int) -> bytes:
        data = self._file.read(count)
        if data is None or len(data) < count:
            raise EOFError
        return data


class ParentChannel:
    """The worker's asynchronous end."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def send(self, header: dict[str, Any], attachments: Sequence[bytes] = ()) -> None:
        """Write one frame."""
        self._writer.write(pack(header, attachments))
        await self._writer.drain()

    async def receive(self) -> Frame:
        """Read one frame. Raises EOFError when the child is gone."""
        try:
            text, rest = _sizes(await self._reader.readexactly(_SIZES.size))
            return _unpack(await self._reader.readexactly(text + rest), text)
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            raise EOFError from error

    def close(self) -> None:
        """Close this end."""
        self._writer.close()
