"""Moving the home of a site DB: every op that waits for it moves along, none runs in two places."""

from __future__ import annotations

import pytest

from engine.errors import UsageError
from engine.store.store import Store
from tests.factories import SITE, claim, claim_one, new_op, run_all, submit, succeed
from tests.fakes import FakeClock


def ids(store: Store, machine: str) -> list[str]:
    """What a worker of the machine is given."""
    return [leased.op.id for leased in claim(store, machine=machine).leased]


def test_waiting_ops_are_claimed_by_the_new_home_only(store: Store) -> None:
    assert store.home_of(SITE, "old") == "old"
    submit(store, [new_op("one", machine="old"), new_op("anywhere", kind="http/fetch", queue="fetch")])
    rehomed = store.rehome(SITE, "new", force=False)
    assert (rehomed.previous, rehomed.moved) == ("old", 1)
    assert store.home_of(SITE, "old") == "new"
    assert ids(store, "old") == ["anywhere"]
    assert ids(store, "new") == ["one"]


def test_pending_ops_move_along_and_become_ready_at_the_new_home(store: Store) -> None:
    submit(store, [new_op("first", queue="q", kind="http/fetch"), new_op("then", ["first"], machine="old")])
    store.rehome(SITE, "new", force=False)
    succeed(store, claim_one(store, "first"))
    assert ids(store, "old") == []
    assert ids(store, "new") == ["then"]


def test_an_op_that_a_late_emitter_still_pins_to_the_old_home_moves_with_the_lane(store: Store) -> None:
    submit(store, [new_op("one", machine="old")])
    store.rehome(SITE, "new", force=False)
    submit(store, [new_op("late", machine="old")], "w2")
    assert sorted(ids(store, "new")) == ["late", "one"]


def test_moving_into_a_lane_that_exists_already_leaves_nothing_behind(store: Store) -> None:
    submit(store, [new_op("old", machine="old"), new_op("new", machine="new")])
    assert store.rehome(SITE, "new", force=False).moved == 1
    assert sorted(ids(store, "new")) == ["new", "old"]


def test_an_op_running_on_the_old_home_stops_the_move(store: Store, clock: FakeClock) -> None:
    submit(store, [new_op("one", machine="m1"), new_op("two", machine="m1")])
    running = claim_one(store)
    with pytest.raises(UsageError, match=f'op "{running.op.id}" of site "shop" is running on m1'):
        store.rehome(SITE, "new", force=False)
    assert store.rehome(SITE, "new", force=True).moved == 2
    clock.advance(3600 * 1_000_000)
    store.sweep()
    assert sorted(ids(store, "new")) == ["one", "two"]


def test_ops_of_other_sites_stay_where_they_are(store: Store) -> None:
    submit(store, [new_op("mine", machine="old"), new_op("other", site="other", machine="old")])
    store.rehome(SITE, "new", force=False)
    assert ids(store, "old") == ["other"]


def test_a_move_to_where_the_home_already_is_changes_nothing(store: Store) -> None:
    store.home_of(SITE, "m1")
    submit(store, [new_op("one", machine="m1")])
    rehomed = store.rehome(SITE, "m1", force=False)
    assert (rehomed.previous, rehomed.moved) == ("m1", 0)
    assert run_all(store) == ["one"]
