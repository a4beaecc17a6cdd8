"""Forking an ended workflow: what is kept, what runs again, what is left out."""

from __future__ import annotations

import json
from typing import Any

import pytest
from sqlalchemy import event

from engine.errors import OpError, UsageError
from engine.model import Artifact, EdgeKind, LogLine, NewOp, NewWorkflow, Record, Result
from engine.outcome import Failed, Succeeded
from engine.store.reads import open_reads
from engine.store.store import Store
from tests.factories import attempt_states, claim, claim_one, new_op, run_all, settle, statuses, submit, succeed
from tests.fakes import FakeClock


def run(store: Store, emits: dict[str, list[NewOp]] | None = None, fails: tuple[str, ...] = ()) -> list[str]:
    """Run everything that can be claimed; the ids in order. ``emits`` by op id, ``fails`` for good."""
    ran: list[str] = []
    while leased := claim(store, limit=1).leased:
        op_id = leased[0].op.id
        ran.append(op_id)
        if op_id in fails:
            settle(store, (leased[0], Failed(OpError("runner_error", "no"))))
        else:
            specs = tuple((emits or {}).get(op_id, ()))
            settle(store, (leased[0], Succeeded(Result(data=json.dumps(op_id), emitted=specs))))
    return ran


def emitted(op_id: str, parent: str, after: Any = (), **values: Any) -> NewOp:
    return new_op(op_id, after, **({"parent_id": parent, "explicit_id": not op_id.startswith(parent)} | values))


def rows(store: Store, sql: str) -> list[tuple[Any, ...]]:
    with store.database.read() as connection:
        return [tuple(row) for row in connection.exec_driver_sql(sql)]


def dependency(store: Store, op_id: str, workflow_id: str) -> dict[str, Any]:
    reads = open_reads(store.url)
    try:
        found = reads.dependency(workflow_id, op_id)
    finally:
        reads.close()
    assert found is not None
    shown: dict[str, Any] = json.loads(found)
    return shown


def test_named_ops_and_what_depends_on_them_run_again_and_the_rest_is_kept(store: Store) -> None:
    after = [new_op("sum", [("b", EdgeKind.TERMINAL), "c"]), new_op("apart", ["a"]), new_op("last", ["sum"])]
    submit(store, [new_op("a"), new_op("b", ["a"]), new_op("c", ["a"]), *after])
    assert len(run(store)) == 6
    forked = store.fork("w1", ["b"], "w2")
    assert (forked.kept, forked.again, forked.dropped, forked.kept_unsuccessful) == (3, 3, 0, 0)
    assert statuses(store, "w2") == {
        "a": "succeeded",
        "b": "ready",
        "c": "succeeded",
        "sum": "pending",
        "apart": "succeeded",
        "last": "pending",
    }
    assert str(store.workflow_status("w2")) == "running"
    assert run(store) == ["b", "sum", "last"]
    assert str(store.workflow_status("w2")) == "succeeded"
    assert set(statuses(store, "w1").values()) == {"succeeded"}


def test_what_is_kept_shows_the_same_result_with_its_artifacts_log_and_attempts(store: Store) -> None:
    submit(store, [new_op("a"), new_op("b", ["a"])])
    body = Artifact(
        id="a:body",
        name="page",
        kind="k",
        content_type="text/html",
        metadata={"m": "1"},
        sha256="d1",
        size=3,
        body=b"abc",
    )
    record = Record(collection="c", key="k", data='{"n":1}')
    logs = (LogLine(at=7, message="said"),)
    succeed(
        store,
        claim_one(store, "a"),
        data='{"big":12345678901234567890}',
        records=(record,),
        artifacts=(body,),
        logs=logs,
    )
    run_all(store)
    store.fork("w1", ["b"], "w2")
    assert dependency(store, "a", "w2") == dependency(store, "a", "w1")
    assert {item["name"] for item in dependency(store, "a", "w2")["artifacts"]} == {"page", "execution-log"}
    assert rows(store, "SELECT count(*) FROM blob") == [(1,)]
    assert attempt_states(store, "a") == ["succeeded", "succeeded"]
    logged = "SELECT count(*) FROM log_line l JOIN attempt a ON a.token = l.token AND a.op_pk = l.op_pk"
    assert rows(store, logged) == [(2,)]
    assert rows(store, "SELECT count(DISTINCT token), count(*) FROM attempt") == [(3, 3)]
    assert [json.loads(text) for (text,) in rows(store, "SELECT metadata_json FROM workflow WHERE id = 'w2'")] == [
        {"forkedFrom": "w1", "forkedFromOps": "b"}
    ]


