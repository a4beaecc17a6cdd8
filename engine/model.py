"""The vocabulary of the engine: frozen values that every layer may import.

JSON travels through the engine as text (:data:`JsonText`), never re-parsed on the way, so that key order and
number spelling stay as the script produced them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple, TypeAlias

from engine.clock import SECOND, Micros

JsonText: TypeAlias = str

NULL: JsonText = "null"


class OpStatus(StrEnum):
    """The visible state of an op."""

    PENDING = "pending"
    READY = "ready"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELED = "canceled"


TERMINAL = frozenset({OpStatus.SUCCEEDED, OpStatus.FAILED, OpStatus.CANCELED})


class WorkflowStatus(StrEnum):
    """The visible state of a workflow."""

    PENDING = "pending"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELED = "canceled"


class AttemptState(StrEnum):
    """How one claim of an op ended."""

    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    RETRIED = "retried"
    LEASE_LOST = "lease_lost"
    INTERRUPTED = "interrupted"
    CANCELED = "canceled"


class EdgeKind(StrEnum):
    """What satisfies a dependency.

    ``success``: the target succeeded; its failure or cancellation cancels the dependent.
    ``terminal``: the target ended in any state.
    ``settled``: the target ended, or its first attempt did (an op waiting for a retry counts as over).
    ``begun``: as ``settled``, or the target said while it ran that nobody need wait for its end.
    """

    SUCCESS = "success"
    TERMINAL = "terminal"
    SETTLED = "settled"
    BEGUN = "begun"


class BackoffKind(StrEnum):
    """How the delay between attempts grows."""

    FIXED = "fixed"
    LINEAR = "linear"
    EXPONENTIAL = "exponential"


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """When a retryable failure runs again. ``max_attempts`` counts all executions; 0 and 1 mean never."""

    max_attempts: int = 0
    backoff: BackoffKind = BackoffKind.FIXED
    initial: Micros = SECOND
    #: 0 = no cap.
    maximum: Micros = 0
    multiplier: float = 2.0
    #: Share of the delay that is drawn at random, 0 to 1.
    jitter: float = 0.0


NO_RETRY = RetryPolicy()


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePolicy:
    """What bounds a queue, for all workers together."""

    #: None = bounded by the workers' concurrency only.
    max_in_flight: int | None = None
    #: Tokens per second; None = no rate limit.
    rate: float | None = None
    burst: float = 1.0


UNLIMITED = QueuePolicy()


@dataclass(frozen=True, slots=True)
class Dependency:
    """One edge of the graph: the op waits for ``op_id`` of the same workflow."""

    op_id: str
    kind: EdgeKind = EdgeKind.SUCCESS


@dataclass(frozen=True, slots=True, kw_only=True)
class NewOp:
    """An op that is asked for; :class:`Op` is one that is stored."""

    id: str
    kind: str
    site: str
    #: False where the id was made up for the author (``…:emit:001``).
    explicit_id: bool = True
    #: Another workflow than the emitter's; "" = its own.
    workflow_id: str = ""
    queue: str = ""
    dedup_key: str = ""
    parent_id: str | None = None
    input: JsonText = NULL
    metadata: Mapping[str, str] = field(default_factory=dict)
    retry: RetryPolicy = NO_RETRY
    depends_on: tuple[Dependency, ...] = ()
    #: The only machine that may run the op; "" = any.
    machine: str = ""
    #: Not to be started before this instant; 0 = at once.
    not_before: Micros = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class NewWorkflow:
    """A graph of ops to be stored in one transaction."""

    id: str
    site: str
    name: str
    input: JsonText = "{}"
    metadata: Mapping[str, str] = field(default_factory=dict)
    ops: tuple[NewOp, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Workflow:
    """A stored workflow, as scripts see it."""

    id: str
    site: str
    name: str
    status: WorkflowStatus
    input: JsonText
    metadata: Mapping[str, str]


# made for every claim, by the thousands: named tuples cost a tenth of frozen dataclasses


class Op(NamedTuple):
    """A stored op. ``pk`` is its surrogate, never used twice in one engine DB."""

    pk: int
    id: str
    workflow: Workflow
    kind: str
    site: str
    queue: str
    dedup_key: str
    parent_id: str | None
    input: JsonText
    metadata: Mapping[str, str]
    retry: RetryPolicy
    #: Raised only when an op whose effects may stand is deliberately run again.
    generation: int
    created_at: Micros


class Lease(NamedTuple):
    """A worker's fenced, expiring claim on one op."""

    op_pk: int
    token: str
    worker_id: str
    acquired_at: Micros
    expires_at: Micros
    #: The counted attempt this claim is, from 1.
    attempt: int
    #: How often the op was claimed before, refunded and lost claims included: > 0 means that an inbox row may exist.
    earlier_claims: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A row for the site DB: upserted by (collection, key)."""

    collection: str
    key: str
    data: JsonText


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """Named bytes produced by an op, content-addressed by SHA-256 (hex)."""

    id: str
    name: str
    kind: str
    content_type: str
    metadata: Mapping[str, str]
    sha256: str
    size: int
    #: None where the bytes are stored already.
    body: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Binary:
    """A program on one machine: where it is, or why it is not there."""

    name: str
    #: ``succeeded`` or ``failed``.
    status: str = "succeeded"
    abspath: str = ""
    version: str = ""
    sha256: str = ""
    #: Who found or installed it.
    provider: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineFacts:
    """What hooks have found out about the machine they run on."""

    #: Programs by name.
    binaries: Mapping[str, Binary] = field(default_factory=dict)
    #: Configuration that hooks have set for all hooks of the machine.
    config: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """One line a script logged."""

    at: Micros
    message: str
    level: str = "info"


@dataclass(frozen=True, slots=True, kw_only=True)
class Validators:
    """What a server said to recognise a page by, when the page was last seen whole. Nothing said = forget the page."""

    #: Who remembers: pages of different scopes know nothing of each other.
    scope: str
    #: Which request, by a hash of everything that the answer may depend on.
    variant: str
    #: Where the answer came from, after redirects.
    url: str
    etag: str = ""
    last_modified: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What an execution produced. Of a failed one only ``logs`` and ``artifacts`` are kept."""

    data: JsonText = NULL
    records: tuple[Record, ...] = ()
    artifacts: tuple[Artifact, ...] = ()
    emitted: tuple[NewOp, ...] = ()
    logs: tuple[LogLine, ...] = ()
    #: What changed in the workflow's cookie jar: a JSON object whose members replace the jar's, null removing them.
    cookies: JsonText | None = None
    #: What the next request for the page can be conditional on; None = as before. Kept only where the op succeeded.
    validators: Validators | None = None
    #: The schedule that made the workflow goes on: it is due again this long after the op's end, whatever else of the
    #: workflow still runs. Kept only where the op succeeded.
    reschedule: Micros | None = None


EMPTY_RESULT = Result()
