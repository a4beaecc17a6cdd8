"""What a worker is told and what it reports."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from engine.clock import SECOND, Micros
from engine.model import Op, WorkflowStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """How one worker process works. Durations are microseconds."""

    worker_id: str = "scraper-worker"
    #: Names the machine whose site DBs are local; ops pinned to another machine are left alone. "" = this one.
    machine_id: str = ""
    max_workers: int = 4
    poll_interval: Micros = SECOND // 4
    lease_duration: Micros = 30 * SECOND
    drain_timeout: Micros = 30 * SECOND
    #: Only ops of these sites; None = of all.
    sites: frozenset[str] | None = None
    #: End when nothing is runnable, delayed or leased.
    until_idle: bool = False
    #: End when this workflow has ended.
    until_workflow: str | None = None
    #: End when this says so; asked after every claim round.
    until: Callable[[], bool] | None = None
    #: End after this many claim rounds; 0 = never.
    max_cycles: int = 0
    #: JS child processes; 0 = one per processor.
    js_processes: int = 0
    #: For whoever judges the report; the worker goes on after a failure.
    fail_on_error: bool = False


@dataclass(slots=True)
class WorkerReport:
    """What a worker did, counted as it happens."""

    worker_id: str = ""
    engine_db: str = ""
    sites_dir: str = ""
    cycles: int = 0
    #: Ops taken back from workers that died or froze.
    refreshed: int = 0
    processed: int = 0
    succeeded: int = 0
    retried: int = 0
    failed: int = 0
    interrupted: int = 0
    workflow_status: WorkflowStatus | None = None


class Observer(Protocol):
    """Is told what happens to ops, on the worker's event loop; must return at once."""

    def op_started(self, op: Op) -> None: ...

    def op_ended(self, op: Op, ending: str, detail: str) -> None:
        """``ending`` is ``succeeded``, ``retried``, ``failed``, ``interrupted``, ``canceled`` or ``lease_lost``."""
        ...

    def notice(self, message: str) -> None:
        """Something an operator should know (the database is locked, a worker died, a drain began)."""
        ...


class Silent:
    """An observer that looks away."""

    def op_started(self, op: Op) -> None: ...

    def op_ended(self, op: Op, ending: str, detail: str) -> None: ...

    def notice(self, message: str) -> None: ...
