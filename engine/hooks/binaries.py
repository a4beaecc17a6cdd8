"""The programs that hooks need: named by their plugins, found on ``PATH``, or installed by hooks where allowed."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from engine.hooks.config import Layers, requirements
from engine.hooks.plugins import Plugin, Plugins
from engine.hooks.records import text_in
from engine.model import Binary

_TEMPLATE = re.compile(r"^\{([A-Z][A-Z0-9_]*)\}$")
_VERSION = re.compile(r"\d+(?:\.\d+)+")
_VERSION_SECONDS = 10.0
ENV = "env"


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """One program somebody needs. ``key`` is the variable that hooks look it up by."""

    name: str
    key: str
    providers: str = "*"
    overrides: Mapping[str, Any] = field(default_factory=dict)
    plugins: tuple[str, ...] = ()

    def dump(self) -> dict[str, Any]:
        """As the input of an op."""
        return asdict(self)

    @classmethod
    def load(cls, value: Mapping[str, Any]) -> Need:
        """The inverse of :meth:`dump`."""
        return cls(**{**value, "plugins": tuple(value["plugins"])})

    def allows(self, provider: str) -> bool:
        """Whether the program may come from ``provider``."""
        return self.providers in ("", "*") or provider in re.split(r"[\s,]+", self.providers)


def needs(plugins: Plugins, chosen: Iterable[str], layers: Layers) -> tuple[Need, ...]:
    """What the chosen plugins need, each program once, by name."""
    found: dict[str, Need] = {}
    for name in sorted(chosen):
        for need in needs_of(plugins, plugins.by_name[name], layers):
            known = found.get(need.name)
            users = (*(known.plugins if known else ()), name)
            found[need.name] = Need(
                name=need.name, key=need.key, providers=need.providers, overrides=need.overrides, plugins=users
            )
    return tuple(found[name] for name in sorted(found))


def needs_of(plugins: Plugins, plugin: Plugin, layers: Layers) -> list[Need]:
    """What one plugin needs, with the plugins it requires."""
    found: list[Need] = []
    for name in requirements(plugins, plugin.name):
        one = plugins.by_name[name]
        values = layers.resolve(plugins, one).values
        for raw in one.binaries:
            need = _need(raw, values, layers.explicit)
            if need is not None:
                found.append(need)
    return found


def _need(raw: Mapping[str, Any], values: Mapping[str, Any], explicit: Mapping[str, Any]) -> Need | None:
    name = text_in(raw, "name", 1_000).strip()
    template = _TEMPLATE.match(name)
    if template:
        key = template[1]
        name = str(values.get(key) or explicit.get(key) or key.removesuffix("_BINARY").lower())
    else:
        key = f"{re.sub(r'[^A-Z0-9]', '_', Path(name).name.upper())}_BINARY"
    if not name:
        return None
    told = raw.get("overrides")
    providers = text_in(raw, "bin_providers") or text_in(raw, "binproviders") or "*"
    return Need(name=name, key=key, providers=providers, overrides=told if isinstance(told, dict) else {})


def find(name: str, path: str) -> Binary | None:
    """The program as it is on ``path``, with its version and the hash of its file."""
    found = shutil.which(name, path=path)
    return None if found is None else inspect(name, os.path.abspath(found), ENV, path)


def inspect(name: str, abspath: str, provider: str, path: str) -> Binary:
    """Version and hash of a program that is there."""
    digest = hashlib.sha256()
    try:
        with open(abspath, "rb") as file:
            while chunk := file.read(1 << 20):
                digest.update(chunk)
        sha256 = digest.hexdigest()
    except OSError:
        sha256 = ""
    version = _version(abspath, path)
    return Binary(name=name, abspath=abspath, version=version, sha256=sha256, provider=provider)


def _version(abspath: str, path: str) -> str:
    try:
        done = subprocess.run(
            [abspath, "--version"],
            capture_output=True,
            timeout=_VERSION_SECONDS,
            check=False,
            stdin=subprocess.DEVNULL,
            env={"PATH": path, "HOME": os.environ.get("HOME", "/")},
            start_new_session=True,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    found = _VERSION.search((done.stdout + done.stderr).decode("utf-8", "replace"))
    return found[0] if found else ""


def from_record(data: Mapping[str, Any], name: str = "") -> Binary | None:
    """The program a Binary record tells of; None where it tells of no place."""
    abspath = text_in(data, "abspath", 4_000)
    called = text_in(data, "name", 1_000) or name
    if not abspath or not called:
        return None
    return Binary(
        name=called,
        abspath=abspath,
        version=text_in(data, "version", 200),
        sha256=text_in(data, "sha256", 200),
        provider=text_in(data, "binprovider", 200) or text_in(data, "bin_provider", 200),
    )
