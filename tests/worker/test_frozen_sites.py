"""Ops of a site that chose frozen isolates (JS-80, JS-83), and of one that chose nothing (JS-2)."""

from __future__ import annotations

from tests.worker.lab import MANIFEST, Lab, js

SCRIPT = """
  let count = 0;
  module.exports = function (ctx) {
    count += 1;
    globalThis.leak = 1;
    ctx.writeRecord("seen", ctx.op.id, { count });
    if (ctx.input) throw new Error("asked to");
    return { count, leak: typeof leak, frozen: Object.isFrozen(globalThis) };
  };"""


def test_ops_share_an_isolate_but_nothing_in_it(lab: Lab) -> None:
    lab.write("site.yaml", MANIFEST + "js: {isolation: frozen}\n")
    lab.write("scripts/main.js", SCRIPT)
    lab.run(js("a", "main"), js("b", "main"), js("bad", "main", input=True), js("c", "main"))
    for name in ("a", "b", "c"):
        assert lab.result(name)["data"] == {"count": 1, "leak": "undefined", "frozen": True}
    assert (lab.error("bad")["code"], lab.error("bad")["message"]) == ("runner_error", "asked to")
    assert lab.site("SELECT key FROM scraper_records ORDER BY key") == [("a",), ("b",), ("c",)]


def test_without_a_choice_every_op_has_an_isolate_of_its_own(lab: Lab) -> None:
    lab.write("scripts/main.js", SCRIPT)
    lab.run(js("a", "main"), js("b", "main"))
    for name in ("a", "b"):
        assert lab.result(name)["data"] == {"count": 1, "leak": "number", "frozen": False}
