"""What goes into the store and comes out of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from engine.clock import Micros
from engine.errors import OpError
from engine.model import Lease, Op, Workflow
from engine.outcome import Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerInfo:
    """One worker process. ``process`` is an identity that neighbours on the same machine can check for life."""

    id: str
    name: str
    machine: str
    process: str
    hostname: str
    started_at: Micros


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRequest:
    """Who asks for how many ops. ``sites`` None means all sites."""

    worker_id: str
    machine: str
    limit: int
    lease_duration: Micros
    sites: frozenset[str] | None = None


class LeasedOp(NamedTuple):
    """An op under lease.

    ``planned`` is set on a resolve-only claim: the op has ended (canceled) or is about to (too many lost leases), and
    the worker only closes its inbox key. ``fence`` names older generations whose keys must be closed first.
    """

    op: Op
    lease: Lease
    planned: OpError | None = None
    fence: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Claim:
    """The ops leased, and the instant at which something now delayed or limited becomes claimable (None: unknown)."""

    leased: tuple[LeasedOp, ...]
    next_due: Micros | None


class Settlement(NamedTuple):
    """One outcome to be committed under its lease."""

    lease: Lease
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Applied:
    """The outcome is committed (now, or by an earlier try whose answer got lost)."""


@dataclass(frozen=True, slots=True)
class LostLease:
    """The lease had passed on; nothing was written."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The outcome cannot stand (a duplicate op id, an unknown workflow); nothing of it was written."""

    error: OpError


Verdict: TypeAlias = Applied | LostLease | Refused


@dataclass(frozen=True, slots=True)
class SettleReport:
    """One verdict per settlement, in order, how many ops became ready, and what was leased along with it."""

    verdicts: tuple[Verdict, ...]
    made_ready: int
    claim: Claim | None = None


@dataclass(frozen=True, slots=True)
class Submitted:
    """A stored workflow, the ids of its ops in order, and a warning for the author."""

    workflow: Workflow
    op_ids: tuple[str, ...]
    warning: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Forked:
    """A workflow made from another: ops whose outcome was kept, put back to run again, and left for others to emit."""

    workflow_id: str
    source_id: str
    kept: int
    #: Of those, the ones that failed or were canceled.
    kept_unsuccessful: int
    again: int
    dropped: int
