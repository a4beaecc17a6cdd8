"""What a job's scripts are, what their hooks share, and how a call of one ends."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from engine.lifecycle.journal import Journal

#: What only the worker can do: name and arguments in, result out. Raises HostError.
Ask = Callable[[str, Mapping[str, Any]], Any]

#: In the order of the pipeline.
PIPELINE_HOOKS = (
    "before_fetch",
    "override_fetch",
    "after_fetch",
    "override_extract",
    "after_extract",
    "filter_item",
    "before_store",
    "before_notify",
    "before_webhook",
)
CYCLE_HOOKS = ("on_success", "on_error", "on_finally")
HOOKS = (*PIPELINE_HOOKS, *CYCLE_HOOKS, "on_finished")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobScripts:
    """A job's scripts as its iteration pinned them."""

    site: str
    job_id: str
    job_name: str
    #: ``hooks.js``, ``defer.js``, ``tests.js``, ``lib/….js`` of the job, ``site/lib/….js`` of the site; absent = none.
    files: Mapping[str, str]
    #: Where ``fs_read`` looks, in this order; the second is also reached as ``shared/…``.
    folder: Path | None = None
    shared: Path | None = None
    hook_seconds: float = 60.0
    heap_bytes: int = 256 << 20
    #: What ``env_get`` may read: names without their prefix.
    env: Mapping[str, str] = field(default_factory=dict)
    user_agent: str = "scraper"
    engine_version: str = ""

    def sources(self, names: Iterable[str]) -> list[tuple[str, str]]:
        """Name and text of those scripts that there are."""
        return [(name, self.files[name]) for name in names if name in self.files]

    @property
    def digest(self) -> str:
        """What tells these texts from others."""
        return hashlib.sha256(json.dumps(dict(self.files), sort_keys=True).encode()).hexdigest()


@dataclass(slots=True, kw_only=True)
class CycleContext:
    """What the hooks of one cycle share. ``kept`` and ``selector_matches`` are updated by every call."""

    cycle_id: str
    iteration_id: str
    worker_id: int
    journal: Journal
    #: The user's keys of ``ctx``, ``shared`` among them, as the last hook left them.
    kept: dict[str, Any] = field(default_factory=lambda: {"shared": {}})
    #: The envelope of the last fetch with its body, read when a script looks at it; None: there was no fetch yet.
    last_fetch: Callable[[], Mapping[str, Any] | None] | None = None
    selector_matches: int | None = None
    telemetry: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Called:
    """How a hook call ended.

    ``nil``: it returned null, undefined or false. ``value`` is what it returned where that was an object or an array;
    any other value is None with ``is_table`` false and means "go on with what there was".
    """

    outcome: Literal["absent", "returned", "threw"]
    nil: bool = False
    is_table: bool = False
    value: Any = None
    error: str = ""
    duration_ms: float = 0.0
    heap_bytes: int = 0
    heap_delta_bytes: int = 0
    #: It had ended before and was not called again.
    replayed: bool = False


def scope_of(site: str, cycle_id: str) -> str:
    """Whose calls of the store of all jobs belong together: what is forgotten when the cycle is over."""
    return f"{site}/{cycle_id}"