def test_what_a_rerun_op_had_emitted_is_dropped_until_it_emits_it_again(store: Store) -> None:
    emits = {"list": [emitted("list:emit:001", "list"), emitted("item", "list", ["list:emit:001"])]}
    emits["item"] = [emitted("item:emit:001", "item")]
    submit(store, [new_op("fetch"), new_op("list", ["fetch"])])
    assert len(run(store, emits)) == 5
    forked = store.fork("w1", ["list"], "w2")
    assert (forked.kept, forked.again, forked.dropped) == (1, 1, 3)
    assert statuses(store, "w2") == {"fetch": "succeeded", "list": "ready"}
    other = {"list": [emitted("list:emit:001", "list", input='"changed"')]}
    assert run(store, other) == ["list", "list:emit:001"]
    assert str(store.workflow_status("w2")) == "succeeded"


def test_an_emitted_op_may_be_named_and_its_emitter_stays(store: Store) -> None:
    submit(store, [new_op("seed")])
    run(store, {"seed": [emitted("x", "seed"), emitted("y", "seed", ["x"]), emitted("z", "seed")]})
    forked = store.fork("w1", ["x"], "w2")
    assert (forked.kept, forked.again, forked.dropped) == (2, 2, 0)
    assert run(store) == ["x", "y"]


def test_a_submitted_op_that_waits_for_a_dropped_one_is_put_back_and_waits_for_it_again(store: Store) -> None:
    submit(store, [new_op("seed"), new_op("summary", ["item", ("maybe", EdgeKind.TERMINAL)])])
    assert run(store, {"seed": [emitted("item", "seed")]}) == ["seed", "item", "summary"]
    store.fork("w1", ["seed"], "w2")
    assert statuses(store, "w2") == {"seed": "ready", "summary": "pending"}
    assert run(store, {"seed": [emitted("item", "seed")]}) == ["seed", "item", "summary"]
    store.fork("w1", ["seed"], "w3")
    assert run(store) == ["seed"]
    assert statuses(store, "w3") == {"seed": "succeeded", "summary": "canceled"}


def test_an_op_that_something_kept_had_asked_for_too_is_put_back_not_dropped(store: Store) -> None:
    submit(store, [new_op("a"), new_op("b", ["a"])])
    shared = emitted("shared", "a")
    run(store, {"a": [], "b": []} | {"a": [shared], "b": []})
    assert store.fork("w1", ["a"], "w2").dropped == 1
    run(store)
    submit(store, [new_op("a"), new_op("b")], "v1")
    run(store, {"a": [shared], "b": [shared]})
    forked = store.fork("v1", ["a"], "v2")
    assert (forked.kept, forked.again, forked.dropped) == (1, 2, 0)
    assert statuses(store, "v2") == {"a": "ready", "b": "succeeded", "shared": "ready"}


def test_links_back_do_not_make_what_was_there_before_run_again(store: Store) -> None:
    submit(store, [new_op("p1")])
    p1, p2, p3 = new_op("p1"), emitted("p2", "p1"), emitted("p3", "p2")
    assert run(store, {"p1": [p2], "p2": [p1, p3], "p3": [emitted("p2", "p3")]}) == ["p1", "p2", "p3"]
    forked = store.fork("w1", ["p3"], "w2")
    assert (forked.kept, forked.again, forked.dropped) == (2, 1, 0)
    again = store.fork("w1", ["p2"], "w3")
    assert (again.kept, again.again, again.dropped) == (1, 1, 1)


def test_an_id_that_was_deduplicated_away_still_names_what_stands(store: Store) -> None:
    def page(op_id: str, parent: str) -> NewOp:
        return emitted(op_id, parent, dedup_key="page")

    submit(store, [new_op("a"), new_op("b", ["a"]), new_op("c", ["b"])])
    waits = emitted("b:emit:002", "b", ["b:emit:001"])
    emits = {"a": [page("a:emit:001", "a")], "b": [page("b:emit:001", "b"), waits]}
    run(store, emits)
    assert statuses(store)["b:emit:002"] == "succeeded"

    store.fork("w1", ["c"], "kept")
    assert dependency(store, "b:emit:001", "kept")["opID"] == "a:emit:001"
    run(store)
    assert store.fork("w1", ["b:emit:001"], "named").again == 2
    assert statuses(store, "named")["a:emit:001"] == "ready"
    assert statuses(store, "named")["b:emit:002"] == "pending"
    run(store)


