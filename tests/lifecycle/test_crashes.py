"""A process that dies at any commit of an iteration: the iteration goes on as if nothing had been."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from engine.js.ports import SqlValue
from engine.lifecycle.cycle import CycleRun
from engine.lifecycle.scripts import PIPELINE_HOOKS
from engine.projection.sqlite import SqliteDatabase
from tests.lifecycle.bench import Bench, Crash

#: Every hook counts its calls; one more writes rows of its own.
HOOKS = (
    """db_exec("CREATE TABLE IF NOT EXISTS mine (name TEXT)");
"""
    + "\n".join(
        f"async function {name}(value) {{ await store_incr('{name}'); return value }}"
        for name in PIPELINE_HOOKS
        if name not in ("override_fetch", "override_extract", "before_store")
    )
    + """
async function before_store(items, ctx) {
  for (const item of items) await db_exec("INSERT INTO mine VALUES (?)", [item.fields.name]);
  await store_set("last", items[items.length - 1].fields.name);
  return items;
}
"""
)
DEFER = """
async function on_success(ctx) { await store_incr("on_success"); await batch_incr("cycles") }
async function on_finally() { await store_incr("on_finally"); notify("done", "") }
async function on_finished() {
  await store_incr("on_finished");
  await store_set("cycles", String(await batch_get("cycles")));
}
"""
EXPECTED = {
    **dict.fromkeys(("before_fetch", "after_fetch", "after_extract", "before_notify", "before_webhook"), "1"),
    **dict.fromkeys(("on_success", "on_finally", "on_finished", "cycles"), "1"),
    "filter_item": "2",
    "last": "two",
}


#: Commits from one death to the next; each of these phases is tried, so that every commit is one's last once.
EVERY = 6


class Mortal(SqliteDatabase):
    """A site DB whose process dies before or after every so many commits."""

    commits = 0
    #: None: it lives.
    phase: int | None = None
    after = False
    deaths = 0
    #: From its death to the next process: whatever still runs of the old one reaches nothing.
    dead = False

    def begin_write(self) -> None:
        self._alive()
        super().begin_write()

    def run(self, sql: str, params: Sequence[SqlValue] = ()) -> list[tuple[SqlValue, ...]]:
        self._alive()
        return super().run(sql, params)

    def _alive(self) -> None:
        if self.dead:
            raise Crash

    def commit(self) -> None:
        self.commits += 1
        dying = self.commits % EVERY == self.phase
        if dying and not self.after:
            self._die()
        super().commit()
        if dying:
            self._die()

    def _die(self) -> None:
        self.deaths += 1
        self.dead = True
        self.rollback()
        raise Crash

    def until_done(self, step: Callable[[], Any]) -> Any:
        """The same step in a new process, as often as it takes."""
        while True:
            try:
                return step()
            except Crash:
                self.rollback()
                self.dead = False


def iterate(folder: Path, phase: int | None, *, after: bool) -> tuple[Bench, Mortal]:
    folder.mkdir()
    database = Mortal(folder / "site.db")
    bench = Bench(folder, database)
    bench.job(HOOKS, DEFER, webhook={"url": "http://sink/x"})
    bench.step("warm", "outbox", job="job", cycle_id="none", ids=[], version="")
    database.commits, database.phase, database.after = 0, phase, after
    bench.iterate(database.until_done)
    return bench, database


def check(bench: Bench) -> None:
    kept = dict(bench.rows("SELECT key, value FROM monitor_kv"))
    assert kept == EXPECTED
    assert bench.names() == ["one", "two"]
    assert bench.rows("SELECT name FROM mine ORDER BY rowid") == [("one",), ("two",)]
    assert {name for name, _ in bench.posted} == {"job/1/1"}
    assert len({body for _, body in bench.posted}) == 1
    announced = bench.rows("SELECT id, status FROM monitor_outbox ORDER BY id")
    assert announced == [
        ("job/1/1", "sent"),
        ("job/1/1/notification", "sent"),
        ("job/1/1/on_finally/0/notify1", "sent"),
    ]
    assert bench.outcomes() == [("success", "")]
    for table, owner in (
        ("hook_journal", "cycle_id"),
        ("monitor_calls", "cycle_id"),
        ("monitor_batch", "iteration_id"),
    ):
        assert bench.rows(f"SELECT * FROM {table} WHERE {owner} LIKE 'job/%'") == [], table
    inactive = [name for name, stage in bench.stages().items() if stage["status"] != "success"]
    assert inactive == ["override_fetch", "override_extract"]


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_death_at_any_commit_loses_nothing_and_does_nothing_twice(tmp_path: Path, after: bool) -> None:
    """JOB-220"""
    whole, database = iterate(tmp_path / "whole", None, after=after)
    check(whole)
    whole.close()
    assert database.commits > 4 * EVERY
    for phase in range(EVERY):
        bench, mortal = iterate(tmp_path / str(phase), phase, after=after)
        assert mortal.deaths >= database.commits // EVERY
        check(bench)
        bench.close()


def test_without_hooks_items_and_their_announcements_are_one_transaction(tmp_path: Path) -> None:
    """JOB-221, JOB-820"""
    for commit in range(1, 20):
        folder = tmp_path / str(commit)
        folder.mkdir()
        database = Mortal(folder / "site.db")
        bench = Bench(folder, database)
        bench.job(webhook={"url": "http://sink/x"})
        begun = bench.step("w1", "begin", job="job").value
        given = {"plan": begun["plan"], "cycle": begun["cycles"][0]}
        bench.fetch("w1", given, begun["requests"]["http://s/page"], lambda step: step())
        database.commits, database.phase, database.after = EVERY - commit, 0, True
        with contextlib.suppress(Crash):
            bench.step("w1", "process", **given)
        database.phase, database.dead = None, False
        stored = bench.names()
        texts = [row[0] for row in bench.rows("SELECT payload_json IS NOT NULL FROM monitor_outbox")]
        assert (stored, texts) in (([], []), (["one", "two"], [1, 1]))
        bench.close()
        if not database.deaths:
            return


def test_what_is_stored_is_announced_even_if_its_op_never_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """JOB-221"""
    bench = Bench(tmp_path)
    bench.job("function before_webhook(payload) { return payload }", webhook={"url": "http://sink/x"})
    begun = bench.step("w1", "begin", job="job").value
    given = {"plan": begun["plan"], "cycle": begun["cycles"][0]}
    bench.fetch("w1", given, begun["requests"]["http://s/page"], lambda step: step())
    with monkeypatch.context() as patched:

        def give_up(_run: CycleRun) -> None:
            raise Crash

        patched.setattr(CycleRun, "announce", give_up)
        with pytest.raises(Crash):
            bench.step("w1", "process", **given)
    assert bench.rows("SELECT status FROM monitor_outbox ORDER BY id") == [("draft",), ("draft",)]
    ended = bench.step("w1", "conclude", **given).value
    assert (ended["status"], ended["late"]) == ("error", ["job/1/1"])
    assert bench.rows("SELECT channel, status FROM monitor_outbox ORDER BY id") == [
        ("webhook", "pending"),
        ("notification", "sent"),
    ]
    bench.close()
