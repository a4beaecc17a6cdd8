"""``scraper workflow``: look at workflows and cancel them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from cli.invocation import invocation_of
from cli.options import EngineDb, Output
from cli.output import Format, fields, instant, print_json, say, table

if TYPE_CHECKING:
    from engine.views.types import WorkflowView

app = typer.Typer(add_completion=False, rich_markup_mode=None, no_args_is_help=True)

Id = Annotated[str, typer.Argument(metavar="WORKFLOW", help="Id of the workflow.")]


@app.callback()
def workflow() -> None:
    """Look at workflows and cancel them.

    Example: scraper workflow show books-crawl-1
    """


@app.command()
def show(ctx: typer.Context, workflow_id: Id, engine_db: EngineDb = None, output: Output = Format.TABLE) -> None:
    """Show a workflow: its status, its ops by queue and status, and what failed.

    Example: scraper workflow show books-crawl-1 --output json
    """
    from engine.views.reader import Views

    invocation = invocation_of(ctx)
    invocation.flag("engineDB", "--engine-db", engine_db)
    views = Views(invocation.settings.engine_db)
    try:
        view = views.workflow(workflow_id)
    finally:
        views.close()
    if output is Format.JSON:
        print_json(view)
    else:
        _print(view)


def _print(view: WorkflowView) -> None:
    fields(
        (
            ("Workflow", view.id),
            ("Site", view.site),
            ("Name", view.name),
            ("Status", view.status),
            ("Created", instant(view.created_at)),
            ("Updated", instant(view.updated_at)),
        )
    )
    say()
    states = list(view.ops)
    rows = [(f"{one.site} {one.queue}".strip(), *(one.ops.get(state, 0) for state in states)) for one in view.queues]
    rows.append(("total", *view.ops.values()))
    table(("QUEUE", *(state.upper() for state in states)), rows)
    if view.failures:
        say()
        table(
            ("OP", "KIND", "STATUS", "ERROR"),
            [(one.op_id, one.kind, one.status, one.error.summary) for one in view.failures],
        )
        hidden = view.ops.get("failed", 0) + view.ops.get("canceled", 0) - len(view.failures)
        if hidden > 0:
            say(f"… and {hidden} more")


@app.command()
def cancel(ctx: typer.Context, workflow_id: Id, engine_db: EngineDb = None, output: Output = Format.TABLE) -> None:
    """End everything of a workflow that has not ended; running ops are stopped.

    Example: scraper workflow cancel books-crawl-1
    """
    from engine.app import open_store
    from engine.views.reader import Views

    invocation = invocation_of(ctx)
    invocation.flag("engineDB", "--engine-db", engine_db)
    views = Views(invocation.settings.engine_db)
    try:
        views.require()
        store = open_store(invocation.settings)
        try:
            canceled = store.cancel(workflow_id)
        finally:
            store.close()
        status = views.workflow(workflow_id).status
    finally:
        views.close()
    if output is Format.JSON:
        print_json({"workflowID": workflow_id, "status": status, "canceledOps": canceled})
        return
    fields((("Workflow", workflow_id), ("Status", status), ("Canceled ops", canceled)))