def test_an_op_whose_creator_runs_again_goes_by_the_id_that_something_kept_knows(store: Store) -> None:
    """The creator may use the old id for something else."""

    def page(op_id: str, parent: str) -> NewOp:
        return emitted(op_id, parent, dedup_key="page")

    submit(store, [new_op("a"), new_op("b")])
    waits = emitted("b:emit:002", "b", ["b:emit:001"])
    run(store, {"a": [page("a:emit:001", "a")], "b": [page("b:emit:001", "b"), waits]})
    store.fork("w1", ["a"], "w2")
    assert statuses(store, "w2") == {"a": "ready", "b": "succeeded", "b:emit:001": "ready", "b:emit:002": "pending"}
    fresh = {"a": [emitted("a:emit:001", "a", input='"something else"'), page("a:emit:002", "a")]}
    assert sorted(run(store, fresh)) == ["a", "a:emit:001", "b:emit:001", "b:emit:002"]
    assert str(store.workflow_status("w2")) == "succeeded"
    assert dependency(store, "a:emit:002", "w2")["opID"] == "b:emit:001"


def test_an_emitter_whose_op_was_deduplicated_away_may_use_the_id_for_something_else(store: Store) -> None:
    submit(store, [new_op("a"), new_op("b", ["a"])])
    run(
        store,
        {"a": [emitted("a:emit:001", "a", dedup_key="page")], "b": [emitted("b:emit:001", "b", dedup_key="page")]},
    )
    forked = store.fork("w1", ["b"], "w2")
    assert (forked.kept, forked.again, forked.dropped) == (2, 1, 0)
    assert run(store, {"b": [emitted("b:emit:001", "b", input='"other"')]}) == ["b", "b:emit:001"]
    assert str(store.workflow_status("w2")) == "succeeded"


@pytest.mark.parametrize("after", ["a", "page"])
def test_whoever_waited_for_an_id_before_it_was_deduplicated_away_waits_for_what_stands(
    store: Store, after: str
) -> None:
    """Whether or not that had ended when the id turned out to be another name of it."""
    submit(store, [new_op("a"), new_op("b", [after]), new_op("waits", ["b:emit:001"])])
    page, same = emitted("page", "a", dedup_key="page"), emitted("b:emit:001", "b", dedup_key="page")
    assert run(store, {"a": [page], "b": [same]})[-1] == "waits"
    forked = store.fork("w1", ["page"], "w2")
    assert (forked.again, forked.dropped) == (2 if after == "a" else 3, 0)
    assert run(store, {"b": [same]}) == ["page", *(["b"] if after == "page" else []), "waits"]
    assert store.fork("w1", ["waits"], "w3").again == 1
    assert run(store) == ["waits"]


def test_an_op_with_a_parent_of_its_authors_choice_belongs_to_whoever_emitted_it(store: Store) -> None:
    submit(store, [new_op("a", parent_id="somebody"), new_op("b", ["a"])])
    own = emitted("own", "a", parent_id="somebody", dedup_key="k")
    run(store, {"a": [own], "b": [emitted("b:emit:001", "b", dedup_key="k")]})
    forked = store.fork("w1", ["b"], "w2")
    assert (forked.kept, forked.again, forked.dropped) == (2, 1, 0)
    run(store)
    assert statuses(store, "w2") == {"a": "succeeded", "b": "succeeded", "own": "succeeded"}
    store.fork("w1", ["a"], "w3")
    assert statuses(store, "w3") == {"a": "ready", "b": "pending"}


def test_failed_and_canceled_ops_that_were_not_named_are_kept_as_they_are_and_can_be_retried(store: Store) -> None:
    submit(store, [new_op("a"), new_op("bad"), new_op("victim", ["a", "bad"])])
    run(store, fails=("bad",))
    assert str(store.workflow_status("w1")) == "failed"
    forked = store.fork("w1", ["a"], "w2")
    assert (forked.kept, forked.kept_unsuccessful, forked.again) == (1, 1, 2)
    assert statuses(store, "w2") == {"a": "ready", "bad": "failed", "victim": "canceled"}
    assert run(store) == ["a"]
    assert str(store.workflow_status("w2")) == "failed"
    assert store.retry("bad", "w2") == 2
    assert run(store) == ["bad", "victim"]
    assert str(store.workflow_status("w2")) == "succeeded"

    other = store.fork("w1", ["bad"], "w3")
    assert (other.kept, other.kept_unsuccessful, other.again) == (1, 0, 2)
    assert run(store) == ["bad", "victim"]
    submit(store, [new_op("a"), new_op("bad"), new_op("victim", ["bad"])], "v1")
    run(store, fails=("bad",))
    store.fork("v1", ["a"], "v2")
    assert statuses(store, "v2")["victim"] == "canceled"
    assert store.retry("bad", "v2") == 2
    assert sorted(run(store)) == ["a", "bad", "victim"]


