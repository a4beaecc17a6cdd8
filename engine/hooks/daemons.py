"""The daemons of a scope, as the hooks that run again see them.

A daemon is dismissed once the other hooks of its scope are over. A hook that runs again needs it all the same: it says
so in a file, which keeps a daemon that still runs; one that was dismissed is started again.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from engine.hooks.layout import CLOSED, Place, Traces
from engine.hooks.process import read_exit, read_record

_PID = ".pid.json"
_NEEDS = ".needs"


class State(StrEnum):
    """How a daemon stands."""

    #: It serves, or never will: it ended by itself.
    SETTLED = "settled"
    #: It is being started, or ended.
    CHANGING = "changing"
    #: It was told to end, and has.
    DISMISSED = "dismissed"


@dataclass(frozen=True, slots=True)
class Daemon:
    """A daemon that has run in a scope."""

    place: Place
    traces: Traces

    @property
    def label(self) -> str:
        """The label of its hook."""
        plugin, _, file = self.traces.base.name.partition(".on_")
        return f"{plugin}/on_{file}"

    @property
    def process(self) -> str:
        """Who ran it last."""
        record = read_record(self.traces.pid)
        return "" if record is None else record.process

    def state(self, patience: float) -> State:
        """How it stands; one that says nothing is waited for no longer than ``patience`` seconds."""
        record = read_record(self.traces.pid)
        if record is None:
            return State.SETTLED
        dismissed = self.traces.dismissed.exists()
        if record.alive():
            silent = not self.traces.stdout.exists() or self.traces.stdout.stat().st_size == 0
            coming = silent and time.time() - record.began < patience
            return State.CHANGING if coming or dismissed else State.SETTLED
        if dismissed:
            return State.DISMISSED
        # without an exit code it died with its worker: its own op runs again
        lost = read_exit(self.traces.exit) is None and record.orphaned()
        return State.CHANGING if lost else State.SETTLED


def daemons(places: Iterable[Place]) -> Iterator[Daemon]:
    """The daemons of the scopes, in the order in which they were started."""
    for place in places:
        found = (Traces(file.with_name(file.name.removesuffix(_PID))) for file in place.private.glob(f"*{_PID}"))
        of_place = (Daemon(place, traces) for traces in found if ".daemon." in traces.base.name)
        yield from sorted(of_place, key=lambda one: one.label.partition("/")[::-1])


def need(places: Sequence[Place], traces: Traces) -> None:
    """Keep the daemons of the scopes for a hook."""
    for place in places:
        with suppress(OSError):
            _needs(place, traces).touch()


def need_no_more(places: Sequence[Place], traces: Traces) -> None:
    """The hook has ended."""
    for place in places:
        with suppress(OSError):
            _needs(place, traces).unlink(missing_ok=True)


def is_over(place: Place) -> bool:
    """Whether all that daemons of the scope serve is over."""
    private = place.private
    return (private / CLOSED).exists() and not any(private.glob(f"*{_NEEDS}"))


def _needs(place: Place, traces: Traces) -> Path:
    # hooks of several snapshots may need a daemon of their crawl
    return place.private / f"{traces.base.parent.parent.name}.{traces.base.name}{_NEEDS}"
