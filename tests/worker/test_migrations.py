"""Migrations of a site DB: order, names, failures, and a process killed in the middle of one (DB-30 to DB-34)."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sqlite3
import time
from contextlib import closing
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from cli.main import run
from engine.app import MigrationReport, migrate_site
from engine.errors import OpError, SiteError
from engine.js.pool import JsPool, PoolSettings
from engine.jschild import ENVIRONMENT
from engine.model import NewOp
from engine.projection.migrate import find_migrations
from tests import warm
from tests.cli.console import clean_env
from tests.worker.lab import MANIFEST, SITE, Lab, js


def migrate(lab: Lab) -> MigrationReport:
    """Migrate the lab's site as ``site migrate`` does."""
    return migrate_site(lab.settings, lab.registry.site(SITE))


def test_sql_and_javascript_migrations_run_in_the_order_of_their_numbers(lab: Lab) -> None:
    """DB-30, DB-32."""
    lab.write("migrations/10_last.sql", "INSERT INTO t SELECT 'ten;' || count(*) FROM t; -- the end")
    lab.write("migrations/002_t.sql", "CREATE TABLE t (v TEXT);\nINSERT INTO t VALUES ('two');")
    lab.write("jsmigrations/lib/words.js", "module.exports = {three: 'three'}")
    lab.write(
        "jsmigrations/03_fill.js",
        """const db = require("site-db");
        module.exports = async (m) => {
          await Promise.resolve();
          m.log("filling");
          const changed = m.exec("INSERT INTO t VALUES (?)", require("./lib/words").three);
          db.exec("INSERT INTO t VALUES (?)", [changed, m.query("SELECT v FROM t").length].join());
          const seen = [m.hasTable("t"), m.hasTable("u"), m.hasColumn("t", "v"), m.hasColumn("t", "w")];
          db.exec("INSERT INTO t VALUES (?)", seen.join());
        }""",
    )
    report = migrate(lab)
    assert (report.applied, report.version) == (("002_t.sql", "03_fill.js", "10_last.sql"), 10)
    assert [row[0] for row in lab.site("SELECT v FROM t")] == ["two", "three", "1,2", "true,false,true,false", "ten;4"]
    rows = lab.site("SELECT version, name, applied_at FROM schema_migrations ORDER BY version")
    assert [row[:2] for row in rows] == [(2, "t"), (3, "fill"), (10, "last")]
    assert all(str(row[2]).endswith("Z") for row in rows)


def test_what_was_applied_is_known_by_its_number_and_late_numbers_are_filled_in(lab: Lab) -> None:
    """DB-31, DB-34."""
    lab.write("migrations/001_t.sql", "CREATE TABLE t (v TEXT);")
    lab.write("migrations/005_five.sql", "INSERT INTO t VALUES ('five');")
    assert migrate(lab).applied == ("001_t.sql", "005_five.sql")
    lab.write("migrations/001_t.sql", "CREATE TABLE other (v TEXT);")
    lab.write("jsmigrations/003_late.js", "module.exports = (m) => m.exec(\"INSERT INTO t VALUES ('late')\")")
    report = migrate(lab)
    assert (report.applied, report.version) == (("003_late.js",), 5)
    assert lab.site("SELECT v FROM t") == [("five",), ("late",)]
    assert migrate(lab).applied == ()


def test_a_site_without_migrations_still_has_a_database(lab: Lab) -> None:
    report = migrate(lab)
    assert (report.applied, report.version) == ((), 0)
    assert lab.site("SELECT count(*) FROM scraper_records") == [(0,)]


NAMES = {
    "unnumbered": (("init.sql",), r"init\.sql: a migration's name starts with its version and .* like 001_init\.sql"),
    "hyphen": (("001-init.sql",), r"001-init\.sql: a migration's name starts"),
    "word": (("v1_init.js",), r"v1_init\.js: a migration's name starts .* like 001_init\.js"),
    "nothing": (("_init.sql",), r"_init\.sql: a migration's name starts"),
    "negative": (("-1_init.sql",), r"-1_init\.sql: a migration's name starts"),
    "superscript": (("²_init.sql",), r"²_init\.sql: a migration's name starts"),
    "large": (("99999999999999999999_init.sql",), r"99999999999999999999_init\.sql: the version is too large"),
    "both": (("001_a.sql", "1_b.js"), r"duplicate site migration version 1: .*001_a\.sql and .*1_b\.js"),
    "twice": (("2_a.sql", "02_b.sql"), "duplicate site migration version 2"),
}


