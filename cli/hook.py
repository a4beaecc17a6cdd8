"""``scraper site NAME hook``: the hooks themselves; and what else a site with hooks can do."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli import binary, crawl, snapshot
from cli.archiving import Config, HookDir, Plugins, listed, pairs, site_of
from cli.invocation import Invocation, invocation_of
from cli.options import Output
from cli.output import Format, fields, note, print_json, say, table, warn

if TYPE_CHECKING:
    from engine.hooks.plugins import Plugins as Found

app = typer.Typer(add_completion=False, rich_markup_mode=None, no_args_is_help=True)


def add_hook_commands(site: Any) -> None:
    """The commands of sites with hooks, below ``scraper site NAME``."""
    for name, group in (("crawl", crawl.app), ("snapshot", snapshot.app), ("hook", app), ("binary", binary.app)):
        site.add_typer(group, name=name)


@app.callback()
def hook() -> None:
    """List, check, test and try the hooks of the site.

    Example: scraper site archive hook run title/on_Snapshot__54_title.py --url https://example.com/
    """


def found_plugins(invocation: Invocation, hook_dir: list[str] | None) -> Found:
    """The plugins of the site and of the operator."""
    from engine.hooks.plugins import discover, hook_directories

    plugins = discover(hook_directories(site_of(invocation), hook_dir or ()))
    for warning in plugins.warnings:
        warn(warning)
    return plugins


@app.command("list")
def list_(
    ctx: typer.Context,
    plugins: Plugins = None,
    config: Config = None,
    hook_dir: HookDir = None,
    output: Output = Format.TABLE,
) -> None:
    """List the hooks in the order in which they run.

    Example: scraper site archive hook list
    """
    from engine.hooks.config import Layers, launched
    from engine.hooks.naming import EVENTS

    invocation = invocation_of(ctx)
    found = found_plugins(invocation, hook_dir)
    layers = Layers(site_of(invocation).hook_config, pairs(config, "--config"))
    chosen = launched(found, layers, listed(plugins))
    rows = []
    for event in EVENTS:
        for one in found.hooks(event):
            plugin = found.by_name[one.plugin]
            rows.append(
                {
                    "event": event,
                    "step": one.name.step,
                    "hook": one.label,
                    "ground": one.name.ground.value,
                    "timeout": layers.timeout(one.plugin, layers.resolve(found, plugin)),
                    "runs": one.plugin in chosen,
                    "path": str(one.path),
                }
            )
    if output is Format.JSON:
        print_json({"hooks": rows})
        return
    headers = ("EVENT", "STEP", "HOOK", "GROUND", "TIMEOUT", "RUNS")
    names = ("event", "step", "hook", "ground", "timeout")
    table(headers, [(*(row[name] for name in names), "yes" if row["runs"] else "no") for row in rows])


@app.command()
def check(
    ctx: typer.Context,
    directories: Annotated[
        list[str] | None, typer.Argument(metavar="[DIR]...", help="Directories of plugins; the site's if none.")
    ] = None,
    output: Output = Format.TABLE,
) -> None:
    """Look for faults of the plugins without running any; exit 1 if there are some.

    Example: scraper site archive hook check
    """
    from engine.hooks.lint import check as lint
    from engine.hooks.plugins import hook_directories

    site = site_of(invocation_of(ctx))
    chosen = [Path(name).absolute() for name in directories or ()] or list(hook_directories(site))
    faults = lint(chosen, site.interpreters, site.root, os.environ.get("PATH", os.defpath))
    if output is Format.JSON:
        print_json({"faults": [{"file": str(one.file), "message": one.message, "hint": one.hint} for one in faults]})
    else:
        for fault in faults:
            say(str(fault))
        note(f"{len(faults)} faults" if faults else "no faults")
    if faults:
        raise typer.Exit(1)


@app.command("test")
def run_tests(
    ctx: typer.Context,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[PLUGIN]...", help="Plugins to test; all if none.")
    ] = None,
    hook_dir: HookDir = None,
) -> None:
    """Run the programs tests/test_* of the plugins; exit 1 if one of them fails.

    Example: scraper site archive hook test title
    """
    import subprocess

    from engine.errors import UsageError
    from engine.hooks.launch import CannotLaunch, command

    invocation = invocation_of(ctx)
    site, found = site_of(invocation), found_plugins(invocation, hook_dir)
    unknown = sorted(set(names or ()) - found.by_name.keys())
    if unknown:
        raise UsageError(f'there is no plugin "{unknown[0]}"')
    failed = ran = 0
    for plugin in found.by_name.values():
        if names and plugin.name not in names:
            continue
        for file in sorted((plugin.directory / "tests").glob("test_*")):
            if not file.is_file():
                continue
            ran += 1
            try:
                path = os.environ.get("PATH", os.defpath)
                words = command(file, file.suffix[1:], site.interpreters, site.root, path)
                code = subprocess.run(words, cwd=plugin.directory, check=False, stdin=subprocess.DEVNULL).returncode
            except CannotLaunch as error:
                note(str(error))
                code = error.code
            failed += code != 0
            say(f"{plugin.name}/tests/{file.name}: {'ok' if code == 0 else f'failed (exit code {code})'}")
    note(f"{ran} tests, {failed} failed")
    if failed:
        raise typer.Exit(1)


@app.command()
def run(
    ctx: typer.Context,
    label: Annotated[str, typer.Argument(metavar="PLUGIN/HOOK", help="The hook, as hook list names it.")],
    url: Annotated[str, typer.Option("--url", metavar="URL", help="What the hook is told to work on.")],
    depth: Annotated[int, typer.Option("--depth", min=0, metavar="N", help="Depth of the URL.")] = 0,
    config: Config = None,
    arg: Annotated[
        list[str] | None,
        typer.Option("--arg", metavar="KEY=VALUE", help="Further flag of the hook. Repeatable.", show_default=False),
    ] = None,
    hook_dir: HookDir = None,
    keep: Annotated[
        Path | None,
        typer.Option("--keep", metavar="DIR", help="Work here, and leave the output.", show_default=False),
    ] = None,
    output: Output = Format.TABLE,
) -> None:
    """Run one hook by hand and show what it would record; nothing is stored.

    Example: scraper site archive hook run headers/on_Snapshot__55_headers.py --url https://example.com/
    """
    from engine.clock import SECOND
    from engine.errors import UsageError
    from engine.hooks.config import Layers
    from engine.hooks.inputs import inherited
    from engine.hooks.trial import try_hook

    invocation = invocation_of(ctx)
    site, settings, plugins = site_of(invocation), invocation.settings, found_plugins(invocation, hook_dir)
    chosen = plugins.hook(label)
    if chosen is None:
        raise UsageError(f'there is no hook "{label}" (see scraper site {site.name} hook list)')
    with tempfile.TemporaryDirectory(prefix="scraper-hook-") as scratch:
        tried = try_hook(
            plugins,
            chosen,
            Layers(site.hook_config, pairs(config, "--config")),
            interpreters=site.interpreters,
            root=site.root,
            data=keep.absolute() if keep is not None else Path(scratch),
            arguments={**pairs(arg, "--arg"), "url": url, "snapshot-id": "trial", "depth": depth},
            inherited=inherited(os.environ, settings.hooks.environment),
            grace=settings.hooks.grace / SECOND,
        )
    shown = {
        "command": tried.command,
        "status": tried.verdict.status,
        "retried": tried.verdict.again,
        "error": tried.verdict.error,
        "exitCode": tried.end.code,
        "signal": tried.end.signal,
        "seconds": round(tried.seconds, 3),
        "records": [dict(record.data) for record in tried.records],
        "files": {file.path: {"size": file.size, "mimetype": file.mimetype} for file in tried.output.files},
        "warnings": list(tried.warnings),
        "stderr": tried.stderr,
        "config": dict(tried.config),
    }
    if output is Format.JSON:
        print_json(shown)
    else:
        _print(shown)
    if tried.verdict.status == "failed":
        raise typer.Exit(1)


def _print(shown: dict[str, Any]) -> None:
    import json

    again = " (would be tried again)" if shown["retried"] else ""
    fields((("Status", f"{shown['status']}{again}"), ("Exit code", shown["exitCode"]), ("Seconds", shown["seconds"])))
    if shown["error"]:
        fields((("Error", shown["error"]),))
    for title, lines in (
        ("Records", [json.dumps(record, ensure_ascii=False) for record in shown["records"]]),
        ("Files", [f"{name} ({one['mimetype']}, {one['size']} bytes)" for name, one in shown["files"].items()]),
        ("Warnings", shown["warnings"]),
        ("Stderr", shown["stderr"].splitlines()),
    ):
        if lines:
            say(f"{title}:")
            for line in lines:
                say(f"  {line}")
