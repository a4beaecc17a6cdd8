"""Sites with frozen isolates: nothing crosses from one op to the next (JS-80 to JS-88)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from engine.clock import SystemClock
from engine.errors import OpError
from engine.js import frozen
from engine.js.frozen import WarmIsolates
from engine.js.host import Host, Identity
from engine.js.isolate import Limits
from engine.js.modules import ModuleRoots


@dataclass(slots=True)
class Warm:
    """A folder of scripts that share warm isolates."""

    folder: Path
    isolates: WarmIsolates = field(default_factory=WarmIsolates)
    host: Host | None = None

    def run(self, body: str, *, seconds: float = 20.0, key: str = "shop", **ctx: Any) -> Any:
        """What a script returns whose function has this body."""
        return self.main(f"module.exports = async function (ctx) {{{body}\n}};", seconds=seconds, key=key, **ctx)

    def main(self, source: str, *, seconds: float = 20.0, key: str = "shop", **ctx: Any) -> Any:
        """What this script returns."""
        (self.folder / "main.js").write_text(source, "utf-8")
        clock = SystemClock()
        self.host = Host(ModuleRoots([("scripts", self.folder)]), clock, identity=Identity("w", "shop", "op", 0))
        job = {"mode": "script", "entry": "main.js", "ctx": ctx}
        return json.loads(self.isolates.execute(key, self.host, job, Limits(seconds, 64 << 20)))

    @property
    def isolate(self) -> int:
        """Tells the isolate that would be used next from others."""
        (warm,) = self.isolates._warm.values()
        return id(warm)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all: making a warm isolate is what costs here."""
    return tmp_path_factory.mktemp("scripts")


@pytest.fixture(scope="module")
def warm(folder: Path) -> Iterator[Warm]:
    """Warm isolates that all tests share which do not end them."""
    warm = Warm(folder)
    yield warm
    warm.isolates.close()


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Warm]:
    """Warm isolates of one test."""
    warm = Warm(tmp_path)
    yield warm
    warm.isolates.close()


#: Every way to an object that all executions share: JavaScript that gives it.
PATHS = [
    "globalThis",
    "Object",
    "Object.prototype",
    "Function.prototype",
    "(() => {}).constructor",
    "Array.prototype",
    "String.prototype",
    "Number.prototype",
    "Boolean.prototype",
    "Symbol.prototype",
    "BigInt.prototype",
    "Date",
    "Date.prototype",
    "Math",
    "JSON",
    "Reflect",
    "Atomics",
    "Intl",
    "Intl.DateTimeFormat.prototype",
    "Object.getPrototypeOf(new Intl.Segmenter().segment('a'))",
    "Object.getPrototypeOf(new Intl.Segmenter().segment('a')[Symbol.iterator]())",
    "Temporal.Now",
    "Temporal.PlainDate.prototype",
    "RegExp",
    "RegExp.prototype",
    "Promise",
    "Promise.prototype",
    "Promise.resolve(1).then",
    "Map.prototype",
    "Set.prototype",
    "WeakMap.prototype",
    "Symbol",
    "Symbol.for",
    "Proxy",
    "Error",
    "Error.prototype",
    "TypeError.prototype",
    "AggregateError.prototype",
    "Error.captureStackTrace",
    "Object.getOwnPropertyDescriptor(new Error('x'), 'stack').get",
    "Object.getOwnPropertyDescriptor(new Error('x'), 'stack').set",
    "Object.getOwnPropertyDescriptor(Object.prototype, '__proto__').set",
    "Object.getOwnPropertyDescriptor(Object.prototype, 'toString').get",
    "Object.getOwnPropertyDescriptor(Error.prototype, 'name').set",
    "Object.getOwnPropertyDescriptor(Function.prototype, 'caller').get",
    "Object.getOwnPropertyDescriptor((function () { 'use strict'; return arguments })(), 'callee').get",
    "(function* () {}).constructor",
    "(function* () {}).constructor.prototype",
    "Object.getPrototypeOf(function* () {}).prototype",
    "(async function () {}).constructor",
    "(async function () {}).constructor.prototype",
    "(async () => {}).constructor",
    "(async function* () {}).constructor",
    "Object.getPrototypeOf(async function* () {}).prototype",
    "Object.getPrototypeOf(Object.getPrototypeOf(async function* () {}).prototype)",
    "Object.getPrototypeOf([][Symbol.iterator]())",
    "Object.getPrototypeOf(Object.getPrototypeOf([][Symbol.iterator]()))",
    "Object.getPrototypeOf(''[Symbol.iterator]())",
    "Object.getPrototypeOf(new Map().entries())",
    "Object.getPrototypeOf(new Set().values())",
    "Object.getPrototypeOf('a'.matchAll(/a/g))",
    "Object.getPrototypeOf(Iterator.from({ next() {} }))",
    "Object.getPrototypeOf([].values().map((x) => x))",
    "Iterator.prototype",
    "Object.getPrototypeOf(Uint8Array)",
    "Object.getPrototypeOf(Uint8Array).prototype",
    "Uint8Array.prototype",
    "Float64Array",
    "ArrayBuffer.prototype",
    "DataView.prototype",
    "Array.prototype[Symbol.unscopables]",
    "eval",
    "parseInt",
    "setTimeout",
    "queueMicrotask",
    "console",
    "console.log",
    "crypto",
    "require('crypto').createHash",
    "URL",
    "URL.prototype",
    "Object.getOwnPropertyDescriptor(URL.prototype, 'host').set",
    "URLSearchParams.prototype",
    "TextEncoder.prototype",
    "TextDecoder",
    "structuredClone",
    "atob",
]


