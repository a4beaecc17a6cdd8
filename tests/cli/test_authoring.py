"""What site authors do on the command line: start a site, look at it, check it, test it, move its home."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cli.main import run
from engine.authoring.scaffold import create_site
from engine.errors import UsageError
from engine.resources import resource
from tests.cli.console import Ran, make_site, scraper
from tests.servers import page, serve

DIRS = ("--sites-manifest-dir", "sites")


def new_site(cwd: Path, name: str = "shop") -> Path:
    """A site as ``site new`` writes it."""
    create_site(name, cwd / "sites")
    return cwd / "sites" / name


def run_tests(cwd: Path, *arguments: str) -> Ran:
    return scraper(cwd, *DIRS, "site", "test", "shop", *arguments)


def results(cwd: Path, *arguments: str) -> dict[str, Any]:
    """Test results by name."""
    return {one["name"]: one for one in json.loads(run_tests(cwd, "--output", "json", *arguments).out)["tests"]}


def faults_of(ran: Ran, root: Path) -> list[tuple[str, int, str]]:
    """Faults of the only site checked: file, line, message."""
    (site,) = json.loads(ran.out)["sites"]
    return [(str(Path(one["file"]).relative_to(root)), one["line"], one["message"]) for one in site["faults"]]


def test_a_new_site_passes_its_own_test_and_check_at_once(tmp_path: Path) -> None:
    created = scraper(tmp_path, "site", "new", "shop")
    assert created.code == 0
    assert created.out.endswith("Try it:  scraper --sites-manifest-dir sites site test shop\n")
    checked = scraper(tmp_path, *DIRS, "site", "check", "shop")
    assert (checked.code, checked.out) == (0, "shop: ok\n")
    tested = run_tests(tmp_path)
    assert tested.code == 0, tested.out + tested.err
    assert [line.split()[:2] for line in tested.out.splitlines()] == [
        ["ok", "test_every_item_is_kept"],
        ["ok", "test_a_second_crawl_changes_nothing"],
        ["2", "passed"],
    ]


def test_editors_find_types_and_schema_of_a_new_site(tmp_path: Path) -> None:
    site = new_site(tmp_path)
    first, *_ = (site / "site.yaml").read_text().splitlines()
    schema = site / first.removeprefix("# yaml-language-server: $schema=")
    assert schema.resolve() == tmp_path / "sites/site.schema.json"
    assert schema.read_bytes() == (resource("sites") / "site.schema.json").read_bytes()
    included = json.loads((site / "jsconfig.json").read_text())["include"]
    assert (site / included[-1]).read_bytes() == (resource("sites") / "scraper.d.ts").read_bytes()


def test_a_new_site_goes_where_it_is_told_and_else_beside_the_configured_ones(tmp_path: Path) -> None:
    told = scraper(tmp_path, "site", "new", "one", "--dir", "elsewhere", "--output", "json")
    assert json.loads(told.out)["directory"] == "elsewhere/one"
    assert (tmp_path / "elsewhere/one/site.yaml").is_file()
    beside = scraper(tmp_path, "site", "new", "two", "--sites-manifest-dir", "elsewhere")
    assert beside.code == 0
    assert (tmp_path / "elsewhere/two/verbs/crawl.js").is_file()


@pytest.mark.parametrize("name", ["Shop", "two words", "../up", "check", "-x", "null", "a--b", "a" * 51, ""])
def test_a_bad_name_is_refused_and_nothing_is_written(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match=r"name for a site|cannot be called"):
        create_site(name, tmp_path / "sites")
    assert not (tmp_path / "sites").exists()


def test_an_existing_folder_is_refused_and_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "sites/shop").mkdir(parents=True)
    ran = scraper(tmp_path, "site", "new", "shop")
    assert (ran.code, ran.err) == (2, "error: sites/shop already exists\n")
    assert list((tmp_path / "sites/shop").iterdir()) == []
    refused = scraper(tmp_path, "site", "new", "Bad Name")
    assert (refused.code, refused.err.startswith('error: "Bad Name" is no name for a site')) == (2, True)


def test_site_show_lists_what_a_site_consists_of(tmp_path: Path) -> None:
    new_site(tmp_path)
    shown = json.loads(scraper(tmp_path, *DIRS, "site", "show", "shop", "--output", "json").out)
    assert [verb["name"] for verb in shown["verbs"]] == ["crawl"]
    assert shown["scripts"] == ["scripts/extract-items.js"]
    assert shown["migrations"] == ["migrations/001_items.sql"]
    assert shown["tests"] == ["tests/shop.js"]
    assert shown["queuePolicies"] == [{"queue": "fetch", "maxInFlight": 2, "ratePerSecond": 2.0, "burst": 4.0}]
    table = scraper(tmp_path, *DIRS, "site", "show", "shop").out
    assert "Site DB: state/sites/shop.db" in table
    assert "crawl  base_url  Fetch the list and keep every item" in table


def test_site_show_keeps_the_password_of_a_database_to_itself(tmp_path: Path) -> None:
    make_site(tmp_path / "sites/pg", "pg", "database: {dialect: postgresql}\n")
    url = "postgresql://scraper:topsecret@db/{site}"
    ran = scraper(tmp_path, *DIRS, "site", "show", "pg", SCRAPER_SITE_DATABASE_URL=url)
    assert "@db/pg" in ran.out
    assert "topsecret" not in ran.out


TESTS = """
function test_equal_names_the_place(t) {
  t.log("seen", { a: 1 });
  t.equal([{ title: "x", tags: [1, 2] }], [{ title: "x", tags: [1, 3] }], "the list");
}
exports.test_exported = (t) => {
  t.ok(t.fixture("items.html").includes("Lantern"));
};
async function test_asynchronous(t) {
  await null;
  t.ok(0, "the count");
}
function test_database_is_fresh_and_migrated(t) {
  t.equal(t.query("SELECT count(*) AS n FROM items"), [{ n: 0 }]);
  t.exec("INSERT INTO items (id, title) VALUES (?, ?)", "1", "one");
  t.equal(t.query("SELECT id FROM items"), [{ id: "1" }]);
}
function test_throws(t) {
  t.ok(t.throws(() => t.run("crowl")).message.includes('did you mean "crawl"?'));
  t.ok(t.throws(() => t.run("crawl", { baseurl: "x" })).message.includes('did you mean "base_url"?'));
}
function test_nothing_leaks(t) {
  t.equal(typeof leaked, "undefined");
  leaked = 1;
}
function test_leak_again(t) {
  t.equal(typeof leaked, "undefined");
}
function helper() {}
"""


def test_tests_report_one_by_one_and_a_failure_names_file_line_and_place(tmp_path: Path) -> None:
    (new_site(tmp_path) / "tests/shop.js").write_text(TESTS.lstrip())
    ran = run_tests(tmp_path)
    assert ran.code == 1
    assert "  tests/shop.js:3: the list: [0].tags[1] is 2, expected 3\n" in ran.out
    assert '  log: seen {"a":1}\n' in ran.out
    assert "  tests/shop.js:10: the count: 0 is not true\n" in ran.out
    assert ran.out.endswith("\n5 passed, 2 failed\n")
    assert "helper" not in ran.out


def test_a_filter_chooses_tests_by_file_and_name(tmp_path: Path) -> None:
    (new_site(tmp_path) / "tests/more.js").write_text("function test_other(t) {}\nfunction test_one_more(t) {}\n")
    assert set(results(tmp_path, "more.js::")) == {"test_other", "test_one_more"}
    none = run_tests(tmp_path, "nowhere")
    assert (none.code, none.err) == (2, 'error: no test of site "shop" matches "nowhere"\n')


def test_a_file_that_cannot_be_loaded_fails_and_the_others_run(tmp_path: Path) -> None:
    site = new_site(tmp_path)
    (site / "tests/a.js").write_text("const x = require('../scripts/gone.js');\nfunction test_a(t) {}\n")
    (site / "tests/b.js").write_text("function test_b(t) {}\n")
    (site / "tests/shop.js").unlink()
    ran = run_tests(tmp_path, "--output", "json")
    assert ran.code == 1
    broken, other = json.loads(ran.out)["tests"]
    assert (broken["file"], broken["line"], broken["ok"]) == ("tests/a.js", 1, False)
    assert "gone.js" in broken["message"]
    assert (other["name"], other["ok"]) == ("test_b", True)


def test_a_failed_workflow_fails_its_test_unless_it_may(tmp_path: Path) -> None:
    site = new_site(tmp_path)
    (site / "scripts/extract-items.js").write_text("module.exports = () => {\n  throw new Error('boom');\n};\n")
    (site / "tests/shop.js").write_text(
        "function test_strict(t) { t.run('crawl'); }\n"
        "function test_lenient(t) {\n"
        "  const run = t.run('crawl', {}, { mayFail: true });\n"
        "  t.equal([run.status, run.ops.failed, run.failures[0].op], ['failed', 1, 'extract:items']);\n"
        "}\n"
    )
    found = results(tmp_path)
    assert found["test_lenient"]["message"] is None
    assert found["test_strict"]["line"] == 1
    assert "extract:items: runner_error: boom (scripts/extract-items.js:2:9)" in found["test_strict"]["message"]


def test_a_test_that_asks_for_an_unrecorded_page_fails_and_names_it(tmp_path: Path) -> None:
    site = new_site(tmp_path)
    (site / "tests/shop.js").write_text(
        "function test_unknown(t) { t.run('crawl', { base_url: 'https://other.example' }); }\n"
        "function test_caught(t) { try { t.run('crawl', { base_url: 'https://third.example' }); } catch {} }\n"
    )
    found = results(tmp_path)
    assert "no recorded page for GET https://other.example/items" in found["test_unknown"]["message"]
    assert found["test_caught"]["message"] == "there is no recorded page for GET https://third.example/items"


@pytest.mark.parametrize("body", ["for (;;);", "t.run('slow');"])
def test_a_test_that_does_not_end_is_stopped(tmp_path: Path, body: str) -> None:
    site = new_site(tmp_path)
    (site / "verbs/slow.js").write_text(
        '__verb__("slow");\nfunction slow(ctx) { ctx.emit({ kind: "js", metadata: { script: "slow" } }); }\n'
    )
    (site / "scripts/slow.js").write_text("module.exports = () => { for (;;); };\n")
    (site / "tests/shop.js").write_text(f"function test_endless(t) {{ {body} }}\nfunction test_next(t) {{}}\n")
    found = results(tmp_path, "--timeout", "2")
    assert "2 s" in found["test_endless"]["message"]
    assert found["test_next"]["ok"]


def test_rate_limits_do_not_slow_a_test_down(tmp_path: Path) -> None:
    site = new_site(tmp_path)
    manifest = site / "site.yaml"
    slow = manifest.read_text().replace("ratePerSecond: 2", "ratePerSecond: 0.001").replace("burst: 4", "burst: 1")
    manifest.write_text(slow)
    assert run_tests(tmp_path, "second_crawl").code == 0


def test_record_fetches_each_missing_page_once_and_keeps_it(tmp_path: Path) -> None:
    site = new_site(tmp_path)
    body = b'<li class="item" data-id="9"><h2>Kettle</h2><span class="price">3</span></li>'
    test = """
      function test_again(t) {
        t.run("crawl", { base_url: "BASE" });
      }
      function test_recorded(t) {
        t.run("crawl", { base_url: "BASE" });
        t.equal(t.query("SELECT id, title, price FROM items"), [{ id: "9", title: "Kettle", price: 3 }]);
      }"""
    with serve({"/items": page(body)}) as server:
        base = server.url
        (site / "tests/shop.js").write_text(test.replace("BASE", base))
        recorded = run_tests(tmp_path, "--record")
        assert recorded.code == 0, recorded.out
        assert server.paths() == ["/items"]
    manifest = json.loads((site / "fixtures/pages.json").read_text())
    entry = manifest[f"GET {base}/items"]
    assert (entry["status"], entry["headers"]["content-type"]) == (200, "text/html; charset=utf-8")
    assert (site / "fixtures" / entry["file"]).read_bytes() == body
    assert "GET https://shop.example/items" in manifest
    assert (site / "fixtures/items.html").read_text().startswith("<!doctype html>")
    assert run_tests(tmp_path).code == 0  # the server is gone


def test_a_bad_list_of_recorded_pages_is_an_error_that_names_the_entry(tmp_path: Path) -> None:
    site = new_site(tmp_path)
    (site / "fixtures/pages.json").write_text('{"GET https://x.example/": {"status": 20}}')
    ran = run_tests(tmp_path)
    assert ran.code == 1
    assert "fixtures/pages.json" in ran.err
    assert '"GET https://x.example/": status must be a number from 100 to 599' in ran.err


def test_a_site_without_tests_says_where_they_belong(tmp_path: Path) -> None:
    make_site(tmp_path / "sites/shop", "shop")
    ran = run_tests(tmp_path)
    assert ran.code == 2
    assert f"{tmp_path}/sites/shop/tests/" in ran.err


def test_check_reports_all_faults_of_a_site_at_once_with_file_line_and_hint(tmp_path: Path) -> None:
    site = new_site(tmp_path)
    (site / "verbs/crawl.js").write_text(
        '__verb__("crawl", { fields: { pages: { type: "int", default: "many" } } });\n'
        '__verb__("crwal");\n\nfunction crawl(ctx) {}\n'
    )
    (site / "verbs/again.js").write_text('function crawl(ctx) {}\n__verb__("crawl");\n')
    (site / "verbs/typed.js").write_text('__verb__("typed", { fields: { n: { type: "integer" } } });\n')
    (site / "verbs/throwing.js").write_text('\nthrow new Error("at once");\n')
    (site / "scripts/syntax.js").write_text("const a = 1;\nconst b = ;\n")
    (site / "scripts/unclosed.js").write_text("module.exports = () => {\n")
    (site / "scripts/requires.js").write_text(
        '// require("./comment.js")\nconst items = require("./extract-item");\nconst fs = require("fs");\n'
        "const text = \"require('./text.js')\";\n"
    )
    (site / "scripts/data.json").write_text('{"a": 1,\n "b": }')
    (site / "migrations/002_more.sql").write_text("CREATE TABLE more (id TEXT);\n\nINSERT INTO nowhere VALUES (1);\n")
    (site / "migrations/003_later.sql").write_text("-- fine\nINSERT INTO nowhere VALUES (2);\nCREATE TABEL x (a);\n")
    ran = scraper(tmp_path, *DIRS, "site", "check", "shop", "--output", "json")
    assert ran.code == 1
    found = faults_of(ran, site)
    assert [(file, line) for file, line, _ in found] == [
        ("migrations/002_more.sql", 3),
        ("migrations/003_later.sql", 3),
        ("scripts/data.json", 2),
        ("scripts/requires.js", 2),
        ("scripts/requires.js", 3),
        ("scripts/syntax.js", 2),
        ("scripts/unclosed.js", 2),
        ("verbs/crawl.js", 1),
        ("verbs/crawl.js", 1),
        ("verbs/crawl.js", 2),
        ("verbs/throwing.js", 2),
        ("verbs/typed.js", 1),
    ]
    messages = "\n".join(message for *_, message in found)
    for part in ('near "TABEL"', "no such table: nowhere", "Unexpected token ';'", "at once", '"integer"', '"many"'):
        assert part in messages
    text = scraper(tmp_path, *DIRS, "site", "check", "shop").out
    assert text.startswith("shop: 12 faults\n")
    assert 'did you mean "extract-items.js"?' in text
    assert 'did you mean "crawl"?' in text


def test_check_runs_no_script(tmp_path: Path) -> None:
    site = new_site(tmp_path)
    (site / "scripts/endless.js").write_text("for (;;);\nmodule.exports = () => {};\n")
    (site / "tests/endless.js").write_text("for (;;);\n")
    assert scraper(tmp_path, *DIRS, "site", "check", "shop").code == 0


def test_check_tries_migrations_of_both_kinds_in_order(tmp_path: Path) -> None:
    site = new_site(tmp_path)
    (site / "site.yaml").write_text((site / "site.yaml").read_text() + "jsMigrationsRoot: js\n")
    (site / "js").mkdir()
    (site / "js/002_add.js").write_text('module.exports = (m) => m.exec("CREATE TABLE added (id TEXT)");\n')
    (site / "migrations/003_use.sql").write_text("INSERT INTO added VALUES ('x');\n")
    assert scraper(tmp_path, *DIRS, "site", "check", "shop").out == "shop: ok\n"
    (site / "js/002_add.js").write_text('module.exports = (m) =>\n  m.exec("CREATE TABLE ( id");\n')
    (site / "migrations/003_again.sql").write_text("")
    checked = scraper(tmp_path, *DIRS, "site", "check", "shop", "--output", "json")
    ((file, _, message),) = faults_of(checked, site)
    assert (file, "already that of" in message) == ("migrations/003_use.sql", True)
    (site / "migrations/003_again.sql").unlink()
    (site / "migrations/003_use.sql").unlink()
    checked = scraper(tmp_path, *DIRS, "site", "check", "shop", "--output", "json")
    ((file, line, message),) = faults_of(checked, site)
    assert (file, line) == ("js/002_add.js", 2)
    assert "syntax error" in message


def test_check_names_the_folder_that_a_root_probably_means(tmp_path: Path) -> None:
    site = new_site(tmp_path)
    (site / "site.yaml").write_text(
        (site / "site.yaml").read_text().replace("scriptsRoot: scripts", "scriptsRoot: script")
    )
    checked = scraper(tmp_path, *DIRS, "site", "check", "shop")
    assert checked.code == 1
    assert 'site.yaml:6: site.scriptsRoot: there is no folder "script" (did you mean "scripts"?)' in checked.out


def test_every_shipped_site_passes_its_check(tmp_path: Path) -> None:
    ran = scraper(tmp_path, "site", "check", "--output", "json")
    assert ran.code == 0
    checked = {site["name"]: site["ok"] for site in json.loads(ran.out)["sites"]}
    assert {"books", "hackernews", "nereval", "slashdot"} <= checked.keys()
    assert set(checked.values()) == {True}


def rehome_setup(tmp_path: Path) -> None:
    site = new_site(tmp_path)
    (site / "verbs/crawl.js").write_text(
        '__verb__("crawl");\nfunction crawl(ctx) { ctx.emit({ kind: "js", metadata: { script: "one" } }); }\n'
    )
    (site / "scripts/one.js").write_text('module.exports = (ctx) => void ctx.writeRecord("c", "k", 1);\n')
    ran = scraper(tmp_path, *DIRS, "site", "shop", "run", "crawl", SCRAPER_MACHINE_ID="old")
    assert ran.code == 0, ran.err


def work(cwd: Path, machine: str) -> dict[str, Any]:
    ran = scraper(cwd, *DIRS, "worker", "run", "--until-idle", "--output", "json", SCRAPER_MACHINE_ID=machine)
    assert ran.code == 0, ran.err
    report: dict[str, Any] = json.loads(ran.out)
    return report


def test_rehome_makes_this_machine_run_what_waited_for_the_old_home(tmp_path: Path) -> None:
    rehome_setup(tmp_path)
    assert work(tmp_path, "new")["processed"] == 0
    moved = scraper(tmp_path, *DIRS, "site", "rehome", "shop", "--output", "json", SCRAPER_MACHINE_ID="new")
    assert moved.code == 0, moved.err
    report = json.loads(moved.out)
    assert (report["home"], report["previous"], report["movedOps"]) == ("new", "old", 1)
    assert work(tmp_path, "old")["processed"] == 0
    assert work(tmp_path, "new")["succeeded"] == 1
    scraper(tmp_path, *DIRS, "site", "shop", "run", "crawl", SCRAPER_MACHINE_ID="old")
    assert work(tmp_path, "old")["processed"] == 0


def test_rehome_warns_where_the_database_was_left_behind(tmp_path: Path) -> None:
    rehome_setup(tmp_path)
    ran = scraper(tmp_path, *DIRS, "site", "rehome", "shop", "--sites-dir", "state/elsewhere", SCRAPER_MACHINE_ID="new")
    assert ran.code == 0
    assert "there is no state/elsewhere/shop.db yet: bring it from old" in ran.err


def test_rehome_is_for_sqlite_only(tmp_path: Path) -> None:
    make_site(tmp_path / "sites/pg", "pg", "database: {dialect: postgresql}\n")
    ran = scraper(tmp_path, *DIRS, "site", "rehome", "pg")
    assert (ran.code, ran.err) == (2, 'error: site "pg" has no home: its database is in PostgreSQL\n')


@pytest.mark.parametrize("command", ["new", "show", "test", "check", "rehome"])
def test_every_command_of_authors_has_help_with_an_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["site", command, "--help"], {}) == 0
    shown = capsys.readouterr().out
    assert f"Example: scraper site {command} " in shown
    assert "--output" in shown
