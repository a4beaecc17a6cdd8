"""A hook's stdout: JSON lines among whatever else it prints, read as a stream with bounded memory."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

#: A longer line is dropped.
LONGEST_LINE = 4 << 20
_HALF_SURROGATE = re.compile("[\ud800-\udfff]")

ACTED_UPON = frozenset({"ArchiveResult", "Snapshot", "Tag", "Binary", "Crawl", "Machine"})
KNOWN = ACTED_UPON | {"Process", "BinaryRequest"}
TERMINAL = frozenset({"succeeded", "failed", "skipped", "noresults"})
_SPELLINGS = {"noresult": "noresults", "no_results": "noresults", "success": "succeeded", "error": "failed"}


@dataclass(frozen=True, slots=True)
class HookRecord:
    """One line that said something. ``line`` counts the lines of stdout from 1."""

    line: int
    type: str
    data: Mapping[str, Any]


@dataclass(slots=True)
class RecordStream:
    """Bytes in, records out; what is wrong with a line goes into ``warnings`` and never further."""

    longest: int = LONGEST_LINE
    warnings: list[str] = field(default_factory=list)
    lines: int = 0
    _pieces: list[bytes] = field(default_factory=list)
    _size: int = 0
    _dropping: bool = False
    #: What is dropped is a line of plain text.
    _plain: bool = False
    _told: set[str] = field(default_factory=set)

    def feed(self, chunk: bytes) -> Iterator[HookRecord]:
        """The records that ``chunk`` completes."""
        at = 0
        while at < len(chunk):
            if not (self._pieces or self._dropping):
                at = self._skip(chunk, at)
            end = chunk.find(b"\n", at)
            if end < 0:
                self._keep(chunk[at:])
                return
            self._keep(chunk[at:end])
            if self._pieces or self._dropping or end > at:
                yield from self._end_line()
            else:
                self.lines += 1
            at = end + 1

    def _skip(self, chunk: bytes, at: int) -> int:
        """Where the next line that may be a record begins, from the line start ``at``: most output is none."""
        brace = chunk.find(b"{", at)
        while brace >= 0:
            start = chunk.rfind(b"\n", at, brace) + 1 or at
            if not chunk[start:brace].strip():
                self.lines += chunk.count(b"\n", at, start)
                return start
            following = chunk.find(b"\n", brace)
            brace = -1 if following < 0 else chunk.find(b"{", following)
        start = chunk.rfind(b"\n", at) + 1 or at
        self.lines += chunk.count(b"\n", at, start)
        return start

    def close(self) -> Iterator[HookRecord]:
        """The record of a last line without its newline."""
        if self._pieces or self._dropping:
            yield from self._end_line()

    def _keep(self, piece: bytes) -> None:
        if self._dropping or not piece:
            return
        if not self._pieces and piece.strip() and not piece.lstrip().startswith(b"{"):
            self._dropping, self._plain = True, True
        elif self._size + len(piece) > self.longest:
            self._dropping = True
            self._pieces.clear()
        else:
            self._pieces.append(piece)
            self._size += len(piece)

    def _end_line(self) -> Iterator[HookRecord]:
        self.lines += 1
        line, dropped, plain = b"".join(self._pieces), self._dropping, self._plain
        self._pieces.clear()
        self._size, self._dropping, self._plain = 0, False, False
        if dropped:
            if plain:
                return
            self._warn(f"line {self.lines} is longer than {self.longest} bytes: dropped", "long")
            return
        record = self._read(line)
        if record is not None:
            yield record

    def _read(self, line: bytes) -> HookRecord | None:
        if not line.lstrip().startswith(b"{"):
            return None
        try:
            value = json.loads(line.decode("utf-8"))
        except UnicodeDecodeError:
            self._warn(f"line {self.lines} is not UTF-8: ignored", "utf-8")
            return None
        except (ValueError, RecursionError):
            self._warn(f"line {self.lines} looks like JSON but is not: ignored", "json")
            return None
        kind = value.get("type")
        if not isinstance(kind, str):
            return None
        if kind not in KNOWN:
            self._warn(f'line {self.lines}: records of type "{kind[:50]}" are not known: ignored', f"type {kind[:50]}")
            return None
        return HookRecord(self.lines, kind, value)

    def _warn(self, message: str, sort: str) -> None:
        """Once for each sort of fault: a hook that is wrong a million times is told once."""
        if sort not in self._told and len(self._told) < 100:
            self._told.add(sort)
            self.warnings.append(message)


def status_of(record: Mapping[str, Any]) -> str | None:
    """The terminal status an ArchiveResult claims, in our spelling; None where it claims none."""
    status = record.get("status")
    if not isinstance(status, str):
        return None
    status = _SPELLINGS.get(status.strip().lower(), status.strip().lower())
    return status if status in TERMINAL else None


def text_in(record: Mapping[str, Any], key: str, longest: int = 100_000) -> str:
    """A text member that any database can hold; "" where there is none."""
    value = record.get(key)
    if value is None or isinstance(value, bool):
        return ""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return storable(text)[:longest]


def storable(text: str) -> str:
    """``text`` without what databases refuse: null characters and half surrogates."""
    return _HALF_SURROGATE.sub("\ufffd", text.replace("\0", ""))
