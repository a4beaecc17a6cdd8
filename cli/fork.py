"""``scraper workflow fork``: start a workflow again from some of its ops, with what the others already have."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from cli.opening import changing
from cli.options import EngineDb, Output
from cli.output import Format, fields, note, print_json
from engine.errors import UsageError


def fork(
    ctx: typer.Context,
    workflow_id: Annotated[str, typer.Argument(metavar="WORKFLOW", help="Id of a workflow that has ended.")],
    from_op: Annotated[
        list[str],
        typer.Option("--from", metavar="OP", help="Op to run again, with all that follows from it. Repeatable."),
    ],
    new_id: Annotated[
        str | None,
        typer.Option(
            "--workflow-id",
            metavar="ID",
            help="Id of the new workflow.  [default: WORKFLOW-fork-NANOSECONDS]",
            show_default=False,
        ),
    ] = None,
    engine_db: EngineDb = None,
    output: Output = Format.TABLE,
) -> None:
    """Start a new workflow that keeps the results of an ended one, except of some ops and what follows from them.

    What depends on a named op runs again; what a named op had emitted is left out, for it will emit it again.

    Example: scraper workflow fork books-crawl-1 --from extract:3 --workflow-id books-repaired
    """
    if new_id is not None and not new_id.strip():
        raise UsageError("--workflow-id must not be empty")
    with changing(ctx, engine_db) as store:
        forked = store.fork(workflow_id, from_op, new_id or f"{workflow_id}-fork-{time.time_ns()}")
    if output is Format.JSON:
        print_json(
            {
                "workflowID": forked.workflow_id,
                "forkedFrom": forked.source_id,
                "keptOps": forked.kept,
                "keptUnsuccessfulOps": forked.kept_unsuccessful,
                "opsRunAgain": forked.again,
                "droppedOps": forked.dropped,
            }
        )
    else:
        fields(
            (
                ("Workflow", forked.workflow_id),
                ("Forked from", forked.source_id),
                ("Kept ops", forked.kept),
                ("Ops run again", forked.again),
                ("Dropped ops", forked.dropped),
            )
        )
    if forked.kept_unsuccessful:
        note(f"{forked.kept_unsuccessful} of the kept ops failed or were canceled; --from runs them again, too")