def test_whatever_leads_to_something_shared_leads_to_something_frozen(warm: Warm) -> None:
    """JS-81"""
    listed = ",".join(f"[{json.dumps(path)}, () => {path}]" for path in PATHS)
    assert warm.run(f"return [{listed}].filter(([, get]) => !Object.isFrozen(get())).map(([path]) => path)") == []


def test_what_an_op_changes_is_as_before_for_the_next(warm: Warm) -> None:
    """JS-81: by assignment, definition, deletion and a changed prototype."""
    listed = ",".join(f"() => {path}" for path in PATHS)
    attack = f"""
      for (const get of [{listed}]) {{
        const it = get();
        try {{ it.leak = 1 }} catch {{}}
        try {{ it[Symbol.for("leak")] = 1 }} catch {{}}
        try {{ Object.defineProperty(it, "leak", {{ value: 1 }}) }} catch {{}}
        try {{ Object.setPrototypeOf(it, {{ leak: 1 }}) }} catch {{}}
        try {{ it.__proto__ = {{ leak: 1 }} }} catch {{}}
        for (const key of Reflect.ownKeys(it)) {{
          try {{ it[key] = () => 1 }} catch {{}}
          try {{ delete it[key] }} catch {{}}
        }}
      }}"""
    shape = f"""return [{listed}].map((get) => {{
        const it = get();
        return [it.leak === undefined, it[Symbol.for("leak")] === undefined, Reflect.ownKeys(it).map(String)];
      }})"""
    before = warm.run(shape)
    isolate = warm.isolate
    warm.run(attack)
    assert warm.isolate == isolate
    assert warm.run(shape) == before
    assert all(a and b for a, b, _ in before)
    assert warm.run("return [1, 2].map((x) => x + 1).concat([...new Set([5])], Object.keys({ a: 1 }))") == [
        2,
        3,
        5,
        "a",
    ]


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("globalThis.leak = 1; leak2 = 2; try { (0, eval)('var leak3 = 3') } catch {}; (0, eval)('leak4 = 4')",
         "return [typeof leak, typeof leak2, typeof leak3, typeof leak4]", ["undefined"] * 4),
        ("try { new Function('globalThis.leak = 1; this.leak5 = 1; leak6 = 1')() } catch {}",
         "return [typeof leak, typeof leak5, typeof leak6]", ["undefined"] * 3),
        ("try { Function.prototype.call = function () { return 7 } } catch {}", "return (() => 1).call()", 1),
        ("try { Date.now = () => 7 } catch {}; try { Date = class { static now() { return 7 } } } catch {}",
         "return Date.now() > 7 && new Date().getTime() > 7", True),
        ("try { Math.random = () => 7 } catch {}", "return Math.random() < 1", True),
        ("/(secret)/.exec('a secret b')",
         "return ['$1', '$_', '$&', 'input', 'lastMatch', 'lastParen', 'leftContext', 'rightContext']"
         ".filter((name) => RegExp[name] !== undefined)", []),
        ("try { Error.prepareStackTrace = () => 'leak' } catch {};"
         " try { Object.prototype.prepareStackTrace = () => 'leak' } catch {}; new Error('x').stack",
         "return new Error('x').stack.includes('leak')", False),
        ("try { Error.stackTraceLimit = 0 } catch {}", "return new Error('x').stack.includes('main.js')", True),
        ("const s = Symbol.for('known'); try { s.leak = 1 } catch {}; try { Object(s).leak = 1 } catch {};"
         " try { Object.defineProperty(s, 'leak', { value: 1 }) } catch {}",
         "return [Symbol.for('known').leak === undefined, Symbol.keyFor(Symbol.for('known'))]", [True, "known"]),
        ("ctx.leak = 1; ctx.emit.leak = 1; ctx.log.leak = 1; ctx.dep.leak = 1; ctx.writeRecord.leak = 1;"
         " ctx.writeArtifact.leak = 1; require.leak = 1; module.leak = 1; ctx.input.leak = 1",
         "return [ctx, ctx.emit, ctx.log, ctx.dep, ctx.writeRecord, ctx.writeArtifact, require, module, ctx.input]"
         ".filter((it) => it.leak !== undefined).length", 0),
        ("const html = require('html'); html.leak = 1; const node = html.parse('<p>');"
         " node.constructor.prototype.leak = 1; node.constructor.leak = 1; html.parse.leak = 1",
         "const html = require('html'); const node = html.parse('<p>');"
         " return [html.leak, node.leak, node.constructor.leak, html.parse.leak].every((it) => it === undefined)",
         True),
        ("const db = require('site-db'); db.leak = 1; db.query.leak = 1; require('scraper-db').leak = 1",
         "const db = require('site-db');"
         " return [db.leak, db.query.leak, require('scraper-db').leak].every((it) => it === undefined)", True),
        ("arguments.callee.leak = 1; (function f() { f.caller && (f.caller.leak = 1) })()",
         "return [arguments.callee.leak === undefined, module.exports.leak === undefined]", [True, True]),
        ("const tag = (strings) => { try { strings.leak = 1; strings.raw.leak = 1 } catch {} }; tag`x`",
         "let found; const tag = (strings) => { found = strings.leak === undefined }; tag`x`; return found", True),
        ("class Stamp extends function (it) { return it } { #secret = 1; static has(it) { return #secret in it } };"
         " for (const it of [Object.prototype, Array, globalThis]) try { new Stamp(it) } catch {}",
         "class Stamp extends function (it) { return it } { #secret = 1; static has(it) { return #secret in it } };"
         " return [Object.prototype, Array, globalThis].some((it) => Stamp.has(it))", False),
        ("const weak = new WeakMap([[Object, 'leak']]); globalThis.weak = weak",
         "return [typeof weak, typeof WeakRef, typeof FinalizationRegistry, typeof WebAssembly, Atomics.waitAsync]",
         ["undefined"] * 4 + [None]),
        ("try { setTimeout.leak = 1 } catch {}; try { setTimeout = () => { throw 1 } } catch {}",
         "await new Promise((done) => setTimeout(done, 1)); return setTimeout.leak === undefined", True),
        ("try { Array.prototype[Symbol.iterator] = function* () { yield 7 } } catch {};"
         " try { Object.getPrototypeOf([].values()).next = () => ({ done: true }) } catch {}",
         "const [a] = [1]; return [a, ...[2]]", [1, 2]),
        ("try { Object.getPrototypeOf((function* () {})()).next = () => ({ done: true, value: 7 }) } catch {}",
         "return [...(function* () { yield 1 })()]", [1]),
        ("try { Promise.prototype.then = () => 7 } catch {}; try { Promise.resolve = () => 7 } catch {}",
         "return await Promise.resolve(1).then((x) => x + 1)", 2),
        ("try { Object.prototype.toJSON = () => 'leak' } catch {}; try { Object.prototype.get = () => 1 } catch {}",
         "return { a: [1] }", {"a": [1]}),
        ("try { JSON.parse = JSON.stringify = () => '\"leak\"' } catch {}", "return JSON.parse('[1]')", [1]),
        ("try { console.log = console.info = null } catch {}; try { console = null } catch {}",
         "console.log('fine'); return typeof console.log", "function"),
    ],
    ids=["globals", "Function", "call", "Date", "Math", "regexp", "stack traces", "stack limit", "symbols", "ctx",
         "html", "db", "callee", "templates", "private names", "weak", "timers", "iterators", "generators",
         "promises", "toJSON", "JSON", "console"],
)  # fmt: skip
def test_nothing_of_an_op_is_there_for_the_next(warm: Warm, first: str, second: str, expected: Any) -> None:
    """JS-81: in one and the same isolate."""
    warm.run("return 1")
    isolate = warm.isolate
    warm.main(f"module.exports = function (ctx) {{{first}\n}}", input={})
    assert warm.isolate == isolate
    assert warm.run(second, input={}) == expected


