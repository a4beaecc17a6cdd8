"""What a hook left in its directory."""

from __future__ import annotations

import mimetypes
import os
import stat
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

#: More files than this are counted but not listed.
LISTED = 5_000
_OWN = frozenset({"stdout.log", "stderr.log", "cmd.sh", "hook.pid"})
_TYPES = {
    ".jsonl": "application/jsonl",
    ".ndjson": "application/jsonl",
    ".md": "text/markdown",
    ".warc": "application/warc",
    ".webp": "image/webp",
    ".woff2": "font/woff2",
    ".mjs": "text/javascript",
    ".js": "text/javascript",
    ".ico": "image/x-icon",
    ".yaml": "application/yaml",
    ".yml": "application/yaml",
}
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_UNKNOWN = "application/octet-stream"


@dataclass(frozen=True, slots=True)
class OutputFile:
    """One regular file."""

    path: str
    extension: str
    mimetype: str
    size: int

    def described(self) -> dict[str, Any]:
        """As a row of results tells of it."""
        return {"extension": self.extension, "mimetype": self.mimetype, "size": self.size}


@dataclass(frozen=True, slots=True)
class Output:
    """All regular files below a directory."""

    files: tuple[OutputFile, ...] = ()
    count: int = 0
    size: int = 0
    #: By what they weigh, heaviest first.
    mimetypes: tuple[str, ...] = field(default=())


def survey(directory: Path) -> Output:
    """The output in ``directory``; links are neither followed nor listed, a link or nothing in its place is empty."""
    files: list[OutputFile] = []
    weights: Counter[str] = Counter()
    count = 0
    for path, size in () if directory.is_symlink() else _regular(directory, ""):
        count += 1
        kind = mimetype(path)
        weights[kind] += size
        if len(files) < LISTED:
            files.append(OutputFile(path, os.path.splitext(path)[1].lstrip(".").lower(), kind, size))
    files.sort(key=lambda file: file.path)
    kinds = tuple(kind for kind, _ in sorted(weights.items(), key=lambda item: (-item[1], item[0])))
    return Output(tuple(files), count, sum(weights.values()), kinds)


def open_output(directory: Path, path: str) -> BinaryIO:
    """A file that :func:`survey` listed, if that is what is still there: no link is followed, no pipe waited for.

    Raises OSError.
    """
    *folders, name = path.split("/")
    inside = os.open(directory, _FOLDER)
    try:
        for folder in folders:
            outer, inside = inside, os.open(_step(folder), _FOLDER, dir_fd=inside)
            os.close(outer)
        file = os.fdopen(os.open(_step(name), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=inside), "rb")
    finally:
        os.close(inside)
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(f"{path} is no regular file")
    return file


def _step(name: str) -> str:
    if name in ("", ".", ".."):
        raise OSError(f'"{name}" is no name of a file')
    return name


def mimetype(path: str) -> str:
    """The MIME type a file's name promises."""
    extension = os.path.splitext(path)[1].lower()
    return _TYPES.get(extension) or mimetypes.guess_type(f"x{extension}", strict=False)[0] or _UNKNOWN


def _regular(directory: Path, below: str) -> Iterator[tuple[str, int]]:
    try:
        entries = list(os.scandir(directory))
    except OSError:
        return
    for entry in entries:
        name = f"{below}{entry.name}".encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        try:
            about = entry.stat(follow_symlinks=False)
        except OSError:
            continue
        if stat.S_ISDIR(about.st_mode):
            if entry.name != ".hooks":
                yield from _regular(Path(entry.path), f"{name}/")
        elif stat.S_ISREG(about.st_mode) and entry.name not in _OWN and not entry.name.endswith(".pid"):
            yield name, about.st_size
