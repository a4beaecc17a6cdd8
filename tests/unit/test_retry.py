"""When a failed op runs again."""

from __future__ import annotations

from random import Random

import pytest

from engine.clock import SECOND
from engine.model import BackoffKind, RetryPolicy
from engine.retry import LONGEST, delay, jitter, may_retry


def test_max_attempts_counts_all_executions() -> None:
    policy = RetryPolicy(max_attempts=3)
    assert [may_retry(policy, attempt) for attempt in (1, 2, 3)] == [True, True, False]


@pytest.mark.parametrize("attempts", [0, 1])
def test_no_or_one_attempt_means_no_retry(attempts: int) -> None:
    assert not may_retry(RetryPolicy(max_attempts=attempts), 1)


@pytest.mark.parametrize(
    ("backoff", "expected"),
    [
        (BackoffKind.FIXED, [10, 10, 10, 10]),
        (BackoffKind.LINEAR, [10, 20, 30, 35]),
        (BackoffKind.EXPONENTIAL, [10, 20, 35, 35]),
    ],
)
def test_delay_grows_by_kind_and_stops_at_the_cap(backoff: BackoffKind, expected: list[int]) -> None:
    policy = RetryPolicy(backoff=backoff, initial=10, maximum=35)
    assert [delay(policy, attempt) for attempt in (1, 2, 3, 4)] == expected


def test_missing_values_fall_back_to_one_second_and_doubling() -> None:
    policy = RetryPolicy(backoff=BackoffKind.EXPONENTIAL, initial=0, multiplier=0)
    assert [delay(policy, attempt) for attempt in (1, 2)] == [SECOND, 2 * SECOND]


def test_a_growth_past_all_numbers_is_capped() -> None:
    policy = RetryPolicy(backoff=BackoffKind.EXPONENTIAL, multiplier=10.0)
    assert delay(policy, 100_000) == LONGEST


def test_jitter_only_shortens_and_stays_within_its_share() -> None:
    policy = RetryPolicy(jitter=0.5)
    rng = Random(1)
    drawn = [jitter(policy, 1000, rng) for _ in range(200)]
    assert min(drawn) >= 500
    assert max(drawn) <= 1000
    assert len(set(drawn)) > 50


def test_without_jitter_the_delay_is_exact() -> None:
    assert jitter(RetryPolicy(), 1000, Random(1)) == 1000