def test_a_canceled_workflow_can_be_forked_and_is_not_canceled_then(store: Store) -> None:
    submit(store, [new_op("a"), new_op("b", ["a"])])
    succeed(store, claim_one(store, "a"))
    store.cancel("w1")
    store.fork("w1", ["b"], "w2")
    assert run(store) == ["b"]
    assert str(store.workflow_status("w2")) == "succeeded"


def test_an_op_that_runs_again_has_no_history_and_an_identity_of_its_own(store: Store, clock: FakeClock) -> None:
    submit(store, [new_op("a")])
    first = claim_one(store, "a")
    settle(store, (first, Failed(OpError("runner_error", "no"))))
    clock.advance(5)
    store.fork("w1", ["a"], "w2")
    again = claim_one(store, "a")
    assert again.op.pk != first.op.pk
    assert (again.lease.attempt, again.lease.earlier_claims, again.fence) == (1, 0, ())


def test_the_cookie_jar_goes_along(store: Store) -> None:
    submit(store, [new_op("login"), new_op("page", ["login"])])
    succeed(store, claim_one(store, "login"), cookies='{"k":{"v":1}}')
    run_all(store)
    store.fork("w1", ["page"], "w2")
    assert store.cookies("w2") == store.cookies("w1") == '{"k":{"v":1}}'


def test_an_op_runs_again_where_its_sites_database_has_moved_to(store: Store) -> None:
    store.home_of("shop", "m0")
    submit(store, [new_op("a", machine="m0"), new_op("b", machine="m0")])
    submit(store, [new_op("elsewhere", machine="m1")], "other")
    while leased := claim(store, machine="m0").leased:
        settle(store, *((item, Succeeded(Result())) for item in leased))
    store.rehome("shop", "m1", force=False)
    store.fork("w1", ["a"], "w2")
    assert claim(store, machine="m0").leased == ()
    assert sorted(item.op.id for item in claim(store, machine="m1").leased) == ["a", "elsewhere"]


def test_ops_of_a_fork_can_be_forked(store: Store) -> None:
    submit(store, [new_op("a"), new_op("b", ["a"])])
    run(store)
    store.fork("w1", ["b"], "w2")
    run(store)
    store.fork("w2", ["b"], "w3")
    assert run(store) == ["b"]
    assert dependency(store, "a", "w3")["data"] == "a"


def test_what_cannot_be_forked_is_refused_and_leaves_nothing(store: Store) -> None:
    submit(store, [new_op("seed"), new_op("late", ["ghost"])])
    for source, op_id, new_id, message in (
        ("w1", "seed", "w2", 'workflow "w1" is running; only one that has ended can be forked'),
        ("w0", "seed", "w2", 'no workflow "w0"'),
    ):
        with pytest.raises(UsageError, match=message):
            store.fork(source, [op_id], new_id)
    run(store)
    for op_id, new_id, message in (
        ("sed", "w2", 'no op "sed" in workflow "w1"; did you mean "seed"'),
        ("ghost", "w2", 'no op "ghost" in workflow "w1"'),
        ("seed", "w1", 'workflow "w1" exists already'),
    ):
        with pytest.raises(UsageError, match=message):
            store.fork("w1", [op_id], new_id)
    assert rows(store, "SELECT id FROM workflow") == [("w1",)]
    store.fork("w1", ["seed"], "w2")
    assert run(store) == ["seed"]


def test_a_fork_takes_a_number_of_statements_that_does_not_grow_with_the_workflow(store: Store) -> None:
    def statements(count: int, workflow_id: str) -> int:
        ops = [new_op(f"{number}") for number in range(count)]
        after = [new_op(f"after {number}", [str(number)]) for number in range(count)]
        store.submit(NewWorkflow(id=workflow_id, site="shop", name="n", ops=(*ops, *after)))
        run_all(store, limit=1000)
        seen: list[str] = []
        event.listen(store.database.engine, "before_cursor_execute", lambda *call: seen.append(call[2]))
        store.fork(workflow_id, ["0", "1"], f"{workflow_id} again")
        run_all(store)
        return len(seen)

    assert statements(400, "large") <= statements(3, "small")
