"""The name of a hook says when it runs and whether anybody waits for it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

_NAME = re.compile(r"^on_(?P<event>[A-Za-z][A-Za-z0-9]*)__(?P<rest>.+)$")
_NUMBERED = re.compile(r"^(?P<number>\d\d)_(?P<description>.+)$")

#: Events that are discovered, and the names they had or will have.
EVENTS = (
    "Snapshot",
    "SnapshotEnd",
    "Crawl",
    "CrawlSetup",
    "CrawlEnd",
    "CrawlCleanup",
    "Binary",
    "BinaryRequest",
    "Dependency",
)
#: Events whose hooks need no number: they install things, one after another until one succeeds.
BINARY_EVENTS = frozenset({"Binary", "BinaryRequest", "Dependency"})
#: The step of hooks without a number: they run last.
LAST_STEP = 9


class Ground(StrEnum):
    """Who waits for a hook."""

    #: The next hook does.
    FOREGROUND = "foreground"
    #: Only the seal does.
    BACKGROUND = "background"
    #: As BACKGROUND; the next hook waits until it has said something.
    FINITE = "finite"
    #: Nobody: it serves the other hooks and is ended after them.
    DAEMON = "daemon"


@dataclass(frozen=True, slots=True)
class HookName:
    """A hook's file name, understood."""

    file: str
    event: str
    number: int | None
    description: str
    ground: Ground
    extension: str

    @property
    def step(self) -> int:
        """The first digit of the number."""
        return LAST_STEP if self.number is None else self.number // 10

    @property
    def background(self) -> bool:
        """Whether the next hook starts before this one ends."""
        return self.ground is not Ground.FOREGROUND

    @property
    def place(self) -> tuple[int, str]:
        """Where the hook stands among those of its event: numbered ones by file name, the others after them."""
        return (1 if self.number is None else 0, self.file)


def parse_name(file: str) -> HookName | None:
    """The parts of a hook's file name; None for a file that is no hook.

    >>> name = parse_name("on_Snapshot__09_chrome.daemon.bg.js")
    >>> name.event, name.number, name.step, name.ground.value, name.extension
    ('Snapshot', 9, 0, 'daemon', 'js')
    """
    found = _NAME.match(file)
    if found is None:
        return None
    stem, _, extension = found["rest"].rpartition(".")
    if not stem:
        stem, extension = extension, ""
    numbered = _NUMBERED.match(stem)
    words = (numbered["description"] if numbered else stem).split(".")
    return HookName(
        file=file,
        event=found["event"],
        number=int(numbered["number"]) if numbered else None,
        description=words[0],
        ground=_ground(words[1:]),
        extension=extension,
    )


def _ground(words: list[str]) -> Ground:
    if "bg" not in words:
        return Ground.FOREGROUND
    if "daemon" in words:
        return Ground.DAEMON
    return Ground.FINITE if "finite" in words else Ground.BACKGROUND
