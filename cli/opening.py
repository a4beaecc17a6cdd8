"""Opening the engine DB for one command, and what the commands that list things share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from cli.invocation import invocation_of
from cli.output import Format, note, print_json, table

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from engine.store.store import Store
    from engine.views.lists import Filter
    from engine.views.reader import Views

SiteFilter: TypeAlias = Annotated[
    str | None, typer.Option("--site", metavar="SITE", help="Only of this site.", show_default=False)
]
StatusFilter: TypeAlias = Annotated[
    str | None, typer.Option("--status", metavar="STATUS", help="Only in this state.", show_default=False)
]
SinceFilter: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--since",
        metavar="AGE|TIME",
        help="Only what was created since: an age such as 2h30m, or an RFC3339 time.",
        show_default=False,
    ),
]
Limit: TypeAlias = Annotated[int, typer.Option("--limit", metavar="N", min=1, help="Show at most this many.")]
Offset: TypeAlias = Annotated[int, typer.Option("--offset", metavar="N", min=0, help="Skip this many.")]


@contextmanager
def views_of(ctx: typer.Context, engine_db: str | None) -> Iterator[Views]:
    """The read models of the engine DB this command is about."""
    from engine.views.reader import Views

    invocation = invocation_of(ctx)
    invocation.flag("engineDB", "--engine-db", engine_db)
    with closing(Views(invocation.settings.engine_db)) as views:
        yield views


@contextmanager
def reading(ctx: typer.Context, engine_db: str | None) -> Iterator[Connection]:
    """One consistent state of the engine DB. Raises DatabaseRefused where there is none."""
    with views_of(ctx, engine_db) as views, views.snapshot() as connection:
        yield connection


@contextmanager
def changing(ctx: typer.Context, engine_db: str | None) -> Iterator[Store]:
    """The engine DB opened for a change; a missing one is refused, not created."""
    from engine.app import open_store

    with views_of(ctx, engine_db) as views:
        views.require()
    with closing(open_store(invocation_of(ctx).settings)) as store:
        yield store


def chosen(
    site: str | None = None,
    status: str | None = None,
    since: str | None = None,
    limit: int = 50,
    offset: int = 0,
    *,
    states: Sequence[str] = (),
) -> Filter:
    """The filter the options describe; it asks for one row more than ``limit``. Raises UsageError."""
    from engine.errors import UsageError
    from engine.faults import did_you_mean
    from engine.views.lists import Filter

    if status is not None and status not in states:
        hint = did_you_mean(status, states) or f"one of {', '.join(states)}"
        raise UsageError(f'--status: there is no state "{status}" ({hint})')
    return Filter(
        site=site,
        status=status,
        since=None if since is None else instant_of(since, "--since"),
        limit=limit + 1,
        offset=offset,
    )


def instant_of(text: str, flag: str) -> int:
    """An age or a time as an instant. Raises UsageError."""
    from datetime import UTC, datetime

    from engine.clock import SECOND, SystemClock
    from engine.durations import parse_age
    from engine.errors import UsageError

    try:
        return SystemClock().now() - parse_age(text)
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise UsageError(f'{flag}: "{text}" is neither an age such as 2h30m or 7d nor an RFC3339 time') from error
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * SECOND)


def show_list(
    name: str,
    items: Sequence[Any],
    headers: Sequence[str],
    cells: Sequence[Sequence[object]],
    *,
    output: Format,
    limit: int,
) -> None:
    """A page of a list, as a table or ``{NAME: [...], "more": bool}``; one item too many says that there is more."""
    more = len(items) > limit
    if output is Format.JSON:
        print_json({name: items[:limit], "more": more})
        return
    table(headers, cells[:limit])
    if more:
        note("there are more: see --limit and --offset")
