"""What hooks write takes effect exactly once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.errors import OpError
from engine.js.ports import DatabaseBusy
from engine.lifecycle.journal import Journal
from engine.lifecycle.scripts import scope_of
from engine.projection.postgresql import PostgresqlDatabase
from engine.store.store import Store
from tests.lifecycle.rig import Rig


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    made = Rig(tmp_path_factory.mktemp("storage"))
    yield made
    made.close()


def stored(rig: Rig) -> dict[str, str]:
    """What is committed of the job's store."""
    return {str(key): str(value) for key, value in rig.database.run("SELECT key, value FROM monitor_kv")}


def fresh(rig: Rig, hooks: str, **cycle: Any) -> None:
    """These hooks in a new cycle, with nothing stored."""
    for table in ("monitor_kv", "monitor_batch", "monitor_outbox"):
        rig.database.run(f"DELETE FROM {table}")
    rig.next_cycle(**cycle)
    rig.logs.clear()
    rig.load(hooks, "")


def crash(rig: Rig, hooks: str) -> None:
    """The process is gone before the hook's end was kept; another one begins with the same cycle."""
    rig.cycle = rig.new_cycle(rig.cycle.cycle_id)
    rig.logs.clear()
    rig.load(hooks, "")


def lose_the_end(rig: Rig, stage: str, *arguments: Any) -> None:
    """Call a hook and lose its end, as a kill does."""

    def lost(*_: object) -> None:
        raise ConnectionError("killed")

    rig.cycle.journal.finish_all = lost  # type: ignore[assignment, method-assign]
    with pytest.raises(ConnectionError):
        rig.call(stage, *arguments)


def test_texts_are_kept_for_the_job_and_missing_ones_are_null(rig: Rig) -> None:
    """JOBHOOK-70."""
    fresh(
        rig,
        """async function before_fetch() {
             log(await store_get("a"));
             await store_set("a", "1"); await store_set("n", 2.5); await store_set("b", "x"); await store_delete("b");
             log(await store_get("a"), await store_get("b")); return null }
           async function on_success() { log(await store_get("a"), typeof await store_get("n")) }""",
    )
    rig.call("before_fetch", {})
    rig.call("on_success")
    assert rig.messages == ["null", "1 null", "1 string"]
    assert stored(rig) == {"a": "1", "n": "2.5"}
    others = rig.database.run("SELECT COUNT(*) FROM monitor_kv WHERE job_id <> 'deals'")
    assert others == [(0,)]


@pytest.mark.parametrize(
    "call",
    [
        "store_set('a\\0', '')",
        "store_set('a', {})",
        "store_set('a')",
        "store_set('a', null)",
        "store_get(null)",
        "store_incr('a', 'x')",
    ],
)
def test_what_is_no_text_is_refused(rig: Rig, call: str) -> None:
    """JOBHOOK-70."""
    fresh(rig, f"async function before_fetch() {{ await {call} }}")
    called = rig.call("before_fetch", {})
    assert called.error.startswith(f"TypeError: {call.partition('(')[0]}: the")


def test_a_hook_that_ended_is_not_called_again_and_its_ctx_is_as_it_left_it(rig: Rig) -> None:
    """JOBHOOK-50."""
    hooks = """async function before_fetch(r, ctx) {
        await store_incr("calls"); ctx.shared.page = 7; r.url = "u" + await store_get("calls"); return r }
      function after_fetch(f, ctx) { log(ctx.shared.page); throw new Error("again") }"""
    fresh(rig, hooks)
    first = rig.call("before_fetch", {})
    crash(rig, hooks)
    second = rig.call("before_fetch", {})
    assert second.replayed
    assert (second.value, second.duration_ms) == (first.value, first.duration_ms) == ({"url": "u1"}, first.duration_ms)
    failed = rig.call("after_fetch", {"ok": True})
    assert rig.messages[0] == "7"
    crash(rig, hooks)
    assert (rig.call("after_fetch", {}).error, stored(rig)) == (failed.error, {"calls": "1"})
    assert rig.messages == []


def test_writes_of_a_hook_take_effect_together_with_its_end_or_not_at_all(rig: Rig) -> None:
    """JOBHOOK-50 and JOBHOOK-86."""
    hooks = """async function before_fetch(r, ctx) {
        await store_set("a", "1"); await batch_set("b", [1]); await notify("new", "text", 100); ctx.shared.x = 1;
        return r }"""
    fresh(rig, hooks)
    lose_the_end(rig, "before_fetch", {})
    announced = "SELECT id, channel, status, payload_json FROM monitor_outbox"
    assert (stored(rig), rig.database.run(announced)) == ({}, [])
    crash(rig, hooks)
    assert not rig.call("before_fetch", {}).replayed
    assert stored(rig) == {"a": "1"}
    assert rig.database.run("SELECT iteration_id, value_json FROM monitor_batch") == [("deals/1", "[1]")]
    (row,) = rig.database.run(announced)
    assert row[:3] == (f"{rig.cycle.cycle_id}/before_fetch/0/notify1", "notification", "pending")
    assert json.loads(str(row[3])) == {"title": "new", "body": "text", "timeout": 100}


