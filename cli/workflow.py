"""``scraper workflow``: what was submitted, how far it is, and what an operator does about it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from cli.fork import fork
from cli.opening import (
    Limit,
    Offset,
    SinceFilter,
    SiteFilter,
    StatusFilter,
    changing,
    chosen,
    reading,
    show_list,
    views_of,
)
from cli.options import EngineDb, Output
from cli.output import Format, fields, instant, print_json, say, table
from cli.watch import watch
from cli.workflow_graph import graph

if TYPE_CHECKING:
    from engine.views.types import WorkflowView

app = typer.Typer(add_completion=False, rich_markup_mode=None, no_args_is_help=True)

Id = Annotated[str, typer.Argument(metavar="WORKFLOW", help="Id of the workflow.")]


@app.callback()
def workflow() -> None:
    """Look at workflows; watch, cancel, retry, fork and delete them.

    Example: scraper workflow list --status failed
    """


@app.command("list")
def list_(
    ctx: typer.Context,
    site: SiteFilter = None,
    status: StatusFilter = None,
    since: SinceFilter = None,
    limit: Limit = 50,
    offset: Offset = 0,
    engine_db: EngineDb = None,
    output: Output = Format.TABLE,
) -> None:
    """List workflows, newest first.

    Example: scraper workflow list --site books --since 24h
    """
    from engine.model import WorkflowStatus
    from engine.views.lists import workflows

    asked = chosen(site, status, since, limit, offset, states=[one.value for one in WorkflowStatus])
    with reading(ctx, engine_db) as connection:
        lines = workflows(connection, asked)
    show_list(
        "workflows",
        lines,
        ("WORKFLOW", "SITE", "STATUS", "DONE", "OPS", "FAILED", "CREATED"),
        [
            (one.id, one.site, one.status, one.ops_done, one.ops_total, one.failed, instant(one.created_at))
            for one in lines
        ],
        output=output,
        limit=limit,
    )


@app.command()
def show(ctx: typer.Context, workflow_id: Id, engine_db: EngineDb = None, output: Output = Format.TABLE) -> None:
    """Show a workflow: its status, its ops by queue and status, and what failed.

    Example: scraper workflow show books-crawl-1 --output json
    """
    with views_of(ctx, engine_db) as views:
        view = views.workflow(workflow_id)
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
def ops(
    ctx: typer.Context,
    workflow_id: Id,
    status: StatusFilter = None,
    limit: Limit = 50,
    offset: Offset = 0,
    engine_db: EngineDb = None,
    output: Output = Format.TABLE,
) -> None:
    """List the ops of a workflow in the order they were made.

    Example: scraper workflow ops books-crawl-1 --status failed
    """
    from engine.model import OpStatus
    from engine.views.lists import ops as ops_of
    from engine.views.reader import find_workflow

    asked = chosen(None, status, None, limit, offset, states=[one.value for one in OpStatus])
    with reading(ctx, engine_db) as connection:
        lines = ops_of(connection, find_workflow(connection, workflow_id), asked)
    show_list(
        "ops",
        lines,
        ("OP", "KIND", "QUEUE", "STATUS", "CLAIMS", "ERROR"),
        [
            (one.id, one.kind, one.queue, one.status, one.attempts, one.error.summary if one.error else "")
            for one in lines
        ],
        output=output,
        limit=limit,
    )


@app.command()
def cancel(ctx: typer.Context, workflow_id: Id, engine_db: EngineDb = None, output: Output = Format.TABLE) -> None:
    """End everything of a workflow that has not ended; running ops are stopped.

    Example: scraper workflow cancel books-crawl-1
    """
    with views_of(ctx, engine_db) as views:
        _require_no_crawl(views.workflow(workflow_id))
    with changing(ctx, engine_db) as store:
        canceled = store.cancel(workflow_id)
        status = store.workflow_status(workflow_id)
    if output is Format.JSON:
        print_json({"workflowID": workflow_id, "status": status, "canceledOps": canceled})
        return
    fields((("Workflow", workflow_id), ("Status", status), ("Canceled ops", canceled)))


def _require_no_crawl(view: WorkflowView) -> None:
    """A crawl has rows in its site's database, which only its own command ends with it. Raises UsageError."""
    from engine.errors import UsageError

    if view.metadata.get("crawl") == "true":
        own = f"scraper site {view.site} crawl cancel {view.id}"
        raise UsageError(f'workflow "{view.id}" is a crawl, with rows in the database of its site: {own}')


@app.command()
def retry(ctx: typer.Context, workflow_id: Id, engine_db: EngineDb = None, output: Output = Format.TABLE) -> None:
    """Run every failed op of a workflow again, and the ops that were canceled because of them.

    Example: scraper workflow retry books-crawl-1
    """
    with changing(ctx, engine_db) as store:
        revived = store.retry_workflow(workflow_id)
    if output is Format.JSON:
        print_json({"workflowID": workflow_id, "readyAgain": revived})
        return
    fields((("Workflow", workflow_id), ("Ops run again", revived)))


@app.command()
def delete(ctx: typer.Context, workflow_id: Id, engine_db: EngineDb = None, output: Output = Format.TABLE) -> None:
    """Forget a workflow that has ended: its ops, results, artifacts and logs. What is in site databases stays.

    Example: scraper workflow delete books-crawl-1
    """
    with changing(ctx, engine_db) as store:
        deleted = store.delete_workflow(workflow_id)
    if output is Format.JSON:
        print_json({"workflowID": workflow_id, "deletedOps": deleted})
        return
    fields((("Workflow", workflow_id), ("Deleted ops", deleted)))


app.command()(watch)
app.command()(graph)
app.command()(fork)
