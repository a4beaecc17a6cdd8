"""Scripts as ops: context, results, effects, errors, from claim to commit (JS-1 to JS-19)."""

from __future__ import annotations

import json

import pytest

from engine.model import Dependency, EdgeKind, NewOp, RetryPolicy
from tests.worker.lab import COUNTERS, SITE, Lab, js

RETURNS = {
    "object": ("return {foo: 1}", {"foo": 1}),
    "envelope": ("return {data: {foo: 1}, more: 2}", {"foo": 1}),
    "empty-envelope": ("return {error: null}", None),
    "array": ("return [1, 'two']", [1, "two"]),
    "scalar": ("return 'text'", "text"),
    "nothing": ("", None),
    "null": ("return null", None),
    "undefined-members": ("return {a: undefined, b: new Date(0)}", {"b": "1970-01-01T00:00:00.000Z"}),
    "promise": ("return Promise.resolve({n: 2})", {"n": 2}),
    "key-order": ("return {z: 1, a: 2}", {"z": 1, "a": 2}),
}


def test_every_shape_of_return_value_is_kept_as_documented(lab: Lab) -> None:
    for name, (body, _) in RETURNS.items():
        lab.write(f"scripts/{name}.js", f"module.exports = function (ctx) {{ {body} }};")
    lab.run(*(js(name, name) for name in RETURNS))
    shown = {name: lab.result(name)["data"] for name in RETURNS}
    assert shown == {name: expected for name, (_, expected) in RETURNS.items()}
    assert json.dumps(shown["key-order"]) == '{"z": 1, "a": 2}'


def test_the_context_shows_op_workflow_lease_and_input(lab: Lab) -> None:
    lab.write(
        "scripts/show.js",
        "exports.default = ({site, now, input, workflow, op, lease}) => ({site, now, input, workflow, op, lease});",
    )
    lab.run(js("a", "show.js", input={"n": 1}, queue="q", dedup_key="k"), metadata={"m": "1"}, input='{"v":2}')
    seen = lab.result("a")["data"]
    assert seen["site"] == SITE
    assert seen["input"] == {"n": 1}
    assert seen["workflow"] == {
        "id": "w",
        "site": SITE,
        "name": "test",
        "status": "running",
        "input": {"v": 2},
        "metadata": {"m": "1"},
    }
    assert seen["op"] == {
        "id": "a",
        "workflowID": "w",
        "site": SITE,
        "kind": "js",
        "queue": "q",
        "dedupKey": "k",
        "metadata": {"script": "show.js"},
    }
    assert seen["lease"]["token"]
    assert seen["now"] == seen["lease"]["acquiredAt"]


def test_effects_of_a_script_are_kept_together(lab: Lab) -> None:
    lab.write(
        "scripts/work.js",
        """module.exports = (ctx) => {
          ctx.log("hello", {n: 1});
          ctx.writeRecord("items", 7, {title: "ü"});
          const text = ctx.writeArtifact({name: "page", kind: "html", contentType: "text/html", body: "<p>ü"});
          const bytes = ctx.writeArtifact({id: "mine", body: new Uint8Array([0, 255])});
          const child = ctx.emit({kind: "js", metadata: {script: "child", n: 3}, input: {x: 1}});
          return {text, bytes, child};
        }""",
    )
    lab.write(
        "scripts/child.js", "module.exports = (ctx) => [ctx.op.metadata.n, ctx.input.x, ctx.dep('a').artifacts.length];"
    )
    assert lab.run(js("a", "work")) == {"a": "succeeded", "a:emit:001": "succeeded"}
    shown = lab.result("a")
    assert shown["data"] == {"text": "a:artifact:001", "bytes": "mine", "child": "a:emit:001"}
    assert shown["records"] == [{"collection": "items", "key": "7", "data": {"title": "ü"}}]
    assert shown["emittedIDs"] == ["a:emit:001"]
    assert lab.result("a:emit:001")["data"] == ["3", 1, 3]
    assert lab.site("SELECT collection, key, data, op_id FROM scraper_records") == [
        ("items", "7", '{"title":"ü"}', "a")
    ]
    log = next(item for item in shown["artifacts"] if item["id"] == "a:execution-log")
    assert [line["message"] for line in json.loads(log["text"])] == ['hello {"n":1}']
    assert lab.engine("SELECT body FROM artifacts WHERE id = 'mine'") == [{"body": b"\x00\xff"}]


def test_dependencies_show_their_artifacts_as_text_and_bytes(lab: Lab) -> None:
    lab.write(
        "scripts/make.js",
        "module.exports = (ctx) => void ctx.writeArtifact("
        "{name: 'n', contentType: 'text/plain; charset=latin1', body: new Uint8Array([233])})",
    )
    lab.write(
        "scripts/read.js",
        """module.exports = (ctx) => {
          const dep = ctx.dep("make");
          const [a] = dep.artifacts;
          return {text: a.bodyText, bytes: Array.from(a.bodyBytes()), same: ctx.dep("make") === dep,
                  none: ctx.dep("nope"), failed: "error" in dep, keys: Object.keys(a)};
        }""",
    )
    lab.run(js("make", "make"), js("read", "read", depends_on=(Dependency("make"),)))
    assert lab.result("read")["data"] == {
        "text": "é",
        "bytes": [233],
        "same": True,
        "none": None,
        "failed": False,
        "keys": ["id", "name", "kind", "contentType", "metadata", "bodyText"],
    }


