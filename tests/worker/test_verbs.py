"""Submit verbs: what they see, what they may return, and a refused one leaves nothing (JS-50 to JS-64)."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pytest

from engine.app import scan_verbs, submit_verb
from engine.clock import SECOND
from engine.errors import SubmissionRefused
from engine.js.pool import JsPool, PoolSettings
from engine.jschild import ENVIRONMENT
from engine.store.store import Store
from engine.submission import VERB_TIMEOUT, Submission, submit
from engine.verbs import read_declarations
from tests.worker.lab import COUNTERS, SITE, Lab

BUMP = "require('site-db').exec('UPDATE counter SET n = n + 1');"
EMIT = "ctx.emit({kind: 'js', metadata: {script: 'ok'}})"


@dataclass(slots=True)
class Verbs:
    """A lab whose one verb file declares a verb per entry of ``bodies``."""

    lab: Lab
    bodies: dict[str, str]

    def __post_init__(self) -> None:
        functions = (
            f'__verb__("{name}", {{}}); function {name}(ctx) {{ {body} }}' for name, body in self.bodies.items()
        )
        self.lab.write("migrations/001_c.sql", COUNTERS)
        self.lab.write("scripts/ok.js", "module.exports = () => 1")
        self.lab.write("verbs/seed.js", "\n".join(functions))

    def run(self, name: str) -> Submission:
        """Submit one verb; its workflow is called like it."""
        ended = self.run_all([name])[name]
        if isinstance(ended, SubmissionRefused):
            raise ended
        return ended

    def run_all(self, names: Sequence[str] = ()) -> dict[str, Submission | SubmissionRefused]:
        """Submit all of them, one after another, in one child; what became of each."""
        with closing(self.lab.store()) as store:
            return asyncio.run(self._submit(store, names or list(self.bodies)))

    async def _submit(self, store: Store, names: Sequence[str]) -> dict[str, Submission | SubmissionRefused]:
        told = {"engine_url": self.lab.engine_db, "sites_dir": str(self.lab.settings.sites_dir)}
        pool = JsPool(PoolSettings(environment={**os.environ, ENVIRONMENT: json.dumps(told)}, size=1))
        site = self.lab.registry.site(SITE)
        ended: dict[str, Submission | SubmissionRefused] = {}
        try:
            specs = {spec.function: spec for spec in read_declarations(await pool.scan(site), "verbs")}
            for name in names:
                try:
                    ended[name] = await submit(store, pool, site, specs[name], {}, name, "m1")
                except SubmissionRefused as refused:
                    ended[name] = refused
        finally:
            await pool.aclose()
        return ended

    def workflow(self, workflow_id: str) -> dict[str, Any]:
        """The stored workflow, JSON columns read."""
        (row,) = self.lab.engine(f"SELECT * FROM workflows WHERE id = '{workflow_id}'")
        return row | {"metadata": json.loads(row["metadata_json"]), "input": json.loads(row["input_json"])}


RETURNS: dict[str, tuple[str, str | None, Any]] = {
    "nothing": ("", None, None),
    "null_": ("return null", None, None),
    "object": ("return {a: 1, b: undefined}", None, {"a": 1}),
    "data": ("return {data: {a: 1}, more: 2}", None, {"a": 1}),
    "no_data": ("return {data: null, more: 2}", None, None),
    "array": ("return [1, 'zwei']", None, [1, "zwei"]),
    "scalar": ("return 7", None, 7),
    "text": ("return 'ü'", None, "ü"),
    "promise": ("return Promise.resolve({data: [1]})", None, [1]),
    "later": ("return new Promise((done) => setTimeout(() => done(3), 1))", None, 3),
    "target": (f"return {{targetOpID: {EMIT}}}", "target:submit:001", {"targetOpID": "target:submit:001"}),
    "target_and_data": (f"return {{targetOpID: {EMIT}, data: 5}}", "target_and_data:submit:001", 5),
}


def test_every_form_of_return_value_means_what_is_documented(lab: Lab) -> None:
    """JS-51."""
    verbs = Verbs(lab, {name: body for name, (body, _, _) in RETURNS.items()})
    shown = {
        name: (done.target_op, json.loads(done.verb_data)) if isinstance(done, Submission) else str(done)
        for name, done in verbs.run_all().items()
    }
    assert shown == {name: (target, data) for name, (_, target, data) in RETURNS.items()}


def test_what_a_method_set_wins_over_what_is_returned(lab: Lab) -> None:
    """JS-51; metadata is merged, its values are strings (JS-4)."""
    returned = (
        "return {targetOpID: 'r', workflowName: 'returned', workflowMetadata: {by: 'return', n: 3, o: {a: 1}, z: null}}"
    )
    verbs = Verbs(
        lab,
        {
            "returned": returned,
            "both": "ctx.setTargetOpID('m'); ctx.setWorkflowName(' method '); ctx.setWorkflowMetadata({by: 'method'});"
            + returned,
            "set": "ctx.setWorkflowMetadata({n: 3, o: {a: 1}, z: null, b: true}); ctx.setWorkflowName('first');"
            " ctx.setWorkflowName('last')",
            "blank": "ctx.setWorkflowMetadata('text'); ctx.setWorkflowName('  ')",
        },
    )
    targets = {name: getattr(done, "target_op", done) for name, done in verbs.run_all().items()}
    assert targets == {"returned": "r", "both": "m", "set": None, "blank": None}
    stored = {name: verbs.workflow(name) for name in verbs.bodies}
    assert {name: row["name"] for name, row in stored.items()} == {
        "returned": "returned",
        "both": "method",
        "set": "last",
        "blank": "shop blank submission",
    }
    assert {name: row["metadata"] for name, row in stored.items()} == {
        "returned": {"submitVerb": "returned", "by": "return", "n": "3", "o": '{"a":1}', "z": ""},
        "both": {"submitVerb": "both", "by": "method"},
        "set": {"submitVerb": "set", "n": "3", "o": '{"a":1}', "z": "", "b": "true"},
        "blank": {"submitVerb": "blank"},
    }


def test_the_context_shows_command_values_and_a_snapshot_of_the_workflow(lab: Lab) -> None:
    """JS-52, JS-55, JS-56, CLI-20."""
    lab.write(
        "verbs/deep/seed.js",
        """__package__({name: "admin"});
        const names = ["seed", "all"].map((part) => part.toUpperCase());
        __verb__("seedAll", {short: names.join(" "), fields: {base_url: {}}});
        async function seedAll(ctx) {
          "use strict";
          ctx.setWorkflowName("other"); ctx.setWorkflowMetadata({x: 1});
          const {site, now, values, sections, command, workflow} = ctx;
          return {site, now, values, sections, command, workflow, self: this === undefined,
                  methods: Object.keys(ctx).filter((key) => typeof ctx[key] === "function").sort(),
                  stubs: [doc`help`, __verb__("x", {}), __section__("s", {}), __package__({})].map(String)};
        }""",
    )
    (spec,) = scan_verbs(lab.registry.site(SITE))
    assert (spec.name, spec.short, spec.full_path) == ("seed-all", "SEED ALL", "admin seed-all")
    report = submit_verb(lab.settings, lab.registry, SITE, spec, {"default": {"base_url": "u"}, "s": {"n": 1}}, None)
    seen = json.loads(report.verb_data_json)
    prefix, _, number = report.workflow_id.rpartition("-")
    assert (prefix, number.isdigit()) == ("shop-seed-all", True)
    assert seen.pop("now").endswith("Z")
    assert seen == {
        "site": SITE,
        "values": {"base_url": "u", "n": 1},
        "sections": {"default": {"base_url": "u"}, "s": {"n": 1}},
        "command": {
            "name": "seed-all",
            "fullPath": "admin seed-all",
            "function": "seedAll",
            "module": "/deep/seed.js",
            "sourceFile": "deep/seed.js",
        },
        "workflow": {
            "id": report.workflow_id,
            "site": SITE,
            "name": "shop seed-all submission",
            "status": "pending",
            "input": {"base_url": "u", "n": 1},
            "metadata": {"submitVerb": "admin seed-all"},
        },
        "self": True,
        "methods": ["emit", "log", "setTargetOpID", "setWorkflowMetadata", "setWorkflowName"],
        "stubs": ["", "undefined", "undefined", "undefined"],
    }
    assert lab.engine("SELECT name, input_json FROM workflows") == [
        {"name": "other", "input_json": '{"base_url": "u", "n": 1}'}
    ]


def test_helpers_are_found_beside_the_verb_and_in_the_site(lab: Lab) -> None:
    """JS-54."""
    lab.write("verbs/helper.js", "module.exports = 'beside'")
    lab.write("scripts/lib/page.js", "exports.name = require('./inner').name")
    lab.write("scripts/lib/inner.js", "exports.name = 'inner'")
    verbs = Verbs(
        lab,
        {
            "go": "return [require('./helper'), require('../scripts/lib/page.js').name,"
            " require('./scripts/lib/page').name]"
        },
    )
    assert json.loads(verbs.run("go").verb_data) == ["beside", "inner", "inner"]


def test_ids_count_every_accepted_emit_and_parents_are_only_those_given(lab: Lab) -> None:
    """JS-60, JS-61."""
    verbs = Verbs(
        lab,
        {
            "go": """const one = (spec) => ctx.emit({kind: "js", metadata: {script: "ok"}, ...spec});
            const ids = [one({id: "mine"}), one({}), one({parentID: "mine"})];
            try { ctx.emit({}) } catch (e) { ids.push(e.message) }
            try { ctx.emit("js") } catch (e) { ids.push(e.message) }
            return [...ids, one({})];"""
        },
    )
    done = verbs.run("go")
    assert json.loads(done.verb_data) == [
        "mine",
        "go:submit:002",
        "go:submit:003",
        "emitted op kind is required",
        "emit expects an object",
        "go:submit:004",
    ]
    assert len(done.submitted.op_ids) == 4
    assert {row["id"]: row["parent_id"] for row in lab.engine("SELECT id, parent_id FROM ops")} == {
        "mine": None,
        "go:submit:002": None,
        "go:submit:003": "mine",
        "go:submit:004": None,
    }
    assert verbs.workflow("go")["status"] == "running"


def test_dependencies_are_required_unless_told_otherwise_and_dedup_keys_fold(lab: Lab) -> None:
    """JS-64, JS-17."""
    verbs = Verbs(
        lab,
        {
            "go": """const one = (spec) => ctx.emit({kind: "js", metadata: {script: "ok"}, ...spec});
            const a = one({id: "a", dedupKey: "k"}), again = one({id: "b", dedupKey: "k"});
            one({id: "c", dependsOn: [{opID: again}]});
            one({id: "d", dependsOn: [{opID: "b", required: false}]});
            return [a, again];"""
        },
    )
    assert json.loads(verbs.run("go").verb_data) == ["a", "a"]
    edges = lab.engine("SELECT op_id, depends_on_op_id AS target, required FROM op_dependencies ORDER BY op_id")
    assert [tuple(row.values()) for row in edges] == [("c", "a", 1), ("d", "a", 0)]
    lab.work()
    assert lab.statuses() == {"a": "succeeded", "c": "succeeded", "d": "succeeded"}


def test_ops_may_go_into_another_workflow_that_exists(lab: Lab) -> None:
    """JS-62."""
    verbs = Verbs(
        lab,
        {
            "base": EMIT,
            "more": """ctx.emit({id: "x", kind: "js", workflowID: "base", metadata: {script: "ok"}});
            ctx.emit({id: "x", kind: "js", workflowID: "more", metadata: {script: "ok"}});""",
            "only": "ctx.emit({id: 'y', kind: 'js', workflowID: 'base', metadata: {script: 'ok'}});",
        },
    )
    assert all(isinstance(done, Submission) for done in verbs.run_all().values())
    lab.work()
    ops = lab.engine("SELECT workflow_id AS w, id, status FROM ops ORDER BY workflow_id, id")
    assert [tuple(row.values()) for row in ops] == [
        ("base", "base:submit:001", "succeeded"),
        ("base", "x", "succeeded"),
        ("base", "y", "succeeded"),
        ("more", "x", "succeeded"),
    ]
    assert {row["id"]: row["status"] for row in lab.engine("SELECT id, status FROM workflows")} == {
        "base": "succeeded",
        "more": "succeeded",
        "only": "succeeded",
    }


def test_an_id_nobody_emitted_is_a_forward_reference_until_the_workflow_has_come_to_rest(lab: Lab) -> None:
    verbs = Verbs(lab, {"go": f"{BUMP} ctx.emit({{id: 'a', kind: 'js', dependsOn: [{{opID: 'ghost'}}]}}); {EMIT}"})
    verbs.run("go")
    assert lab.statuses() == {"a": "pending", "go:submit:002": "ready"}
    assert lab.site("SELECT n FROM counter") == [(1,)]
    lab.work()
    assert lab.statuses() == {"a": "canceled", "go:submit:002": "succeeded"}
    assert lab.result("a", "go")["error"]["code"] == "unknown_dependency"
    assert "ghost" in lab.result("a", "go")["error"]["message"]


def test_retry_durations_are_go_strings_or_milliseconds(lab: Lab) -> None:
    """JS-63."""
    given = {"text": ("'150ms'", 150_000_000), "number": ("1500", 1_500_000_000), "sum": ("'1m30s'", 90 * 10**9)}
    emit = "ctx.emit({kind: 'js', retry: {maxAttempts: 4, backoffKind: 'linear', initialBackoff: $, maxBackoff: $}})"
    verbs = Verbs(lab, {name: emit.replace("$", duration) for name, (duration, _) in given.items()})
    verbs.run_all()
    stored = {row["workflow_id"]: json.loads(row["retry_json"]) for row in lab.engine("SELECT * FROM ops")}
    assert {(policy["MaxAttempts"], policy["BackoffKind"]) for policy in stored.values()} == {(4, "linear")}
    assert {name: (policy["InitialBackoff"], policy["MaxBackoff"]) for name, policy in stored.items()} == {
        name: (nanoseconds, nanoseconds) for name, (_, nanoseconds) in given.items()
    }


def test_a_verb_without_ops_succeeds_at_once_with_a_warning_and_keeps_its_writes(lab: Lab) -> None:
    verbs = Verbs(lab, {"go": BUMP})
    submitted = verbs.run("go").submitted
    assert submitted.op_ids == ()
    assert submitted.warning is not None
    assert '"go" has no ops' in submitted.warning
    assert verbs.workflow("go")["status"] == "succeeded"
    assert lab.site("SELECT n FROM counter") == [(1,)]


def test_writes_of_a_verb_are_seen_by_its_ops_and_by_itself(lab: Lab) -> None:
    """JS-53."""
    lab.write("scripts/read.js", "module.exports = () => require('site-db').query('SELECT n FROM counter')[0].n")
    emit = "ctx.emit({id: 'read', kind: 'js', metadata: {script: 'read'}});"
    read = (
        "return [require('site-db').query('SELECT n FROM counter')[0].n,"
        " require('scraper-db').query('SELECT id FROM workflows')]"
    )
    verbs = Verbs(lab, {"go": BUMP + emit + read})
    assert json.loads(verbs.run("go").verb_data) == [1, []]
    lab.work()
    assert lab.result("read", "go")["data"] == 1


REFUSED = {
    "throws": ("throw new Error('no way')", "runner_error", "verbs/seed.js:1:"),
    "rejects": ("return Promise.reject(new TypeError('no way'))", "runner_error", "TypeError: no way"),
    "never": ("return new Promise(() => {})", "js_never_settled", "never settle"),
    "nan": ("return {a: [NaN]}", "invalid_result", "result.a[0] is NaN"),
    "round": ("const o = {}; o.o = o; return o", "invalid_result", "result.o is a cycle"),
    "bad_emit": ("ctx.emit({kind: ' '})", "runner_error", "emitted op kind is required"),
    "bad_input": ("ctx.emit({kind: 'js', input: {n: 1n}})", "invalid_result", "emit.input.n is a BigInt"),
    "bad_retry": ("ctx.emit({kind: 'js', retry: {initialBackoff: 'soon'}})", "runner_error", "retry.initialBackoff"),
    "bad_pause": ("ctx.emit({kind: 'js', retry: {maxBackoff: -5}})", "runner_error", "retry.maxBackoff"),
    "bad_edges": ("ctx.emit({kind: 'js', dependsOn: 'a'})", "runner_error", "dependsOn must be an array"),
    "blank_edge": ("ctx.emit({kind: 'js', dependsOn: [{opID: ' '}]})", "runner_error", "opID is blank"),
    "cycle": (
        "ctx.emit({id: 'x', kind: 'js', dependsOn: [{opID: 'y'}]});"
        "ctx.emit({id: 'y', kind: 'js', dependsOn: [{opID: 'x'}]})",
        "dependency_cycle",
        "->",
    ),
    "itself": ("ctx.emit({id: 'x', kind: 'js', dependsOn: [{opID: 'x'}]})", "dependency_cycle", "x -> x"),
    "twice": ("ctx.emit({id: 'x', kind: 'js'}); ctx.emit({id: 'x', kind: 'js'})", "duplicate_op_id", '"x"'),
    "far": ("ctx.emit({kind: 'js', workflowID: 'elsewhere'})", "unknown_workflow", '"elsewhere"'),
    "sql": ("require('site-db').exec('SELEKT 1')", "runner_error", "syntax error"),
    "ends_it": ("require('site-db').exec(`INSERT OR ROLLBACK INTO counter VALUES ('c', 1)`)", "runner_error", "UNIQUE"),
    "caught": (
        "const db = require('site-db'); for (const sql of [`INSERT OR ROLLBACK INTO counter VALUES ('c', 1)`,"
        " 'UPDATE counter SET n = 100']) try { db.exec(sql) } catch (e) {}",
        "runner_error",
        "ended the op's transaction",
    ),
    "read_only": ("require('scraper-db').exec('DELETE FROM ops')", "runner_error", "read-only"),
}


def test_a_verb_that_goes_wrong_stores_nothing_and_rolls_back_its_writes(lab: Lab) -> None:
    """JS-50: of the workflow nothing remains, of the site's tables all that stood before."""
    verbs = Verbs(lab, {name: f"{BUMP} {EMIT}; {body}" for name, (body, _, _) in REFUSED.items()})
    refused = verbs.run_all()
    assert {name: getattr(error, "code", "stored") for name, error in refused.items()} == {
        name: code for name, (_, code, _) in REFUSED.items()
    }
    assert {name: str(error) for name, error in refused.items() if REFUSED[name][2] not in str(error)} == {}
    assert lab.engine("SELECT id FROM workflows") == []
    assert lab.engine("SELECT id FROM ops") == []
    assert lab.site("SELECT n FROM counter") == [(0,)]


