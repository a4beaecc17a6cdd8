"""``scraper records``: what scripts wrote with ``ctx.writeRecord``, as rows, JSON lines or CSV."""

from __future__ import annotations

import csv
import itertools
import json
import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.invocation import invocation_of
from cli.opening import Limit, show_list
from cli.options import Output, SitesDir
from cli.output import Format, note, print_json, table

if TYPE_CHECKING:
    from collections.abc import Iterable

    from engine.projection.records import Record, RecordsReader

app = typer.Typer(add_completion=False, rich_markup_mode=None, no_args_is_help=True)

Site = Annotated[str, typer.Argument(metavar="SITE", help="Name of the site.")]
Collection = Annotated[
    str | None, typer.Argument(metavar="[COLLECTION]", help="Only of this collection.", show_default=False)
]
Where = Annotated[
    list[str] | None,
    typer.Option(
        "--where",
        metavar="COND",
        help="Only records whose data fits, as in price>=10 or title~Rust. Repeatable: all must hold.",
        show_default=False,
    ),
]


class Export(StrEnum):
    """What ``--format`` takes."""

    JSONL = "jsonl"
    CSV = "csv"


@app.callback()
def records() -> None:
    """List and export the records of a site.

    Example: scraper records export books --format csv > books.csv
    """


@app.command("list")
def list_(
    ctx: typer.Context,
    site: Site,
    collection: Collection = None,
    where: Where = None,
    limit: Limit = 50,
    sites_dir: SitesDir = None,
    output: Output = Format.TABLE,
) -> None:
    """List the collections of a site, or the records of one.

    Example: scraper records list hackernews frontpage --where "points>=100"
    """
    reader, conditions = _open(ctx, site, where, sites_dir)
    if collection is None and not conditions:
        counted = reader.collections()
        if output is Format.JSON:
            print_json({"collections": [{"collection": name, "records": number} for name, number in counted]})
        else:
            table(("COLLECTION", "RECORDS"), counted)
        return
    found = list(itertools.islice(reader.records(collection, conditions), limit + 1))
    cells = [(one.collection, one.key, json.dumps(one.data, ensure_ascii=False), one.updated_at) for one in found]
    show_list("records", found, ("COLLECTION", "KEY", "DATA", "UPDATED"), cells, output=output, limit=limit)


@app.command()
def export(
    ctx: typer.Context,
    site: Site,
    collection: Collection = None,
    where: Where = None,
    format_: Annotated[
        Export, typer.Option("--format", help="JSON lines or CSV.", case_sensitive=False)
    ] = Export.JSONL,
    sites_dir: SitesDir = None,
) -> None:
    """Write records to stdout: one JSON object a line, or CSV with a column for every member.

    Example: scraper records export books --where "price<20" > cheap.jsonl
    """
    reader, conditions = _open(ctx, site, where, sites_dir)
    found = reader.records(collection, conditions)
    number = _csv(list(found)) if format_ is Export.CSV else _json_lines(found)
    note(f"{number} records")


def _open(
    ctx: typer.Context, site: str, where: list[str] | None, sites_dir: str | None
) -> tuple[RecordsReader, tuple[Any, ...]]:
    from engine.projection.records import RecordsReader, condition

    invocation = invocation_of(ctx)
    invocation.flag("sitesDir", "--sites-dir", sites_dir)
    conditions = tuple(condition(text) for text in where or ())
    settings = invocation.settings
    return RecordsReader(invocation.registry.site(site), settings.sites_dir, settings.site_database_url), conditions


def _json_lines(found: Iterable[Record]) -> int:
    number = 0
    for record in found:
        shown = {
            "collection": record.collection,
            "key": record.key,
            "data": record.data,
            "updatedAt": record.updated_at,
        }
        sys.stdout.write(json.dumps(shown, ensure_ascii=False) + "\n")
        number += 1
    return number


def _csv(found: list[Record]) -> int:
    members = list(dict.fromkeys(name for one in found if isinstance(one.data, dict) for name in one.data))
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(["collection", "key", *members, "updated_at"])
    for one in found:
        data = one.data if isinstance(one.data, dict) else {}
        writer.writerow([one.collection, one.key, *(_cell(data.get(name)) for name in members), one.updated_at])
    return len(found)


def _cell(value: Any) -> Any:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list | bool) else value
