"""How an execution ends, and the one place that chooses the transition."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import TypeAlias

from engine.clock import Micros
from engine.errors import OpError
from engine.model import EMPTY_RESULT, Lease, Op, Result
from engine.retry import delay, jitter, may_retry


@dataclass(frozen=True, slots=True)
class Succeeded:
    """The op is done; everything of ``result`` is kept."""

    result: Result


@dataclass(frozen=True, slots=True)
class Failed:
    """The op failed for good; ``evidence`` holds its log lines and artifacts."""

    error: OpError
    evidence: Result = EMPTY_RESULT


@dataclass(frozen=True, slots=True)
class RetryAt:
    """The op failed and runs again at the instant ``at``."""

    at: Micros
    error: OpError
    evidence: Result = EMPTY_RESULT


@dataclass(frozen=True, slots=True)
class Interrupted:
    """The op did not run to an end through no fault of its own: its attempt is refunded.

    ``at`` is the earliest instant to run it again (0 = at once), ``reason`` is for people.
    """

    reason: str
    at: Micros = 0


@dataclass(frozen=True, slots=True)
class Fenced:
    """A resolve-only claim was carried out: the op's inbox key is closed, its planned end stands."""


Outcome: TypeAlias = Succeeded | Failed | RetryAt | Interrupted | Fenced


def failure(op: Op, lease: Lease, error: OpError, evidence: Result, now: Micros, rng: Random) -> Failed | RetryAt:
    """The transition for a failed execution: a retry where the error, the policy and the attempts left allow it."""
    if not (error.retryable and may_retry(op.retry, lease.attempt)):
        return Failed(error, evidence)
    pause = jitter(op.retry, delay(op.retry, lease.attempt), rng)
    return RetryAt(now + max(pause, error.retry_after or 0), error, evidence)
