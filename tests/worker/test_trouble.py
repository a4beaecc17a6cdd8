"""Databases that are locked, gone or not ours: the worker says so, waits, and loses nothing (WRK-20 to WRK-29)."""

from __future__ import annotations

import os
import sqlite3
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from engine.errors import DatabaseRefused
from engine.filelock import FileLock
from engine.model import Op
from engine.store.store import Store
from engine.store.types import Settlement, SettleReport
from engine.worker.options import Silent
from tests.worker.lab import COUNTERS, Lab, js


class Watcher(Silent):
    """Keeps what an operator would see."""

    def __init__(self) -> None:
        self.notices: list[str] = []
        self.ended = threading.Event()

    def notice(self, message: str) -> None:
        self.notices.append(message)

    def op_ended(self, op: Op, ending: str, detail: str) -> None:
        self.ended.set()


def counting_lab(lab: Lab, ops: int) -> Lab:
    """A lab with ops that each bump a counter."""
    lab.write("migrations/001_c.sql", COUNTERS)
    lab.write("scripts/bump.js", "module.exports = () => void require('site-db').exec('UPDATE counter SET n = n + 1')")
    lab.submit(*(js(f"op{n}", "bump") for n in range(ops)))
    return lab


def test_backends_terminated_in_mid_run_burn_no_attempt_and_double_nothing(
    pg_url: str, pg_admin_url: str, tmp_path: Path
) -> None:
    lab = counting_lab(Lab(pg_url, tmp_path), 60)
    name = pg_url.rpartition("/")[2].partition("?")[0]
    watcher = Watcher()
    stop = threading.Event()

    def terminate() -> None:
        watcher.ended.wait(60)
        with psycopg.connect(pg_admin_url, autocommit=True) as admin:
            while not stop.wait(0.3):
                admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [name])

    saboteur = threading.Thread(target=terminate)
    saboteur.start()
    try:
        report = lab.watch(watcher, js_processes=2)
    finally:
        stop.set()
        saboteur.join()
    assert report.succeeded == 60
    assert lab.site("SELECT n FROM counter") == [(60,)]
    assert set(lab.statuses().values()) == {"succeeded"}


class Locker(Watcher):
    """Takes the engine DB's lock while the first op runs, and lets it go once the worker has noticed."""

    def __init__(self, database: str) -> None:
        super().__init__()
        self._lock = FileLock(Path(database))
        self._noticed = False

    def op_started(self, op: Op) -> None:
        if not self._noticed:
            self._lock.acquire(30)

    def notice(self, message: str) -> None:
        super().notice(message)
        self._noticed = True
        self._lock.close()


def test_a_locked_engine_db_is_said_and_waited_for(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.dialect.LOCK_SECONDS", 0.2)
    counting_lab(lab, 3)
    watcher = Locker(lab.engine_db)
    report = lab.watch(watcher, max_workers=1)
    assert report.succeeded == 3
    assert any("unavailable" in notice for notice in watcher.notices)
    assert any("available again" in notice for notice in watcher.notices)
    assert lab.site("SELECT n FROM counter") == [(3,)]


@pytest.mark.parametrize("kind", ["newer", "corrupt", "foreign", "directory"])
def test_an_engine_db_that_cannot_be_used_is_refused_untouched(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "engine.db"
    words = spoil(path, kind)
    before = path.read_bytes() if path.is_file() else b""
    with pytest.raises(DatabaseRefused, match=words):
        Store.open(path)
    assert not path.is_file() or path.read_bytes() == before


def spoil(path: Path, kind: str) -> str:
    match kind:
        case "newer":
            Store.open(path).close()
            with closing(sqlite3.connect(path)) as database:
                database.execute("UPDATE alembic_version SET version_num = '9999'")
                database.commit()
                database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            return "newer than this scraper"
        case "corrupt":
            path.write_bytes(b"this is no database at all" * 100)
            return "not a database"
        case "foreign":
            with closing(sqlite3.connect(path)) as database:
                database.execute("PRAGMA journal_mode = WAL")
                database.execute("CREATE TABLE recipes (name)")
                database.commit()
            return "not an engine database"
        case _:
            path.mkdir()
            return "is a directory"


def test_an_engine_db_that_breaks_for_good_ends_the_worker_at_once(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """What ran is dropped, to be found again by its lease: nobody waits for outcomes that cannot be stored."""
    settle = Store.settle

    def broken(store: Store, settlements: Sequence[Settlement], *more: Any) -> SettleReport:
        if settlements:
            raise DatabaseRefused("engine.db: database disk image is malformed")
        return settle(store, settlements, *more)

    monkeypatch.setattr(Store, "settle", broken)
    counting_lab(lab, 12)
    with pytest.raises(DatabaseRefused, match="malformed"):
        lab.work(max_workers=4)
    assert lab.site("SELECT n > 0 FROM counter") == [(1,)]


def test_an_engine_db_that_may_not_be_written_is_refused() -> None:
    with _ordinary_user(), tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "engine.db"
        Store.open(path).close()
        path.chmod(0o444)
        with pytest.raises(DatabaseRefused, match="read-only"):
            Store.open(path)


@contextmanager
def _ordinary_user() -> Iterator[None]:
    """File permissions say nothing to root."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)
