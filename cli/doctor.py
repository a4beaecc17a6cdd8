"""``scraper engine doctor`` and ``scraper engine gc``: what is wrong, and what may go."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from cli.invocation import invocation_of
from cli.opening import changing
from cli.options import EngineDb, Output, SitesDir
from cli.output import Format, fields, note, print_json, table

if TYPE_CHECKING:
    from engine.store.retention import Pruned


def doctor(
    ctx: typer.Context, engine_db: EngineDb = None, sites_dir: SitesDir = None, output: Output = Format.TABLE
) -> None:
    """Examine versions, disks, databases, leases, workers and sites; say what to do. Exit 1 if a check failed.

    Example: scraper engine doctor
    """
    from engine.doctor import Health, examine

    invocation = invocation_of(ctx)
    invocation.flag("engineDB", "--engine-db", engine_db)
    invocation.flag("sitesDir", "--sites-dir", sites_dir)
    findings = list(examine(invocation.settings, invocation.quiet_registry))
    if output is Format.JSON:
        print_json({"findings": findings})
    else:
        table(("CHECK", "HEALTH", "FOUND", "WHAT TO DO"), [tuple(asdict(one).values()) for one in findings])
    if any(one.health is Health.FAILED for one in findings):
        raise typer.Exit(1)


def gc(
    ctx: typer.Context,
    older_than: Annotated[
        str | None,
        typer.Option(
            "--older-than",
            metavar="AGE",
            help="Forget workflows that ended this long ago, as in 30d or 12h.  [default: retention of the config]",
            show_default=False,
        ),
    ] = None,
    engine_db: EngineDb = None,
    sites_dir: SitesDir = None,
    output: Output = Format.TABLE,
) -> None:
    """Forget workflows, results, artifacts and logs that ended long ago. Workers may go on meanwhile.

    Nothing of a workflow that has not ended is touched, nor what scripts wrote into site databases.

    Example: scraper engine gc --older-than 30d
    """
    from cli.opening import instant_of
    from engine.errors import UsageError
    from engine.store.retention import Cutoffs
    from engine.upkeep import collect, cutoffs

    with changing(ctx, engine_db) as store:
        invocation = invocation_of(ctx)
        invocation.flag("sitesDir", "--sites-dir", sites_dir)
        settings = invocation.settings
        old = cutoffs(settings, store.clock.now())
        if older_than is not None:
            old = Cutoffs(workflows=instant_of(older_than, "--older-than"))
        elif old == Cutoffs():
            raise UsageError("nothing says what is old: give --older-than, or set retention in the configuration")
        done = collect(settings, invocation.registry, store, old, _told)
    pruned = asdict(done.pruned)
    if output is Format.JSON:
        print_json(
            {
                **pruned,
                "inboxRows": done.inbox_rows,
                "snapshots": done.snapshots,
                "bytesBefore": done.bytes_before,
                "bytesAfter": done.bytes_after,
            }
        )
        return
    fields((name.capitalize(), number) for name, number in pruned.items())
    fields((("Inbox rows", done.inbox_rows), ("Snapshots", done.snapshots)))
    fields((("Bytes", f"{done.bytes_before} before, {done.bytes_after} after"),))


def _told(pruned: Pruned) -> None:
    if sys.stderr.isatty():
        note(f"forgotten so far: {pruned.workflows} workflows, {pruned.ops} ops, {pruned.artifacts} artifacts")