def test_a_hook_that_throws_keeps_what_it_wrote_before(rig: Rig) -> None:
    """JOBHOOK-50: it ended, and is not called again."""
    fresh(rig, "async function before_fetch(r, ctx) { await store_set('a', '1'); ctx.shared.x = 1; throw new Error() }")
    rig.call("before_fetch", {})
    assert (stored(rig), rig.cycle.kept) == ({"a": "1"}, {"shared": {"x": 1}})


def test_a_counter_counts_once_however_often_its_hook_is_run(rig: Rig) -> None:
    """JOBHOOK-51."""
    hooks = """async function before_fetch(r) {
        await store_set("n", "10");
        log(await store_incr("n", 0, 5), await store_get("n"), await batch_incr("b", 100, 1));
        return r }"""
    fresh(rig, hooks)
    for _ in range(2):
        lose_the_end(rig, "before_fetch", {})
        assert rig.database.run("SELECT value_json FROM monitor_batch") == [("101",)]
        crash(rig, hooks)
    rig.call("before_fetch", {})
    assert rig.messages == ["15 15 101"]
    assert stored(rig) == {"n": "15"}


def test_counters_begin_at_their_default_and_leave_alone_what_is_no_number(rig: Rig) -> None:
    """JOBHOOK-73."""
    fresh(
        rig,
        """async function before_fetch(r) {
             log(await store_incr("new"), await store_incr("new", 50, 2), await store_incr("half", 1, 0.5));
             await store_set("word", "ten"); log(await store_incr("word", 3, 1), await store_get("word")) }""",
    )
    rig.call("before_fetch", {})
    assert [message for level, message in rig.logs if level == "info"] == ["1 3 1.5", "3 ten"]
    assert ("error", "store_incr(word): 'ten' is not a number") in rig.logs


def test_sql_takes_effect_at_once_and_once(rig: Rig) -> None:
    """JOBHOOK-51 and JOBHOOK-74."""
    hooks = """db_exec("CREATE TABLE IF NOT EXISTS pages (url TEXT, n INTEGER)");
      async function before_fetch(r) {
        log(await db_exec("INSERT INTO pages VALUES (?, ?), ('b', NULL)", ["a", 1]));
        log(await db_exec("CREATE TABLE IF NOT EXISTS more (x)"));
        log(JSON.stringify(await db_query("SELECT url, n FROM pages WHERE url >= ? ORDER BY url", ["a"])));
        return r }"""
    fresh(rig, hooks)
    for _ in range(2):
        lose_the_end(rig, "before_fetch", {})
        assert rig.database.run("SELECT COUNT(*) FROM pages") == [(2,)]
        crash(rig, hooks)
    rig.call("before_fetch", {})
    assert rig.messages == ["2", "0", '[{"url":"a","n":1},{"url":"b","n":null}]']


def test_sql_that_fails_rejects_and_the_hook_may_go_on(rig: Rig) -> None:
    """JOBHOOK-74."""
    fresh(
        rig,
        """async function before_fetch(r) {
             for (const sql of ["INSERT INTO nowhere VALUES (1)", "DELETE FROM hook_journal", "BEGIN; nonsense"])
               await db_exec(sql).catch((error) => log(error.name, error.message));
             await db_query("SELECT * FROM nowhere").catch((error) => log(error.name));
             return r }""",
    )
    assert rig.call("before_fetch", {}).is_table
    assert rig.messages[0] == "SqlError no such table: nowhere"
    assert "engine's own tables" in rig.messages[1]
    assert len(rig.messages) == 4


