"""When a failed op runs again: pure arithmetic."""

from __future__ import annotations

from random import Random

from engine.clock import SECOND, Micros
from engine.model import BackoffKind, RetryPolicy

LONGEST: Micros = 366 * 24 * 3600 * SECOND


def may_retry(policy: RetryPolicy, attempt: int) -> bool:
    """Whether a retryable failure of the counted ``attempt`` (from 1) leaves another one."""
    return attempt < policy.max_attempts


def delay(policy: RetryPolicy, attempt: int) -> Micros:
    """The pause after the failed ``attempt`` (from 1), capped by ``policy.maximum`` and by a year.

    >>> [delay(RetryPolicy(backoff=BackoffKind.EXPONENTIAL, initial=10), n) for n in (1, 2, 3)]
    [10, 20, 40]
    """
    initial = policy.initial if policy.initial > 0 else SECOND
    cap = policy.maximum if policy.maximum > 0 else LONGEST
    match policy.backoff:
        case BackoffKind.FIXED:
            pause = initial
        case BackoffKind.LINEAR:
            pause = initial * attempt
        case BackoffKind.EXPONENTIAL:
            multiplier = policy.multiplier if policy.multiplier > 0 else 2.0
            try:
                pause = int(initial * multiplier ** (attempt - 1))
            except OverflowError:
                pause = cap
    return min(pause, cap)


def jitter(policy: RetryPolicy, pause: Micros, rng: Random) -> Micros:
    """``pause`` with its random share: uniform in ``[pause * (1 - jitter), pause]``."""
    return round(pause * (1.0 - policy.jitter * rng.random()))
