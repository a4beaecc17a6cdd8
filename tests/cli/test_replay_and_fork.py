"""A broken extractor repaired afterwards: replay shows what it would do, a fork does it, nothing is fetched again."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from cli.main import run
from engine.resources import resource
from tests.cli.console import Ran, scraper
from tests.servers import page, serve

MANIFEST = """\
name: shop
databaseFileName: shop.db
scriptsRoot: scripts
verbsRoot: verbs
sqlMigrationsRoot: sql
"""
VERB = """\
__verb__("crawl", {fields: {base_url: {type: "string"}}});
function crawl(ctx) {
  for (const n of [1, 2, 3]) {
    const url = `${ctx.values.base_url}/${n}.html`;
    ctx.emit({id: `fetch:${n}`, kind: "http/fetch", queue: "fetch", input: {request: {url}, persistBody: true}});
    ctx.emit({id: `extract:${n}`, kind: "js", metadata: {script: "extract.js"}, input: {n, fetchOpID: `fetch:${n}`},
      dependsOn: [{opID: `fetch:${n}`}]});
  }
  ctx.emit({id: "total", kind: "js", metadata: {script: "total.js"},
    dependsOn: [1, 2, 3].map((n) => ({opID: `extract:${n}`}))});
}
"""
LIBRARY = """\
const html = require("html");
exports.doc = (ctx) =>
  html.parse(ctx.dep(ctx.input.fetchOpID).artifacts.find((one) => one.kind === "http-response-body").bodyText);
"""
#: parseInt loses the pence.
BROKEN = """\
const db = require("site-db");
const { doc } = require("./lib/page.js");
module.exports = (ctx) => {
  const price = parseInt(doc(ctx).first(".price").text().slice(1));
  ctx.log("price of", ctx.input.n, "at", ctx.now);
  db.exec("INSERT INTO item (n, price) VALUES (?, ?) ON CONFLICT (n) DO UPDATE SET price = excluded.price",
    ctx.input.n, price);
  db.exec("UPDATE visits SET n = n + 1");
  ctx.writeRecord("seen", String(ctx.input.n), {price});
  ctx.writeArtifact({name: "note", body: "seen"});
  ctx.emit({kind: "js", dedupKey: "shared", metadata: {script: "shared.js"}, input: {first: ctx.input.n}});
  ctx.emit({kind: "js", metadata: {script: "check.js"}, input: {n: ctx.input.n, price}, delay: "1ms"});
  return {n: ctx.input.n, price};
};
"""
REPAIRED = BROKEN.replace("parseInt", "parseFloat")
TOTAL = """\
const db = require("site-db");
module.exports = (ctx) => {
  const [{ total }] = db.query("SELECT sum(price) AS total FROM item");
  db.exec("DELETE FROM total");
  db.exec("INSERT INTO total VALUES (?)", total);
  return {total};
};
"""
FILES = {
    "site.yaml": MANIFEST,
    "verbs/crawl.js": VERB,
    "scripts/lib/page.js": LIBRARY,
    "scripts/extract.js": BROKEN,
    "scripts/total.js": TOTAL,
    "scripts/shared.js": "module.exports = () => null;",
    "scripts/check.js": "module.exports = (ctx) => { if (ctx.input.price > 10) throw new Error('too much'); };",
    "sql/001_init.sql": "CREATE TABLE item (n INTEGER PRIMARY KEY, price REAL); CREATE TABLE total (total REAL);"
    "CREATE TABLE visits (n INTEGER NOT NULL); INSERT INTO visits VALUES (0);",
}
PAGES = {f"/{n}.html": page(f'<p class="price">£{n}.25</p>') for n in (1, 2, 3)}
SITES = {"SCRAPER_SITES_MANIFEST_DIRS": "sites"}


def command(here: Path, *arguments: str) -> int:
    """Run a command line in ``here``, in this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(here)
        return run(arguments, {"HOME": str(here), **SITES})


