"""The whole way through the installed script: a verb's flags, submission, worker, and what can be seen afterwards."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from cli.main import run
from engine.demo import Catalogue, serve_books
from tests.cli.console import Ran, scraper

MANIFEST = """\
name: shop
databaseFileName: shop.db
scriptsRoot: scripts
verbsRoot: verbs
sqlMigrationsRoot: sql
"""
VERBS = """\
__section__("naming", {title: "Naming", fields: {label: {type: "string", default: "plain"}}});
__verb__("seed", {short: "Seed items", sections: ["naming"], fields: {
  count: {type: "int", default: 2, short: "c"}, fail: {type: "bool"}, tag_names: {type: "stringList"}}});
function seed(ctx) {
  let last;
  for (let n = 0; n < ctx.values.count; n++) {
    last = ctx.emit({kind: "js", queue: "q", metadata: {script: "item.js"},
      input: {n, label: ctx.sections.naming.label, fail: !!ctx.values.fail && n === 0}});
  }
  if (last) ctx.setTargetOpID(last);
  return {values: ctx.values};
}
__verb__("boom", {short: "Throws"});
function boom() { throw new Error("no way"); }
__verb__("nothing", {short: "Emits nothing"});
function nothing() {}
"""
SCRIPT = """\
const db = require("site-db");
module.exports = function (ctx) {
  ctx.log("item", ctx.input.n);
  if (ctx.input.fail) throw new Error("broken item");
  db.exec("INSERT INTO item (n, label) VALUES (?, ?)", ctx.input.n, ctx.input.label);
  return {n: ctx.input.n};
};
"""


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A working directory with the site ``shop`` in ``sites/``."""
    files = {"site.yaml": MANIFEST, "verbs/seed.js": VERBS, "scripts/item.js": SCRIPT}
    files["sql/001_init.sql"] = "CREATE TABLE item (n INTEGER PRIMARY KEY, label TEXT);"
    for name, text in files.items():
        file = tmp_path / "sites/shop" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return tmp_path


def shop(here: Path, *arguments: str) -> Ran:
    return scraper(here, "site", "shop", "run", *arguments, SCRAPER_SITES_MANIFEST_DIRS="sites")


