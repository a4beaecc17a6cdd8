"""The ten places where a write could be lost or take effect twice: each test fails where its cure is taken out."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event, text

from engine.clock import SECOND, Micros
from engine.codec import encode_result
from engine.errors import OpError
from engine.js.ports import AlreadyApplied, SessionSpec, SqlRefused, StaleClaim
from engine.model import NewOp, QueuePolicy, Result
from engine.projection.migrate import migrate
from engine.projection.session import Inbox, Session
from engine.projection.sqlite import SqliteDatabase
from engine.runners.base import RunContext
from engine.runners.js import script_job
from engine.store.store import Store
from engine.store.types import ClaimRequest, LeasedOp, Settlement, SettleReport
from engine.worker.options import Silent
from tests.factories import SITE, claim, claim_one, new_op, run_all, statuses, submit, succeed
from tests.migrated import engine_db
from tests.worker.lab import Lab, js

BUMP = "UPDATE counter SET n = n + 1"
SHORT: Micros = SECOND // 5


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    """A lab whose site counts in a table, by the script ``bump``."""
    made = Lab(engine_db(tmp_path), tmp_path)
    made.write("migrations/001_counter.sql", "CREATE TABLE counter (n INTEGER); INSERT INTO counter VALUES (0);")
    made.write("scripts/bump.js", script(""))
    migrate(site_db(made), made.registry.site(SITE), lambda path, session: None, FixedClock())
    return made


class FixedClock:
    """Stands still."""

    def now(self) -> Micros:
        return 1


def script(body: str) -> str:
    """A script that counts itself and does something more."""
    return f"const db = require('site-db'); module.exports = (ctx) => {{ db.exec('{BUMP}'); {body} }}"


def site_db(lab: Lab) -> SqliteDatabase:
    """A connection of one's own on the lab's site DB."""
    return SqliteDatabase(lab.folder / "sites" / "shop.db")


def counter(lab: Lab) -> int:
    """How often ops have counted."""
    return int(lab.site("SELECT n FROM counter")[0][0])


def spec_of(store: Store, leased: LeasedOp, lab: Lab) -> SessionSpec:
    """The inbox key under which a worker would run a claim."""

    async def nothing(*_: object) -> None:
        return None

    context = RunContext(
        op=leased.op,
        lease=leased.lease,
        site=lab.registry.site(SITE),
        engine_uuid=store.uuid,
        fence=leased.fence,
        started=lambda: None,
        prepare=nothing,
        cookies=nothing,
    )
    return script_job(context).spec


@contextmanager
def zombie(store: Store, leased: LeasedOp, lab: Lab) -> Iterator[Session]:
    """An execution that wakes up late, with a write of its own not yet committed."""
    with closing(site_db(lab)) as database:
        session = Session(database, spec_of(store, leased, lab), store.clock, writer=True)
        session.execute(BUMP, [])
        yield session
        session.rollback()


def lose(store: Store, leased: LeasedOp) -> None:
    """The op began, and then its worker died."""
    store.settle([], [(leased.lease.token, store.clock.now())])
    store.bury_worker(leased.lease.worker_id)
    assert store.sweep() == 1


class DyingStore(Store):
    """A store whose worker dies before it can commit an outcome."""

    def settle(
        self,
        settlements: Sequence[Settlement],
        started: Sequence[tuple[str, Micros]] = (),
        request: ClaimRequest | None = None,
    ) -> SettleReport:
        if settlements:
            raise ConnectionAbortedError
        return super().settle(settlements, started, request)


def die_before_the_engine_commit(lab: Lab) -> None:
    """Work until the first outcome is ready: the site DB has it, the engine DB never hears of it."""
    with pytest.raises(ConnectionAbortedError):
        lab.watch(Silent(), store=DyingStore.open(lab.engine_db), lease_duration=SHORT)


# 1. A timed-out op can still write its site DB.


def test_a_statement_that_comes_after_the_end_of_its_op_writes_nothing(lab: Lab) -> None:
    with closing(site_db(lab)) as database:
        spec = SessionSpec(engine_uuid="e", op_key="1", generation=0, claimed_at=1, workflow_id="w", op_id="a")
        session = Session(database, spec, FixedClock(), writer=True)
        writing, over = threading.Event(), threading.Event()

        def callback() -> None:
            with suppress(SqlRefused):
                while not over.is_set():
                    session.execute(BUMP, [])
                    writing.set()
            with suppress(SqlRefused):
                session.execute(BUMP, [])

        thread = threading.Thread(target=callback, daemon=True)
        thread.start()
        writing.wait()
        session.kill()
        over.set()
        thread.join()
        assert not database.in_transaction
    assert counter(lab) == 0


def test_a_script_that_writes_when_its_time_is_up_leaves_nothing(lab: Lab) -> None:
    lab.write("scripts/endless.js", script(f"for (;;) try {{ db.exec('{BUMP}') }} catch {{}}"))
    assert lab.run(js("a", "endless", metadata={"timeout": "300ms"}), js("b", "bump")) == {
        "a": "failed",
        "b": "succeeded",
    }
    assert lab.error("a")["code"] == "js_timeout"
    assert counter(lab) == 1


# 2. The inbox generation must not be the attempt.


def test_a_zombie_and_its_successor_write_under_one_key(lab: Lab) -> None:
    lab.submit(js("a", "bump"))
    with closing(lab.store()) as store:
        first = claim_one(store, "a", worker="dead")
        lose(store, first)
        second = claim_one(store, "a")
        with zombie(store, second, lab) as successor:
            successor.commit(encode_result(Result()))
        with zombie(store, first, lab) as late, pytest.raises(AlreadyApplied):
            late.commit(encode_result(Result()))
    assert counter(lab) == 1


# 3. The inbox is keyed by the engine DB's UUID and a surrogate that is never used again.


def test_a_new_engine_db_runs_the_same_ids_again(lab: Lab) -> None:
    for _ in range(2):
        assert lab.run(js("a", "bump")) == {"a": "succeeded"}
        for path in lab.folder.glob("engine.db*"):
            path.unlink()
    assert counter(lab) == 2


def test_a_surrogate_is_never_used_again(store: Store) -> None:
    submit(store, [new_op("a")])
    before = claim_one(store, "a").op.pk
    with store.database.write() as connection:
        connection.execute(text("DELETE FROM op"))
    submit(store, [new_op("a")], "w2")
    assert claim_one(store, "a").op.pk > before


# 4. Deleting inbox rows.


def test_a_zombie_of_a_forgotten_inbox_row_is_refused(lab: Lab) -> None:
    lab.submit(js("a", "bump"))
    with closing(lab.store()) as store, closing(site_db(lab)) as database:
        first = claim_one(store, "a", worker="dead")
        lose(store, first)
        lab.work()
        assert Inbox(database, store.clock).collect(before=store.clock.now()) == 1
        with zombie(store, first, lab) as late, pytest.raises(StaleClaim):
            late.commit(encode_result(Result()))
    assert counter(lab) == 1


# 5. Site commit first, engine refusal second.


@pytest.mark.parametrize(
    ("emission", "code"),
    [
        ("ctx.emit({id: 'taken', kind: 'js', input: 2})", "duplicate_op_id"),
        ("ctx.emit({id: 'x', kind: 'js', dependsOn: [{opID: 'x'}]})", "dependency_cycle"),
    ],
)
def test_what_the_engine_refuses_has_not_written_its_site_db(lab: Lab, emission: str, code: str) -> None:
    lab.write("scripts/emits.js", script(emission))
    assert lab.run(js("taken", "bump"), js("a", "emits")) == {"taken": "succeeded", "a": "failed"}
    assert lab.error("a")["code"] == code
    assert counter(lab) == 1


def test_an_id_is_held_for_whoever_is_about_to_commit_its_site_db(store: Store) -> None:
    submit(store, [new_op("one"), new_op("two")])
    one, two = claim(store).leased
    store.reserve(one.lease, [new_op("child", input="1")])
    with pytest.raises(OpError, match="duplicate_op_id"):
        store.reserve(two.lease, [new_op("child", input="2")])
    succeed(store, one, new_op("child", input="1"))
    succeed(store, two)
    assert run_all(store) == ["child"]


# 6. Terminal without a run.


def test_after_a_cancel_a_zombie_is_fenced_out(lab: Lab) -> None:
    lab.submit(js("a", "bump"))
    with closing(lab.store()) as store:
        leased = claim_one(store, "a", worker="frozen")
        store.cancel("w")
        lab.work()
        with zombie(store, leased, lab) as late, pytest.raises(AlreadyApplied):
            late.commit(encode_result(Result()))
    assert lab.statuses() == {"a": "canceled"}
    assert counter(lab) == 0


def test_after_the_last_lost_lease_a_zombie_is_fenced_out(lab: Lab) -> None:
    lab.submit(js("a", "bump"))
    with closing(Store.open(lab.engine_db, max_lost=1)) as store:
        leased = claim_one(store, "a", worker="frozen")
        lose(store, leased)
        lab.work()
        assert lab.error("a")["code"] == "lease_lost"
        with zombie(store, leased, lab) as late, pytest.raises(AlreadyApplied):
            late.commit(encode_result(Result()))
    assert counter(lab) == 0


def test_an_op_given_up_too_early_is_completed_from_its_inbox(lab: Lab) -> None:
    lab.submit(js("a", "bump"))
    with closing(Store.open(lab.engine_db, max_lost=1)) as store:
        leased = claim_one(store, "a", worker="frozen")
        lose(store, leased)
        with zombie(store, leased, lab) as late:
            late.commit(encode_result(Result(data='"kept"')))
    lab.work()
    assert lab.statuses() == {"a": "succeeded"}
    assert lab.result("a")["data"] == "kept"
    assert counter(lab) == 1


# 7. Artifacts in the outcome.


def test_an_artifact_outlives_a_worker_that_dies_after_the_site_commit(lab: Lab) -> None:
    lab.write("scripts/page.js", script("ctx.writeArtifact({id: 'page', body: 'the page'}); return 'first'"))
    lab.submit(js("a", "page"))
    die_before_the_engine_commit(lab)
    assert counter(lab) == 1
    lab.work(lease_duration=SHORT)
    assert lab.result("a")["data"] == "first"
    assert lab.engine("SELECT body FROM artifacts WHERE id = 'page'") == [{"body": b"the page"}]
    assert counter(lab) == 1


# 8. Scripts can end the transaction.


@pytest.mark.parametrize("call", ["exec", "query"])
@pytest.mark.parametrize(
    "statement", ["COMMIT", "/* so */ ROLLBACK", "SELECT 1; COMMIT", "INSERT OR ROLLBACK INTO one VALUES (1)"]
)
def test_no_statement_keeps_what_a_failed_op_wrote(lab: Lab, statement: str, call: str) -> None:
    lab.write("migrations/002_one.sql", "CREATE TABLE one (n INTEGER UNIQUE); INSERT INTO one VALUES (1);")
    body = f"try {{ db.{call}('{statement}') }} catch {{}} try {{ db.exec('{BUMP}') }} catch {{}} throw new Error('no')"
    lab.write("scripts/sly.js", script(body))
    assert lab.run(js("a", "sly")) == {"a": "failed"}
    assert counter(lab) == 0


# 9. A claim that counts from an old snapshot overspends. 10. An edge to an op that completes meanwhile gets lost.


def one_inside_the_other(store: Store, first: Callable[[], Any], second: Callable[[], Any]) -> None:
    """Run ``second`` while ``first`` stands before its commit; it may wait for that commit."""
    inside, go = threading.Event(), threading.Event()
    failures: list[BaseException] = []

    def hold(_: object) -> None:
        if threading.current_thread() is one:
            inside.set()
            go.wait()

    def run(call: Callable[[], Any]) -> None:
        try:
            call()
        except BaseException as error:
            failures.append(error)

    one = threading.Thread(target=run, args=(first,), daemon=True)
    other = threading.Thread(target=run, args=(second,), daemon=True)
    event.listen(store.database.engine, "commit", hold)
    try:
        one.start()
        inside.wait()
        other.start()
        other.join(0.3)
        go.set()
        one.join()
        other.join()
    finally:
        event.remove(store.database.engine, "commit", hold)
    assert failures == []


def test_a_claim_beside_an_uncommitted_one_spends_nothing_twice(store: Store) -> None:
    store.put_policies(SITE, {"capped": QueuePolicy(max_in_flight=3), "paced": QueuePolicy(rate=0.001, burst=2)})
    submit(store, [new_op(f"{queue}{n}", queue=queue) for queue in ("capped", "paced") for n in range(20)])
    one_inside_the_other(store, lambda: claim(store, 20), lambda: claim(store, 20))
    running = [op_id for op_id, status in statuses(store).items() if status == "running"]
    assert sorted(op_id.rstrip("0123456789") for op_id in running) == ["capped"] * 3 + ["paced"] * 2


@pytest.mark.parametrize("emitter_first", [True, False], ids=["emitter first", "target first"])
@pytest.mark.parametrize("known", [True, False], ids=["known", "forward"])
def test_an_edge_is_satisfied_whoever_commits_first(store: Store, emitter_first: bool, known: bool) -> None:
    submit(store, [new_op("emitter"), new_op("target")])
    emitter, target = claim(store).leased
    born = "target" if known else "born"
    emitted: tuple[NewOp, ...] = () if known else (new_op("born"),)
    calls: list[Callable[[], Any]] = [
        lambda: succeed(store, emitter, new_op("child", after=[born])),
        lambda: succeed(store, target, *emitted),
    ]
    one_inside_the_other(store, *(calls if emitter_first else reversed(calls)))
    assert run_all(store) == (["child"] if known else ["born", "child"])