def test_modules_are_evaluated_anew_for_every_op_and_once_within_it(warm: Warm) -> None:
    """JS-80"""
    (warm.folder / "state.js").write_text("let count = 0; exports.next = () => ++count; exports.list = []")
    (warm.folder / "table.json").write_text('{"rows": []}')
    body = """require('./state').list.push(1); require('./table').rows.push(1);
      const state = require('./state');
      return [state.next(), require('./state.js').next(), state.list, require('./table').rows]"""
    assert [warm.run(body), warm.run(body)] == [[1, 2, [1], [1]]] * 2


def test_an_edited_module_is_read_again(warm: Warm) -> None:
    """JS-80"""
    answers = []
    for text in ("exports.v = 1", "exports.v = 2"):
        (warm.folder / "edited.js").write_text(text)
        answers.append(warm.run("return require('./edited').v"))
    assert answers == [1, 2]


def test_work_that_an_op_leaves_unfinished_never_goes_on(own: Warm) -> None:
    """JS-82: an op is not waited for longer than for its result; what it left pending dies with its isolate."""
    own.run("return 1")
    isolate = own.isolate
    own.run("new Promise(() => {}).then(() => ctx.log('never')); (async () => { await new Promise(() => {}) })()")
    assert own.isolate == isolate, "a promise that nothing can settle harms nobody"
    own.run("setTimeout(() => { ctx.log('late') }, 1); setInterval(() => {}, 1)")
    assert own.isolates._warm == {}
    assert own.run("await new Promise((done) => setTimeout(done, 20)); return 2") == 2
    assert own.host is not None
    assert own.host.effects.logs == []
    assert own.isolate, "timers that have fired are no reason"


