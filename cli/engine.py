"""``scraper engine``: the engine database from outside."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from cli.doctor import doctor, gc
from cli.invocation import invocation_of
from cli.options import EngineDb, Output
from cli.output import Format, fields, instant, print_json, say

if TYPE_CHECKING:
    from engine.views.types import Counts, EngineView

app = typer.Typer(add_completion=False, rich_markup_mode=None, no_args_is_help=True)
migrations = typer.Typer(add_completion=False, rich_markup_mode=None, no_args_is_help=True)
app.add_typer(migrations, name="migrations")
app.command()(doctor)
app.command()(gc)


@app.callback()
def engine() -> None:
    """Look after the engine database.

    Example: scraper engine status --output json
    """


@migrations.callback()
def engine_migrations() -> None:
    """Look at the schema's migrations.

    Example: scraper engine migrations status
    """


@app.command()
def status(ctx: typer.Context, engine_db: EngineDb = None, output: Output = Format.TABLE) -> None:
    """Say what the engine database holds. A missing one is not created.

    Example: scraper engine status --engine-db state/engine.db
    """
    view = _view(ctx, engine_db)
    if output is Format.JSON:
        print_json(view)
        return
    fields(
        (
            ("Engine DB", view.path),
            ("Exists", _yes(view.exists)),
            ("Initialized", _yes(view.initialized)),
            ("Current schema version", "n/a" if view.current_version is None else view.current_version),
            ("Latest known migration", view.latest_known_migration),
            ("Migrations up to date", _yes(view.up_to_date)),
        )
    )
    if view.counts is not None:
        _print_counts(view.counts)


def _print_counts(counts: Counts) -> None:
    say(f"Workflows: {counts.workflows}")
    say("Ops:")
    for state, number in counts.ops.items():
        say(f"  {state}: {number}")
    say("Leases:")
    say(f"  active: {counts.leases_active}")
    say(f"  expired: {counts.leases_expired}")
    say(f"Results: {counts.results}")
    say(f"Artifacts: {counts.artifacts}")


@app.command()
def migrate(ctx: typer.Context, engine_db: EngineDb = None, output: Output = Format.TABLE) -> None:
    """Bring the engine database to this version's schema, creating it where there is none.

    Workers and submissions do so by themselves; this does it beforehand.

    Example: scraper engine migrate --engine-db postgresql://scraper@db/engine
    """
    from engine.app import open_store

    invocation = invocation_of(ctx)
    invocation.flag("engineDB", "--engine-db", engine_db)
    open_store(invocation.settings).close()
    view = _view(ctx, None)
    if output is Format.JSON:
        print_json({"path": view.path, "currentVersion": view.current_version})
        return
    fields((("Engine DB", view.path), ("Current schema version", view.current_version)))


@migrations.command("status")
def migrations_status(ctx: typer.Context, engine_db: EngineDb = None, output: Output = Format.TABLE) -> None:
    """List every known migration and when it was applied.

    Example: scraper engine migrations status
    """
    view = _view(ctx, engine_db)
    if output is Format.JSON:
        print_json({"path": view.path, "upToDate": view.up_to_date, "migrations": view.migrations})
        return
    say(f"Engine DB: {view.path}")
    say("Migrations:")
    for migration in view.migrations:
        applied = migration.applied_at is not None
        at = f" at {instant(migration.applied_at)}" if applied else ""
        say(f"  [{'applied' if applied else 'pending'}] {migration.version} {migration.name}{at}")


def _view(ctx: typer.Context, engine_db: str | None) -> EngineView:
    from engine.clock import SystemClock
    from engine.views.reader import Views

    invocation = invocation_of(ctx)
    invocation.flag("engineDB", "--engine-db", engine_db)
    views = Views(invocation.settings.engine_db)
    try:
        return views.engine(SystemClock().now())
    finally:
        views.close()


def _yes(fact: bool) -> str:
    return "yes" if fact else "no"