def test_a_verb_that_takes_too_long_is_stopped_and_leaves_nothing(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """JS-50, JS-52."""
    monkeypatch.setattr("engine.submission.VERB_TIMEOUT", SECOND // 2)
    endless = {"spins": "for (;;) {}", "waits": "return new Promise(() => setInterval(() => {}, 5))"}
    verbs = Verbs(lab, {name: f"{BUMP} {EMIT}; {body}" for name, body in endless.items()})
    ended = verbs.run_all()
    assert {name: getattr(error, "code", "stored") for name, error in ended.items()} == dict.fromkeys(
        endless, "js_timeout"
    )
    assert all("longer than 0.5 s" in str(error) for error in ended.values())
    assert lab.engine("SELECT id FROM workflows") == []
    assert lab.site("SELECT n FROM counter") == [(0,)]


def test_a_verb_has_thirty_seconds() -> None:
    """JS-52."""
    assert VERB_TIMEOUT == 30 * SECOND


def test_a_taken_workflow_id_is_refused_before_the_verb_runs(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """JS-50: a verb that ran would end in another error."""
    monkeypatch.setattr("engine.submission.VERB_TIMEOUT", SECOND // 2)
    verbs = Verbs(lab, {"spins": "for (;;) {}"})
    lab.submit(workflow_id="spins")
    with pytest.raises(SubmissionRefused, match="exists already") as refused:
        verbs.run("spins")
    assert refused.value.code == "workflow_exists"


def test_a_workflow_id_taken_while_the_verb_runs_is_refused_and_rolled_back(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    verbs = Verbs(lab, {"go": f"{BUMP} {EMIT}"})
    look = Store.refuse_taken

    def rival_comes_next(store: Store, workflow_id: str) -> None:
        look(store, workflow_id)
        lab.submit(workflow_id=workflow_id)

    monkeypatch.setattr(Store, "refuse_taken", rival_comes_next)
    with pytest.raises(SubmissionRefused, match="exists already"):
        verbs.run("go")
    assert [row["name"] for row in lab.engine("SELECT name FROM workflows")] == ["test"]
    assert lab.statuses() == {}
    assert lab.site("SELECT n FROM counter") == [(0,)]


def test_a_site_whose_migration_fails_takes_no_submission(lab: Lab) -> None:
    """JS-50."""
    verbs = Verbs(lab, {"go": EMIT})
    lab.write("migrations/002_bad.sql", "SELEKT")
    with pytest.raises(SubmissionRefused, match=r"002_bad\.sql"):
        verbs.run("go")
    assert lab.engine("SELECT id FROM workflows") == []
