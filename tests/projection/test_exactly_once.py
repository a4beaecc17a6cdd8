"""The inbox: whatever zombies, fences and collectors do, an op's writes take effect once (DB-1 to DB-19)."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from engine.js.ports import AlreadyApplied, DatabaseBusy, Rows, SessionSpec, SqlRefused, SqlValue, StaleClaim
from engine.model import Record
from engine.projection.session import Database, Inbox, Session
from engine.projection.sqlite import SqliteDatabase
from tests.fakes import FakeClock
from tests.projection.conftest import Connect

SPEC = SessionSpec(engine_uuid="engine", op_key="7", generation=0, claimed_at=1_000, workflow_id="w", op_id="op")
BUMP = "UPDATE counter SET n = n + 1"


def session(database: Database, clock: FakeClock, spec: SessionSpec = SPEC, *, writer: bool = True) -> Session:
    """One execution's session."""
    return Session(database, spec, clock, writer=writer)


def count(connect: Connect) -> int:
    """The counter, as others see it."""
    return int(connect().run("SELECT n FROM counter")[0][0])  # type: ignore[arg-type]


def test_a_zombie_and_its_successor_have_one_effect(connect: Connect, clock: FakeClock) -> None:
    successor = session(connect(), clock)
    successor.execute(BUMP, [])
    successor.commit(b"outcome")
    zombie = session(connect(), clock)
    zombie.execute(BUMP, [])
    with pytest.raises(AlreadyApplied):
        zombie.commit(b"late")
    assert count(connect) == 1
    assert Inbox(connect(), clock).outcome(SPEC) == b"outcome"


@pytest.mark.parametrize(
    "other",
    [replace(SPEC, engine_uuid="another"), replace(SPEC, op_key="8"), replace(SPEC, generation=1)],
    ids=["engine", "op", "generation"],
)
def test_another_engine_op_or_generation_is_another_effect(
    connect: Connect, clock: FakeClock, other: SessionSpec
) -> None:
    for spec in (SPEC, other):
        one = session(connect(), clock, spec)
        one.execute(BUMP, [])
        one.commit(b"x")
    assert count(connect) == 2


def test_a_fence_keeps_a_zombie_out(connect: Connect, clock: FakeClock) -> None:
    assert Inbox(connect(), clock).fence(SPEC) is None
    zombie = session(connect(), clock)
    zombie.execute(BUMP, [])
    with pytest.raises(AlreadyApplied):
        zombie.commit(b"late")
    assert count(connect) == 0
    assert Inbox(connect(), clock).outcome(SPEC) is None
    assert Inbox(connect(), clock).fence(SPEC) is None


def test_a_fence_that_comes_late_hands_out_the_outcome(connect: Connect, clock: FakeClock) -> None:
    one = session(connect(), clock)
    one.execute(BUMP, [])
    one.commit(b"outcome")
    assert Inbox(connect(), clock).fence(SPEC) == b"outcome"


def test_after_collection_an_old_claim_is_refused(connect: Connect, clock: FakeClock) -> None:
    one = session(connect(), clock)
    one.execute(BUMP, [])
    one.commit(b"outcome")
    assert Inbox(connect(), clock).collect(before=2_000) == 1
    zombie = session(connect(), clock)
    zombie.execute(BUMP, [])
    with pytest.raises(StaleClaim):
        zombie.commit(b"late")
    younger = session(connect(), clock, replace(SPEC, claimed_at=3_000))
    younger.execute(BUMP, [])
    younger.commit(b"new")
    assert count(connect) == 2


def test_a_killed_session_writes_nothing_any_more(connect: Connect, clock: FakeClock) -> None:
    one = session(connect(), clock)
    one.execute(BUMP, [])
    one.kill()
    with pytest.raises(SqlRefused, match="is over"):
        one.execute(BUMP, [])
    with pytest.raises(SqlRefused, match="is over"):
        one.query("SELECT 1", [])
    with pytest.raises(SqlRefused, match="is over"):
        one.commit(b"x")
    assert count(connect) == 0


