"""Rows of crawls, written little by little: each write once, in its place, or not at all (HOOK-76, HOOK-77)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from engine.js.ports import SessionSpec
from engine.projection import archive
from engine.projection import archive_rows as rows
from engine.projection.archive import Statement, Verdict, Write
from engine.projection.session import Database
from tests.fakes import FakeClock
from tests.projection.conftest import Connect

AT = "2026-01-02T03:04:05Z"


@pytest.fixture
def database(connect: Connect) -> Database:
    opened = connect()
    archive.create_tables(opened)
    return opened


def snapshot(name: str = "s1", **values: Any) -> Statement:
    given = {
        "crawl_id": "c1",
        "parent": None,
        "url": f"http://a/{name}",
        "depth": 0,
        "title": "",
        "user": "u",
        "at": AT,
    }
    return rows.add_snapshot(name, **{**given, **values})


def queued(name: str, snapshot_id: str | None = "s1") -> Statement:
    place = {"position": 0, "step": 1, "background": False, "directory": "/d", "at": AT}
    return rows.queue_result(name, crawl_id="c1", snapshot_id=snapshot_id, plugin="p", hook="h", event="e", **place)  # type: ignore[arg-type]


def ended(name: str, status: str) -> Statement:
    nothing: dict[str, Any] = {"files": {}, "count": 0, "size": 0, "mimetypes": (), "warnings": (), "retry_at": None}
    return rows.end_result(name, status=status, exit_code=0, error="", at=AT, **nothing)


def started(name: str) -> Statement:
    return rows.start_result(name, attempt=1, command=["x"], machine="m", iface="i", at=AT)


def found(database: Database, sql: str) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in database.run(sql, ())]


def do(database: Database, *statements: Statement | list[Statement]) -> None:
    with archive.transaction(database):
        for one in statements:
            for sql, parameters in one if isinstance(one, list) else [one]:
                database.run(sql, parameters)


def write(
    clock: FakeClock, *statements: Statement | list[Statement], claim: int = 0, line: int = 0, **more: Any
) -> Write:
    key = SessionSpec(
        engine_uuid="e", op_key="1", generation=0, claimed_at=clock.now(), workflow_id="c1", op_id="s1/p/h"
    )
    flat = [each for one in statements for each in (one if isinstance(one, list) else [one])]
    return Write(spec=key, claim=claim, statements=flat, line=line, **more)


def test_lines_that_come_twice_are_applied_once_and_an_older_claim_writes_nothing(
    database: Database, clock: FakeClock
) -> None:
    count: Statement = ("UPDATE counter SET n = n + 1", ())

    def applied(**values: Any) -> Verdict:
        return archive.apply(database, clock, [write(clock, count, **values)])[0]

    assert [applied(line=line) for line in (1, 3, 3, 2, 4)] == [
        Verdict.APPLIED,
        Verdict.APPLIED,
        Verdict.REPEATED,
        Verdict.REPEATED,
        Verdict.APPLIED,
    ]
    assert applied(claim=1, line=1) is Verdict.APPLIED, "a later claim reads from the first line again"
    assert applied(claim=0, line=9) is Verdict.STALE
    assert applied(claim=1) is Verdict.APPLIED, "what goes back to no line is never a repetition"
    assert applied(claim=1, outcome=b"{}") is Verdict.APPLIED
    assert [applied(claim=claim, line=9) for claim in (1, 2)] == [Verdict.STALE] * 2, "the op is over"
    assert found(database, "SELECT n FROM counter") == [(6,)]
    assert found(database, "SELECT count(*) FROM hook_progress") == [(0,)]


def test_a_write_that_fails_takes_its_whole_group_back(database: Database, clock: FakeClock) -> None:
    good, bad = (
        write(clock, ("UPDATE counter SET n = 9", ()), line=1),
        write(clock, ("UPDATE nothing SET n = 1", ()), line=2),
    )
    with pytest.raises(Exception, match="nothing"):
        archive.apply(database, clock, [good, bad])
    assert found(database, "SELECT n FROM counter") == [(0,)]
    assert archive.apply(database, clock, [good]) == [Verdict.APPLIED]


def test_the_same_records_again_make_the_same_rows(database: Database) -> None:
    child = snapshot("s2", parent="s1", depth=1, title="Child")
    records = [snapshot(), child, *rows.add_tag("s1", "a", AT), *rows.add_tag("s2", "a", AT)]
    do(database, records)
    state = {
        table: found(database, f"SELECT * FROM {table} ORDER BY 1, 2")
        for table in ("snapshots", "tags", "snapshot_tags")
    }
    do(database, [*records, snapshot("s2", url="http://other/", title="Other")])
    for table, before in state.items():
        assert found(database, f"SELECT * FROM {table} ORDER BY 1, 2") == before
    assert len(state["tags"]) == 1


def test_only_a_longer_title_replaces_one(database: Database) -> None:
    do(database, snapshot(title="Middle"))
    for title, wanted in (
        ("Short", "Middle"),
        ("Same__", "Middle"),
        ("The longest", "The longest"),
        ("", "The longest"),
    ):
        do(database, rows.change_snapshot("s1", title=title, at=AT))
        assert found(database, "SELECT title FROM snapshots") == [(wanted,)]


def test_a_snapshot_is_sealed_when_all_its_hooks_are_over_and_opened_by_a_retry(database: Database) -> None:
    def status(table: str) -> str:
        return str(found(database, f"SELECT status FROM {table}")[0][0])

    common: dict[str, Any] = {"label": "", "urls": ["u"], "max_depth": 0, "user": "u", "config": {}, "at": AT}
    do(database, rows.queue_crawl("c1", **common))
    assert status("crawls") == "queued"
    do(database, rows.add_crawl("c1", directory="/c", **common), snapshot(), rows.start_snapshot("s1", "/s", AT))
    do(database, queued("r1"), queued("r2"), queued("crawl's own", None))
    for over in ("failed", "backoff"):
        do(database, rows.seal_snapshot("s1", AT), rows.seal_crawl("c1", AT))
        assert (status("snapshots"), status("crawls")) == ("started", "started")
        do(database, started("r1" if over == "failed" else "r2"), ended("r1" if over == "failed" else "r2", over))
    do(database, rows.seal_snapshot("s1", AT), rows.seal_crawl("c1", AT))
    assert (status("snapshots"), status("crawls")) == ("sealed", "started")
    do(database, ended("crawl's own", "skipped"), rows.seal_crawl("c1", AT))
    assert status("crawls") == "sealed"
    do(database, rows.reopen("c1", "s1", AT), started("r2"))
    assert (status("snapshots"), status("crawls")) == ("started", "started")
    do(database, rows.seal_snapshot("s1", AT), rows.seal_crawl("c1", AT))
    assert (status("snapshots"), status("crawls")) == ("started", "started")


@pytest.mark.parametrize(
    ("end", "results", "snapshots"),
    [
        (rows.cancel_crawl, ["succeeded", "canceled", "canceled", "canceled"], "canceled"),
        (rows.give_up, ["succeeded", "canceled", "failed", "canceled"], "sealed"),
    ],
)
def test_what_is_over_stays_as_it_is_when_an_operator_ends_a_crawl(
    database: Database, end: Any, results: list[str], snapshots: str
) -> None:
    do(database, snapshot(), *(queued(name) for name in ("r1", "r2", "r3", "r4")))
    do(database, ended("r1", "succeeded"), started("r2"), ended("r3", "backoff"), end("c1", AT))
    assert [row[0] for row in found(database, "SELECT status FROM archive_results ORDER BY id")] == results
    assert found(database, "SELECT status FROM snapshots") == [(snapshots,)]
    do(database, ended("r2", "succeeded"), rows.abandon_result("r4", "lost", AT))
    assert [row[0] for row in found(database, "SELECT status FROM archive_results ORDER BY id")] == results


def test_values_that_json_or_a_database_has_not_are_made_to_fit(database: Database) -> None:
    do(database, queued("r1"), rows.say_result("r1", text="x", value={"a": float("nan"), "b": "\ud800"}, at=AT))
    ((stored,),) = found(database, "SELECT output_json FROM archive_results")
    assert isinstance(json.loads(stored), str)
