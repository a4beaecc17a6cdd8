"""What editors go by: the schemas are those the validators apply, the types name what V8 really offers."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from engine import config
from engine.authoring.requires import NATIVES
from engine.clock import SystemClock
from engine.config import KEYS, MANIFEST_DIRS
from engine.documents import load_schema
from engine.js import spec
from engine.js.host import Host
from engine.js.isolate import Limits, execute
from engine.js.modules import ModuleRoots
from engine.plugins import manifest
from engine.plugins.registry import candidates
from engine.resources import resource

SCHEMAS = [config.SCHEMA, manifest.SCHEMA]


def objects(schema: Any) -> Iterator[dict[str, Any]]:
    """Every sub-schema."""
    if isinstance(schema, dict):
        yield schema
    for inner in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        yield from objects(inner)


def leaves(schema: Any, path: str = "") -> Iterator[str]:
    for name, inner in schema["properties"].items():
        here = f"{path}.{name}" if path else name
        if "properties" in inner:
            yield from leaves(inner, here)
        else:
            yield here


@pytest.mark.parametrize("file", SCHEMAS, ids=lambda file: file.name)
def test_a_schema_is_itself_valid_and_stands_beside_the_sites(file: Path) -> None:
    schema = load_schema(file)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    jsonschema.Draft202012Validator.check_schema(schema)
    assert file.parent == resource("sites")


@pytest.mark.parametrize("file", SCHEMAS, ids=lambda file: file.name)
def test_a_schema_is_strict_at_every_level(file: Path) -> None:
    loose = [one for one in objects(load_schema(file)) if "properties" in one and one.get("type") == "object"]
    assert loose
    assert [one for one in loose if one.get("additionalProperties") is not False] == []


def test_the_configuration_schema_knows_exactly_the_settings() -> None:
    assert set(leaves(load_schema(config.SCHEMA))) == set(KEYS) | {MANIFEST_DIRS}


@pytest.mark.parametrize("site", candidates(resource("sites")), ids=lambda site: site.name)
def test_an_editor_accepts_the_manifest_of_every_shipped_site(site: Path) -> None:
    value = yaml.safe_load((site / "site.yaml").read_text(encoding="utf-8"))
    jsonschema.validate(value, load_schema(manifest.SCHEMA), jsonschema.Draft202012Validator)


def test_an_editor_accepts_the_example_configuration() -> None:
    text = resource("config.example.yaml").read_text(encoding="utf-8")
    value = {key: inner for key, inner in yaml.safe_load(text).items() if inner is not None}
    assert set(value) <= set(load_schema(config.SCHEMA)["properties"])


@pytest.mark.parametrize("bad", [{"name": "x"}, {"name": "x", "databaseFileName": "x.db", "scriptRoot": "s"}])
def test_an_editor_refuses_what_scraper_refuses(bad: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(bad, load_schema(manifest.SCHEMA), jsonschema.Draft202012Validator)
    (tmp_path / "site.yaml").write_text(yaml.safe_dump(bad))
    with pytest.raises(manifest.InvalidManifest):
        manifest.load_site(tmp_path)


TYPES = (resource("sites") / "scraper.d.ts").read_text(encoding="utf-8")
LIMITS = Limits(seconds=20.0, heap_bytes=64 << 20)
#: In every module, not globals.
IN_MODULES = {"require", "module", "exports", "__filename", "__dirname"}
IN_VERBS = {"__verb__", "__section__", "__package__", "doc"}


def members(interface: str) -> set[str]:
    """The members of an interface of the type file."""
    (body,) = re.findall(rf"^interface {interface} {{$(.*?)^}}$", TYPES, re.MULTILINE | re.DOTALL)
    return set(re.findall(r"^  (?:readonly )?(\w+)\??[:(<]", body, re.MULTILINE))


def in_v8(folder: Path, expression: str, mode: str = "script") -> Any:
    """The value of an expression inside of a script's function, whose argument is ``it``."""
    (folder / "entry.js").write_text(
        "const visible = (value) => Object.getOwnPropertyNames(value).concat(\n"
        "  Object.getOwnPropertyNames(Object.getPrototypeOf(value))).filter((name) => name !== 'constructor');\n"
        f"module.exports = function (it) {{ return {expression}; }};\n"
        "exports = module.exports; module.exports.run = module.exports;\n"
        "function test_it(it) { return module.exports(it); }\n"
    )
    job = {"mode": mode, "entry": "entry.js", "names": ["test_it"], "function": "test_it"}
    more = files("engine.authoring").joinpath("modes.js").read_text("utf-8")
    return json.loads(execute(Host(ModuleRoots([("", folder)]), SystemClock()), job, LIMITS, more))


@pytest.mark.parametrize(
    ("interface", "expression"),
    [
        ("SiteDb", "Object.keys(require('site-db'))"),
        ("ScraperDb", "Object.keys(require('scraper-db'))"),
        ("HtmlModule", "Object.keys(require('html'))"),
        ("CryptoModule", "Object.keys(require('crypto'))"),
        ("HtmlNode", "visible(require('html').parse('<p>'))"),
    ],
)
def test_the_types_name_every_member_of_a_built_in_module(tmp_path: Path, interface: str, expression: str) -> None:
    assert members(interface) == set(in_v8(tmp_path, expression))


def test_the_types_name_what_a_test_gets(tmp_path: Path) -> None:
    assert members("SiteTest") == set(in_v8(tmp_path, "Object.keys(it)", "test"))


@pytest.mark.parametrize(("interface", "heading"), [("ScriptContext", "a script"), ("VerbContext", "a verb")])
def test_the_types_name_the_members_of_a_context(interface: str, heading: str) -> None:
    page = (resource("docs") / "reference" / "js-api.md").read_text(encoding="utf-8")
    section = page.partition(f"## ctx of {heading}\n")[2].partition("\n## ")[0]
    table = "\n".join(line for line in section.splitlines() if line.startswith("| `ctx."))
    assert members(interface) == set(re.findall(r"ctx\.(\w+)", table))


def test_the_types_name_the_methods_of_a_script_context(tmp_path: Path) -> None:
    assert set(in_v8(tmp_path, "Object.keys(it)")) <= members("ScriptContext")


def test_the_types_name_every_key_of_an_emitted_op() -> None:
    read = set(re.findall(r'spec(?:\.get\(|\[)"(\w+)"', inspect.getsource(spec)))
    artifact = members("ArtifactSpec") - {"body"}
    assert {"kind", "dependsOn"} <= read
    assert members("OpSpec") | artifact == read
    assert members("RetryPolicy") == set(re.findall(r'value\.get\("(\w+)"', inspect.getsource(spec._retry)))


def test_the_types_declare_the_globals_that_exist(tmp_path: Path) -> None:
    declared = set(re.findall(r"^declare (?:function|class|const|var) (\w+)", TYPES, re.MULTILINE))
    assert declared >= IN_MODULES | IN_VERBS
    names = json.dumps(sorted(declared - IN_MODULES - IN_VERBS))
    assert in_v8(tmp_path, f"{names}.filter((name) => !(name in globalThis))") == []


def test_the_types_and_the_checker_know_the_built_in_modules(tmp_path: Path) -> None:
    assert set(re.findall(r'^declare module "([\w-]+)"', TYPES, re.MULTILINE)) == set(NATIVES)
    for name in NATIVES:
        assert in_v8(tmp_path, f"typeof require('{name}')") == "object"