def crawl(here: Path) -> int:
    """Crawl to the end; the server is gone then."""
    with serve(PAGES) as server:
        return command(
            here, *("site", "shop", "run", "crawl", "--base-url", server.url, "--workflow-id", "w", "--wait")
        )


def make_site(folder: Path) -> Path:
    for name, text in FILES.items():
        file = folder / "sites/shop" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return folder


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A working directory with the site ``shop``."""
    return make_site(tmp_path)


@pytest.fixture(scope="module")
def after_a_crawl(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The state a crawl leaves; to be copied."""
    folder = make_site(tmp_path_factory.mktemp("crawl"))
    assert crawl(folder) == 0
    return folder / "state"


@pytest.fixture
def inside(here: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """Runs a command line in this process."""

    def ran(*arguments: str) -> Ran:
        capsys.readouterr()
        code = command(here, *arguments)
        said = capsys.readouterr()
        return Ran(code, said.out, said.err)

    return ran


@pytest.fixture
def crawled(here: Path, inside: Callable[..., Ran], after_a_crawl: Path) -> Callable[..., Ran]:
    """The same after a crawl, with the server gone."""
    shutil.copytree(after_a_crawl, here / "state")
    return inside


def query(database: Path, sql: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(database)) as connection:
        return connection.execute(sql).fetchall()


def everything(here: Path) -> list[str]:
    """Both databases, row by row; an invocation leaves no trace if this is the same before and after."""
    dumped: list[str] = []
    for name in ("state/engine.db", "state/sites/shop.db"):
        with closing(sqlite3.connect(here / name)) as connection:
            dumped += connection.iterdump()
    return dumped


def test_a_broken_extractor_is_repaired_without_fetching_anything_again(here: Path) -> None:
    said: list[str] = []

    def shop(*arguments: str) -> Ran:
        said.append(" ".join(("scraper", *arguments)))
        return scraper(here, *arguments, **SITES)

    site_db = here / "state/sites/shop.db"
    with serve(PAGES) as server:
        submit = ("site", "shop", "run", "crawl", "--base-url", server.url, "--workflow-id", "w", "--wait")
        assert shop(*submit).code == 0
        assert sorted(server.paths()) == ["/1.html", "/2.html", "/3.html"]
    assert query(site_db, "SELECT n, price FROM item ORDER BY n") == [(1, 1), (2, 2), (3, 3)]

    assert shop("op", "replay", "extract:2", "--diff").code == 0
    (here / "fixed.js").write_text(REPAIRED)
    before = everything(here)
    differs = shop("op", "replay", "extract:2", "--script", "fixed.js", "--diff")
    assert (differs.code, differs.err) == (1, "")
    lines = differs.out.splitlines()
    assert lines[:2] == ["--- stored", "+++ replayed"]
    changed = [line.replace(" ", "").rstrip(",") for line in lines[2:] if line[0] in "+-"]
    assert changed == ['-"price":2', '+"price":2.25'] * 3  # data, emitted op, record
    assert everything(here) == before

    (here / "sites/shop/scripts/extract.js").write_text(REPAIRED)
    named = [part for n in (1, 2, 3) for part in ("--from", f"extract:{n}")]
    forked = shop("workflow", "fork", "w", *named, "--workflow-id", "repaired")
    assert (forked.code, forked.err) == (0, "")
    assert forked.out == "Workflow: repaired\nForked from: w\nKept ops: 3\nOps run again: 4\nDropped ops: 4\n"
    worked = shop("worker", "run", "--until-idle", "--fail-on-error")
    assert worked.code == 0, worked.err
    assert query(site_db, "SELECT n, price FROM item ORDER BY n") == [(1, 1.25), (2, 2.25), (3, 3.25)]
    assert query(site_db, "SELECT total FROM total") == [(6.75,)]
    assert query(site_db, "SELECT n FROM visits") == [(6,)]
    equal = shop("op", "replay", "extract:2", "--workflow", "repaired", "--diff")
    assert (equal.code, equal.out) == (0, "")
    shown = json.loads(scraper(here, "workflow", "show", "repaired", "--output", "json").out)
    assert (shown["status"], shown["metadata"]["forkedFrom"]) == ("succeeded", "w")

    told = (resource("docs") / "repair.md").read_text("utf-8")
    assert [
        line.replace("http://127.0.0.1:8765", server.url) for line in told.splitlines() if line[:8] == "scraper "
    ] == said
    assert forked.out in told
    assert "\n".join(lines[:10]) in told


def test_a_replay_shows_what_came_of_it_and_leaves_no_trace(here: Path, crawled: Callable[..., Ran]) -> None:
    before = everything(here)
    ran = crawled("op", "replay", "extract:3")
    assert ran.code == 0
    head, _, rest = ran.out.partition("Data:\n")
    stored = json.loads(crawled("op", "show", "extract:3", "--output", "json").out)
    claimed = stored["attempts"][0]["claimedAt"]
    assert head.splitlines() == [
        *("Op: extract:3", "Workflow: w", "Script: extract.js", f"Now: {claimed}", "Outcome: succeeded"),
    ]
    assert json.loads(rest.partition("Records:")[0]) == {"n": 3, "price": 3}
    assert f"Log:\n  info: price of 3 at {claimed}" in ran.out
    assert everything(here) == before


def test_a_replay_of_the_same_script_gives_the_same_in_every_part(crawled: Callable[..., Ran]) -> None:
    """Whether its emitted op was the first of its dedup key or was dropped for another's."""
    for n in (1, 2, 3):
        said = json.loads(crawled("op", "replay", f"extract:{n}", "--diff", "--output", "json").out)
        assert said["diff"] == []
        assert said["equal"] is True
        assert said["stored"] == said["replayed"]
        assert [len(said["stored"][part]) for part in ("records", "emitted", "artifacts", "log")] == [1, 2, 1, 1]
        assert said["stored"]["artifacts"][0]["name"] == "note"


@pytest.mark.parametrize(
    ("old", "new", "part"),
    [
        ("return {n:", "return {more: 1, n:", "data"),
        ('"seen", String', '"noticed", String', "records"),
        ('name: "note"', 'name: "remark"', "artifacts"),
        ('"price of"', '"the price of"', "log"),
        ('"check.js"', '"shared.js"', "emitted"),
        ('delay: "1ms"', 'dependsOn: [{opID: "total"}]', "emitted"),
        ("const price", 'throw new TypeError("no"); const price', "error"),
    ],
)
def test_every_part_of_a_result_is_compared(
    here: Path, crawled: Callable[..., Ran], old: str, new: str, part: str
) -> None:
    (here / "other.js").write_text(BROKEN.replace(old, new))
    ran = crawled("op", "replay", "extract:1", "--script", "other.js", "--diff", "--output", "json")
    said = json.loads(ran.out)
    assert (ran.code, said["equal"]) == (1, False)
    assert said["stored"][part] != said["replayed"][part]
    assert said["diff"][:2] == ["--- stored", "+++ replayed"]


def test_a_failed_op_is_replayed_like_any_other(here: Path, inside: Callable[..., Ran]) -> None:
    script = here / "sites/shop/scripts/extract.js"
    throwing = BROKEN.replace("ctx.emit({kind", 'if (!ctx.mended) throw new Error("not yet"); ctx.emit({kind', 1)
    script.write_text(throwing)
    assert crawl(here) == 1
    same = inside("op", "replay", "extract:1", "--diff")
    assert (same.code, same.out, same.err) == (0, "", "the replay gives the stored result\n")
    failed = inside("op", "replay", "extract:1")
    assert failed.code == 1
    assert "Outcome: failed: runner_error" in failed.out
    assert '"message": "not yet"' in failed.out
    script.write_text(BROKEN)
    ran = inside("op", "replay", "extract:1", "--diff")
    assert ran.code == 1
    assert '-    "message": "not yet",' in ran.out
    never = inside("op", "replay", "total")
    assert (never.code, never.err) == (2, 'error: op "total" of workflow "w" is canceled and was never run\n')
    forked = inside("workflow", "fork", "w", "--from", "extract:1", "--output", "json")
    said = json.loads(forked.out)
    assert (said["keptOps"], said["keptUnsuccessfulOps"], said["opsRunAgain"]) == (5, 2, 2)
    assert said["workflowID"].startswith("w-fork-")
    assert "2 of the kept ops failed or were canceled" in forked.err


def test_another_script_stands_where_the_original_stood_even_when_that_is_gone(
    here: Path, crawled: Callable[..., Ran]
) -> None:
    script = here / "sites/shop/scripts/extract.js"
    (here / "elsewhere.js").write_text(script.read_text())
    script.unlink()
    assert crawled("op", "replay", "extract:1", "--script", "elsewhere.js", "--diff").code == 0
    gone = crawled("op", "replay", "extract:1")
    assert gone.code == 1
    assert 'no script \\"extract.js\\"' in gone.out


def test_a_replay_does_not_migrate_the_site_database(here: Path, crawled: Callable[..., Ran]) -> None:
    (here / "sites/shop/sql/002_later.sql").write_text("CREATE TABLE later (n INTEGER);")
    assert crawled("op", "replay", "extract:1", "--diff").code == 0
    assert query(here / "state/sites/shop.db", "SELECT name FROM sqlite_master WHERE name = 'later'") == []


def test_what_cannot_be_replayed_is_refused_in_one_line(here: Path, crawled: Callable[..., Ran]) -> None:
    (here / "latin.js").write_bytes(b"// caf\xe9")
    for arguments, message in (
        (("nope",), 'error: no op "nope"'),
        (("fetch:1",), 'error: op "fetch:1" is of kind http/fetch; only an op of kind js can be replayed'),
        (("extract:1", "--script", "no.js"), "error: --script no.js: No such file or directory"),
        (("extract:1", "--script", "latin.js"), "error: --script latin.js is not UTF-8 text"),
        (("extract:1", "--sites-dir", "lost"), "error: there is no site database lost/shop.db: say where it is"),
    ):
        ran = crawled("op", "replay", *arguments)
        assert (ran.code, ran.out) == (2, "")
        assert ran.err.startswith(message)
    assert not (here / "lost").exists()
    assert crawled("op", "replay", "extract:1", "--engine-db", "none.db").code == 1
    assert not (here / "none.db").exists()


def test_what_cannot_be_forked_is_refused_in_one_line(crawled: Callable[..., Ran]) -> None:
    assert crawled("site", "shop", "run", "crawl", "--base-url", "http://127.0.0.1:1", "--workflow-id", "new").code == 0
    for arguments, message in (
        (("w",), "error: missing option '--from'"),
        (("w", "--from", "extract:9"), 'error: no op "extract:9" in workflow "w"'),
        (("none", "--from", "total"), 'error: no workflow "none"'),
        (("new", "--from", "total"), 'error: workflow "new" is running; only one that has ended can be forked'),
        (("w", "--from", "total", "--workflow-id", "new"), 'error: workflow "new" exists already'),
        (("w", "--from", "total", "--workflow-id", " "), "error: --workflow-id must not be empty"),
    ):
        ran = crawled("workflow", "fork", *arguments)
        assert (ran.code, ran.out) == (2, "")
        assert ran.err.startswith(message)
    unfinished = crawled("op", "replay", "total", "--workflow", "new")
    assert unfinished.code == 2
    assert unfinished.err == 'error: op "total" of workflow "new" is pending; only a finished op has a result\n'
