"""Garbage collection beside live workers: old rows of the engine DB, free pages, inbox rows of the site DBs."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from typing import TypeVar

from engine.clock import MINUTE, Micros
from engine.config import Settings
from engine.outputs import forget_snapshots
from engine.plugins.registry import Registry
from engine.projection.databases import OpenDatabases
from engine.store.retention import Cutoffs, Pruned
from engine.store.store import Store

T = TypeVar("T")

#: Inbox rows are kept at least this long: they are what makes a repeated op harmless.
INBOX_DAYS_AT_LEAST: Micros = 7 * 24 * 60 * MINUTE
#: After a slice the workers get this many times its duration to themselves.
_COURTESY = 4.0
_LONGEST_PAUSE = 0.5


@dataclass(slots=True)
class Collected:
    """What a collection did."""

    pruned: Pruned = field(default_factory=Pruned)
    inbox_rows: int = 0
    #: Of crawls; the last good one of each URL stays.
    snapshots: int = 0
    bytes_before: int = 0
    bytes_after: int = 0


def cutoffs(settings: Settings, now: Micros) -> Cutoffs:
    """What the configuration says about retention, as instants."""
    kept = settings.retention
    return Cutoffs(
        workflows=None if kept.workflows is None else now - kept.workflows,
        results=None if kept.results is None else now - kept.results,
        artifacts=None if kept.artifacts is None else now - kept.artifacts,
        logs=None if kept.logs is None else now - kept.logs,
    )


def collect(
    settings: Settings, registry: Registry, store: Store, old: Cutoffs, tell: Callable[[Pruned], None] = lambda _: None
) -> Collected:
    """Forget what is old, slice by slice. Stopped at any point, it has simply forgotten less."""
    done = Collected(bytes_before=store.size())
    while pruned := _courteously(lambda: store.prune(old)):
        done.pruned.add(pruned)
        tell(done.pruned)
    if old.workflows is not None:
        done.inbox_rows = _collect_inboxes(settings, registry, store, old.workflows)
        done.snapshots = sum(
            forget_snapshots(settings, store.clock, site, old.workflows) for site in registry.sites.values()
        )
    free = _courteously(store.shrink)
    while free and (left := _courteously(store.shrink)) < free:
        free = left
    done.bytes_after = store.size()
    return done


def _courteously(step: Callable[[], T]) -> T:
    began = time.monotonic()
    result = step()
    time.sleep(min(_LONGEST_PAUSE, (time.monotonic() - began) * _COURTESY))
    return result


def _collect_inboxes(settings: Settings, registry: Registry, store: Store, cutoff: Micros) -> int:
    before = min(cutoff, store.clock.now() - INBOX_DAYS_AT_LEAST)
    databases = OpenDatabases(settings.sites_dir, settings.site_database_url, store.clock)
    with closing(databases):
        count = 0
        for site in registry.sites.values():
            live = store.oldest_live(site.name)
            count += databases.collect(site, before if live is None else min(before, live - 1))
        return count
