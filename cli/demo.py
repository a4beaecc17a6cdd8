"""``scraper demo``: the main job, on a catalogue of our own; and pages to try things on."""

from __future__ import annotations

import sqlite3
import sys
import threading
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.invocation import invocation_of
from cli.output import note, say, table

if TYPE_CHECKING:
    from cli.invocation import Invocation

_SITE, _VERB = "books", "crawl"
_ROWS = 10
_PORT = 8642
_SAMPLE = "SELECT id, title, category, price, stock, rating FROM books ORDER BY CAST(id AS INTEGER) LIMIT ?"

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.callback(invoke_without_command=True)
def demo(
    ctx: typer.Context,
    engine_db: Annotated[
        str, typer.Option("--engine-db", metavar="PATH|URL", help="Engine database: a path, or a SQLAlchemy URL.")
    ] = "state/demo/engine.db",
    sites_dir: Annotated[
        str, typer.Option("--sites-dir", metavar="DIR", help="Directory of the SQLite site databases.")
    ] = "state/demo/sites",
) -> None:
    """Crawl a catalogue of 1,000 books over loopback HTTP, then show rows of the site database.

    Its state is kept apart from yours, in state/demo/.

    Example: scraper demo
    """
    if ctx.invoked_subcommand is not None:
        return
    from cli.run import submit
    from cli.verbs import plan, read_values
    from engine.app import scan_verbs
    from engine.config import Settings
    from engine.demo import serve_books
    from engine.plugins.registry import discover

    invocation = invocation_of(ctx)
    invocation.flag("engineDB", "--engine-db", engine_db)
    invocation.flag("sitesDir", "--sites-dir", sites_dir)
    invocation.registry = discover(Settings())
    invocation.site = invocation.registry.site(_SITE)
    invocation.wait = True
    verb = next(verb for verb in scan_verbs(invocation.site) if verb.name == _VERB)
    planned = plan(verb)
    with serve_books() as base_url:
        note(f"the catalogue is at {base_url}")
        given = {flag.parameter: base_url for flag in planned.flags if flag.field.name == "base_url"}
        submit(invocation, verb, read_values(planned, given))
    _show(invocation)


@app.command()
def serve(
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port on 127.0.0.1; 0 = a free one.")] = _PORT,
) -> None:
    """Serve ten pages that link to one another on loopback, until Ctrl-C: something to crawl without a network.

    Example: scraper demo serve
    """
    from engine.demo import Catalogue, serve_books
    from engine.errors import UsageError

    try:
        with serve_books(Catalogue(pages=1, per_page=9), port) as base_url, suppress(KeyboardInterrupt):
            say(f"{base_url}/catalogue/page-1.html and the nine pages it links to; Ctrl-C ends")
            say(f"{base_url}/shop/prices.html and deals.html, which change: what the site watch-demo watches")
            sys.stdout.flush()
            threading.Event().wait()
    except OSError as error:
        raise UsageError(f"--port: {port} on 127.0.0.1 cannot be used: {error.strerror}") from error


def _show(invocation: Invocation) -> None:
    assert invocation.site is not None
    file = Path(invocation.settings.sites_dir) / invocation.site.database_file
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as connection:
        (count,) = connection.execute("SELECT count(*) FROM books").fetchone()
        cursor = connection.execute(_SAMPLE, (_ROWS,))
        headers, rows = [column[0] for column in cursor.description], cursor.fetchall()
    say()
    say(f"{count} books in {file}; the first {len(rows)}:")
    table(headers, rows)
