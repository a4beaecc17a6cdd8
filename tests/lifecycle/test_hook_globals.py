"""What else hooks find as globals."""

from __future__ import annotations

import platform
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.errors import OpError
from engine.lifecycle.scripts import JobScripts
from engine.lifecycle.testing import TestOutcome, run_tests
from engine.resources import resource
from tests.fakes import FakeClock
from tests.lifecycle.rig import Rig


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    made = Rig(tmp_path_factory.mktemp("globals"))
    yield made
    made.close()


def logged(rig: Rig, body: str, files: dict[str, str] | None = None) -> list[str]:
    """What a hook with this body logs."""
    rig.next_cycle()
    rig.logs.clear()
    rig.load(f"async function before_fetch(r) {{ {body}; return r }}", None, files)
    called = rig.call("before_fetch", {})
    assert called.outcome == "returned", called.error
    return rig.messages


def test_sleep_waits_and_lets_the_rest_go_on(rig: Rig) -> None:
    """JOBHOOK-80."""
    body = """const began = Date.now();
      await Promise.all([sleep(60).then(() => log("late")), sleep(5).then(() => log("early"))]);
      log(Date.now() - began >= 60)"""
    assert logged(rig, body) == ["early", "late", "true"]


def test_json_is_read_and_written_and_faults_are_thrown(rig: Rig) -> None:
    """JOBHOOK-81."""
    body = """log(json_encode({ a: [1, null] }), json_decode('{"b":2}').b);
      for (const text of ["{", 5, '"' + "x".repeat(10485760) + '"'])
        try { json_decode(text) } catch (e) { log(e.name) }
      try { json_encode(undefined) } catch (e) { log(e.message) }"""
    expected = ['{"a":[1,null]} 2', "SyntaxError", "TypeError", "TypeError", "json_encode: a undefined is no JSON"]
    assert logged(rig, body) == expected


