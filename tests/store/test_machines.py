"""What hooks find out about a machine, and losses that are none (HOOK-80, HOOK-124)."""

from __future__ import annotations

from engine.model import Binary, MachineFacts
from engine.store.store import Store
from tests.factories import LEASE, claim_one, new_op, submit
from tests.fakes import FakeClock

MAX_LOST = 3  # as the fixture opens the store


def test_a_machine_has_its_own_configuration_and_null_takes_a_key_away(store: Store) -> None:
    assert store.machine_facts("one") == MachineFacts()
    store.configure_machine("one", {"A": [1], "B": "x"})
    store.configure_machine("two", {"A": 2})
    store.configure_machine("one", {"B": None, "C": True, "A": [1]})
    store.put_binary("one", Binary(name="wget", abspath="/bin/wget"))
    facts = store.machine_facts("one")
    assert facts.config == {"A": [1], "C": True}
    assert list(facts.binaries) == ["wget"]
    assert store.machine_facts("two").config == {"A": 2}


def test_a_loss_that_was_forgiven_does_not_count_towards_giving_the_op_up(store: Store, clock: FakeClock) -> None:
    submit(store, [new_op("a")])
    for _ in range(3 * MAX_LOST):
        leased = claim_one(store, "a")
        assert leased.planned is None
        store.forgive(leased.lease.token)
        store.forgive("an older token:1")
        store.settle((), ((leased.lease.token, clock.now()),))
        clock.advance(LEASE + 1)
        assert store.sweep() == 1
    for losses in range(1, MAX_LOST):
        leased = claim_one(store, "a")
        assert leased.planned is None, losses
        store.settle((), ((leased.lease.token, clock.now()),))
        clock.advance(LEASE + 1)
        assert store.sweep() == 1
    last = claim_one(store, "a")
    assert last.planned is not None
    assert last.planned.code == "lease_lost"