@pytest.fixture
def inside(here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """Runs a command line in this process, which spares it the imports; for what needs no process of its own."""
    monkeypatch.chdir(here)

    def command(*arguments: str) -> Ran:
        capsys.readouterr()
        code = run(arguments, {"HOME": str(here), "SCRAPER_SITES_MANIFEST_DIRS": "sites"})
        said = capsys.readouterr()
        return Ran(code, said.out, said.err)

    return command


def items(database: Path) -> list[tuple[int, str]]:
    with closing(sqlite3.connect(database)) as connection:
        return list(connection.execute("SELECT n, label FROM item ORDER BY n"))


def test_submit_work_and_look(here: Path) -> None:
    ran = shop(here, "seed", "-c", "3", "--label=x y", "--tag-names", "a,b", "--workflow-id", "w")
    assert (ran.code, ran.err) == (0, "")
    head, _, result = ran.out.partition("Verb result:\n")
    assert head.splitlines() == [
        "Site: shop",
        "Command: site shop run seed",
        "Workflow: w",
        f"Engine DB: {here}/state/engine.db",
        "Site DB: state/sites/shop.db",
        "Submitted ops: 3",
        "Target op: w:submit:003",
    ]
    assert json.loads(result) == {"values": {"count": 3, "tag_names": ["a", "b"], "label": "x y"}}

    worked = scraper(here, "worker", "run", "--until-idle", "--sites-manifest-dir", "sites")
    assert worked.code == 0
    report = dict(line.split(": ") for line in worked.out.splitlines())
    assert list(report) == [
        *("Worker ID", "Engine DB", "Sites dir", "Cycles", "Refreshed"),
        *("Processed", "Succeeded", "Retried", "Failed"),
    ]
    assert (report["Worker ID"], report["Processed"], report["Succeeded"]) == ("scraper-worker", "3", "3")
    assert "event=progress running=0 succeeded=3 retried=0 failed=0\n" in worked.err
    assert items(here / "state/sites/shop.db") == [(0, "x y"), (1, "x y"), (2, "x y")]

    status = scraper(here, "engine", "status")
    assert "Workflows: 1\nOps:\n  pending: 0\n  ready: 0\n  running: 0\n  succeeded: 3\n" in status.out
    shown = json.loads(scraper(here, "op", "show", "w:submit:001", "--output", "json").out)
    assert (shown["status"], shown["data"], shown["logs"][0]["message"]) == ("succeeded", {"n": 0}, "item 0")


def test_options_may_stand_before_the_verb_or_after_it(here: Path) -> None:
    """CLI-25."""
    ran = scraper(
        here,
        *("site", "--sites-dir", "lost", "shop", "--sites-dir", "s1", "run", "--engine-db", "e.db"),
        *("--output", "json", "--workflow-id", "early", "seed", "--workflow-id=late", "--wait"),
        SCRAPER_SITES_MANIFEST_DIRS="sites",
    )
    assert ran.code == 0
    said = json.loads(ran.out)
    assert {name: said[name] for name in ("workflowID", "engineDB", "siteDB", "submittedOps", "status")} == {
        "workflowID": "late",
        "engineDB": str(here / "e.db"),
        "siteDB": "s1/shop.db",
        "submittedOps": 2,
        "status": "succeeded",
    }
    assert items(here / "s1/shop.db") == [(0, "plain"), (1, "plain")]
    assert not (here / "state").exists()


def test_a_failed_workflow_can_be_seen_retried_and_canceled(here: Path) -> None:
    waited = shop(here, "seed", "--fail", "--wait", "--workflow-id", "w")
    assert waited.code == 1
    assert waited.out.endswith("Status: failed\n")
    assert 'event="op failed" workflow=w op=w:submit:001 kind=js queue=q error="runner_error: broken item' in waited.err

    shown = scraper(here, "workflow", "show", "w").out
    assert "shop q  0        0      0        1          1       0" in shown
    assert "runner_error: broken item (scripts/item.js:4:" in shown
    again = scraper(here, "op", "retry", "w:submit:001", "--workflow", "w", "--output", "json")
    assert (again.code, json.loads(again.out)) == (0, {"opID": "w:submit:001", "readyAgain": 1})
    twice = scraper(here, "op", "retry", "w:submit:001")
    message = 'error: op "w:submit:001" of workflow "w" is ready; only a failed op can be retried\n'
    assert (twice.code, twice.err) == (2, message)
    canceled = scraper(here, "workflow", "cancel", "w")
    assert (canceled.code, canceled.out) == (0, "Workflow: w\nStatus: canceled\nCanceled ops: 1\n")


def test_a_verb_that_throws_stores_nothing_and_names_the_place(inside: Callable[..., Ran]) -> None:
    ran = inside("site", "shop", "run", "boom")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == 'error: verb "boom" failed: verbs/seed.js:14:25: no way\n'
    assert "Workflows: 0\n" in inside("engine", "status").out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("sed",), 'error: no such command "scraper site shop run sed"; did you mean "seed"?'),
        (("seed", "--count", "many"), 'error: --count: "many" is not a whole number'),
        (("seed", "--nope"), "error: no such option: --nope"),
    ],
)
def test_a_request_that_is_wrong_touches_no_database(
    here: Path, inside: Callable[..., Ran], arguments: tuple[str, ...], message: str
) -> None:
    """CLI-23."""
    ran = inside("site", "shop", "run", *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(message)
    assert not (here / "state").exists()


def test_a_taken_workflow_id_is_refused(inside: Callable[..., Ran]) -> None:
    assert inside("site", "shop", "run", "nothing", "--workflow-id", "w").code == 0
    ran = inside("site", "shop", "run", "seed", "--workflow-id", "w")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith('error: workflow "w" exists already')


def test_a_verb_that_emits_nothing_succeeds_with_a_warning(inside: Callable[..., Ran]) -> None:
    ran = inside("site", "shop", "run", "nothing", "--wait")
    assert ran.code == 0
    assert ran.err.startswith("warning: ")
    assert ran.out.endswith("Submitted ops: 0\nVerb result:\n{}\nStatus: succeeded\n")


def test_fail_on_error_makes_a_worker_exit_1(inside: Callable[..., Ran]) -> None:
    assert inside("site", "shop", "run", "seed", "--fail").code == 0
    flags = ("--until-idle", "--fail-on-error", "--output", "json", "--sites", "shop", "--worker-id", "me")
    ran = inside("worker", "run", *flags)
    assert ran.code == 1
    report = json.loads(ran.out)
    assert (report["workerID"], report["succeeded"], report["failed"]) == ("me", 1, 1)


def test_a_worker_for_an_unknown_site_is_refused(inside: Callable[..., Ran]) -> None:
    ran = inside("worker", "run", "--sites", "shp")
    assert (ran.code, ran.err) == (2, 'error: site "shp" is not registered; did you mean "shop"?\n')


def test_the_help_of_a_verb_comes_from_the_verb(inside: Callable[..., Ran]) -> None:
    listed = inside("site", "shop", "run", "--help")
    assert "boom     Throws\n" in listed.out
    ran = inside("site", "shop", "run", "seed", "--help")
    assert ran.code == 0
    assert "-c, --count INT" in ran.out
    assert "Naming:\n  --label TEXT" in ran.out


def test_site_migrate_says_what_it_applied(here: Path, inside: Callable[..., Ran]) -> None:
    expected = ["Site: shop", f"DB: {here}/state/sites/shop.db", "Applied migrations: 1", "Current schema version: 1"]
    first = inside("site", "migrate", "shop")
    assert (first.code, first.out.splitlines()) == (0, expected)
    again = inside("site", "migrate", "shop", "--output", "json")
    assert json.loads(again.out)["applied"] == []


def test_a_database_that_is_not_ours_is_refused(here: Path, inside: Callable[..., Ran]) -> None:
    (here / "notes.db").write_text("this is no database, but long enough to be mistaken for one" * 50)
    for arguments in (("engine", "status"), ("worker", "run", "--until-idle"), ("workflow", "show", "w")):
        ran = inside(*arguments, "--engine-db", "notes.db")
        assert (ran.code, ran.out) == (1, "")
        assert "error: " in ran.err
        assert "Traceback" not in ran.err


def test_a_broken_verb_file_breaks_only_its_site(here: Path, inside: Callable[..., Ran]) -> None:
    (here / "sites/shop/verbs/seed.js").write_text("function (\n")
    ran = inside("site", "shop", "run", "seed")
    assert ran.code == 1
    assert "seed.js" in ran.err
    assert "SyntaxError" in ran.err
    assert inside("site", "list").out == "shop\n"


def test_the_demo_crawls_its_catalogue_and_shows_the_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    small = partial(serve_books, Catalogue(pages=2, per_page=3))
    monkeypatch.setattr("engine.demo.serve_books", small)
    monkeypatch.chdir(tmp_path)
    assert run(["demo"], {"HOME": str(tmp_path)}) == 0
    out = capsys.readouterr().out
    assert "Status: succeeded\n" in out
    assert "\n6 books in state/demo/sites/books.db; the first 6:\n" in out
    assert [line.split()[0] for line in out.splitlines()[-6:]] == ["1", "2", "3", "4", "5", "6"]