def test_a_failed_op_keeps_logs_and_artifacts_and_nothing_else(lab: Lab) -> None:
    lab.write("migrations/001_c.sql", COUNTERS)
    lab.write(
        "scripts/bad.js",
        """module.exports = (ctx) => {
          require("site-db").exec("UPDATE counter SET n = n + 1");
          ctx.log("so far"); ctx.writeRecord("r", 1, {}); ctx.writeArtifact({id: "evidence", body: "x"});
          ctx.emit({kind: "js", metadata: {script: "bad"}});
          throw new Error("no");
        }""",
    )
    lab.write(
        "scripts/after.js",
        "module.exports = (ctx) => { const d = ctx.dep('a');"
        " return [d.error && d.error.code, d.artifacts.map(x => x.id), d.data] }",
    )
    statuses = lab.run(js("a", "bad"), js("after", "after", depends_on=(Dependency("a", EdgeKind.TERMINAL),)))
    assert statuses == {"a": "failed", "after": "succeeded"}
    assert lab.result("after")["data"] == ["runner_error", ["a:execution-log", "evidence"], None]
    assert lab.site("SELECT n FROM counter") == [(0,)]
    assert lab.site("SELECT count(*) FROM scraper_records") == [(0,)]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("return {error: {code: 'sold_out', message: 'm', details: {a: 1}}}", "sold_out"),
        ("return {error: {}}", ""),
        ("return {error: 'text'}", "runner_error"),
        ("throw new Error('x')", "runner_error"),
        ("return {n: NaN}", "invalid_result"),
        ("return new Promise(() => {})", "js_never_settled"),
        ("require('site-db').exec('SELEKT 1')", "runner_error"),
        ("require('site-db').exec('INSERT OR ROLLBACK INTO t VALUES (NULL)')", "runner_error"),
        ("require('scraper-db').exec('DELETE FROM ops')", "runner_error"),
        ("require('scraper-db').query('DELETE FROM op')", "runner_error"),
        ("require('site-db').exec('DELETE FROM scraper_inbox')", "runner_error"),
        ("require('site-db').exec(\"ATTACH 'x.db' AS x\")", "runner_error"),
        ("ctx.emit(3)", "runner_error"),
        ("ctx.emit({})", "runner_error"),
        ("ctx.emit({kind: 'js', dependsOn: 1})", "runner_error"),
        ("ctx.emit({kind: 'js', dependsOn: [{}]})", "runner_error"),
        ("ctx.emit({kind: 'js', retry: {initialBackoff: 'soon'}})", "runner_error"),
        ("ctx.writeRecord(' ', 1, {})", "runner_error"),
        (
            "ctx.emit({id: 'x', kind: 'js', dependsOn: [{opID: 'y'}]});"
            "ctx.emit({id: 'y', kind: 'js', dependsOn: [{opID: 'x'}]})",
            "dependency_cycle",
        ),
        ("ctx.emit({id: 'x', kind: 'js'}); ctx.emit({id: 'x', kind: 'js', input: 2})", "duplicate_op_id"),
        ("ctx.emit({id: 'a', kind: 'js', input: 2})", "duplicate_op_id"),
        ("ctx.emit({kind: 'js', workflowID: 'elsewhere'})", "unknown_workflow"),
    ],
)
def test_what_goes_wrong_in_a_script_is_its_ops_error(lab: Lab, body: str, code: str) -> None:
    lab.write("migrations/001_t.sql", "CREATE TABLE t (v TEXT NOT NULL);")
    lab.write("scripts/s.js", f"module.exports = (ctx) => {{ {body} }}")
    assert lab.run(js("a", "s")) == {"a": "failed"}
    assert lab.error("a")["code"] == code


def test_unknown_scripts_kinds_and_sites_fail_their_op_and_not_the_worker(lab: Lab) -> None:
    lab.write("scripts/ok.js", "module.exports = () => 1")
    statuses = lab.run(
        js("missing", "nowhere"),
        NewOp(id="nameless", kind="js", site=SITE),
        NewOp(id="kind", kind="telepathy", site=SITE),
        NewOp(id="site", kind="js", site="elsewhere", metadata={"script": "ok"}),
        js("fine", "ok"),
    )
    assert statuses == {
        "missing": "failed",
        "nameless": "failed",
        "kind": "failed",
        "site": "failed",
        "fine": "succeeded",
    }
    codes = {name: lab.error(name)["code"] for name in ("missing", "nameless", "kind", "site")}
    assert codes == {
        "missing": "runner_error",
        "nameless": "runner_error",
        "kind": "missing_runner",
        "site": "unknown_site",
    }


