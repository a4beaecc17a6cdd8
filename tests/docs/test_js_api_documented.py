"""The JavaScript reference names whatever V8 really offers an author."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from py_mini_racer import MiniRacer

from engine.resources import resource
from tests.js.harness import Bench
from tests.migrated import engine_db
from tests.worker.lab import Lab, js

#: Objects of the author's own; what is in them is not ours to document.
MEMBERS = """const authors = ["values", "sections", "input", "metadata"];
const members = (value, path) => Object.entries(value).flatMap(([name, item]) =>
  [path + name].concat(
    item !== null && typeof item === "object" && !authors.includes(name) ? members(item, path + name + ".") : []));
"""
#: Of the methods and accessors of a prototype, those an author is meant to see.
VISIBLE = """const visible = (object) => [object, Object.getPrototypeOf(object)]
  .flatMap((owner) => Object.getOwnPropertyNames(owner)).filter((name) => name !== "constructor");
"""


def documented(heading: str) -> set[str]:
    """The names that the backticked words of a section's tables begin with."""
    page = (resource("docs") / "reference" / "js-api.md").read_text(encoding="utf-8")
    section = re.search(rf"^## {re.escape(heading)}$(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    assert section is not None, heading
    rows = "\n".join(line for line in section[1].splitlines() if line.startswith("|"))
    return set(re.findall(r"`([\w$.]+)", rows))


def value(bench: Bench, expression: str) -> Any:
    return json.loads(bench.run(f"{MEMBERS}{VISIBLE}module.exports = (ctx) => ({expression})"))


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_every_member_of_a_scripts_ctx_is_documented(tmp_path: Path) -> None:
    lab = Lab(engine_db(tmp_path), tmp_path)
    lab.write("scripts/show.js", f"{MEMBERS}module.exports = (ctx) => members(ctx, '')")
    lab.run(js("a", "show"))
    found = lab.result("a")["data"]
    assert {"emit", "workflow.id", "lease.token"} <= set(found)
    assert {f"ctx.{name}" for name in found} - documented("ctx of a script") == set()


def test_every_member_of_a_verbs_ctx_is_documented(tmp_path: Path) -> None:
    lab = Lab(engine_db(tmp_path), tmp_path)
    lab.write("verbs/show.js", f"{MEMBERS}__verb__('show', {{}}); function show(ctx) {{ return members(ctx, '') }}")
    found = json.loads(lab.verb("show").verb_data_json)
    assert {"setTargetOpID", "command.name"} <= set(found)
    assert {f"ctx.{name}" for name in found} - documented("ctx of a verb") == set()


@pytest.mark.parametrize(("module", "shown"), [("site-db", "db"), ("scraper-db", "db"), ("html", "html")])
def test_every_member_of_a_module_is_documented(bench: Bench, module: str, shown: str) -> None:
    found = value(bench, f"Object.getOwnPropertyNames(require('{module}'))")
    assert found
    assert {f"{shown}.{name}" for name in found} - documented(module) == set()


def test_every_member_of_an_html_node_is_documented(bench: Bench) -> None:
    found = value(bench, "visible(require('html').parse('<p>'))")
    assert {"css", "tag"} <= set(found)
    assert {f"node.{name}" for name in found} - documented("html") == set()


def test_every_built_in_module_is_named(bench: Bench) -> None:
    page = (resource("docs") / "reference" / "js-api.md").read_text(encoding="utf-8")
    prelude = (Path(__file__).parents[2] / "engine/js/prelude/30_modules.js").read_text(encoding="utf-8")
    natives = re.findall(r'^  "?([\w-]+)"?: (?:\(|\$)', prelude.partition("const $natives")[2], re.MULTILINE)
    assert {"site-db", "html"} <= set(natives)
    for name in natives:
        assert value(bench, f"typeof require('{name}')") == "object"
        assert f'require("{name}")' in page


def test_every_global_beyond_the_language_is_documented(bench: Bench) -> None:
    bare = MiniRacer()
    language = set(json.loads(str(bare.eval("JSON.stringify(Object.getOwnPropertyNames(globalThis))"))))
    bare.close()
    # what the library brings along is replaced by the prelude, not part of the language
    language -= {"console", "setTimeout", "clearTimeout"}
    found = set(value(bench, "Object.getOwnPropertyNames(globalThis)"))
    assert {"URL", "console"} <= found
    assert found - language - documented("Globals") == set()


@pytest.mark.parametrize("name", ["console", "crypto"])
def test_every_member_of_a_global_object_is_documented(bench: Bench, name: str) -> None:
    found = value(bench, f"Object.getOwnPropertyNames({name})")
    assert {f"{name}.{member}" for member in found} - documented("Globals") == set()


def test_what_is_documented_exists(bench: Bench) -> None:
    names = sorted(name for name in documented("Globals") if "(" not in name and not name.startswith("require"))
    missing = [name for name in names if value(bench, f"typeof {name}") == "undefined"]
    assert missing == []
