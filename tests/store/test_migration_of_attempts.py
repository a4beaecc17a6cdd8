"""Attempts of an engine DB from before they were kept apart from what runs."""

from __future__ import annotations

from alembic import command

from engine.model import Result
from engine.outcome import Succeeded
from engine.store import migrate
from engine.store.compat import create_views
from engine.store.store import Store
from tests.factories import attempt_states, claim, claim_one, new_op, settle, submit


def move(store: Store, revision: str) -> None:
    """Bring the database to another revision."""
    with store.database.write() as connection:
        config = migrate._config()
        config.attributes["connection"] = connection
        (command.upgrade if revision == "head" else command.downgrade)(config, revision)
        if revision == "head":
            create_views(connection, sqlite=store.database.is_sqlite)


def test_what_ended_and_what_runs_survive_the_way_there_and_back(store: Store) -> None:
    submit(store, [new_op("ended"), new_op("running"), new_op("waiting")])
    settle(store, (claim_one(store, "ended"), Succeeded(Result())))
    running = claim_one(store, "running")
    store.settle([], [(running.lease.token, 77)])
    try:
        move(store, "0006")
        with store.database.read() as connection:
            old = connection.exec_driver_sql("SELECT token, state, started_at FROM attempt ORDER BY pk").all()
    finally:
        move(store, "head")
    assert [(row.state, row.started_at) for row in old] == [("succeeded", None), ("running", 77)]
    assert old[1].token == running.lease.token
    assert attempt_states(store, "ended") == ["succeeded"]
    assert attempt_states(store, "running") == ["running"]
    with store.database.read() as connection:
        assert connection.exec_driver_sql("SELECT started_at FROM op WHERE id = 'running'").scalar_one() == 77
    report = settle(store, (running, Succeeded(Result())))
    assert report.verdicts
    assert attempt_states(store, "running") == ["succeeded"]
    assert [leased.op.id for leased in claim(store).leased] == ["waiting"]