def test_a_retryable_error_runs_again_under_the_policy(lab: Lab) -> None:
    lab.write("migrations/001_c.sql", COUNTERS)
    lab.write(
        "scripts/flaky.js",
        """module.exports = (ctx) => {
          const seen = require("scraper-db").query("SELECT retry_state_json AS s FROM ops WHERE id = 'a'")[0].s;
          require("site-db").exec("UPDATE counter SET n = n + 1");
          if (JSON.parse(seen).Attempt < 3) return {error: {code: "later", retryable: true}};
        }""",
    )
    lab.run(js("a", "flaky", retry=RetryPolicy(max_attempts=3, initial=1000)))
    assert lab.attempts("a") == ["retried", "retried", "succeeded"]
    assert lab.site("SELECT n FROM counter") == [(1,)]


def test_without_a_policy_a_retryable_error_is_final(lab: Lab) -> None:
    lab.write("scripts/flaky.js", "module.exports = () => ({error: {code: 'later', retryable: true}})")
    assert lab.run(js("a", "flaky")) == {"a": "failed"}
    assert lab.attempts("a") == ["failed"]


def test_emit_returns_the_id_of_the_op_that_holds_the_dedup_key(lab: Lab) -> None:
    lab.write("scripts/page.js", "module.exports = () => 1")
    lab.write(
        "scripts/seed.js",
        """module.exports = (ctx) => {
          const spec = (n) => ({kind: "js", dedupKey: "page", metadata: {script: "page"}, input: n});
          return [ctx.emit(spec(1)), ctx.emit(spec(2))];
        }""",
    )
    lab.run(js("a", "seed"), js("b", "seed", depends_on=(Dependency("a"),)))
    assert lab.result("a")["data"] == ["a:emit:001", "a:emit:001"]
    assert lab.result("b")["data"] == ["a:emit:001", "a:emit:001"]
    assert lab.statuses() == {"a": "succeeded", "b": "succeeded", "a:emit:001": "succeeded"}


def test_site_db_types_parameters_and_own_writes(lab: Lab) -> None:
    lab.write("migrations/001_t.sql", "CREATE TABLE t (id INTEGER PRIMARY KEY, i INTEGER, r REAL, s TEXT, b BLOB);")
    lab.write(
        "scripts/s.js",
        """const db = require("site-db");
        module.exports = () => {
          db.exec("BEGIN");
          const one = db.exec("INSERT INTO t (i, r, s, b) VALUES (?, ?, ?, ?)", true, 1.5, "ü", new Uint8Array([1, 2]));
          const id = db.lastInsertId();
          db.exec("INSERT INTO t (i, s) VALUES (?, ?)", [9007199254740993n, null]);
          const many = db.exec("UPDATE t SET r = 2; UPDATE t SET r = 3 WHERE id = 1");
          db.exec("COMMIT");
          const rows = db.query("SELECT i, r, s, b FROM t ORDER BY id");
          db.options({bigint: "string"});
          let caught = "";
          try { db.query("SELECT nope") } catch (e) { caught = e.message }
          return {one, id, many, first: [rows[0].i, rows[0].s, Array.from(rows[0].b)], none: rows[1].s,
                  isArray: Array.isArray(rows), big: db.query("SELECT max(i) AS m FROM t")[0].m, caught};
        }""",
    )
    assert lab.run(js("a", "s")) == {"a": "succeeded"}
    assert lab.result("a")["data"] == {
        "one": 1,
        "id": 1,
        "many": 1,
        "first": [1, "ü", [1, 2]],
        "none": None,
        "isArray": True,
        "big": "9007199254740993",
        "caught": "no such column: nope",
    }


def test_the_op_sees_itself_running_in_scraper_db(either_lab: Lab) -> None:
    either_lab.write(
        "scripts/s.js",
        """module.exports = (ctx) => require("scraper-db").query(
          "SELECT o.status, l.worker_id FROM ops o JOIN leases l ON l.op_id = o.id"
            + " WHERE o.workflow_id = ? AND o.id = ?",
          ctx.workflow.id, ctx.op.id)[0]""",
    )
    assert either_lab.run(js("a", "s")) == {"a": "succeeded"}
    seen = either_lab.result("a")["data"]
    assert seen["status"] == "running"
    assert seen["worker_id"].startswith("scraper-worker")


def test_a_failing_migration_fails_the_sites_ops_and_not_the_worker(lab: Lab) -> None:
    lab.write("migrations/001_ok.sql", "CREATE TABLE t (v);")
    lab.write("migrations/002_bad.sql", "CREATE TABLE u (v);\n\nCREATE TABEL x;")
    lab.write("scripts/s.js", "module.exports = () => 1")
    assert lab.run(js("a", "s")) == {"a": "failed"}
    error = lab.error("a")
    assert error["code"] == "site_migration_failed"
    assert "002_bad.sql: line 3" in error["message"]
    assert lab.site("SELECT version FROM schema_migrations") == [(1,)]
