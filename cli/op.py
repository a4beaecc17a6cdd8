"""``scraper op``: look at single ops, retry and replay them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import typer

from cli.opening import changing, views_of
from cli.options import EngineDb, OpId, OpWorkflow, Output
from cli.output import Format, fields, instant, print_json, say, table
from cli.replay import replay

if TYPE_CHECKING:
    from engine.views.types import ErrorView, OpView

app = typer.Typer(add_completion=False, rich_markup_mode=None, no_args_is_help=True)


@app.callback()
def op() -> None:
    """Look at single ops, retry and replay them.

    Example: scraper op show books-crawl-1:submit:001
    """


@app.command()
def show(
    ctx: typer.Context,
    op_id: OpId,
    workflow: OpWorkflow = None,
    engine_db: EngineDb = None,
    output: Output = Format.TABLE,
) -> None:
    """Show an op: its state, every attempt, its dependencies, what it logged, produced and failed with.

    Example: scraper op show seed --workflow books-crawl-1
    """
    with views_of(ctx, engine_db) as views:
        view = views.op(op_id, workflow)
    if output is Format.JSON:
        print_json(view)
    else:
        _print(view)


def _print(view: OpView) -> None:
    optional = (
        ("Dedup key", view.dedup_key),
        ("Parent", view.parent_id),
        ("Script", view.metadata.get("script")),
        ("Ready at", instant(view.ready_at)),
        ("Error", _error(view.error)),
    )
    fields(
        (
            ("Op", view.id),
            ("Workflow", view.workflow_id),
            ("Site", view.site),
            ("Kind", view.kind),
            ("Queue", view.queue),
            ("Status", view.status),
            *(pair for pair in optional if pair[1]),
            ("Created", instant(view.created_at)),
            ("Updated", instant(view.updated_at)),
            ("Input", json.dumps(view.input, ensure_ascii=False)),
            ("Data", json.dumps(view.data, ensure_ascii=False)),
            ("Records", view.records),
            ("Emitted ops", len(view.emitted_ids)),
        )
    )
    _section(
        "Dependencies",
        ("OP", "REQUIRED", "STATUS"),
        [(one.op_id, "yes" if one.required else "no", one.status) for one in view.dependencies],
    )
    _section(
        "Attempts",
        ("ATTEMPT", "STATE", "WORKER", "CLAIMED", "STARTED", "ENDED", "ERROR"),
        [
            (
                one.number,
                one.state,
                one.worker,
                instant(one.claimed_at),
                instant(one.started_at),
                instant(one.ended_at),
                _error(one.error),
            )
            for one in view.attempts
        ],
    )
    _section(
        "Artifacts",
        ("ARTIFACT", "NAME", "KIND", "TYPE", "BYTES"),
        [(one.id, one.name, one.kind, one.content_type, one.size) for one in view.artifacts],
    )
    _section("Log", ("TIME", "MESSAGE"), [(instant(one.logged_at), one.message) for one in view.logs])


def _error(error: ErrorView | None) -> str:
    return "" if error is None else error.summary


def _section(title: str, headers: tuple[str, ...], rows: list[tuple[object, ...]]) -> None:
    if rows:
        say()
        say(f"{title}:")
        table(headers, rows)


@app.command()
def logs(
    ctx: typer.Context,
    op_id: OpId,
    workflow: OpWorkflow = None,
    engine_db: EngineDb = None,
    output: Output = Format.TABLE,
) -> None:
    """Print what an op's script logged, over all its attempts.

    Example: scraper op logs books-crawl-1:submit:001
    """
    from cli.opening import reading
    from engine.views.lists import logs as logs_of

    with reading(ctx, engine_db) as connection:
        lines = logs_of(connection, op_id, workflow)
    if output is Format.JSON:
        print_json({"opID": op_id, "lines": lines})
        return
    for line in lines:
        say(f"{instant(line.logged_at)} {line.level} {line.message}")


@app.command()
def retry(
    ctx: typer.Context,
    op_id: OpId,
    workflow: OpWorkflow = None,
    engine_db: EngineDb = None,
    output: Output = Format.TABLE,
) -> None:
    """Run a failed op again, and revive the ops that were canceled because of it.

    Example: scraper op retry books-crawl-1:submit:001
    """
    with changing(ctx, engine_db) as store:
        revived = store.retry(op_id, workflow)
    if output is Format.JSON:
        print_json({"opID": op_id, "readyAgain": revived})
        return
    fields((("Op", op_id), ("Ops run again", revived)))


app.command()(replay)
