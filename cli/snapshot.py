"""``scraper site NAME snapshot``: what was archived, and how."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from cli.archiving import reader_of
from cli.invocation import invocation_of
from cli.opening import Limit, Offset, StatusFilter, show_list
from cli.options import Output, SitesDir
from cli.output import Format, fields, print_json, say, table
from cli.timeline import HEADERS, cells, page

app = typer.Typer(add_completion=False, rich_markup_mode=None, no_args_is_help=True)


@app.callback()
def snapshot() -> None:
    """Look at what was archived, and how.

    Example: scraper site archive snapshot show https://example.com/
    """


@app.command("list")
def list_(
    ctx: typer.Context,
    crawl: Annotated[
        str | None, typer.Option("--crawl", metavar="ID", help="Only of this crawl.", show_default=False)
    ] = None,
    status: StatusFilter = None,
    limit: Limit = 50,
    offset: Offset = 0,
    sites_dir: SitesDir = None,
    output: Output = Format.TABLE,
) -> None:
    """List snapshots in the order in which they came.

    Example: scraper site archive snapshot list --crawl CRAWL
    """
    invocation = invocation_of(ctx)
    invocation.flag("sitesDir", "--sites-dir", sites_dir)
    found = reader_of(invocation).snapshots(crawl, status, limit + 1, offset)
    rows = [(one.id, one.status, one.depth, one.url, one.title) for one in found]
    show_list("snapshots", found, ("SNAPSHOT", "STATUS", "DEPTH", "URL", "TITLE"), rows, output=output, limit=limit)


@app.command()
def show(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="SNAPSHOT", help="Id, beginning of the id, or URL.")],
    html: Annotated[
        bool, typer.Option("--html", help="A self-contained page with a Gantt chart.", show_default=False)
    ] = False,
    sites_dir: SitesDir = None,
    output: Output = Format.TABLE,
) -> None:
    """Show the timeline of a snapshot's hooks.

    Example: scraper site archive snapshot show https://example.com/ --html > timeline.html
    """
    invocation = invocation_of(ctx)
    invocation.flag("sitesDir", "--sites-dir", sites_dir)
    reader = reader_of(invocation)
    view = reader.snapshot(name)
    results = reader.results(snapshot_id=view.id)
    if html:
        sys.stdout.write(page(view, results))
    elif output is Format.JSON:
        print_json({"snapshot": view, "tags": reader.tags(view.id), "hooks": results})
    else:
        fields(
            (
                ("Snapshot", view.id),
                ("URL", view.url),
                ("Title", view.title),
                ("Status", view.status),
                ("Depth", view.depth),
                ("Crawl", view.crawl_id),
                ("Tags", ", ".join(reader.tags(view.id))),
                ("Directory", view.output_dir),
            )
        )
        say()
        table(HEADERS, cells(results))


@app.command()
def search(
    ctx: typer.Context,
    words: Annotated[list[str], typer.Argument(metavar="WORD...", help="Words that the text must have.")],
    limit: Limit = 20,
    sites_dir: SitesDir = None,
    output: Output = Format.TABLE,
) -> None:
    """Find snapshots by the text of their pages, best first.

    Example: scraper site archive snapshot search quick brown fox
    """
    invocation = invocation_of(ctx)
    invocation.flag("sitesDir", "--sites-dir", sites_dir)
    found = reader_of(invocation).search(" ".join(words), limit + 1)
    rows = [(one.id, one.url, one.title) for one in found]
    show_list("snapshots", found, ("SNAPSHOT", "URL", "TITLE"), rows, output=output, limit=limit)
