"""``scraper config``: what is configured, and where each value came from."""

from __future__ import annotations

from dataclasses import fields as members
from dataclasses import is_dataclass
from typing import TYPE_CHECKING, Any

import typer

from cli.invocation import invocation_of
from cli.options import Output
from cli.output import Format, print_json, say, table

if TYPE_CHECKING:
    from engine.config import Settings

app = typer.Typer(add_completion=False, rich_markup_mode=None, no_args_is_help=True)


@app.callback()
def config() -> None:
    """Look at the configuration.

    Example: scraper config show
    """


@app.command()
def show(ctx: typer.Context, output: Output = Format.TABLE) -> None:
    """Show every setting, its value, and where that came from: default, file and line, variable, or flag.

    Example: scraper config show --output json
    """
    from engine.config import KEYS

    settings = invocation_of(ctx).settings
    rows = [(key, shown(settings, key), settings.origins.get(key, "default")) for key in KEYS]
    directories = [(str(one.path), one.source) for one in settings.manifest_dirs]
    if output is Format.JSON:
        print_json(
            {
                "settings": {key: {"value": value, "from": origin} for key, value, origin in rows},
                "sitesManifestDirs": [{"path": path, "from": source} for path, source in directories],
            }
        )
        return
    table(("SETTING", "VALUE", "FROM"), rows)
    say()
    table(("SITES MANIFEST DIR", "FROM"), directories or [("(the sites that ship with scraper)", "default")])


@app.command()
def check(ctx: typer.Context, output: Output = Format.TABLE) -> None:
    """Read the configuration and its directories; exit 1 and name every fault where something is wrong.

    Example: scraper config check
    """
    import os

    from engine.config import config_file

    invocation = invocation_of(ctx)
    file = config_file(os.environ, invocation.config)
    registry = invocation.registry
    if output is Format.JSON:
        print_json({"file": file, "sites": len(registry.sites), "brokenSites": sorted(registry.broken)})
    else:
        say(f"Configuration: {file or 'defaults only'}")
        say(f"Sites: {len(registry.sites)}" + (f", {len(registry.broken)} broken" if registry.broken else ""))
    if registry.broken:
        raise typer.Exit(1)


def shown(settings: Settings, key: str) -> Any:
    """The value of a setting for people: durations as text, passwords hidden."""
    from engine.config import KEYS
    from engine.durations import format_duration

    value: Any = settings
    for attribute in KEYS[key].attribute.split("."):
        kind = next(one.type for one in members(value) if one.name == attribute) if is_dataclass(value) else ""
        value = getattr(value, attribute)
        if kind == "Micros":
            return format_duration(value)
    if isinstance(value, tuple):
        return list(value)
    if isinstance(value, str) and "://" in value:
        return _without_password(value)
    return str(value) if value is not None and not isinstance(value, int | float | bool | str) else value


def _without_password(url: str) -> str:
    import re

    return re.sub(r"(://[^/:@]*):[^@/]*@", r"\1:***@", url)
