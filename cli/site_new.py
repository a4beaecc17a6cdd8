"""``scraper site new`` and ``scraper site show``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.invocation import Invocation, invocation_of
from cli.options import Output, SitesDir
from cli.output import Format, fields, print_json, say, table

if TYPE_CHECKING:
    from engine.plugins.site import Site
    from engine.verbs import VerbSpec

_DIRECTORY = "sites"


def new(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the site: lower-case letters, digits, hyphens.")],
    directory: Annotated[
        Path | None,
        typer.Option(
            "--dir",
            metavar="DIR",
            help="Directory of sites to put it into.  [default: the first configured one, else ./sites]",
            show_default=False,
        ),
    ] = None,
    output: Output = Format.TABLE,
) -> None:
    """Write a small site that works, to be changed: a verb, a script, a migration, a recorded page, a test.

    Example: scraper site new shop --dir sites
    """
    from engine.authoring.scaffold import create_site

    configured = [named.path for named in invocation_of(ctx).settings.manifest_dirs]
    chosen = directory if directory is not None else configured[0] if configured else Path(_DIRECTORY)
    files = create_site(name, chosen)
    if output is Format.JSON:
        print_json({"name": name, "directory": str(chosen / name), "files": [str(path) for path in files]})
        return
    for path in files:
        say(str(path))
    known = Path(os.path.abspath(chosen)) in configured
    flag = "" if known else f" --sites-manifest-dir {chosen}"
    say()
    say(f"Try it:  scraper{flag} site test {name}")


def show(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="SITE", help="The site to show.")],
    sites_dir: SitesDir = None,
    output: Output = Format.TABLE,
) -> None:
    """Show what a site consists of: folders, verbs, scripts, migrations, queues, tests.

    Example: scraper site show hackernews --output json
    """
    invocation = invocation_of(ctx)
    invocation.flag("sitesDir", "--sites-dir", sites_dir)
    site = invocation.registry.site(name)
    from engine.app import scan_verbs

    verbs = scan_verbs(site)
    if output is Format.JSON:
        print_json(_as_json(invocation, site, verbs))
    else:
        _print(invocation, site, verbs)


def _as_json(invocation: Invocation, site: Site, verbs: tuple[VerbSpec, ...]) -> dict[str, Any]:
    return {
        "name": site.name,
        "directory": str(site.root),
        "database": _database(invocation, site),
        "dialect": site.dialect,
        "verbs": [
            {
                "name": verb.name,
                "short": verb.short,
                "sourceFile": verb.source_file,
                "fields": [
                    {"name": one.name, "type": one.type, "required": one.required, "default": one.default}
                    for section in verb.sections
                    for one in section.fields
                ],
            }
            for verb in verbs
        ],
        "scripts": _files(site, site.scripts_root, "**/*.js"),
        "migrations": _migrations(site),
        "queuePolicies": [
            {
                "queue": queue,
                "maxInFlight": policy.max_in_flight,
                "ratePerSecond": policy.rate,
                "burst": policy.burst if policy.rate else None,
            }
            for queue, policy in site.queue_policies.items()
        ],
        "tests": _files(site, site.root / "tests", "*.js"),
    }


def _print(invocation: Invocation, site: Site, verbs: tuple[VerbSpec, ...]) -> None:
    fields(
        (
            ("Site", site.name),
            ("Directory", site.root),
            ("Site DB", _database(invocation, site)),
            ("Scripts", ", ".join(_files(site, site.scripts_root, "**/*.js")) or "none"),
            ("Migrations", ", ".join(_migrations(site)) or "none"),
            ("Tests", ", ".join(_files(site, site.root / "tests", "*.js")) or "none"),
        )
    )
    if verbs:
        say()
        table(
            ("VERB", "FIELDS", "WHAT"),
            [
                (verb.name, ", ".join(one.name for section in verb.sections for one in section.fields), verb.short)
                for verb in verbs
            ],
        )
    if site.queue_policies:
        say()
        table(
            ("QUEUE", "MAX IN FLIGHT", "PER SECOND", "BURST"),
            [
                (queue, policy.max_in_flight, policy.rate, f"{policy.burst:g}" if policy.rate else "")
                for queue, policy in site.queue_policies.items()
            ],
        )


def _database(invocation: Invocation, site: Site) -> str:
    from engine.app import site_database

    return site_database(invocation.settings, site)


def _migrations(site: Site) -> list[str]:
    from engine.projection.migrate import find_migrations

    return [migration.path.relative_to(site.root).as_posix() for migration in find_migrations(site)]


def _files(site: Site, folder: Path | None, pattern: str) -> list[str]:
    if folder is None or not folder.is_dir():
        return []
    return sorted(path.relative_to(site.root).as_posix() for path in folder.glob(pattern))
