"""Where hooks work: one directory for each crawl and snapshot, one below it for each plugin."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from engine.clock import SECOND, Micros
from engine.hooks.urls import domain

#: The engine's own files are kept here, beside the directories of the plugins and never in them.
PRIVATE = ".hooks"
#: A file there that says that all but the daemons of the scope is over.
CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class Traces:
    """The files the engine keeps about one run of a hook."""

    base: Path

    def _file(self, suffix: str) -> Path:
        return self.base.with_name(f"{self.base.name}.{suffix}")

    @property
    def pid(self) -> Path:
        """Who runs it: pid, start time, boot, owner."""
        return self._file("pid.json")

    @property
    def exit(self) -> Path:
        """Its exit code, written when it has ended."""
        return self._file("exit")

    @property
    def stdout(self) -> Path:
        return self._file("stdout.log")

    @property
    def stderr(self) -> Path:
        return self._file("stderr.log")

    @property
    def dismissed(self) -> Path:
        """Says that it was told to end because what it served is over."""
        return self._file("dismissed")

    @property
    def waiting(self) -> Path:
        """Since when it waits for a daemon that is being started again."""
        return self._file("waiting")

    @property
    def queued(self) -> Path:
        """Since when it waits for its turn among the foreground hooks."""
        return self._file("queued")

    def forget(self) -> None:
        """Remove what an earlier attempt left."""
        for file in (self.exit, self.dismissed, self.pid):
            file.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class Place:
    """The directory of one crawl, snapshot or binary."""

    root: Path

    def plugin(self, name: str) -> Path:
        """Where the plugin's hooks work."""
        return self.root / name

    @property
    def private(self) -> Path:
        """Where the engine keeps its files about the hooks."""
        return self.root / PRIVATE

    def traces(self, plugin: str, file: str) -> Traces:
        """The engine's files about one hook."""
        return Traces(self.private / f"{plugin}.{file}")


def crawl_place(data: Path, user: str, crawl_id: str, created: Micros) -> Place:
    """The crawl's directory."""
    return Place(data / "users" / safe(user) / "crawls" / _day(created) / safe(crawl_id))


def snapshot_place(data: Path, user: str, snapshot_id: str, url: str, created: Micros) -> Place:
    """The snapshot's directory."""
    return Place(data / "users" / safe(user) / "snapshots" / _day(created) / domain(url) / safe(snapshot_id))


def safe(name: str) -> str:
    """``name`` as the name of one directory.

    >>> safe("../a b")
    '_.._a_b'
    """
    text = re.sub(r"[^A-Za-z0-9._-]", "_", name)
    return f"_{text}" if text.startswith((".", "-")) or not text else text[:150]


def _day(instant: Micros) -> str:
    return datetime.fromtimestamp(instant / SECOND, UTC).strftime("%Y%m%d")