def test_only_variables_that_are_allowed_are_read(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """JOBHOOK-82."""
    monkeypatch.setenv("SCRAPER_SECRET", "hidden")
    rig.settings = {"env": {"KEY": "k1"}}
    try:
        body = "log(env_get('KEY'), env_get('SECRET'), env_get('SCRAPER_KEY'), env_get('PATH'))"
        assert logged(rig, body) == ["k1 null null null"]
    finally:
        rig.settings = {}


def test_log_lines_carry_the_instant_and_print_goes_to_the_terminal(
    rig: Rig, capfd: pytest.CaptureFixture[str]
) -> None:
    """JOBHOOK-80."""
    rig.next_cycle()
    hooks = rig.load("function before_fetch(r) { log('a', { b: 1 }); console.warn('w'); print('p', [1]); return r }")
    rig.clock.advance(5)
    hooks.call("before_fetch", [{}], rig.cycle)
    lines = [(line.at, line.level, line.message) for line in hooks.take_logs()]
    assert lines == [(rig.clock.now(), "info", 'a {"b":1}'), (rig.clock.now(), "warning", "w")]
    assert capfd.readouterr().err == "[deals] p [1]\n"
    assert hooks.take_logs() == []


@pytest.fixture
def folders(rig: Rig) -> Path:
    """Files of the job and of the shared folder, and one outside."""
    for name, text in {
        "job/own.txt": "own",
        "job/both.txt": "job's",
        "job/sub/deep.csv": "deep",
        "job/key.pem": "secret",
        "shared/both.txt": "shared's",
        "shared/only.json": "{}",
        "outside.txt": "outside",
    }.items():
        path = rig.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    link = rig.folder / "job/link.txt"
    if not link.is_symlink():
        link.symlink_to(rig.folder / "outside.txt")
    return rig.folder


def test_files_of_the_job_are_read_and_else_the_shared_ones(rig: Rig, folders: Path) -> None:
    """JOBHOOK-83."""
    body = """for (const path of ["own.txt", "sub/deep.csv", "both.txt", "shared/both.txt", "only.json", "gone.txt"])
        log(await fs_read(path))"""
    assert logged(rig, body) == ["own", "deep", "job's", "shared's", "{}", "null"]


def test_nothing_outside_these_folders_is_read(rig: Rig, folders: Path) -> None:
    """JOBHOOK-83."""
    paths = [
        "/etc/hostname",
        "../outside.txt",
        "sub/../../outside.txt",
        "link.txt",
        "key.pem",
        "shared/../job/own.txt",
        "",
    ]
    body = f"for (const path of {paths}) log(await fs_read(path).then(() => 'read', (e) => 'refused'))"
    assert logged(rig, body) == ["refused"] * len(paths)


def test_modules_are_found_in_the_job_and_then_in_the_site_once(rig: Rig) -> None:
    """JOBHOOK-84."""
    files = {
        "lib/prices.js": "log('loaded'); const money = require('./money'); exports.show = (p) => money(p)",
        "lib/money.js": "module.exports = (p) => `$${p}`",
        "lib/deep/util.js": "module.exports = { name: 'deep' }",
        "lib/table.json": '{"a": 1}',
        "site/lib/prices.js": "exports.show = () => 'the site\\'s'",
        "site/lib/common.js": "module.exports = require('./more')",
        "site/lib/more.js": "module.exports = 'more of the site'",
    }
    body = """log(require("prices").show(3), require("lib/prices") === require("lib.prices"));
      log(require("deep.util").name, require("table.json").a, require("common"), require("site/lib/prices").show());
      for (const name of ["gone", "../secret", "/etc/passwd", "./x"]) try { require(name) } catch (e) { log(e.code) }
      log(require("html").parse("<p>x</p>").first("p").text())"""
    assert logged(rig, body, files) == [
        "loaded",
        "$3 true",
        "deep 1 more of the site the site's",
        *["MODULE_NOT_FOUND"] * 4,
        "x",
    ]


def test_values_are_copied_and_shown_also_when_they_hold_themselves(rig: Rig) -> None:
    """JOBHOOK-85."""
    body = """const a = { n: 1, in: { x: 1 }, f() {} }; a.self = a;
      const one = copy(a), all = deep_copy(a);
      one.n = 2; one.in.x = 5; all.in.x = 9;
      log(a.n, a.in.x, one.self === a, all.self === all, typeof all.f);
      delete a.f; log(dump(a)); log(dump([1, "s", null, []]))"""
    assert logged(rig, body) == [
        "1 5 true true function",
        "{\n  n: 1,\n  in: {\n    x: 5\n  },\n  self: <cycle>\n}",
        '[\n  1,\n  "s",\n  null,\n  []\n]',
    ]


def test_engine_says_where_it_runs(rig: Rig) -> None:
    """JOBHOOK-85."""
    rig.settings = {"engine_version": "9.9"}
    try:
        found = logged(rig, "log(engine.os, engine.arch, engine.version, engine.storage, Object.isFrozen(engine))")
    finally:
        rig.settings = {}
    assert found == [f"{platform.system().lower()} {platform.machine().lower()} 9.9 sqlite true"]


def test_every_global_of_hooks_is_documented() -> None:
    page = (resource("docs") / "reference" / "job-hooks.md").read_text("utf-8")
    named = set(re.findall(r"\w+", " ".join(re.findall(r"`([^`]+)`", re.sub(r"```.*?```", "", page, flags=re.S)))))
    source = (resource("engine") / "lifecycle" / "prelude" / "globals.js").read_text("utf-8")
    offered = set(re.findall(r'\$(?:offer|offerLater|lazy)\("(\w+)"', source))
    assert len(offered) > 15
    assert offered - named == set()


def test_no_name_of_the_prelude_is_declared_twice() -> None:
    """One would silently take the place of the other."""
    folders = [resource("engine") / "js" / "prelude", resource("engine") / "lifecycle" / "prelude"]
    texts = [path.read_text("utf-8") for folder in folders for path in folder.glob("*.js")]
    texts.append((resource("engine") / "lifecycle" / "browser.js").read_text("utf-8"))
    names = Counter(name for text in texts for name in re.findall(r"^(?:const|let|function) (\$\w+)", text, re.M))
    assert len(names) > 60
    assert [name for name, count in names.items() if count > 1] == []


TESTS = """
db_exec("CREATE TABLE seen (n)");
var kept = 0;
function before_fetch(r) { r.url = http_get("x"); return r }
function helper_test_not() {}
const test_arrow = async (ctx) => {
  spyweb.assert_eq([kept, ctx.worker_id, ctx.shared], [0, 1, {}]); kept = 1;
  await db_exec("INSERT INTO seen VALUES (1)"); await store_set("a", "1"); await global_store_incr("g", 0, 2);
  scraper.assert_eq([await db_query("SELECT n FROM seen"), await store_get("a"), await global_store_get("g")],
    [[{ n: 1 }], "1", "2"]);
};
"""
MORE = """
function test_mock(ctx) {
  http_get = () => "mocked"; defer(() => log("deferred"));
  spyweb.assert_eq(before_fetch({}).url, "mocked"); spyweb.assert_ne(1, "1");
}
async function test_zero() {
  spyweb.assert_eq(kept, 0); spyweb.assert_eq(await db_query("SELECT n FROM seen"), []);
  spyweb.assert_eq([await store_get("a"), await global_store_get("g"), http_get.name], [null, null, ""]);
}
function test_wrong() { spyweb.assert_eq({ a: 1 }, { a: 2 }, "sums") }
function test_equal() { spyweb.assert_ne([1], [1]) }
async function test_hangs() { await new Promise(() => 0) }
"""


def tried(pattern: str = "", **files: str) -> list[TestOutcome]:
    texts = {name.replace("_", "."): text for name, text in files.items()}
    return run_tests(JobScripts(site="s", job_id="j", job_name="J", files=texts), FakeClock(), pattern=pattern)


def test_every_test_of_the_three_scripts_runs_alone_in_order_of_names() -> None:
    """JOBHOOK-90 to JOBHOOK-92."""
    outcomes = {outcome.name: outcome for outcome in tried(hooks_js=TESTS, tests_js=MORE)}
    assert list(outcomes) == ["test_arrow", "test_equal", "test_hangs", "test_mock", "test_wrong", "test_zero"]
    assert {name for name, outcome in outcomes.items() if outcome.ok} == {"test_arrow", "test_mock", "test_zero"}
    assert outcomes["test_mock"].logs == ("deferred",)
    assert outcomes["test_wrong"].error.startswith("AssertionError: sums: {\n  a: 1\n} is not {\n  a: 2\n} (tests.js:")
    assert "was not expected" in outcomes["test_equal"].error
    assert "can never settle" in outcomes["test_hangs"].error


def test_tests_are_chosen_by_a_part_of_their_name() -> None:
    """JOBHOOK-90."""
    assert [outcome.name for outcome in tried("_mo", hooks_js=TESTS, tests_js=MORE)] == ["test_mock"]


def test_a_job_without_tests_has_none_and_one_that_cannot_be_loaded_is_refused() -> None:
    """JOBHOOK-90."""
    assert tried(hooks_js="function before_fetch() {}") == []
    with pytest.raises(OpError, match=r"tests\.js:\d+:\d+: SyntaxError"):
        tried(tests_js="function test_a( {")