def test_a_kill_ends_a_statement_even_if_it_was_just_about_to_begin(
    connect: Connect, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = connect()
    one = session(database, clock)
    one.execute(BUMP, [])
    endless = (
        "WITH RECURSIVE r(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM r) SELECT count(*) FROM r"
        if database.is_sqlite
        else "SELECT pg_sleep(60)"
    )
    failures: list[Exception] = []
    near, interrupted = threading.Event(), threading.Event()
    query, interrupt = database.query, database.interrupt

    def late_query(sql: str, params: Sequence[SqlValue]) -> Rows:
        near.set()
        interrupted.wait()
        return query(sql, params)

    def early_interrupt() -> None:
        interrupt()
        interrupted.set()

    monkeypatch.setattr(database, "query", late_query)
    monkeypatch.setattr(database, "interrupt", early_interrupt)

    def run() -> None:
        try:
            one.query(endless, [])
        except (SqlRefused, DatabaseBusy) as error:
            failures.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    near.wait()
    one.kill()
    thread.join()
    assert failures
    assert count(connect) == 0


def test_nothing_is_kept_of_a_session_that_rolls_back(connect: Connect, clock: FakeClock) -> None:
    one = session(connect(), clock)
    one.execute(BUMP, [])
    one.write_record(Record(collection="c", key="k", data="1"))
    one.rollback()
    assert count(connect) == 0
    assert connect().run("SELECT count(*) FROM scraper_records") == [(0,)]


def test_records_are_upserted_with_the_outcome(connect: Connect, clock: FakeClock) -> None:
    for value, generation in (("1", 0), ("2", 1)):
        one = session(connect(), clock, replace(SPEC, generation=generation))
        one.write_record(Record(collection="c", key="k", data="0"))
        one.write_record(Record(collection="c", key="k", data=value))
        one.commit(b"x")
    rows = connect().run("SELECT collection, key, data, workflow_id, op_id, updated_at FROM scraper_records")
    assert rows == [("c", "k", "2", "w", "op", "2023-11-14T22:13:20.000000Z")]


def test_a_caught_sql_error_leaves_the_transaction_usable(connect: Connect, clock: FakeClock) -> None:
    one = session(connect(), clock)
    one.execute(BUMP, [])
    with pytest.raises(SqlRefused):
        one.execute("INSERT INTO nowhere VALUES (1)", [])
    one.execute(BUMP, [])
    one.commit(b"x")
    assert count(connect) == 2


@pytest.mark.parametrize(
    "sql",
    [
        "BEGIN",
        "COMMIT",
        "commit;",
        "ROLLBACK",
        "END TRANSACTION",
        "SAVEPOINT a",
        "RELEASE SAVEPOINT script",
        "ROLLBACK TO SAVEPOINT script",
        "-- done\nCOMMIT",
        "/* done */ COMMIT",
        f"{BUMP}; COMMIT",
        f"COMMIT; BEGIN; {BUMP}",
        f"{BUMP}; ROLLBACK; {BUMP}",
    ],
)
def test_transaction_control_of_a_script_is_ignored(connect: Connect, clock: FakeClock, sql: str) -> None:
    one = session(connect(), clock)
    one.execute(BUMP, [])
    one.execute(sql, [])
    one.execute(BUMP, [])
    one.rollback()
    assert count(connect) == 0


@pytest.mark.parametrize(
    "sql", ["COMMIT", "/* done */ COMMIT", f"{BUMP}; COMMIT", "SELECT 1; ROLLBACK", "DELETE FROM scraper_inbox"]
)
def test_a_query_ends_no_transaction_and_touches_no_inbox(connect: Connect, clock: FakeClock, sql: str) -> None:
    one = session(connect(), clock)
    one.execute(BUMP, [])
    with pytest.raises(SqlRefused):
        one.query(sql, [])
    one.commit(b"x")
    assert count(connect) == 1


def test_a_statement_the_engine_has_run_is_still_refused_to_a_script(connect: Connect, clock: FakeClock) -> None:
    """Drivers keep what they have prepared: for the engine that was done unchecked."""
    database = connect()
    text = "DELETE FROM scraper_inbox"
    for _ in range(2):
        database.begin_write()
        database.run_counting(text, [])
        database.commit()
        one = session(database, clock)
        for asked in (text, text + " "):
            with pytest.raises(SqlRefused):
                one.query(asked, [])
        one.rollback()


def test_no_comment_hides_the_end_of_a_transaction(connect: Connect, clock: FakeClock) -> None:
    """PostgreSQL's comments nest, SQLite's do not."""
    for text in ("/* /* */ */ COMMIT", "-- /*\nCOMMIT --*/", "/* -- */ COMMIT"):
        one = session(connect(), clock)
        one.execute(BUMP, [])
        with suppress(SqlRefused):
            one.execute(text, [])
        one.rollback()
        assert count(connect) == 0


def test_statements_are_told_apart_as_the_database_does(connect: Connect, clock: FakeClock) -> None:
    database = connect()
    one = session(database, clock)
    one.execute("CREATE TABLE t (s TEXT); INSERT INTO t VALUES ('a;b'); -- c;\nINSERT INTO t VALUES ('?') /* ; */;", [])
    assert one.execute("UPDATE t SET s = 'x'; UPDATE t SET s = 'y' WHERE s = 'nowhere'", []) == 0
    assert one.query("SELECT count(*), 7 % 4 FROM t WHERE s = 'x' AND s LIKE '%'", []).rows == [(2, 3)]
    if not database.is_sqlite:
        one.execute("CREATE FUNCTION f() RETURNS int LANGUAGE plpgsql AS $f$ BEGIN RETURN 1; END; $f$; SELECT f()", [])
    one.rollback()


def test_a_reader_sees_its_own_writes_and_one_snapshot_before_them(connect: Connect, clock: FakeClock) -> None:
    reader = session(connect(), clock, writer=False)
    assert reader.query("SELECT n FROM counter", []).rows[0][0] == 0
    other = session(connect(), clock, replace(SPEC, op_key="8"))
    other.execute(BUMP, [])
    other.commit(b"x")
    assert reader.query("SELECT n FROM counter", []).rows[0][0] == 0
    with pytest.raises(DatabaseBusy):
        reader.execute(BUMP, [])
    reader.rollback()
    assert count(connect) == 1


def test_read_modify_write_of_many_writers_loses_nothing(connect: Connect, clock: FakeClock) -> None:
    def work(worker: int) -> None:
        database = connect()
        for number in range(25):
            spec = replace(SPEC, op_key=f"{worker}-{number}")
            one = session(database, clock, spec)
            (n,) = one.query("SELECT n FROM counter", []).rows[0]
            one.execute("UPDATE counter SET n = ?", [int(n) + 1])  # type: ignore[arg-type]
            one.commit(b"x")

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert count(connect) == 100


def test_durability_is_the_default(connect: Connect) -> None:
    database = connect()
    if database.is_sqlite:
        assert database.run("PRAGMA synchronous") == [(2,)]
        assert database.run("PRAGMA journal_mode") == [("wal",)]
    else:
        assert database.run("SHOW synchronous_commit") == [("on",)]


def test_a_site_db_under_somebody_elses_lock_is_busy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    holder = SqliteDatabase(tmp_path / "shop.db")
    monkeypatch.setattr("engine.projection.sqlite.BUSY_SECONDS", 0.01)
    holder.begin_write()
    with pytest.raises(DatabaseBusy, match="held by another process"):
        SqliteDatabase(tmp_path / "shop.db")
    holder.rollback()
    holder.close()
