"""What a plugin is configured with: its JSON Schema's keys, looked up layer by layer.

A key is looked up by its own name, then by each of its ``x-aliases``, in the layers that somebody wrote (environment,
site, crawl, snapshot: the last one wins); then its ``x-fallback`` there; then the schema's ``default`` holds.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, UnknownType

from engine.hooks.plugins import Plugin, Plugins

DEFAULT_TIMEOUT = 60.0
_TEMPLATE = re.compile(r"\{([A-Z][A-Z0-9_]*)\}")
_TRUE, _FALSE = frozenset({"true", "1", "yes", "on"}), frozenset({"false", "0", "no", "off", ""})
#: How deep defaults may name one another.
_DEPTH = 8

Value = Any


@dataclass(frozen=True, slots=True)
class Resolved:
    """A plugin's configuration by canonical name, and what is wrong with it."""

    values: Mapping[str, Value] = field(default_factory=dict)
    faults: tuple[str, ...] = ()
    #: Keys whose values must not be shown to anybody.
    secret: frozenset[str] = frozenset()

    def shown(self) -> dict[str, Value]:
        """The values with the secret ones covered."""
        return {key: "***" if key in self.secret and value else value for key, value in self.values.items()}


class Layers:
    """The configuration that somebody wrote, from the most general layer to the most specific one."""

    def __init__(self, *layers: Mapping[str, Value]) -> None:
        self._explicit: dict[str, Value] = {}
        for layer in layers:
            self._explicit.update(layer)

    @property
    def explicit(self) -> Mapping[str, Value]:
        """Every key somebody wrote."""
        return self._explicit

    def resolve(self, plugins: Plugins, plugin: Plugin) -> Resolved:
        """The values of the plugin's keys and of those of the plugins it requires."""
        schemas: dict[str, Mapping[str, Any]] = {}
        for one in reversed(requirements(plugins, plugin.name)):
            schemas.update(plugins.by_name[one].properties)
        schemas.update(plugin.properties)
        values = {key: self._raw(key, schema, schemas) for key, schema in schemas.items()}
        typed: dict[str, Value] = {}
        faults: list[str] = []
        for key, schema in schemas.items():
            value = _typed(self._filled(values[key], values, 0), schema)
            faults.extend(_faults(plugin.name, key, value, schema))
            typed[key] = value
        secret = frozenset(key for key, schema in schemas.items() if schema.get("x-sensitive") is True)
        return Resolved(typed, tuple(faults), secret)

    def _raw(self, key: str, schema: Mapping[str, Any], schemas: Mapping[str, Mapping[str, Any]]) -> Value:
        found = self._written(key, schema)
        if found is not None:
            return found
        fallback = schema.get("x-fallback")
        if isinstance(fallback, str):
            found = self._written(fallback, schemas.get(fallback, {}))
        return schema.get("default") if found is None else found

    def _written(self, key: str, schema: Mapping[str, Any]) -> Value:
        aliases = schema.get("x-aliases", [])
        for name in (key, *(aliases if isinstance(aliases, list) else ())):
            if isinstance(name, str) and self._explicit.get(name) is not None:
                return self._explicit[name]
        return None

    def _filled(self, value: Value, values: Mapping[str, Value], depth: int) -> Value:
        """``{OTHER_KEY}`` replaced by that key's value."""
        if not isinstance(value, str) or depth > _DEPTH:
            return value

        def fill(match: re.Match[str]) -> str:
            other = self._explicit.get(match[1], values.get(match[1]))
            return match[0] if other is None else text_of(self._filled(other, values, depth + 1))

        return _TEMPLATE.sub(fill, value)

    def timeout(self, plugin: str, resolved: Resolved) -> float:
        """Seconds a hook of the plugin may run: ``<PLUGIN>_TIMEOUT``, else ``TIMEOUT``."""
        own = f"{plugin.upper().replace('-', '_')}_TIMEOUT"
        for value in (resolved.values.get(own), self._explicit.get(own), self._explicit.get("TIMEOUT")):
            seconds = _seconds(value)
            if seconds is not None:
                return seconds
        return DEFAULT_TIMEOUT

    def enabled(self, plugin: Plugin) -> bool:
        """Whether the plugin is switched on: ``<PLUGIN>_ENABLED`` or an alias of it."""
        key = f"{plugin.prefix}_ENABLED"
        schema = dict(plugin.properties.get(key, {"type": "boolean"}))
        aliases = [*schema.get("x-aliases", []), f"SAVE_{plugin.prefix}", f"USE_{plugin.prefix}"]
        value = self._raw(key, {**schema, "x-aliases": aliases}, {})
        return value is None or _boolean(value) is not False


