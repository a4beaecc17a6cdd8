"""What hooks are told: configuration, flags, environment (HOOK-20 to HOOK-27)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.hooks.config import Layers, launched
from engine.hooks.inputs import environment, flags, inherited
from engine.hooks.plugins import Plugins, discover
from tests.hooks.plugins import write_config, write_hook


def plugins_with(root: Path, **schemas: Any) -> Plugins:
    for name, schema in schemas.items():
        write_config(root, name, **{"properties": {}, **schema})
        write_hook(root, f"{name}/on_Snapshot__10_{name}.sh", "")
    return discover([root])


def values(plugins: Plugins, name: str, *layers: dict[str, Any]) -> dict[str, Any]:
    return dict(Layers(*layers).resolve(plugins, plugins.by_name[name]).values)


SCHEMA = {
    "properties": {
        "WGET_TIMEOUT": {"type": "integer", "default": 5, "x-fallback": "TIMEOUT", "minimum": 1},
        "WGET_ENABLED": {"type": "boolean", "default": True, "x-aliases": ["SAVE_WGET", "USE_WGET"]},
        "WGET_ARGS": {"type": "array", "default": ["-q"]},
        "WGET_DIR": {"type": "string", "default": "{DATA_DIR}/wget"},
        "WGET_TOKEN": {"type": "string", "x-sensitive": True, "pattern": "^t"},
    }
}


def test_a_key_is_looked_up_by_name_then_alias_then_fallback_then_default(tmp_path: Path) -> None:
    plugins = plugins_with(tmp_path, wget=SCHEMA)
    assert values(plugins, "wget")["WGET_TIMEOUT"] == 5
    assert values(plugins, "wget", {"TIMEOUT": 9})["WGET_TIMEOUT"] == 9
    assert values(plugins, "wget", {"TIMEOUT": 9, "WGET_TIMEOUT": "7"})["WGET_TIMEOUT"] == 7
    assert values(plugins, "wget", {"USE_WGET": "false"})["WGET_ENABLED"] is False
    assert values(plugins, "wget", {"USE_WGET": "false", "SAVE_WGET": "yes"})["WGET_ENABLED"] is True
    assert values(plugins, "wget", {"SAVE_WGET": "no", "WGET_ENABLED": "true"})["WGET_ENABLED"] is True


def test_later_layers_win(tmp_path: Path) -> None:
    plugins = plugins_with(tmp_path, wget=SCHEMA)
    assert values(plugins, "wget", {"WGET_TIMEOUT": 1}, {"WGET_TIMEOUT": 2}, {"WGET_TIMEOUT": 3})["WGET_TIMEOUT"] == 3


def test_defaults_may_name_other_keys(tmp_path: Path) -> None:
    plugins = plugins_with(tmp_path, wget=SCHEMA)
    assert values(plugins, "wget", {"DATA_DIR": "/data"})["WGET_DIR"] == "/data/wget"
    circle = {"properties": {"A": {"default": "{B}"}, "B": {"default": "{A}"}}}
    assert set(values(plugins_with(tmp_path / "2", loop=circle), "loop")) == {"A", "B"}


def test_values_are_checked_but_never_stop_a_crawl(tmp_path: Path) -> None:
    plugins = plugins_with(tmp_path, wget=SCHEMA)
    resolved = Layers({"WGET_TIMEOUT": "soon", "WGET_TOKEN": "hunter2"}).resolve(plugins, plugins.by_name["wget"])
    assert resolved.values["WGET_TIMEOUT"] == "soon"
    assert any("wget: WGET_TIMEOUT: 'soon' is not of type 'integer'" in fault for fault in resolved.faults)
    assert not any("hunter2" in fault for fault in resolved.faults)
    assert resolved.shown()["WGET_TOKEN"] == "***"


@pytest.mark.parametrize("schema", [{"type": "nonsense"}, {"minimum": "x", "type": "integer"}, {"pattern": "("}])
def test_a_schema_that_is_none_is_reported(tmp_path: Path, schema: dict[str, Any]) -> None:
    plugins = plugins_with(tmp_path, bad={"properties": {"BAD_X": {**schema, "default": "1"}}})
    assert Layers().resolve(plugins, plugins.by_name["bad"]).faults


def test_keys_of_required_plugins_are_resolved_too(tmp_path: Path) -> None:
    plugins = plugins_with(
        tmp_path,
        chrome={"properties": {"CHROME_BINARY": {"type": "string", "default": "chromium"}}},
        pdf={"required_plugins": ["chrome"]},
    )
    assert values(plugins, "pdf") == {"CHROME_BINARY": "chromium"}


def test_a_plugins_timeout_falls_back_to_the_general_one_and_to_a_minute(tmp_path: Path) -> None:
    plugins = plugins_with(tmp_path, wget=SCHEMA, bare={})

    def timeout(name: str, **layer: Any) -> float:
        layers = Layers(layer)
        return layers.timeout(name, layers.resolve(plugins, plugins.by_name[name]))

    assert timeout("bare") == 60
    assert timeout("bare", TIMEOUT=9) == 9
    assert timeout("bare", TIMEOUT=9, BARE_TIMEOUT="0.5") == 0.5
    assert timeout("wget", TIMEOUT=9) == 9
    assert timeout("bare", TIMEOUT="nonsense") == 60


def test_a_plugin_runs_only_if_it_is_wanted_and_on_with_all_it_requires(tmp_path: Path) -> None:
    plugins = plugins_with(
        tmp_path, chrome={}, pdf={"required_plugins": ["chrome"]}, title={}, orphan={"required_plugins": ["nowhere"]}
    )
    assert launched(plugins, Layers()) == {"chrome", "pdf", "title"}
    assert launched(plugins, Layers(), ["pdf"]) == {"pdf", "chrome"}
    assert launched(plugins, Layers({"CHROME_ENABLED": False})) == {"title"}
    assert launched(plugins, Layers({"SAVE_TITLE": "false"}), ["title", "pdf"]) == {"pdf", "chrome"}


def test_flags_are_one_word_each_and_say_nothing_of_what_is_empty() -> None:
    given = {
        "url": "http://a/?b=c d",
        "skip_js": True,
        "off": False,
        "none": None,
        "list": [1, "ü"],
        "csv": "git,media",
    }
    assert flags(given) == ["--url=http://a/?b=c d", "--skip-js", '--list=[1, "ü"]', "--csv=git,media"]


def test_only_the_allowed_part_of_the_workers_environment_is_inherited() -> None:
    own = {"PATH": "/bin", "HOME": "/h", "AWS_SECRET": "s", "SCRAPER_ENGINE_DB": "postgresql://u:p@h/d", "EXTRA": "1"}
    assert inherited(own) == {"PATH": "/bin", "HOME": "/h"}
    assert inherited(own, ["EXTRA"]) == {"PATH": "/bin", "HOME": "/h", "EXTRA": "1"}


def test_the_environment_carries_every_key_by_its_canonical_name(tmp_path: Path) -> None:
    plugins = plugins_with(tmp_path, wget=SCHEMA)
    layers = Layers({"SAVE_WGET": "yes", "WGET_BINARY": "/opt/wget/bin/wget", "N": 1.5, "OBJ": {"a": [True]}})
    resolved = layers.resolve(plugins, plugins.by_name["wget"])
    env = environment({"PATH": "/bin"}, layers.explicit, resolved, {"SNAP_DIR": "/snap"})
    assert env["WGET_ENABLED"] == "true"
    assert env["WGET_ARGS"] == '["-q"]'
    assert env["WGET_TIMEOUT"] == "5"
    assert "WGET_TOKEN" not in env
    assert (env["N"], env["OBJ"], env["SNAP_DIR"]) == ("1.5", '{"a": [true]}', "/snap")
    assert env["PATH"] == "/opt/wget/bin:/bin"
