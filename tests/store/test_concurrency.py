"""Several connections at once: no counter is lost, no cap exceeded, no write slips past the lock (STORE-31 to 39)."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from sqlalchemy import text

from engine.errors import DatabaseUnavailable
from engine.filelock import FileLock
from engine.model import QueuePolicy, Result
from engine.outcome import Succeeded
from engine.store.store import Store
from engine.store.types import Settlement
from tests.factories import SITE, claim, claim_one, new_op, run_all, statuses, submit, succeed


def in_threads(*calls: Callable[[], object]) -> None:
    """Run all at once; an exception in one is raised here."""
    failures: list[BaseException] = []
    barrier = threading.Barrier(len(calls))

    def run(call: Callable[[], object]) -> None:
        try:
            barrier.wait()
            call()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(call,), daemon=True) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def test_an_edge_to_an_op_that_completes_meanwhile_is_never_lost(store: Store) -> None:
    for number in range(15):
        workflow = f"race{number}"
        submit(store, [new_op("emitter"), new_op("target")], workflow)
        first, second = sorted(claim(store).leased, key=lambda leased: leased.op.id)
        in_threads(
            partial(succeed, store, first, new_op("child", after=["target"])),
            partial(succeed, store, second),
        )
        assert statuses(store, workflow)["child"] == "ready"
        run_all(store)


def test_a_forward_reference_to_an_op_emitted_meanwhile_is_never_lost(store: Store) -> None:
    for number in range(15):
        workflow = f"race{number}"
        submit(store, [new_op("one"), new_op("two")], workflow)
        first, second = sorted(claim(store).leased, key=lambda leased: leased.op.id)
        in_threads(
            partial(succeed, store, first, new_op("late", after=["born"])),
            partial(succeed, store, second, new_op("born")),
        )
        assert run_all(store) == ["born", "late"]


def test_two_emitters_of_one_dedup_key_at_the_same_time_agree(store: Store) -> None:
    for number in range(15):
        workflow = f"race{number}"
        submit(store, [new_op("one"), new_op("two")], workflow)
        first, second = claim(store).leased
        in_threads(
            partial(succeed, store, first, new_op("p1", dedup_key="k", input="1")),
            partial(succeed, store, second, new_op("p2", dedup_key="k", input="2"), new_op("after", after=["p2"])),
        )
        ran = run_all(store)
        assert len(ran) == 2
        assert ran[1] == "after"


def test_claims_of_many_clients_never_exceed_a_cap(store: Store) -> None:
    store.put_policies(SITE, {"q": QueuePolicy(max_in_flight=3)})
    submit(store, [new_op(f"op{n}", queue="q") for n in range(90)])
    done: list[str] = []
    peaks: list[int] = []

    def work() -> None:
        idle = 0
        while idle < 3:
            leased = claim(store, 5).leased
            idle = 0 if leased else idle + 1
            with store.database.read() as connection:
                peaks.append(
                    int(connection.execute(text("SELECT count(*) FROM op WHERE status = 'running'")).scalar_one())
                )
            for item in leased:
                done.append(item.op.id)
                store.settle([Settlement(item.lease, Succeeded(Result()))])

    in_threads(*[work] * 6)
    run_all(store)
    assert max(peaks) == 3
    assert Counter(statuses(store).values()) == Counter(succeeded=90)
    assert len(done) == len(set(done))


def test_ops_of_a_free_queue_start_although_fifty_blocked_ones_sort_before(store: Store) -> None:
    store.put_policies(SITE, {f"a{n:02}": QueuePolicy(rate=0.001, burst=1) for n in range(50)})
    submit(store, [new_op(f"x{n}-{m}", queue=f"a{n:02}") for n in range(50) for m in range(2)])
    claim(store, 50)
    submit(store, [new_op("free", queue="zz")], "w2")
    started = [item.op.id for _ in range(2) for item in claim(store, 4).leased]
    assert "free" in started


def test_no_sqlite_write_happens_without_the_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.dialect.LOCK_SECONDS", 0.05)
    store = Store.open(tmp_path / "engine.db")
    lock = FileLock(tmp_path / "engine.db")
    with lock.held(1):
        with pytest.raises(DatabaseUnavailable, match="held by another process"):
            submit(store, [new_op("a")])
        assert store.workflow_status("w1") is None
    submit(store, [new_op("a")])
    claim_one(store, "a")
    store.close()
    lock.close()


def test_the_engine_db_is_durable_by_default(store: Store) -> None:
    with store.database.read() as connection:
        if store.database.is_sqlite:
            assert connection.exec_driver_sql("PRAGMA synchronous").scalar_one() == 2
            assert connection.exec_driver_sql("PRAGMA journal_mode").scalar_one() == "wal"
        else:
            assert connection.exec_driver_sql("SHOW synchronous_commit").scalar_one() == "on"
