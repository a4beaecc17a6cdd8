"""What authors expect of the global scope, and of require (JS-30 to JS-49)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from engine.errors import OpError
from engine.js.html import resolve
from tests.js.harness import Bench


def value(bench: Bench, expression: str) -> Any:
    """What an expression evaluates to inside a script."""
    return json.loads(bench.run(f"module.exports = async (ctx) => ({expression})"))


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("new URL('../b?q=1#f', 'https://h.example:8443/a/c/d').href", "https://h.example:8443/a/b?q=1#f"),
        ("new URL('https://h/?a=1').searchParams.get('a')", "1"),
        (
            "(() => { const u = new URL('https://h/'); u.searchParams.set('q', 'ü x'); return u.href })()",
            "https://h/?q=%C3%BC+x",
        ),
        (
            "(() => { const u = new URL('https://h/p'); u.hash = 'x'; u.port = '81'; return u.href })()",
            "https://h:81/p#x",
        ),
        ("URL.canParse('nonsense')", False),
        ("[...new URLSearchParams('a=1&b=%20x&a=2').getAll('a')]", ["1", "2"]),
        ("new URLSearchParams({a: 'x y', b: 'ü'}).toString()", "a=x+y&b=%C3%BC"),
        ("atob(btoa('héllo'))", "héllo"),
        ("Array.from(new TextEncoder().encode('é😀'))", [195, 169, 240, 159, 152, 128]),
        ("new TextDecoder('latin1').decode(new Uint8Array([233]))", "é"),
        ("new TextDecoder().decode(new TextEncoder().encode('日本 😀'))", "日本 😀"),
        (
            "structuredClone({d: new Date(0), m: [1, {x: null}]})",
            {"d": "1970-01-01T00:00:00.000Z", "m": [1, {"x": None}]},
        ),
        ("structuredClone(new Map([[1, new Set([2])]])).get(1).has(2)", True),
        ("crypto.randomUUID().length", 36),
        ("crypto.getRandomValues(new Uint8Array(8)).length", 8),
        ("require('crypto').createHash('sha256').update('a').update('b').digest('hex').slice(0, 8)", "fb8e20fc"),
        ("crypto.hash('md5', 'a')", "0cc175b9c0f1b6a831c399e269772661"),
        ("await new Promise(done => setTimeout(done, 5, 'later'))", "later"),
        (
            "await new Promise(done => { const out = []; setTimeout(() => out.push(2), 10);"
            " setTimeout(() => out.push(1), 1); setTimeout(() => done(out), 20) })",
            [1, 2],
        ),
        ("typeof fetch", "undefined"),
    ],
)
def test_globals(bench: Bench, expression: str, expected: Any) -> None:
    assert value(bench, expression) == expected


def test_an_invalid_url_throws_a_type_error(bench: Bench) -> None:
    assert "invalid URL" in value(bench, "(() => { try { new URL('x') } catch (e) { return e.name + e.message } })()")


def test_console_and_log_lines_join_their_arguments_and_print_objects_as_json(bench: Bench) -> None:
    bench.run("module.exports = (ctx) => { ctx.log('a', 1, {b: [2]}); console.warn('w') }")
    assert bench.host is not None
    assert [(line.level, line.message) for line in bench.host.effects.logs] == [
        ("info", 'a 1 {"b":[2]}'),
        ("warning", "w"),
    ]


def test_long_texts_cross_the_bridge_whole(bench: Bench) -> None:
    length = 300_000
    text = value(bench, f"require('html').parse('<p>' + 'ü😀'.repeat({length // 3}) + '</p>').text().length")
    assert text == length // 3 * 3


def test_modules_are_cached_and_cycles_give_what_is_there(bench: Bench) -> None:
    (bench.folder / "a.js").write_text("exports.early = 1; exports.seen = require('./b').seen; exports.late = 2")
    (bench.folder / "b.js").write_text("const a = require('./a'); exports.seen = Object.keys(a)")
    (bench.folder / "data.json").write_text('{"n": 5}')
    assert value(bench, "[require('./a').seen, require('./a') === require('./a.js'), require('./data').n]") == [
        ["early"],
        True,
        5,
    ]


@pytest.mark.parametrize("name", ["../outside", "./missing", "lodash", "./dir", "/etc/passwd"])
def test_what_is_not_below_the_root_cannot_be_required(bench: Bench, name: str) -> None:
    (bench.folder / "dir").mkdir()
    (bench.folder.parent / "outside.js").write_text("module.exports = 1")
    with pytest.raises(OpError, match=r"(?i)cannot find module"):
        bench.run(f"module.exports = () => require('{name}')")


def test_a_link_out_of_the_root_is_refused(bench: Bench) -> None:
    (bench.folder.parent / "secret.js").write_text("module.exports = 1")
    (bench.folder / "link.js").symlink_to(bench.folder.parent / "secret.js")
    with pytest.raises(OpError, match="leads out of"):
        bench.run("module.exports = () => require('./link')")


def test_no_state_survives_an_execution(bench: Bench) -> None:
    bench.run("globalThis.leak = 1; Array.prototype.leak = 2; module.exports = () => {}")
    assert value(bench, "[typeof leak, typeof [].leak]") == ["undefined", "undefined"]


def test_html_selects_resolves_and_extracts(bench: Bench) -> None:
    page = """<table><tr><th>Name<th>Price<tr><td>A&amp;B<td>1</table>
    <form action="/go"><input name=q value=1><input type=checkbox name=c>
    <select name=s><option value=x>X</select></form>
    <ul><li class=a data-id=7><a href="/x?y=1">One  <b>two</b></a><li class=a>Three</ul>"""
    expression = f"""(() => {{ const doc = require('html').parse({json.dumps(page)});
      return [doc.css('li.a').map(n => n.text()), doc.first('li').attr('data-id'), doc.first('nope'),
        doc.extract('li', {{t: 'a', h: 'a@href', id: '@data-id'}}), doc.table(), doc.links('http://e.example/a/'),
        doc.form().values, doc.first('b').html()] }})()"""
    assert value(bench, expression) == [
        ["One two", "Three"],
        "7",
        None,
        [{"t": "One two", "h": "/x?y=1", "id": "7"}, {"t": None, "h": None, "id": None}],
        [{"Name": "A&B", "Price": "1"}],
        [{"href": "http://e.example/x?y=1", "text": "One two"}],
        {"q": "1", "s": "x"},
        "<b>two</b>",
    ]


def test_a_bad_selector_is_the_scripts_error(bench: Bench) -> None:
    with pytest.raises(OpError, match="bad CSS selector"):
        bench.run("module.exports = () => require('html').parse('<p>').css('p[')")


def test_resolving_again_gives_what_the_first_time_gave(bench: Bench) -> None:
    """The host need not be asked for every link of a page."""
    hrefs = ["/a/b", "/a-b_c/1.html", "/", "//h/x", "/./a", "/a/../b", "/a/.b", "/a//b", "x", "?q", "/ü", "/a b", ""]
    bases = ["http://h:80/p/q?x#y", "https://u:p@h.example:8443/a/", "HTTP://H/%41", "ftp://h/x", "nonsense", "data:x"]
    expression = f"""{json.dumps(bases)}.map((base) => {{
      const {{ resolve }} = require('html');
      const ask = () => {json.dumps(hrefs)}.map((href) => resolve(base, href));
      const later = ask();
      return [later, ask()];
    }})"""
    for base, (once, again) in zip(bases, value(bench, expression), strict=True):
        assert once == again == [resolve(base, href) for href in hrefs]


def test_a_statement_is_the_one_that_was_written(bench: Bench) -> None:
    """Its text crosses the bridge once, also where it failed or where two are alike."""
    body = """module.exports = () => {
      const db = require('site-db');
      db.exec('CREATE TABLE t (a)');
      const failed = [0, 1].map(() => { try { db.exec('INSERT INTO gone VALUES (1)') } catch (e) { return e.name } });
      for (const a of [1, 2]) db.exec('INSERT INTO t VALUES (?)', a);
      db.exec('INSERT INTO t VALUES (?) ', 3);
      const twice = [0, 1].map(() => db.query('SELECT sum(a) AS s FROM t')[0].s);
      return [...failed, ...twice, require('site-db').query('SELECT count(*) AS n FROM t')[0].n];
    }"""
    assert json.loads(bench.run(body)) == ["SqlError", "SqlError", 6, 6, 3]


def test_a_tampered_method_does_not_change_what_is_sent(bench: Bench) -> None:
    """Neither as a value nor as an accessor."""
    for tamper in (
        "String.prototype.charCodeAt = () => 65",
        "Object.defineProperty(String.prototype, 'charCodeAt', { get: () => () => 65, configurable: true })",
        "delete String.prototype.charCodeAt; Object.prototype.charCodeAt = () => 65",
        "Function.prototype.call = Reflect.apply = () => 65",
    ):
        assert bench.run(f"module.exports = () => {{ {tamper}; return 'müh😀' }}") == '"müh😀"'
