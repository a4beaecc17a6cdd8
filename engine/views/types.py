"""What people are shown of the engine DB. Instants are microseconds, JSON columns are parsed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engine.clock import Micros
from engine.errors import OpError


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorView:
    """Why something failed."""

    code: str
    message: str
    retryable: bool
    details: Any

    @property
    def summary(self) -> str:
        """One line, with the place in the author's script where there is one."""
        return OpError(self.code, self.message, details=self.details).summary


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueView:
    """The ops of a workflow in one queue, by status."""

    site: str
    queue: str
    ops: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureView:
    """An op that failed for good, or was canceled for a reason of its own."""

    op_id: str
    kind: str
    status: str
    error: ErrorView


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowView:
    """A workflow with its ops counted."""

    id: str
    site: str
    name: str
    status: str
    input: Any
    metadata: Mapping[str, str]
    created_at: Micros
    updated_at: Micros
    ops: Mapping[str, int]
    queues: tuple[QueueView, ...]
    #: The first of them; ``ops`` has the full count.
    failures: tuple[FailureView, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptView:
    """One claim of an op and how it ended."""

    number: int
    state: str
    worker: str
    claimed_at: Micros
    started_at: Micros | None
    ended_at: Micros | None
    error: ErrorView | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DependencyView:
    """An edge of the graph seen from the op that waits; status "unknown" where nobody emitted the id yet."""

    op_id: str
    required: bool
    status: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactView:
    """A stored artifact, without its bytes."""

    id: str
    name: str
    kind: str
    content_type: str
    size: int
    sha256: str
    metadata: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogView:
    """A line a script logged."""

    logged_at: Micros
    level: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OpView:
    """Everything known about one op."""

    id: str
    workflow_id: str
    site: str
    kind: str
    queue: str
    status: str
    parent_id: str | None
    dedup_key: str
    input: Any
    metadata: Mapping[str, str]
    #: As scripts write it: ``maxAttempts``, ``backoffKind``, durations as Go strings.
    retry: Mapping[str, Any]
    created_at: Micros
    updated_at: Micros
    #: When it may next be claimed, while it waits for a retry or a set time.
    ready_at: Micros | None
    data: Any
    records: int
    emitted_ids: tuple[str, ...]
    error: ErrorView | None
    dependencies: tuple[DependencyView, ...]
    attempts: tuple[AttemptView, ...]
    artifacts: tuple[ArtifactView, ...]
    logs: tuple[LogView, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationView:
    """A migration of the engine DB; ``applied_at`` None = pending."""

    version: int
    name: str
    applied_at: Micros | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """What an engine DB holds."""

    workflows: int
    workflow_status: Mapping[str, int]
    ops: Mapping[str, int]
    leases_active: int
    leases_expired: int
    results: int
    artifacts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineView:
    """An engine DB from outside; ``counts`` None where it does not exist or was never initialised."""

    path: str
    exists: bool
    initialized: bool
    current_version: int | None
    latest_known_migration: int
    up_to_date: bool
    migrations: tuple[MigrationView, ...]
    counts: Counts | None
