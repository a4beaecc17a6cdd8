"""Claims: what they read, whom they serve first, and the policies they spend (STORE-32 to STORE-37)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import Connection, event

from engine.clock import SECOND, Micros
from engine.dialect import run_on_driver
from engine.errors import OpError, UsageError
from engine.model import QueuePolicy, Result
from engine.outcome import Interrupted, RetryAt, Succeeded
from engine.store import prepared
from engine.store.schema import op
from engine.store.store import Store
from engine.store.types import ClaimRequest
from tests.factories import LEASE, SITE, claim, claim_one, new_op, run_all, settle, statuses, submit, succeed
from tests.fakes import FakeClock

HOUR: Micros = 3600 * SECOND
#: Indexes that hold only ops which are ready, running, or owe a fence: reading one whole is no scan of the ops.
PARTIAL = ("ix_op_lane_ready", "ix_op_queue_running", "ix_op_fence")


@contextmanager
def recorded(store: Store) -> Iterator[list[tuple[str, Any]]]:
    """The statements of a block, each with its (first) parameters."""
    seen: list[tuple[str, Any]] = []

    def note(_: Any, __: Any, statement: str, parameters: Any, ___: Any, many: bool) -> None:
        seen.append((statement, parameters[0] if many else parameters))

    def run(connection: Connection, sql: str, parameters: Any) -> Any:
        seen.append((sql, parameters))
        return run_on_driver(connection, sql, parameters)

    event.listen(store.database.engine, "before_cursor_execute", note)
    try:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(prepared, "run_on_driver", run)
            yield seen
    finally:
        event.remove(store.database.engine, "before_cursor_execute", note)


def sqlite_scans(connection: Connection, statement: str, parameters: Any) -> list[str]:
    """Plan lines that walk the whole of ``op``, by its rows or by an index of all of them."""
    plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)
    lines = [str(row[3]) for row in plan]
    return [line for line in lines if line.split()[:2] == ["SCAN", "op"] and not line.endswith(PARTIAL)]


def postgresql_scans(connection: Connection, statement: str, parameters: Any) -> list[str]:
    """Plan nodes that walk the whole of ``op``."""
    plan = connection.exec_driver_sql(f"EXPLAIN (FORMAT JSON) {statement}", parameters).scalar_one()
    found: list[str] = []

    def walk(node: dict[str, Any]) -> None:
        index = node.get("Index Name", "")
        whole = node["Node Type"] == "Seq Scan" or (
            "Index Cond" not in node and "Index" in node["Node Type"] and index not in PARTIAL
        )
        if node.get("Relation Name") == "op" and whole and node["Node Type"] != "Bitmap Heap Scan":
            found.append(f"{node['Node Type']} {index}: {node.get('Filter', '')}")
        for child in node.get("Plans", ()):
            walk(child)

    walk(plan[0]["Plan"])
    return found


def load(store: Store, first: int, count: int, status: str, **columns: object) -> None:
    """Copies of the op ``seed`` in bulk: numbered, in another state."""
    chosen = {"id": "'bulk' || i", "status": f"'{status}'"} | {name: str(value) for name, value in columns.items()}
    names = [column.name for column in op.columns if column.name != "pk"]
    with store.database.write() as connection:
        connection.exec_driver_sql(
            f"INSERT INTO op ({', '.join(names)}) "
            f"WITH RECURSIVE n(i) AS (SELECT {first} UNION ALL SELECT i + 1 FROM n WHERE i < {first + count - 1}) "
            f"SELECT {', '.join(chosen.get(name, name) for name in names)} FROM n, op WHERE op.id = 'seed'"
        )


def test_no_statement_of_the_hot_path_scans_the_ops(store: Store, clock: FakeClock) -> None:
    store.put_policies(SITE, {"capped": QueuePolicy(max_in_flight=50), "paced": QueuePolicy(rate=5, burst=50)})
    queues = ("capped", "paced", "free")
    submit(store, [new_op("seed"), *(new_op(f"{queue}{n}", queue=queue) for queue in queues for n in range(40))])
    load(store, 0, 100_000, "succeeded", attempts=1)
    load(store, 100_000, 10_000, "pending", unmet=1)
    with store.database.write() as connection:
        connection.exec_driver_sql("ANALYZE")
    with recorded(store) as seen:
        leased = claim(store, 60).leased
        settle(store, *((item, Succeeded(Result())) for item in leased[:20]))
        store.heartbeat("worker-a", [item.lease.token for item in leased], LEASE)
        store.lost([item.lease.token for item in leased])
        clock.advance(2 * LEASE)
        store.sweep()
        store.idle("m1")
        claim(store, 200)
    scans = sqlite_scans if store.database.is_sqlite else postgresql_scans
    looked_at = [(statement, parameters) for statement, parameters in seen if "op." in statement or " op " in statement]
    assert len(looked_at) >= 10
    with store.database.read() as connection:
        found = {statement: scans(connection, statement, parameters) for statement, parameters in looked_at}
    assert {statement: lines for statement, lines in found.items() if lines} == {}


def ids(store: Store, limit: int = 10, **values: Any) -> list[str]:
    """The ops a claim hands out."""
    return [leased.op.id for leased in claim(store, limit, **values).leased]


def test_a_free_queue_is_served_within_two_rounds_behind_fifty_that_cannot_be(store: Store) -> None:
    """Paused, full and out of tokens: all of them sort first, and new work keeps waking them up."""
    blocked = [f"a{n:02}" for n in range(51)]
    paused, full, spent = blocked[::3], blocked[1::3], blocked[2::3]
    store.put_policies(
        SITE,
        {queue: QueuePolicy(max_in_flight=1) for queue in full} | {queue: QueuePolicy(rate=0.001) for queue in spent},
    )
    submit(store, [new_op(f"first-{queue}", queue=queue) for queue in blocked], "blockers")
    assert len(ids(store, 51)) == 51
    for queue in paused:
        store.pause(SITE, queue)
    submit(store, [new_op(f"second-{queue}", queue=queue) for queue in blocked], "blocked")
    submit(store, [new_op("free", queue="z")], "free")
    assert "free" in [*ids(store, 4), *ids(store, 4)]


def test_a_queue_with_much_work_does_not_keep_others_waiting(store: Store) -> None:
    submit(store, [new_op(f"big{n}", queue="a") for n in range(200)], "big")
    submit(store, [new_op(f"small{n}", queue=f"z{n}") for n in range(3)], "small")
    first = ids(store, 8)
    assert {"small0", "small1", "small2"} <= set(first)
    assert len(first) == 8


def test_queues_take_turns_when_each_claim_has_room_for_one(store: Store, clock: FakeClock) -> None:
    submit(store, [new_op(f"{queue}{n}", queue=queue) for queue in "abc" for n in range(3)])
    turns = []
    for _ in range(9):
        clock.advance(1)
        turns.extend(ids(store, 1))
    assert [sorted(op_id[0] for op_id in turns[at : at + 3]) for at in (0, 3, 6)] == [["a", "b", "c"]] * 3


def test_inside_a_queue_the_oldest_op_is_first(store: Store, clock: FakeClock) -> None:
    submit(store, [new_op("late"), new_op("later")], "w2")
    clock.advance(SECOND)
    submit(store, [new_op("latest")], "w1")
    assert ids(store) == ["late", "later", "latest"]


def test_max_in_flight_bounds_all_workers_together_until_a_place_is_free(store: Store) -> None:
    store.put_policies(SITE, {"q": QueuePolicy(max_in_flight=2)})
    submit(store, [new_op(f"op{n}", queue="q") for n in range(5)])
    first = claim(store, 1, worker="worker-a").leased
    second = claim(store, 10, worker="worker-b").leased
    assert [len(first), len(second)] == [1, 1]
    assert ids(store, worker="worker-c") == []
    succeed(store, first[0])
    assert ids(store, worker="worker-c") == ["op2"]
    assert ids(store, worker="worker-c") == []


def test_max_in_flight_counts_ops_pinned_to_other_machines_too(store: Store) -> None:
    store.put_policies(SITE, {"q": QueuePolicy(max_in_flight=3)})
    submit(
        store, [new_op(f"{machine}-{n}", queue="q", machine=machine) for machine in ("m1", "m2", "") for n in range(3)]
    )
    assert len(ids(store, 2, machine="m1")) == 2
    assert len(ids(store, 9, machine="m2")) == 1
    assert ids(store, 9, machine="m1") == ids(store, 9, machine="m2") == []


def test_an_op_pinned_to_a_machine_is_left_alone_by_others(store: Store) -> None:
    submit(store, [new_op("here", machine="m1"), new_op("there", machine="m2"), new_op("any")])
    assert sorted(ids(store, machine="m1")) == ["any", "here"]
    assert ids(store, machine="m3") == []
    assert store.idle("m3") is False, "two ops are running"
    assert ids(store, machine="m2") == ["there"]


@pytest.mark.parametrize("ending", ["succeeded", "retried", "interrupted", "expired", "canceled"])
def test_whatever_ends_an_op_frees_its_place(store: Store, clock: FakeClock, ending: str) -> None:
    store.put_policies(SITE, {"q": QueuePolicy(max_in_flight=1)})
    submit(store, [new_op("a", queue="q")], "w1")
    submit(store, [new_op("b", queue="q")], "w2")
    leased = claim_one(store, "a")
    assert ids(store) == []
    match ending:
        case "succeeded":
            succeed(store, leased)
        case "retried":
            settle(store, (leased, RetryAt(clock.now() + HOUR, OpError("busy", "later", retryable=True))))
        case "interrupted":
            settle(store, (leased, Interrupted("not now", clock.now() + HOUR)))
        case "expired":
            clock.advance(LEASE + 1)
            store.sweep()
        case "canceled":
            store.cancel("w1")
    assert "b" in ids(store, 1)


def test_a_bucket_starts_full_and_refills_by_fractions_up_to_its_burst(store: Store, clock: FakeClock) -> None:
    store.put_policies(SITE, {"q": QueuePolicy(rate=0.5, burst=3)})
    submit(store, [new_op(f"op{n:02}", queue="q") for n in range(20)])
    start = claim(store)
    assert len(start.leased) == 3
    assert start.next_due == clock.now() + 2 * SECOND
    for passed, admitted in ((2 * SECOND - 1, 0), (1, 1), (3 * SECOND, 1), (SECOND, 1), (SECOND, 0), (HOUR, 3), (0, 0)):
        clock.advance(passed)
        assert len(ids(store)) == admitted, f"after {passed}"


@pytest.mark.parametrize("rate", [0.3, 1 / 3, 7.0, 1000 / 7])
def test_who_waits_as_long_as_it_is_told_is_served(store: Store, clock: FakeClock, rate: float) -> None:
    store.put_policies(SITE, {"q": QueuePolicy(rate=rate, burst=1)})
    submit(store, [new_op(f"op{n:02}", queue="q") for n in range(30)])
    began = clock.now()
    for _ in range(29):
        taken = claim(store)
        assert len(taken.leased) == 1
        assert taken.next_due is not None
        clock.advance(taken.next_due - clock.now())
    assert (clock.now() - began) / SECOND == pytest.approx(29 / rate, rel=1e-3)


def test_a_second_try_costs_a_token_again(store: Store, clock: FakeClock) -> None:
    store.put_policies(SITE, {"q": QueuePolicy(rate=1, burst=1)})
    submit(store, [new_op("a", queue="q")])
    settle(store, (claim_one(store, "a"), RetryAt(clock.now(), OpError("busy", "again", retryable=True))))
    assert ids(store) == []
    clock.advance(SECOND)
    assert ids(store) == ["a"]


def test_tokens_outlive_the_process(store: Store, clock: FakeClock) -> None:
    store.put_policies(SITE, {"q": QueuePolicy(rate=1, burst=2)})
    submit(store, [new_op(f"op{n}", queue="q") for n in range(5)])
    assert len(ids(store)) == 2
    again = Store.open(store.url, clock=clock)
    again.put_policies(SITE, {"q": QueuePolicy(rate=1, burst=2)})
    assert ids(again) == []
    again.close()


def test_a_changed_policy_holds_at_once(store: Store) -> None:
    store.put_policies(SITE, {"q": QueuePolicy(max_in_flight=1)})
    submit(store, [new_op(f"op{n}", queue="q") for n in range(5)])
    assert len(ids(store)) == 1
    store.put_policies(SITE, {"q": QueuePolicy(max_in_flight=3)})
    assert len(ids(store)) == 2
    store.put_policies(SITE, {})
    assert len(ids(store)) == 2


def test_a_queue_without_a_rate_has_no_bucket(store: Store) -> None:
    store.put_policies(SITE, {"paced": QueuePolicy(rate=1)})
    submit(store, [new_op("a", queue="paced"), new_op("b", queue="free")])
    run_all(store)
    with store.database.read() as connection:
        assert list(connection.exec_driver_sql("SELECT site, queue_key, tokens FROM queue_limit_state")) == [
            (SITE, "paced", 0.0)
        ]


def test_a_paused_queue_hands_out_nothing_until_it_is_resumed(store: Store) -> None:
    submit(store, [new_op("a", queue="q"), new_op("b", queue="q")])
    running = claim_one(store, "a")
    store.pause(SITE, "q")
    submit(store, [new_op("c", queue="q")], "w2")
    assert ids(store) == []
    succeed(store, running)
    assert statuses(store) == {"a": "succeeded", "b": "ready"}
    assert store.idle("m1"), "a paused queue keeps no worker waiting"
    store.resume(SITE, "q")
    assert not store.idle("m1")
    assert ids(store) == ["b", "c"]


def test_a_queue_nobody_used_cannot_be_paused(store: Store) -> None:
    with pytest.raises(UsageError, match='no queue "nowhere"'):
        store.pause(SITE, "nowhere")
    with pytest.raises(UsageError, match='no queue "nowhere"'):
        store.resume(SITE, "nowhere")


def test_an_op_that_is_not_due_is_left_until_the_claim_said(store: Store, clock: FakeClock) -> None:
    submit(store, [new_op("later", not_before=clock.now() + 90 * SECOND)])
    assert claim(store).next_due == clock.now() + 90 * SECOND
    clock.advance(90 * SECOND - 1)
    assert ids(store) == []
    assert not store.idle("m1"), "delayed is not idle"
    clock.advance(1)
    assert ids(store) == ["later"]


def test_a_claim_for_some_sites_leaves_the_others_alone(store: Store) -> None:
    submit(store, [new_op("ours"), new_op("theirs", site="elsewhere")])
    assert ids(store, sites=frozenset({SITE})) == ["ours"]
    assert ids(store, sites=frozenset({SITE})) == []
    assert ids(store) == ["theirs"]


def test_the_inbox_key_of_a_canceled_op_is_closed_on_its_own_machine_by_a_worker_of_its_site(store: Store) -> None:
    submit(store, [new_op("a", machine="m1")])
    claim_one(store, "a")
    store.cancel("w1")
    assert claim(store, machine="m2").leased == ()
    assert store.idle("m2")
    assert claim(store, sites=frozenset({"other"})).leased == ()
    assert store.idle("m1", frozenset({"other"}))
    assert not store.idle("m1")
    (duty,) = claim(store).leased
    assert (duty.op.id, duty.planned is not None) == ("a", True)


def test_a_claim_that_finds_nothing_due_writes_nothing(store: Store, clock: FakeClock) -> None:
    submit(store, [new_op("a"), new_op("b")])
    settle(store, *((item, Succeeded(Result())) for item in claim(store, 2).leased))
    assert claim(store, 2).leased == ()
    clock.advance(SECOND)
    with recorded(store) as seen:
        assert store.look(ClaimRequest(worker_id="a", machine="m1", limit=2, lease_duration=LEASE)).leased == ()
    assert seen
    assert {statement.split()[0] for statement, _ in seen} <= {"BEGIN", "SELECT"}
    assert "BEGIN IMMEDIATE" not in [statement for statement, _ in seen]