def test_microtasks_left_behind_belong_to_their_op(own: Warm) -> None:
    """JS-82"""
    own.run("(async () => { for (let i = 0; i < 50; i++) await i; ctx.log('mine') })()")
    assert own.host is not None
    assert [line.message for line in own.host.effects.logs] == ["mine"]
    own.run("return 1")
    assert own.host.effects.logs == []


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("throw new Error('x')", "runner_error"),
        ("return 10n", "invalid_result"),
        ("while (true) {}", "js_timeout"),
        ("(async () => { for (;;) await null })()", "js_timeout"),
        ("const f = () => Promise.resolve().then(f); f()", "js_memory"),
        ("return new Promise(() => {})", "js_never_settled"),
        ("const all = []; while (true) all.push(new Array(1e5).fill(all.length))", "js_memory"),
    ],
    ids=["throw", "result", "loop", "microtasks", "chain", "never", "memory"],
)
def test_an_isolate_in_which_something_went_wrong_is_thrown_away(own: Warm, body: str, code: str) -> None:
    """JS-83"""
    with pytest.raises(OpError) as caught:
        own.run(body, seconds=0.5 if code == "js_timeout" else 60)
    assert caught.value.code == code
    assert own.isolates._warm == {}
    assert own.run("return 1") == 1


def test_an_isolate_serves_a_number_of_ops_and_no_other_site(tmp_path: Path) -> None:
    """JS-83"""
    own = Warm(tmp_path, WarmIsolates(ops=2))
    own.run("return 1")
    first = own.isolate
    own.run("return 1", key="other")
    assert len(own.isolates._warm) == 2
    own.run("return 1")
    assert len(own.isolates._warm) == 1, "its second op was its last"
    own.isolates.close()
    assert first != 0


