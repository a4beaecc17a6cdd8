"""Turns in a round, and what pages are recognised by: exact whichever workers die."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from engine.clock import SECOND
from engine.codec import decode_result, encode_result
from engine.errors import LeaseLost, OpError
from engine.model import Result, Validators
from engine.outcome import Failed, Interrupted, RetryAt, Succeeded
from engine.store.retention import Cutoffs
from engine.store.store import Store
from engine.store.types import LeasedOp
from tests.factories import LEASE, claim, claim_one, new_op, settle, submit, succeed
from tests.fakes import FakeClock

BUSY = OpError("busy", "come back later", retryable=True)
SEEN = Validators(scope="site/shop", variant="v1", url="http://shop.example/", etag='"1"', last_modified="Monday")


def turn(store: Store, leased: LeasedOp, request: int = 1, name: str = "site/shop") -> int:
    return store.turn(leased.lease, name, request)


def rows(store: Store, table: str) -> int:
    with store.database.read() as connection:
        return int(connection.exec_driver_sql(f"SELECT count(*) FROM {table}").scalar_one())


def test_each_request_takes_the_next_turn_of_its_round(store: Store) -> None:
    """HTTP-71: rounds know nothing of each other."""
    submit(store, [new_op("a"), new_op("b")])
    first, second = claim(store).leased
    assert [turn(store, first), turn(store, second), turn(store, first, 2)] == [0, 1, 2]
    assert turn(store, first, 1, "job/shop/prices") == 0


def test_the_same_request_has_the_same_turn_whoever_makes_it(store: Store, clock: FakeClock) -> None:
    """HTTP-72: a lost lease and an interruption end no attempt; the dead worker itself takes nothing any more."""
    submit(store, [new_op("a"), new_op("b")])
    dead, other = claim(store).leased
    assert [turn(store, dead), turn(store, dead), turn(store, other)] == [0, 0, 1]
    clock.advance(LEASE + 1)
    assert store.sweep() == 2
    again = claim_one(store, "a")
    with pytest.raises(LeaseLost):
        turn(store, dead, 2)
    assert turn(store, again) == 0
    settle(store, (again, Interrupted("the worker stops")))
    again = claim_one(store, "a")
    assert [turn(store, again), turn(store, again, 2)] == [0, 2]


def test_the_next_attempt_takes_the_next_turn(store: Store) -> None:
    """HTTP-72: whether the policy or an operator tries again; only the turns of the last attempt are kept."""
    submit(store, [new_op("a")])
    taken = []
    for end in (RetryAt(0, BUSY), Failed(BUSY), Succeeded(Result())):
        leased = claim_one(store)
        taken += [turn(store, leased), turn(store, leased)]
        settle(store, (leased, end))
        if isinstance(end, Failed):
            store.retry("a")
    assert taken == [0, 0, 1, 1, 2, 2]
    assert rows(store, "turn") == 1


def test_turns_taken_side_by_side_are_all_different(store: Store) -> None:
    """HTTP-71."""
    submit(store, [new_op(f"op-{number}") for number in range(12)])
    leased = claim(store, limit=12).leased
    with ThreadPoolExecutor(4) as threads:
        assert sorted(threads.map(lambda item: turn(store, item), leased)) == list(range(12))


def test_turns_go_with_their_workflow(store: Store, clock: FakeClock) -> None:
    """HTTP-72: the round goes on."""
    submit(store, [new_op("a")])
    leased = claim_one(store)
    turn(store, leased)
    succeed(store, leased)
    clock.advance(SECOND)
    store.prune(Cutoffs(workflows=clock.now()))
    assert (rows(store, "turn"), rows(store, "turn_round")) == (0, 1)


def test_what_a_page_is_recognised_by_is_kept_with_the_success_that_saw_it(store: Store) -> None:
    """HTTP-82: a failed op saw nothing; the last word counts, and no word forgets."""
    submit(store, [new_op(name) for name in "abcde"])
    a, b, c, d, e = claim(store).leased
    settle(store, (a, Failed(BUSY, Result(validators=SEEN))))
    assert store.validators("site/shop", "v1") is None
    newer = Validators(scope="site/shop", variant="v1", url="http://shop.example/new", etag='"2"')
    other = Validators(scope="site/shop", variant="v2", url="http://shop.example/2", last_modified="Monday")
    settle(
        store,
        (b, Succeeded(Result(validators=SEEN))),
        (c, Succeeded(Result(validators=newer))),
        (d, Succeeded(Result(validators=other))),
    )
    assert store.validators("site/shop", "v1") == newer
    assert store.validators("site/shop", "v2") == other
    assert store.validators("site/books", "v1") is None
    settle(store, (e, Succeeded(Result(validators=Validators(scope="site/shop", variant="v1", url="")))))
    assert store.validators("site/shop", "v1") is None
    assert store.validators("site/shop", "v2") == other


def test_pages_nobody_asks_for_are_forgotten_with_old_workflows(store: Store, clock: FakeClock) -> None:
    """HTTP-82."""
    submit(store, [new_op("a"), new_op("b")])
    a, b = claim(store).leased
    settle(store, (a, Succeeded(Result(validators=SEEN))))
    clock.advance(SECOND)
    fresh = Validators(scope="site/shop", variant="v2", url="http://shop.example/2", etag='"2"')
    settle(store, (b, Succeeded(Result(validators=fresh))))
    total = 0
    while pruned := store.prune(Cutoffs(workflows=clock.now())):
        total += pruned.validators
    assert total == 1
    assert store.validators("site/shop", "v1") is None
    assert store.validators("site/shop", "v2") == fresh


def test_validators_survive_the_inbox() -> None:
    """HTTP-82."""
    assert decode_result(encode_result(Result(validators=SEEN))).validators == SEEN
    assert decode_result(encode_result(Result())).validators is None


def test_a_worker_that_lost_its_lease_changes_nothing_that_all_jobs_share(store: Store, clock: FakeClock) -> None:
    """JOBHOOK-51: its calls may be forgotten already, and would count again."""
    submit(store, [new_op("a")])
    dead = claim_one(store, "a")
    asked = {"key": "n", "default": 0, "delta": 1, "scope": "shop/job/1/1", "call": "on_success:0:1"}
    assert [store.kv("kv.incr", asked, dead.lease) for _ in range(2)] == [{"value": 1}] * 2
    clock.advance(LEASE + 1)
    assert store.sweep() == 1
    store.kv("kv.forget", asked, claim_one(store, "a").lease)
    with pytest.raises(LeaseLost):
        store.kv("kv.incr", asked, dead.lease)
    assert store.kv("kv.get", asked) == "1"
