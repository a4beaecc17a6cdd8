"""What is wrong with a directory of plugins, found without running any of them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from engine.faults import Fault
from engine.hooks.config import Layers
from engine.hooks.launch import CannotLaunch, command, shebang
from engine.hooks.naming import BINARY_EVENTS, EVENTS
from engine.hooks.plugins import Hook, Plugin, discover

#: Hooks that change the page, or need it unchanged: two of them at once would spoil each other.
FOREGROUND_ONLY = frozenset({"singlefile", "screenshot", "pdf", "dom"})
#: Hooks that take so long that nothing may wait for them.
BACKGROUND_ONLY = frozenset({"media", "ytdlp"})


def check(directories: Iterable[Path], interpreters: Mapping[str, str], root: Path, path: str) -> tuple[Fault, ...]:
    """Every fault of the plugins in ``directories``, by file."""
    directories = tuple(directories)
    plugins = discover(directories)
    faults = [_warning(text) for text in plugins.warnings]
    for plugin in plugins.by_name.values():
        faults.extend(_schema(plugin))
        faults.extend(
            Fault(plugin.directory / "config.json", 0, f'the required plugin "{name}" is not there')
            for name in plugin.required
            if name not in plugins.by_name
        )
        for hook in plugin.hooks:
            faults.extend(_hook(hook, interpreters, root, path))
    return tuple(faults)


def _warning(text: str) -> Fault:
    file, colon, message = text.partition(": ")
    return Fault(Path(file), 0, message) if colon and os.path.isabs(file) else Fault(Path("plugins"), 0, text)


def _schema(plugin: Plugin) -> Iterator[Fault]:
    file = plugin.directory / "config.json"
    defaults = Layers({key: schema.get("default") for key, schema in plugin.properties.items()})
    plugins = discover([plugin.directory.parent])
    if plugin.name in plugins.by_name:
        for message in defaults.resolve(plugins, plugin).faults:
            yield Fault(file, 0, message)


def _hook(hook: Hook, interpreters: Mapping[str, str], root: Path, path: str) -> Iterator[Fault]:
    name = hook.name
    if name.event not in EVENTS:
        yield Fault(hook.path, 0, f'"{name.event}" is no event', f"there are: {', '.join(EVENTS)}")
    if name.event not in BINARY_EVENTS and name.description in FOREGROUND_ONLY and name.background:
        yield Fault(hook.path, 0, f"{name.description} must not run in the background", "take .bg out of the name")
    if name.event == "Snapshot" and name.description in BACKGROUND_ONLY and not name.background:
        yield Fault(hook.path, 0, f"{name.description} must run in the background", "put .bg before the extension")
    if shebang(hook.path) and not os.access(hook.path, os.X_OK):
        yield Fault(hook.path, 0, "the hook has a shebang but is not executable", f"chmod +x {hook.path.name}")
    try:
        command(hook.path, name.extension, interpreters, root, path)
    except CannotLaunch as error:
        yield Fault(hook.path, 0, str(error))
