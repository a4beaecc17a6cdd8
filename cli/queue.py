"""``scraper queue``: what waits where, under which policy; pause and resume."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.opening import SiteFilter, changing, reading
from cli.options import EngineDb, Output
from cli.output import Format, fields, print_json, table

app = typer.Typer(add_completion=False, rich_markup_mode=None, no_args_is_help=True)

Site = Annotated[str, typer.Argument(metavar="SITE", help="Name of the site.")]
Queue = Annotated[str, typer.Argument(metavar="QUEUE", help='Name of the queue; "" is the one without a name.')]


@app.callback()
def queue() -> None:
    """Look at queues; pause and resume them.

    Example: scraper queue list --site books
    """


@app.command("list")
def list_(
    ctx: typer.Context, site: SiteFilter = None, engine_db: EngineDb = None, output: Output = Format.TABLE
) -> None:
    """List queues: their policies, and how many ops wait and run in them.

    Example: scraper queue list
    """
    from engine.clock import SystemClock
    from engine.views.lists import queues

    with reading(ctx, engine_db) as connection:
        lines = queues(connection, SystemClock().now(), site)
    if output is Format.JSON:
        print_json({"queues": lines})
        return
    table(
        ("SITE", "QUEUE", "STATE", "IN FLIGHT", "RATE", "PENDING", "READY", "DELAYED", "RUNNING"),
        [
            (
                one.site,
                one.queue or '""',
                "paused" if one.paused else "open",
                "any" if one.max_in_flight is None else one.max_in_flight,
                "any" if one.rate is None else f"{one.rate:g}/s, burst {one.burst:g}",
                *one.ops.values(),
            )
            for one in lines
        ],
    )


@app.command()
def pause(
    ctx: typer.Context, site: Site, queue_name: Queue, engine_db: EngineDb = None, output: Output = Format.TABLE
) -> None:
    """Start no more ops of a queue, on any worker, until it is resumed. Running ones end as usual.

    Example: scraper queue pause books catalogue
    """
    with changing(ctx, engine_db) as store:
        store.pause(site, queue_name)
    _say(site, queue_name, "paused", output)


@app.command()
def resume(
    ctx: typer.Context, site: Site, queue_name: Queue, engine_db: EngineDb = None, output: Output = Format.TABLE
) -> None:
    """Let ops of a paused queue start again.

    Example: scraper queue resume books catalogue
    """
    with changing(ctx, engine_db) as store:
        store.resume(site, queue_name)
    _say(site, queue_name, "open", output)


def _say(site: str, queue_name: str, state: str, output: Format) -> None:
    if output is Format.JSON:
        print_json({"site": site, "queue": queue_name, "state": state})
        return
    fields((("Site", site), ("Queue", queue_name), ("State", state)))
