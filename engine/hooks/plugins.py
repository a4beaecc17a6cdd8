"""Finding hooks: every sub-directory of a hook directory is a plugin, every ``on_…`` file in it a hook."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine.errors import SiteError
from engine.hooks.naming import BINARY_EVENTS, HookName, parse_name
from engine.plugins.site import Site

#: Files that list the programs a plugin needs, one JSON object a line.
_NEEDS = ("binaries.jsonl", "dependencies.jsonl")


@dataclass(frozen=True, slots=True)
class Hook:
    """One hook of one plugin."""

    plugin: str
    path: Path
    name: HookName

    @property
    def label(self) -> str:
        """How people and ids name it."""
        return f"{self.plugin}/{self.name.file}"


@dataclass(frozen=True, slots=True)
class Plugin:
    """A directory of hooks with the JSON Schema of its configuration."""

    name: str
    directory: Path
    schema: Mapping[str, Any] = field(default_factory=dict)
    hooks: tuple[Hook, ...] = ()
    binaries: tuple[Mapping[str, Any], ...] = ()

    @property
    def properties(self) -> Mapping[str, Any]:
        """The configuration keys the plugin knows."""
        return {key: value for key, value in self.schema.get("properties", {}).items() if isinstance(value, dict)}

    @property
    def required(self) -> tuple[str, ...]:
        """The plugins this one cannot do without."""
        named = self.schema.get("required_plugins", [])
        return tuple(str(name) for name in named) if isinstance(named, list) else ()

    @property
    def prefix(self) -> str:
        """What the plugin's own keys begin with."""
        return self.name.upper().replace("-", "_")


@dataclass(frozen=True, slots=True)
class Plugins:
    """All plugins by name, and what somebody should be told about them."""

    by_name: Mapping[str, Plugin] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    def hooks(self, event: str, chosen: Iterable[str] | None = None) -> tuple[Hook, ...]:
        """The hooks of an event in their order, of the ``chosen`` plugins only."""
        names = self.by_name.keys() if chosen is None else set(chosen)
        found = (hook for plugin in self.by_name.values() if plugin.name in names for hook in plugin.hooks)
        wanted = (hook for hook in found if hook.name.event == event)
        return tuple(sorted(wanted, key=lambda hook: (*hook.name.place, hook.plugin)))

    def hook(self, label: str) -> Hook | None:
        """The hook of that label."""
        plugin, _, file = label.partition("/")
        known = self.by_name.get(plugin)
        return None if known is None else next((hook for hook in known.hooks if hook.name.file == file), None)


def hook_directories(site: Site, more: Sequence[str | Path] = ()) -> tuple[Path, ...]:
    """The site's hook directories, then the operator's. Raises SiteError for one that does not exist."""
    directories = [site.root / named for named in site.hook_dirs] + [Path(named).absolute() for named in more]
    for directory in directories:
        if not directory.is_dir():
            raise SiteError(f'the hook directory {directory} of site "{site.name}" does not exist')
    return tuple(directories)


def discover(directories: Iterable[Path]) -> Plugins:
    """The plugins of the directories; one in a later directory replaces one of the same name whole."""
    by_name: dict[str, Plugin] = {}
    warnings: list[str] = []
    for directory in directories:
        for entry in _subdirectories(directory, warnings):
            plugin = _plugin(entry, warnings)
            if plugin.name in by_name:
                warnings.append(f"plugin {plugin.name} of {directory} replaces {by_name[plugin.name].directory}")
            by_name[plugin.name] = plugin
    return Plugins(by_name, tuple(warnings))


def _subdirectories(directory: Path, warnings: list[str]) -> list[Path]:
    try:
        entries = sorted(entry for entry in directory.iterdir() if entry.is_dir())
    except OSError as error:
        warnings.append(f"the hook directory {directory} cannot be read: {error.strerror}")
        return []
    return [entry for entry in entries if not entry.name.startswith(("_", "."))]


def _plugin(directory: Path, warnings: list[str]) -> Plugin:
    hooks: list[Hook] = []
    for file in sorted(os.listdir(directory)):
        name = parse_name(file)
        path = directory / file
        if name is None or not path.is_file():
            continue
        if name.number is None and name.event not in BINARY_EVENTS:
            warnings.append(f"{path}: the name has no two-digit number after on_{name.event}__: it runs last")
        hooks.append(Hook(directory.name, path, name))
    schema = _schema(directory / "config.json", warnings)
    binaries = [line for file in _NEEDS for line in _lines(directory / file, warnings)]
    binaries.extend(item for item in _list(schema.get("required_binaries")) if isinstance(item, dict))
    return Plugin(directory.name, directory, schema, tuple(hooks), tuple(binaries))


def _schema(file: Path, warnings: list[str]) -> Mapping[str, Any]:
    text = _text(file, warnings)
    if text is None:
        return {}
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError) as error:
        warnings.append(f"{file}: not JSON: {error}")
        return {}
    if not isinstance(schema, dict) or not isinstance(schema.get("properties", {}), dict):
        warnings.append(f"{file}: not a JSON Schema of an object")
        return {}
    return schema


def _lines(file: Path, warnings: list[str]) -> list[dict[str, Any]]:
    found = []
    for number, line in enumerate((_text(file, warnings) or "").split("\n"), 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            value = None
        if isinstance(value, dict):
            found.append(value)
        else:
            warnings.append(f"{file}:{number}: not a JSON object")
    return found


def _text(file: Path, warnings: list[str]) -> str | None:
    try:
        return file.read_text("utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        warnings.append(f"{file}: cannot be read: {error}")
        return None


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
