"""The schemas editors use are those the validators apply, and they say what the code says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from engine import config
from engine.config import KEYS, MANIFEST_DIRS
from engine.documents import load_schema
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
