"""``scraper site``: the sites, and below each the verbs it offers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from cli import site_new, site_test
from cli.invocation import invocation_of
from cli.options import EngineDb, Output, SitesDir
from cli.output import Format, fields, note, print_json, say, table, warn
from cli.tree import unknown_command

if TYPE_CHECKING:
    from collections.abc import Iterable

    from engine.faults import Fault
    from engine.plugins.registry import Registry


class SiteGroup(TyperGroup):
    """The fixed subcommands, and one for every site."""

    def list_commands(self, ctx: Any) -> list[str]:
        """The fixed subcommands; a shell that completes is offered the sites too."""
        fixed = list(super().list_commands(ctx))
        return fixed + sorted(_completable(ctx)) if ctx.resilient_parsing else fixed

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """A fixed subcommand, else the site of that name. Raises UsageError, SiteError."""
        fixed = super().get_command(ctx, cmd_name)
        if fixed is not None or (ctx.resilient_parsing and cmd_name not in _completable(ctx)):
            return fixed
        if cmd_name.startswith("-"):
            return unknown_command(ctx, cmd_name, ())
        from cli.run import site_command

        invocation = invocation_of(ctx)
        invocation.site = invocation.registry.site(cmd_name)
        return site_command(invocation.site)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """List the fixed subcommands, then the sites."""
        from engine.errors import ScraperError

        super().format_commands(ctx, formatter)
        try:
            registry = invocation_of(ctx).quiet_registry
        except ScraperError as error:
            formatter.write(f"\nThe sites cannot be listed: {error}\n")
            return
        names = [(f"{name} run", "") for name in registry.sites]
        names += [(name, "(broken: see scraper site check)") for name in registry.broken]
        if names:
            with formatter.section("Sites"):
                formatter.write_dl(sorted(names))


def _completable(ctx: Any) -> Iterable[str]:
    from engine.errors import ScraperError

    try:
        return invocation_of(ctx).quiet_registry.sites
    except ScraperError:  # a shell that completes is told nothing about a broken configuration
        return ()


app = typer.Typer(cls=SiteGroup, add_completion=False, rich_markup_mode=None, no_args_is_help=True)


@app.callback()
def site(ctx: typer.Context, sites_dir: SitesDir = None) -> None:
    """Write, look at, check, test and migrate sites; run their verbs.

    Example: scraper site hackernews run seed --max-pages 3 --wait
    """
    invocation_of(ctx).flag("sitesDir", "--sites-dir", sites_dir)


app.command("new")(site_new.new)
app.command("show")(site_new.show)
app.command("test")(site_test.run)


@app.command("list")
def list_sites(ctx: typer.Context, output: Output = Format.TABLE) -> None:
    """Print the names of the sites, sorted.

    Example: scraper site list --output json
    """
    import sys

    registry = invocation_of(ctx).registry
    if output is Format.JSON:
        print_json(_listed(registry))
    elif sys.stdout.isatty():
        table(("SITE", "DATABASE", "DIRECTORY"), [(s.name, s.database_file, s.root) for s in registry.sites.values()])
    else:
        for name in registry.sites:
            say(name)


def _listed(registry: Registry) -> dict[str, Any]:
    sites = [
        {
            "name": one.name,
            "directory": str(one.root),
            "databaseFileName": one.database_file,
            "dialect": one.dialect,
            "hasScripts": one.scripts_root is not None,
            "hasVerbs": one.verbs_root is not None,
        }
        for one in registry.sites.values()
    ]
    broken = [{"name": one.name, "faults": _as_json(one.faults)} for one in registry.broken.values()]
    return {"sites": sites, "broken": broken, "warnings": list(registry.warnings)}


@app.command()
def check(
    ctx: typer.Context,
    names: Annotated[list[str] | None, typer.Argument(metavar="[SITE]...", help="Sites to check; all if none.")] = None,
    output: Output = Format.TABLE,
) -> None:
    """Load every manifest, verb, script and migration and report all faults at once; exit 1 if there are any.

    Example: scraper site check hackernews
    """
    registry = invocation_of(ctx).quiet_registry
    faults = {name: _faults(registry, name) for name in names or sorted((*registry.sites, *registry.broken))}
    if output is Format.JSON:
        checked = [{"name": name, "ok": not found, "faults": _as_json(found)} for name, found in faults.items()]
        print_json({"sites": checked, "warnings": list(registry.warnings)})
    else:
        for warning in registry.warnings:
            note(f"warning: {warning}")
        for name, found in faults.items():
            say(f"{name}: " + (f"{len(found)} fault{'s' * (len(found) > 1)}" if found else "ok"))
            for fault in found:
                say(f"  {fault}")
    if any(faults.values()):
        raise typer.Exit(1)


def _faults(registry: Registry, name: str) -> tuple[Fault, ...]:
    if name in registry.broken:
        return registry.broken[name].faults
    from engine.authoring.check import check_site

    return check_site(registry.site(name))


def _as_json(faults: Iterable[Fault]) -> list[dict[str, Any]]:
    return [
        {
            "file": str(fault.file),
            "line": fault.line,
            "column": fault.column,
            "message": fault.message,
            "hint": fault.hint,
        }
        for fault in faults
    ]


@app.command()
def migrate(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="SITE", help="The site whose database to migrate.")],
    sites_dir: SitesDir = None,
    output: Output = Format.TABLE,
) -> None:
    """Create a site's database or bring it up to date.

    Example: scraper site migrate hackernews
    """
    invocation = invocation_of(ctx)
    invocation.flag("sitesDir", "--sites-dir", sites_dir)
    chosen = invocation.registry.site(name)
    from engine.app import migrate_site

    report = migrate_site(invocation.settings, chosen)
    if output is Format.JSON:
        print_json({"site": report.site, "db": report.db, "applied": report.applied, "version": report.version})
        return
    fields(
        (
            ("Site", report.site),
            ("DB", report.db),
            ("Applied migrations", len(report.applied)),
            ("Current schema version", report.version),
        )
    )


@app.command()
def rehome(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="SITE", help="The site whose SQLite database moves.")],
    engine_db: EngineDb = None,
    sites_dir: SitesDir = None,
    machine_id: Annotated[
        str, typer.Option("--machine-id", metavar="ID", help="Another name for this machine, as its workers use it.")
    ] = "",
    force: Annotated[
        bool,
        typer.Option("--force", help="Even while ops run on the old home: it is gone for good.", show_default=False),
    ] = False,
    output: Output = Format.TABLE,
) -> None:
    """Make this machine the home of a site's SQLite database: from now on its scripts run here.

    Stop the workers of the old home and bring the database file along first.

    Example: scraper site rehome hackernews
    """
    invocation = invocation_of(ctx)
    invocation.flag("engineDB", "--engine-db", engine_db)
    invocation.flag("sitesDir", "--sites-dir", sites_dir)
    chosen = invocation.registry.site(name)
    from engine.app import rehome_site

    report = rehome_site(invocation.settings, chosen, machine_id.strip(), force=force)
    if report.previous not in (None, report.home) and not report.site_db_exists:
        warn(f"there is no {report.site_db} yet: bring it from {report.previous}, or scripts begin with an empty one")
    if output is Format.JSON:
        print_json(report)
        return
    fields(
        (
            ("Site", report.site),
            ("Home", report.home),
            ("Previous home", report.previous or "none"),
            ("Moved ops", report.moved_ops),
            ("Site DB", report.site_db),
        )
    )