def test_a_statement_that_runs_too_long_is_ended_with_its_hook(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """JOBHOOK-24: and the connection is free for the next one."""
    monkeypatch.setattr("engine.js.v8._STOP_SECONDS", 0.1)
    endless = "WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) "
    rig.settings = {"hook_seconds": 0.25}
    try:
        fresh(
            rig,
            f"""async function before_fetch() {{ await db_exec("CREATE TABLE found AS {endless} SELECT x FROM n") }}
                async function after_fetch(f) {{ log(await store_incr("n")); return f }}""",
        )
        called = rig.call("before_fetch", {})
    finally:
        rig.settings = {}
    assert called.outcome == "threw"
    assert not rig.database.in_transaction
    assert not rig.database.has_table("found")
    assert rig.call("after_fetch", {"ok": True}).is_table
    assert rig.messages[-1] == "1"


def test_one_row_is_claimed_by_one_cycle_and_given_again_to_its_repetition(rig: Rig) -> None:
    """JOBHOOK-75."""
    hooks = """db_exec("CREATE TABLE IF NOT EXISTS work (id INTEGER PRIMARY KEY, taken TEXT)");
      async function before_fetch(r) {
        const rows = await db_query("UPDATE work SET taken = ? WHERE id = "
          + "(SELECT id FROM work WHERE taken IS NULL ORDER BY id LIMIT 1) RETURNING id", [r.by]);
        return { url: String(rows[0].id) } }"""
    fresh(rig, hooks)
    rig.call("before_fetch", {"by": "?"})  # makes the table; there is no row to have
    rig.database.run("INSERT INTO work (id) VALUES (1), (2), (3)")
    fresh(rig, hooks)
    lose_the_end(rig, "before_fetch", {"by": "one"})
    one = rig.cycle
    fresh(rig, hooks)
    assert rig.call("before_fetch", {"by": "two"}).value == {"url": "2"}
    rig.cycle = one
    crash(rig, hooks)
    assert rig.call("before_fetch", {"by": "one"}).value == {"url": "1"}


def test_a_repetition_that_does_something_else_is_an_error_of_the_hook(rig: Rig) -> None:
    """JOBHOOK-52."""
    table = 'db_exec("CREATE TABLE IF NOT EXISTS t (n)");'
    fresh(rig, table + "async function before_fetch(r) { await db_exec('INSERT INTO t VALUES (1)'); return r }")
    lose_the_end(rig, "before_fetch", {})
    crash(rig, table + "async function before_fetch(r) { await db_exec('INSERT INTO t VALUES (2)'); return r }")
    called = rig.call("before_fetch", {})
    assert "call 1 of before_fetch is not the one it was when the hook was interrupted" in called.error
    assert rig.database.run("SELECT n FROM t") == [(1,)]


def test_of_two_runs_of_a_cycle_one_keeps_the_end_of_a_hook(rig: Rig) -> None:
    """JOBHOOK-50."""
    hooks = "async function before_fetch(r) { await store_set('by', r.by); return r }"
    fresh(rig, hooks)
    Journal(rig.database, rig.cycle.cycle_id).finish("before_fetch", 1, "{}", "{}")
    late = rig.cycle.journal
    assert late.stage("before_fetch", 1) is not None
    late.stage = lambda *_: None  # type: ignore[method-assign]
    with pytest.raises(DatabaseBusy, match="another run"):
        rig.call("before_fetch", {"by": "late"}, seq=1)
    assert stored(rig) == {}


def test_tables_made_at_the_top_level_are_made_once_for_the_same_scripts(rig: Rig) -> None:
    """JOBHOOK-4."""
    hooks = 'db_exec("CREATE TABLE once (n)"); function before_fetch(r) { return r }'
    fresh(rig, hooks)
    assert rig.call("before_fetch", {}).is_table
    crash(rig, hooks)
    assert rig.call("before_fetch", {}, seq=1).is_table
    fresh(rig, hooks + "// other scripts")
    called = rig.call("before_fetch", {})
    assert "table once already exists" in called.error


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("store_set('a', '1')", "store_set cannot be called at the top level"),
        ("http_get('http://x')", "http_get cannot be called at the top level"),
        ("db_query('SELECT 1')", "db_query cannot be called at the top level"),
        ("db_exec('INSERT INTO t VALUES (1)')", "only makes tables"),
        ("db_exec('CREATE TABLE t (a); INSERT INTO t VALUES (1)')", "only makes tables"),
    ],
)
def test_nothing_else_is_done_at_the_top_level(rig: Rig, call: str, message: str) -> None:
    """JOBHOOK-4."""
    with pytest.raises(OpError, match=message):
        fresh(rig, call)


