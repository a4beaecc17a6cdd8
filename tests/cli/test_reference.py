"""The reference pages and the example configuration say what the code says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from cli import reference
from engine.config import KEYS, SCHEMA, load_settings, variable
from engine.documents import load_schema
from engine.lifecycle.catalog import check, discover
from engine.lifecycle.manifest import parse_job
from engine.plugins.manifest import SCHEMA as SITE_SCHEMA
from engine.plugins.manifest import load_site
from engine.resources import resource


def page(name: str) -> str:
    return (resource("docs") / "reference" / name).read_text(encoding="utf-8")


def property_names(schema: Any) -> set[str]:
    if isinstance(schema, list):
        return set().union(*map(property_names, schema)) if schema else set()
    if not isinstance(schema, dict):
        return set()
    inner = set().union(*map(property_names, schema.values())) if schema else set()
    own = schema.get("properties")
    return inner | (set(own) if isinstance(own, dict) else set())


def test_every_setting_and_its_variable_are_documented() -> None:
    text = page("config.md")
    assert [key for key in KEYS if f"`{key}`" not in text or f"`{variable(key)}`" not in text] == []


def test_the_example_configuration_holds_every_key_with_its_default(tmp_path: Path) -> None:
    example = resource("config.example.yaml").read_text(encoding="utf-8")
    assert load_settings({}, config=resource("config.example.yaml"))[0].origins == {}
    live = tmp_path / "config.yaml"
    live.write_text(re.sub(r"^( *)# (?=( +)?[-a-zA-Z]+:( |$)|  - )", r"\1", example, flags=re.MULTILINE))
    settings, _ = load_settings({}, config=live)
    assert set(settings.origins) == set(KEYS)
    # nothing by default
    untouched = {"siteDatabaseURL", "defaults.queue.maxInFlight", "http.proxy", "hooks.dataDir", "hooks.environment"}
    untouched |= {"browser.executable", "jobs.environment"}
    untouched |= {key for key in KEYS if key.startswith("retention.")}
    for key in set(KEYS) - untouched:
        ours, default = settings, load_settings({})[0]
        for attribute in KEYS[key].attribute.split("."):
            ours, default = getattr(ours, attribute), getattr(default, attribute)
        assert ours == default, key
    assert property_names(load_schema(SCHEMA)) <= set(re.findall(r"\w+", example))


def test_every_key_of_a_manifest_is_documented_in_an_example_that_is_valid(tmp_path: Path) -> None:
    text = page("site-yaml.md")
    example = text.partition("```yaml\n")[2].partition("```")[0]
    (tmp_path / "site.yaml").write_text(example)
    assert load_site(tmp_path).name == "hackernews"
    assert property_names(load_schema(SITE_SCHEMA)) - set(re.findall(r"\w+", example)) == set()


def test_the_reference_of_commands_is_made_from_the_commands() -> None:
    assert page("commands.md") == reference.page(), "make docs"


@pytest.mark.parametrize(("name", "command"), list(reference.commands()))
def test_every_command_has_help_with_an_example_and_a_test(name: str, command: Any) -> None:
    """CLI-2."""
    assert f"Example: {name}" in command.help
    words = name.removeprefix("scraper ").split()
    tried = re.compile(", ".join(f'f?"{word}"' for word in words) + "|scraper " + " ".join(words))
    sources = [file.read_text(encoding="utf-8") for file in Path(__file__).parents[1].rglob("test_*.py")]
    assert any(tried.search(source) for source in sources), "no test runs it"


def test_rule_ids_are_unique_and_those_that_tests_cite_exist() -> None:
    defined = [
        rule
        for name in ("cli.md", "config.md", "site-yaml.md", "http-fetch.md")
        for rule in re.findall(r"\*\*([A-Z]+-\d+)\*\*", page(name))
    ]
    assert len(defined) == len(set(defined))
    tests = Path(__file__).parents[1]
    cited = {
        rule
        for folder in ("cli", "unit", "views", "runners", "worker")
        for file in (tests / folder).glob("*.py")
        for rule in re.findall(r"\b(?:CLI|CFG|SITE|HTTP)-\d+", file.read_text(encoding="utf-8"))
    }
    assert cited - set(defined) == set()


def test_every_key_of_a_job_is_documented_and_the_guides_examples_are_valid(tmp_path: Path) -> None:
    reference, guide = page("jobs.md"), (resource("docs") / "jobs.md").read_text(encoding="utf-8")
    table = reference.partition("## job.yaml")[2].partition("- **JOB-103**")[0]
    schema = load_schema(resource("sites") / "job.schema.json")
    assert {name for name in schema["properties"] if f"`{name}" not in table} == set()
    assert property_names(schema) <= set(re.findall(r"\w+", reference))
    first, notification, queue = re.findall(r"```yaml\n(.*?)```", guide, re.DOTALL)
    assert parse_job(tmp_path / "job.yaml", first).hash_fields == ("link",)
    base = "name: a\nselector: b\nfields: ['title:c', 'link:d']\n"
    assert parse_job(tmp_path / "job.yaml", base + "url: 'http://e'\n" + notification).notification is not None
    assert parse_job(tmp_path / "job.yaml", base + queue).workers == 4


def test_the_jobs_that_ship_are_valid() -> None:
    site = load_site(resource("sites") / "watch-demo")
    assert [(found.folder.name, check(found)) for found in discover(site)] == [("deals", ()), ("prices", ())]
