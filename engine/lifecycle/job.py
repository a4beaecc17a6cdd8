"""A lifecycle job as the engine sees it, after its ``job.yaml`` was read and found valid."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from engine.clock import MILLISECOND, SECOND, Micros

Rotation = Literal["RoundRobin", "Sticky", "Random"]


@dataclass(frozen=True, slots=True)
class FieldRule:
    """What becomes one field of an item. ``selector`` "" is the container, ``attribute`` "" its text."""

    name: str
    selector: str
    attribute: str = ""


@dataclass(frozen=True, slots=True)
class Proxies:
    """The proxies of a job's requests."""

    rotate: Rotation
    urls: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Webhook:
    """Where new items are posted to."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    secret: str | None = None


@dataclass(frozen=True, slots=True)
class Notification:
    """What is said about new items. None = the default text."""

    timeout_ms: int = 5000
    title: str | None = None
    body: str | None = None
    command: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Tries:
    """How often something is tried; the pause doubles from ``backoff`` on."""

    max_attempts: int
    backoff: Micros


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One job of a site."""

    #: Unique in its site.
    id: str
    name: str
    url: str
    #: Set: a queue of pages.
    urls: tuple[str, ...] = ()
    selector: str
    fields: tuple[FieldRule, ...]
    interval: Micros = 600 * SECOND
    workers: int = 1
    enabled: bool = True
    #: Lower-cased, trimmed, none blank.
    keywords: tuple[str, ...] = ()
    search_fields: tuple[str, ...] = ()
    hash_fields: tuple[str, ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    proxies: Proxies | None = None
    webhook: Webhook | None = None
    #: None where it is switched off.
    notification: Notification | None = Notification()
    debug: bool = False
    hook_timeout: Micros = 60 * SECOND
    stagger: Micros = 200 * MILLISECOND
    fetch_retry: Tries = Tries(1, 1 * SECOND)
    webhook_retry: Tries = Tries(8, 1 * SECOND)

    @property
    def is_queue(self) -> bool:
        """Whether the workers take pages from a queue."""
        return bool(self.urls)

    @property
    def pages(self) -> tuple[str, ...]:
        """The page of each cycle of an iteration, in order."""
        return self.urls or (self.url,) * self.workers


def job_id(name: str) -> str:
    """The id that belongs to a job's name; "" where the name has no letter and no digit.

    >>> job_id("My Job!")
    'my_job'
    """
    return "".join(character.lower() if character.isalnum() else "_" for character in name).strip("_")
