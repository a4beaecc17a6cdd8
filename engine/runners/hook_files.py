"""The directories of crawls and snapshots, as the ops around the hooks make, mark, tidy and read them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from engine.errors import OpError
from engine.hooks.files import open_output
from engine.hooks.layout import CLOSED, Place
from engine.hooks.process import pid_files
from engine.hooks.records import storable


def make_place(place: Place, data: Path) -> None:
    """The directory of a crawl or a snapshot. Raises OpError."""
    try:
        place.private.mkdir(parents=True, exist_ok=True)
        data.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OpError("hook_directory", f"{place.root}: {error.strerror}", retryable=True) from error


def mark_closed(place: Place) -> None:
    """Say to the daemons of a scope that all else is over. Raises OpError."""
    try:
        place.private.mkdir(parents=True, exist_ok=True)
        (place.private / CLOSED).touch()
    except OSError as error:
        raise OpError("hook_directory", f"{place.root}: {error.strerror}", retryable=True) from error


def tidy(place: Place) -> None:
    """Pid files of what has ended, and logs that nobody wrote to."""
    for file in pid_files(place.root):
        with suppress(OSError):
            file.unlink()
    for log in place.private.glob("*.log"):
        with suppress(OSError):
            if log.stat().st_size == 0:
                log.unlink()


def read_text(place: Place, results: Sequence[tuple[str, str]], left: int) -> str:
    """At most ``left`` bytes of the text files of (plugin, files as JSON)."""
    texts: list[str] = []
    for plugin, files in results:
        for name, about in sorted(json.loads(files).items()):
            if left <= 0 or about.get("mimetype") not in ("text/plain", "text/markdown"):
                continue
            with suppress(OSError, ValueError), open_output(place.plugin(plugin), name) as file:
                text = file.read(left)
                left -= len(text)
                texts.append(storable(text.decode("utf-8", "replace")))
    return "\n".join(texts)
