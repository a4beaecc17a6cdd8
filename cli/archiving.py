"""What the commands of sites with hooks share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.invocation import Invocation, invocation_of

if TYPE_CHECKING:
    from engine.plugins.site import Site
    from engine.projection.archive_views import ArchiveReader
    from engine.store.store import Store

CrawlId = Annotated[str, typer.Argument(metavar="CRAWL", help="Id of the crawl.")]
HookDir = Annotated[
    list[str] | None,
    typer.Option("--hook-dir", metavar="DIR", help="Further directory of plugins. Repeatable.", show_default=False),
]
Config = Annotated[
    list[str] | None,
    typer.Option("--config", metavar="KEY=VALUE", help="Configuration of the hooks. Repeatable.", show_default=False),
]
Plugins = Annotated[
    str | None,
    typer.Option("--plugins", metavar="A,B", help="Only these plugins, and what they require.", show_default=False),
]
DataDir = Annotated[
    str | None,
    typer.Option(
        "--data-dir",
        metavar="DIR",
        help="Directory below which hooks work.  [default: archive beside the site databases]",
        show_default=False,
    ),
]


def site_of(invocation: Invocation) -> Site:
    """The site of ``site NAME …``."""
    assert invocation.site is not None
    return invocation.site


def reader_of(invocation: Invocation) -> ArchiveReader:
    """The crawls of the site. Raises SiteError where it has no database yet."""
    from engine.projection.archive_views import ArchiveReader

    settings = invocation.settings
    return ArchiveReader(site_of(invocation), settings.sites_dir, settings.site_database_url)


@contextmanager
def opened(ctx: typer.Context, engine_db: str | None, sites_dir: str | None) -> Iterator[tuple[Invocation, Store]]:
    from engine.app import open_store

    invocation = invocation_of(ctx)
    invocation.flag("engineDB", "--engine-db", engine_db)
    invocation.flag("sitesDir", "--sites-dir", sites_dir)
    with closing(open_store(invocation.settings)) as store:
        yield invocation, store


def pairs(given: list[str] | None, flag: str) -> dict[str, Any]:
    """``KEY=VALUE`` options; a value that is JSON is read as such. Raises UsageError."""
    import json

    from engine.errors import UsageError

    found: dict[str, Any] = {}
    for text in given or ():
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise UsageError(f'{flag}: "{text}" is not KEY=VALUE')
        try:
            found[key.strip()] = json.loads(value)
        except ValueError:
            found[key.strip()] = value
    return found


def listed(text: str | None) -> tuple[str, ...]:
    """The parts of ``a,b``."""
    return tuple(part.strip() for part in (text or "").split(",") if part.strip())