def test_hooks_of_many_items_end_together_and_each_is_kept(rig: Rig) -> None:
    """JOBHOOK-50."""
    hooks = """async function filter_item(i, ctx) {
        ctx.shared.n = (ctx.shared.n || 0) + 1; await store_set("last", i.fields.n); return i }"""
    items = [[{"fields": {"n": str(n)}, "matches": []}] for n in range(30)]
    fresh(rig, hooks)
    loaded = rig.load(hooks)
    begun: list[int] = []
    begin = rig.database.begin_write

    def counted() -> None:
        begun.append(1)
        begin()

    rig.database.begin_write = counted  # type: ignore[method-assign]
    try:
        called = loaded.call_each("filter_item", items, rig.cycle)
    finally:
        rig.database.begin_write = begin  # type: ignore[method-assign]
    assert len(begun) <= 2  # many would mean a disk flush for each item
    assert [item.value["fields"]["n"] for item in called] == [str(n) for n in range(30)]
    assert (stored(rig), rig.cycle.kept["shared"]) == ({"last": "29"}, {"n": 30})
    again = rig.new_cycle(rig.cycle.cycle_id)
    repeated = rig.load(hooks).call_each("filter_item", items, again)
    assert all(item.replayed for item in repeated)
    assert again.kept["shared"] == {"n": 30}


GLOBALS = """async function before_fetch(r) {
    log(await global_store_get("g"), await global_store_get("n"));
    await global_store_set("g", "1"); await global_store_set("gone", "x"); await global_store_delete("gone");
    log(await global_store_incr("n", 10, 5), await global_store_incr("n", 0, 1), await global_store_get("gone"));
    log(await global_store_incr("g-word", 1, 1));
    return r }"""


def test_what_all_jobs_share_changes_at_once_and_once(rig: Rig, engine_url: str) -> None:
    """JOBHOOK-51, JOBHOOK-71 and JOBHOOK-73."""
    store = Store.open(engine_url)
    try:
        ask = rig.ask = store.kv
        ask("kv.set", {"key": "g-word", "value": "ten", "scope": "", "call": "a"})
        fresh(rig, GLOBALS)
        lose_the_end(rig, "before_fetch", {})
        assert rig.messages == []
        crash(rig, GLOBALS)
        rig.call("before_fetch", {})
        infos = [message for level, message in rig.logs if level == "info"]
        assert infos == ["1 16", "15 16 null", "1"]
        assert ("error", "global_store_incr(g-word): 'ten' is not a number") in rig.logs
        fresh(rig, "async function before_fetch(r) { log(await global_store_incr('n', 0, 1)); return r }")
        rig.call("before_fetch", {})
        assert rig.messages == ["17"]
        ask("kv.forget", {"scope": scope_of("shop", rig.cycle.cycle_id)})
        with store.database.read() as connection:
            left = connection.exec_driver_sql("SELECT DISTINCT scope FROM kv_call ORDER BY 1").fetchall()
        assert rig.cycle.cycle_id not in str(left)
        assert len(left) == 2
    finally:
        rig.ask = None
        store.close()


def test_without_a_worker_a_shared_counter_is_its_default(rig: Rig) -> None:
    """JOBHOOK-73."""
    fresh(rig, "async function before_fetch(r) { log(await global_store_incr('n', 4, 1)); return r }")
    rig.call("before_fetch", {})
    assert rig.logs == [("error", "global_store_incr(n): there is no global store here"), ("info", "4")]


def test_a_site_in_postgresql_keeps_the_same_rules(pg_url: str, tmp_path: Path) -> None:
    """JOBHOOK-50, JOBHOOK-51 and JOBHOOK-74."""
    hooks = """db_exec("CREATE TABLE IF NOT EXISTS work (id INTEGER, taken TEXT)");
      async function before_fetch(r, ctx) {
        log(engine.storage);
        log(await store_incr("n", 1, 2), await db_exec("INSERT INTO work (id) VALUES (?), (?)", [1, 2]));
        const rows = await db_query("UPDATE work SET taken = 'me' WHERE id = (SELECT min(id) FROM work) RETURNING id");
        log(JSON.stringify(rows), (await db_query("SELECT count(*) AS n FROM work"))[0].n);
        await db_query("SELECT nonsense").catch((error) => log(error.name));
        await db_exec("DELETE FROM hook_journal").catch((error) => log(error.name));
        await store_set("s", "1\\0"); await batch_set("b", "\\0"); await notify("t"); ctx.shared.x = 1;
        return { url: String(rows[0].id) } }"""
    rig = Rig(tmp_path, PostgresqlDatabase(pg_url))
    try:
        rig.load(hooks)
        lose_the_end(rig, "before_fetch", {})
        for _ in range(2):
            crash(rig, hooks)
            assert rig.call("before_fetch", {}).value == {"url": "1"}
        assert rig.messages == []
        assert stored(rig) == {"n": "3", "s": "1\ufffd"}
        assert rig.database.run("SELECT COUNT(*), COUNT(taken) FROM work") == [(2, 1)]
        assert rig.database.run("SELECT channel FROM monitor_outbox") == [("notification",)]
        assert rig.cycle.journal.latest_ctx() == '{"shared":{"x":1}}'
    finally:
        rig.close()