def covered(plugins: Plugins, values: Mapping[str, Value]) -> dict[str, Value]:
    """``values`` with those of sensitive keys covered."""
    secret: set[str] = set()
    for plugin in plugins.by_name.values():
        for key, schema in plugin.properties.items():
            if schema.get("x-sensitive") is True:
                secret |= {key, *(name for name in schema.get("x-aliases", ()) if isinstance(name, str))}
    return {key: "***" if key in secret and value else value for key, value in values.items()}


def requirements(plugins: Plugins, name: str) -> list[str]:
    """The plugin and all it requires, itself first; plugins that are not there are left out."""
    found: list[str] = []
    waiting = [name]
    while waiting:
        one = waiting.pop(0)
        if one in found or one not in plugins.by_name:
            continue
        found.append(one)
        waiting.extend(plugins.by_name[one].required)
    return found


def launched(plugins: Plugins, layers: Layers, wanted: Sequence[str] = ()) -> frozenset[str]:
    """The plugins whose hooks run: the wanted ones (all, if none is named) with what they require.

    A plugin that is switched off does not run, nor does one that requires it.
    """
    names: Iterable[str] = wanted or plugins.by_name
    asked = {one for name in names for one in requirements(plugins, name)}
    off = {name for name in asked if not layers.enabled(plugins.by_name[name])}
    missing = {
        name
        for name in asked
        if any(one not in plugins.by_name for other in requirements(plugins, name) for one in _needs(plugins, other))
    }
    return frozenset(
        name for name in asked if name not in missing and not off.intersection(requirements(plugins, name))
    )


def _needs(plugins: Plugins, name: str) -> tuple[str, ...]:
    return plugins.by_name[name].required


def text_of(value: Value) -> str:
    """A value as the environment carries it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False)
    return str(value)


def _typed(value: Value, schema: Mapping[str, Any]) -> Value:
    """A value that came as text in the type its schema wants, where it can be read as such."""
    if not isinstance(value, str):
        return value
    match schema.get("type"):
        case "boolean":
            read = _boolean(value)
            return value if read is None else read
        case "integer" | "number" as kind:
            try:
                return int(value) if kind == "integer" else float(value)
            except ValueError:
                return value
        case "array" | "object":
            try:
                read_json = json.loads(value)
            except (ValueError, RecursionError):
                return value
            return read_json if isinstance(read_json, dict | list) else value
        case _:
            return value


def _faults(plugin: str, key: str, value: Value, schema: Mapping[str, Any]) -> list[str]:
    if value is None:
        return []
    own = {word: part for word, part in schema.items() if not word.startswith("x-")}
    try:
        Draft202012Validator.check_schema(own)
        errors = [error.message for error in Draft202012Validator(own).iter_errors(value)]
    except (SchemaError, UnknownType, re.error, TypeError, ValueError, LookupError) as error:
        return [f"{plugin}: {key}: its schema is wrong: {str(error).splitlines()[0]}"]
    secret = schema.get("x-sensitive") is True
    return [f"{plugin}: {key}: {'the value does not fit its schema' if secret else message}" for message in errors]


def _boolean(value: Value) -> bool | None:
    if isinstance(value, bool):
        return value
    text = str(value).strip().lower()
    return True if text in _TRUE else False if text in _FALSE else None


def _seconds(value: Value) -> float | None:
    if value is None or isinstance(value, bool):
        return None
    try:
        seconds = float(value)
    except (TypeError, ValueError):
        return None
    return seconds if 0 < seconds < float("inf") else None