def test_an_isolate_whose_heap_has_grown_is_thrown_away(own: Warm, monkeypatch: pytest.MonkeyPatch) -> None:
    """JS-83"""
    monkeypatch.setattr(frozen, "_LOOK_EVERY", 1)
    own.run("return 1")
    assert own.isolate
    monkeypatch.setattr(frozen, "_LARGEST", 1)
    own.run("return 1")
    assert own.isolates._warm == {}


def test_an_isolate_that_has_called_its_host_often_is_thrown_away(own: Warm, monkeypatch: pytest.MonkeyPatch) -> None:
    """JS-83"""
    monkeypatch.setattr(frozen, "_CALLS", 100)
    own.run("return 1")
    assert own.isolate
    own.run("for (let i = 0; i < 100; i++) ctx.log(i)")
    assert own.isolates._warm == {}


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("(() => { class Mine extends Error { constructor(m) { super(m); this.name = 'Mine' } };"
         " const e = new Mine('x'); e.message = 'y'; return [e.name, e.message, String(e)] })()",
         ["Mine", "y", "Mine: y"]),
        ("(() => { function Old() {}; Old.prototype = Object.create(Error.prototype);"
         " Old.prototype.constructor = Old; Old.prototype.name = 'Old'; Old.prototype.toString = () => 'old';"
         " return [new Old().name, String(new Old()), new Old() instanceof Error] })()", ["Old", "old", True]),
        ("(() => { const counts = {}; for (const word of ['constructor', 'toString', 'constructor', 'valueOf'])"
         " counts[word] = (Object.hasOwn(counts, word) ? counts[word] : 0) + 1; return counts })()",
         {"constructor": 2, "toString": 1, "valueOf": 1}),
        ("(() => { 'use strict'; const o = {}; o.hasOwnProperty = 1; o.hasOwnProperty = 2;"
         " return [o.hasOwnProperty, Object.keys(o)] })()", [2, ["hasOwnProperty"]]),
        ("(() => { 'use strict'; const f = () => 1; f.toString = () => 'f'; const d = new Date(0);"
         " d.toJSON = () => 'd'; const m = new Map(); m.constructor = 1; return [String(f), d, m.constructor] })()",
         ["f", "d", 1]),
        ("new URL('../b?q=1#f', 'https://h.example:8443/a/c/d').href", "https://h.example:8443/a/b?q=1#f"),
        ("new URLSearchParams({a: 'x y'}).toString() + atob(btoa('é')) + crypto.hash('md5', 'a').slice(0, 4)",
         "a=x+yé0cc1"),
        ("structuredClone(new Map([[1, new Set([2])]])).get(1).has(2)", True),
        ("new TextDecoder('latin1').decode(new Uint8Array([233])) + new TextEncoder().encode('é').length", "é2"),
        ("require('html').parse('<li class=a>One').extract('li', {t: '', c: '@class'})", [{"t": "One", "c": "a"}]),
        ("'2024-01-02'.replace(/(\\d+)-(\\d+)/, '$2/$1') + /b(.)/.exec('abc')[1] + 'a,b'.split(',').length",
         "01/2024-02c2"),
        ("[3, 1, 2].toSorted().flatMap((x) => [x, x]).slice(1).concat(new Array(1).fill(0))", [1, 2, 2, 3, 3, 0]),
        ("(() => { try { null.x } catch (e) { return e instanceof TypeError && e.stack.includes('main.js') } })()",
         True),
    ],
)  # fmt: skip
def test_ordinary_scripts_run_as_elsewhere(warm: Warm, expression: str, expected: Any) -> None:
    """JS-84: above all, what is frozen can be given to objects that inherit it."""
    assert warm.run(f"return {expression}") == expected


def test_positions_of_errors_are_the_authors_in_every_op(own: Warm) -> None:
    """JS-84"""
    own.run("return 1")
    for _ in range(2):
        with pytest.raises(OpError) as caught:
            own.run("\n  null.x")
        assert (caught.value.details["script"], caught.value.details["line"]) == ("scripts/main.js", 2)
        own.run("return 1")
    with pytest.raises(OpError, match=r"main\.js:2:\d+: Unexpected"):
        own.run("\n let a = ;")