@pytest.mark.parametrize("kind", NAMES)
def test_a_bad_name_or_a_number_used_twice_is_refused(lab: Lab, kind: str) -> None:
    """DB-30."""
    files, words = NAMES[kind]
    for name in files:
        lab.write(f"{'js' if name.endswith('.js') else ''}migrations/{name}", "")
    with pytest.raises(SiteError, match=words):
        find_migrations(lab.registry.site(SITE))


def test_a_bad_name_keeps_every_migration_from_running_even_among_applied_ones(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    """DB-30, CLI-11."""
    lab.write("migrations/001_t.sql", "CREATE TABLE t (v);")
    migrate(lab)
    lab.write("migrations/002_u.sql", "CREATE TABLE u (v);")
    lab.write("migrations/notes.sql", "-- nothing")
    with pytest.raises(SiteError, match=r"notes\.sql"):
        migrate(lab)
    assert lab.site("SELECT version FROM schema_migrations") == [(1,)]
    environment = {"HOME": str(lab.folder), "SCRAPER_SITES_MANIFEST_DIRS": str(lab.folder / "plugins")}
    assert run(("site", "check", SITE), environment) == 1
    said = capsys.readouterr()
    assert "notes.sql" in said.out + said.err


BROKEN = {
    "sql": ("002_bad.sql", "CREATE TABLE half (v);\n\nCREATE TABEL x;", r"002_bad\.sql: line 3: .*syntax"),
    "data": ("002_bad.sql", "CREATE TABLE half (v);\nINSERT INTO t VALUES (1);", r"002_bad\.sql: line 2: UNIQUE"),
    "latin": ("002_bad.sql", "CREATE TABLE half (v); -- caf\udce9", r"002_bad\.sql: .*UTF-8"),
    "zero": ("002_bad.sql", "CREATE TABLE half (v); SELECT '\0';", r"002_bad\.sql: .*null character"),
    "guarded": (
        "002_bad.sql",
        "CREATE TABLE half (v); DELETE FROM schema_migrations;",
        r"_bad\.sql: line 1: .*own tables",
    ),
    "throws": ("002_bad.js", "throw new Error('no')", r"002_bad\.js: no"),
    "rejects": ("002_bad.js", "return Promise.reject(new Error('no'))", r"002_bad\.js: no"),
    "never": ("002_bad.js", "return new Promise(() => {})", r"002_bad\.js: .*never settle"),
    "statement": ("002_bad.js", "m.exec('SELEKT 1')", r"002_bad\.js: .*syntax error"),
    "ends": (
        "002_bad.js",
        "for (const sql of ['INSERT OR ROLLBACK INTO t VALUES (1)', 'CREATE TABLE half (v)'])"
        " try { m.exec(sql) } catch (e) {}",
        r"002_bad\.js: a statement ended the migration's transaction",
    ),
}


def test_a_failing_migration_names_its_file_and_leaves_nothing_half_applied(lab: Lab) -> None:
    """DB-31: those before it stay, it and those after it do not. Many sites, one child, which survives them all."""
    for name, (file, text, _) in BROKEN.items():
        folder = lab.folder / "plugins" / name
        for root in ("migrations", "jsmigrations"):
            (folder / root).mkdir(parents=True)
        (folder / "site.yaml").write_text(MANIFEST.replace("shop", name))
        (folder / "migrations/001_t.sql").write_text("CREATE TABLE t (v PRIMARY KEY); INSERT INTO t VALUES (1);")
        (folder / "migrations/003_after.sql").write_text("CREATE TABLE after (v);")
        source = (
            f"module.exports = (m) => {{ m.exec('CREATE TABLE half (v)'); {text} }}" if file.endswith("js") else text
        )
        root = "jsmigrations" if file.endswith("js") else "migrations"
        (folder / root / file).write_bytes(source.encode("utf-8", "surrogateescape"))
    said = asyncio.run(_migrate_all(lab, list(BROKEN)))
    assert {name: text for name, text in said.items() if not re.search(BROKEN[name][2], text)} == {}
    for name in BROKEN:
        with closing(sqlite3.connect(lab.settings.sites_dir / f"{name}.db")) as database:
            assert database.execute("SELECT version FROM schema_migrations").fetchall() == [(1,)]
            tables = "SELECT name FROM sqlite_master WHERE name IN ('t', 'half', 'after')"
            assert (name, database.execute(tables).fetchall()) == (name, [("t",)])


async def _migrate_all(lab: Lab, names: list[str]) -> dict[str, str]:
    told = {"engine_url": None, "sites_dir": str(lab.settings.sites_dir)}
    pool = JsPool(PoolSettings(environment={**os.environ, ENVIRONMENT: json.dumps(told)}, size=1))
    said = {}
    try:
        for name in names:
            try:
                said[name] = str((await pool.migrate(lab.registry.site(name))).applied)
            except OpError as error:
                said[name] = str(error)
    finally:
        await pool.aclose()
    return said


def test_site_migrate_says_what_failed(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """CLI-12, CLI-3: no traceback, exit code 1; run again after the repair it goes on from there."""
    monkeypatch.chdir(lab.folder)
    lab.write("migrations/001_t.sql", "CREATE TABLE t (v);")
    lab.write("migrations/002_u.sql", "CREATE TABLE u (v);\nSELEKT;")
    command = ("site", "migrate", SITE, "--sites-manifest-dir", "plugins", "--sites-dir", "sites")
    assert run(command, {"HOME": str(lab.folder)}) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert re.fullmatch(r'error: .*002_u\.sql: line 2: near "SELEKT": syntax error\n', said.err)
    lab.write("migrations/002_u.sql", "CREATE TABLE u (v);")
    assert run(command, {"HOME": str(lab.folder)}) == 0
    assert "Applied migrations: 1\nCurrent schema version: 2\n" in capsys.readouterr().out


def test_on_postgresql_versions_may_be_instants_and_a_failing_one_leaves_nothing(lab: Lab, pg_url: str) -> None:
    """DB-31, DB-42."""
    lab.write("site.yaml", MANIFEST + "database: {dialect: postgresql}\n")
    lab.write("migrations/20260131120000_t.sql", "CREATE TABLE t (v TEXT); INSERT INTO t VALUES ('one');")
    lab.write("jsmigrations/20260131120001_u.js", "module.exports = (m) => m.exec('INSERT INTO t VALUES (?)', 'two')")
    lab.write("migrations/20260131120002_bad.sql", "CREATE TABLE half (v TEXT); SELEKT;")
    settings = replace(lab.settings, site_database_url=pg_url)
    with pytest.raises(SiteError, match=r"20260131120002_bad\.sql: .*SELEKT"):
        migrate_site(settings, lab.registry.site(SITE))
    lab.write("migrations/20260131120002_bad.sql", "INSERT INTO t VALUES ('three');")
    report = migrate_site(settings, lab.registry.site(SITE))
    assert (report.applied, report.version) == (("20260131120002_bad.sql",), 20260131120002)
    with psycopg.connect(pg_url.replace("+psycopg", "")) as database:
        assert database.execute("SELECT v FROM t").fetchall() == [("one",), ("two",), ("three",)]
        assert database.execute("SELECT to_regclass('half')").fetchone() == (None,)


def test_javascript_that_exports_no_function_is_no_migration(lab: Lab) -> None:
    """DB-32."""
    lab.write("jsmigrations/001_x.js", "exports.default = () => {}")
    with pytest.raises(SiteError, match=r"001_x\.js must export a function"):
        migrate(lab)


def test_one_sites_broken_migration_fails_its_ops_only_and_a_repair_brings_them_back(lab: Lab) -> None:
    """DB-33: ops of other sites and other kinds go on in the same worker."""
    other = lab.folder / "plugins" / "other"
    (other / "scripts").mkdir(parents=True)
    (other / "site.yaml").write_text("name: other\ndatabaseFileName: other.db\nscriptsRoot: scripts\n")
    (other / "scripts" / "ok.js").write_text("module.exports = () => 1")
    lab.write("scripts/ok.js", "module.exports = () => require('site-db').query('SELECT v FROM t')[0].v")
    lab.write("migrations/001_bad.sql", "SELEKT")
    fine: dict[str, Any] = {"kind": "js", "site": "other", "metadata": {"script": "ok"}, "machine": "m1"}
    lab.submit(js("a", "ok"), NewOp(id="b", **fine), js("c", "ok"), NewOp(id="d", **fine))
    report = lab.work(max_workers=1)
    assert (report.succeeded, report.failed) == (2, 2)
    assert lab.statuses() == {"a": "failed", "b": "succeeded", "c": "failed", "d": "succeeded"}
    for op_id in ("a", "c"):
        assert lab.error(op_id)["code"] == "site_migration_failed"
        assert "001_bad.sql" in lab.error(op_id)["message"]
    lab.write("migrations/001_bad.sql", "CREATE TABLE t (v); INSERT INTO t VALUES (7);")
    with closing(lab.store()) as store:
        store.retry("a", "w")
        store.retry("c", "w")
    lab.work()
    assert [lab.result(op_id)["data"] for op_id in ("a", "c")] == [7, 7]


HALF = """module.exports = (m) => {
  m.exec("CREATE TABLE half AS WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 6000)"
    + " SELECT i, hex(randomblob(500)) AS v FROM n");
  m.exec("UPDATE t SET n = n + 1");
  if (require("./lib/gate")) for (;;) {}
}"""


@pytest.mark.parametrize("way", ["command", "worker"])
def test_a_process_killed_in_the_middle_of_a_migration_leaves_nothing_of_it(lab: Lab, way: str) -> None:
    """DB-31: pages of it are in the log file already; run again it is applied once and the op runs."""
    lab.write("scripts/ok.js", "module.exports = () => require('site-db').query('SELECT count(*) AS c FROM half')[0].c")
    lab.write("migrations/001_t.sql", "CREATE TABLE t (n INTEGER); INSERT INTO t VALUES (0);")
    lab.write("jsmigrations/002_half.js", HALF)
    lab.write("jsmigrations/lib/gate.js", "module.exports = true")
    lab.write("migrations/003_after.sql", "UPDATE t SET n = n + 10;")
    lab.submit(js("a", "ok"))
    starts: dict[str, tuple[str, tuple[str, ...]]] = {
        "command": (
            "cli.main:main",
            ("site", "migrate", SITE, "--sites-manifest-dir", "plugins", "--sites-dir", "sites"),
        ),
        "worker": ("tests.worker.process:main", (lab.engine_db, str(lab.folder), "{}")),
    }
    call, arguments = starts[way]
    process = warm.start(call, arguments, cwd=lab.folder, env=clean_env(lab.folder))
    try:
        log = lab.folder / "sites" / "shop.db-wal"
        while not (log.exists() and log.stat().st_size > 4_000_000):
            assert process.poll() is None
            time.sleep(0.02)
    finally:
        process.kill()
        process.wait()
    assert lab.site("SELECT version FROM schema_migrations") == [(1,)]
    assert lab.site("SELECT n FROM t") == [(0,)]
    assert lab.site("SELECT count(*) FROM sqlite_master WHERE name = 'half'") == [(0,)]

    lab.write("jsmigrations/lib/gate.js", "module.exports = false")
    if way == "command":
        assert migrate(lab).applied == ("002_half.js", "003_after.sql")
    assert lab.work().succeeded == 1
    assert lab.site("SELECT n FROM t") == [(11,)]
    assert lab.result("a")["data"] == 6000
