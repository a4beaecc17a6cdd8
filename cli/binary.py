"""``scraper site NAME binary``: the programs that hooks need."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.archiving import Config, HookDir, Plugins, listed, pairs, site_of
from cli.invocation import Invocation, invocation_of
from cli.options import EngineDb, Output, SitesDir
from cli.output import Format, note, print_json, say, table, warn

if TYPE_CHECKING:
    from engine.hooks.binaries import Need
    from engine.hooks.graph import CrawlSpec
    from engine.model import Binary, MachineFacts

app = typer.Typer(add_completion=False, rich_markup_mode=None, no_args_is_help=True)


@app.callback()
def binary() -> None:
    """List the programs that hooks need, and install them.

    Example: scraper site archive binary list
    """


@app.command("list")
def list_(
    ctx: typer.Context,
    plugins: Plugins = None,
    config: Config = None,
    hook_dir: HookDir = None,
    engine_db: EngineDb = None,
    output: Output = Format.TABLE,
) -> None:
    """List what the plugins need, what of it is known on this machine, and what hooks have set for it.

    Example: scraper site archive binary list --output json
    """
    invocation = invocation_of(ctx)
    invocation.flag("engineDB", "--engine-db", engine_db)
    _, needed, covered = _needed(invocation, plugins, config, hook_dir)
    known = _known(invocation)
    _show(needed, known.binaries, covered(known.config), output)


@app.command()
def install(
    ctx: typer.Context,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="Programs to install; all that are missing if none.")
    ] = None,
    plugins: Plugins = None,
    config: Config = None,
    hook_dir: HookDir = None,
    engine_db: EngineDb = None,
    sites_dir: SitesDir = None,
    output: Output = Format.TABLE,
) -> None:
    """Find the programs, and let the plugins' on_Binary hooks install those that are missing.

    Example: scraper site archive binary install wget
    """
    from cli.worker import worker_options
    from engine.app import open_store, run_worker
    from engine.crawls import add_installation
    from engine.errors import UsageError
    from engine.worker.options import Silent

    invocation = invocation_of(ctx)
    invocation.flag("engineDB", "--engine-db", engine_db)
    invocation.flag("sitesDir", "--sites-dir", sites_dir)
    spec, needed, _ = _needed(invocation, plugins, config, hook_dir)
    unknown = sorted(set(names or ()) - {need.name for need in needed})
    if unknown:
        raise UsageError(f'no plugin needs a program "{unknown[0]}"')
    chosen = [need for need in needed if not names or need.name in names]
    if chosen:
        settings, site = invocation.settings, site_of(invocation)
        with closing(open_store(settings)) as store:
            workflow = add_installation(settings, store, site, spec, chosen)
        options = worker_options(settings, until_workflow=workflow, sites=frozenset({site.name}))
        run_worker(settings, invocation.registry, options, Silent())
    known = _known(invocation).binaries
    _show(chosen, known, {}, output)
    missing = [need.name for need in chosen if need.name not in known or known[need.name].status != "succeeded"]
    if missing:
        note(f"still missing: {', '.join(missing)}")
        raise typer.Exit(1)


def _needed(
    invocation: Invocation, plugins: str | None, config: list[str] | None, hook_dir: list[str] | None
) -> tuple[CrawlSpec, tuple[Need, ...], Callable[[Mapping[str, Any]], dict[str, Any]]]:
    from functools import partial
    from pathlib import Path

    from engine.hooks.binaries import needs
    from engine.hooks.config import Layers, covered, launched
    from engine.hooks.graph import CrawlSpec
    from engine.hooks.plugins import discover, hook_directories

    site, values = site_of(invocation), pairs(config, "--config")
    directories = [str(Path(name).expanduser().absolute()) for name in hook_dir or ()]
    found = discover(hook_directories(site, directories))
    for warning in found.warnings:
        warn(warning)
    layers = Layers(site.hook_config, values)
    spec = CrawlSpec(
        urls=(),
        config=values,
        hook_dirs=tuple(directories),
        data_dir=str(invocation.settings.data_dir),
        install=True,
        attempts=1,
    )
    return spec, needs(found, launched(found, layers, listed(plugins)), layers), partial(covered, found)


def _known(invocation: Invocation) -> MachineFacts:
    from engine.app import open_store
    from engine.machine import machine_id

    settings = invocation.settings
    with closing(open_store(settings)) as store:
        return store.machine_facts(machine_id(settings.sites_dir))


def _show(needed: Any, known: Mapping[str, Binary], config: Mapping[str, Any], output: Format) -> None:
    rows = []
    for need in needed:
        found = known.get(need.name)
        rows.append(
            {
                "name": need.name,
                "key": need.key,
                "providers": need.providers,
                "plugins": list(need.plugins),
                "status": found.status if found else "unknown",
                "abspath": found.abspath if found else "",
                "version": found.version if found else "",
                "sha256": found.sha256 if found else "",
                "provider": found.provider if found else "",
                "error": found.error if found else "",
            }
        )
    if output is Format.JSON:
        print_json({"binaries": rows, "config": config})
        return
    headers = ("NAME", "STATUS", "VERSION", "PROVIDER", "PATH", "PLUGINS")
    names = ("name", "status", "version", "provider", "abspath")
    table(headers, [(*(row[name] for name in names), ", ".join(row["plugins"])) for row in rows])
    if config:
        say()
        table(("SET BY HOOKS", "VALUE"), sorted(config.items()))
