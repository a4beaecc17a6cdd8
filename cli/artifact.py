"""``scraper artifact``: the bytes that ops produced."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from cli.opening import Limit, Offset, chosen, reading, show_list
from cli.options import EngineDb, Output
from cli.output import Format, fields, print_json

app = typer.Typer(add_completion=False, rich_markup_mode=None, no_args_is_help=True)

Id = Annotated[str, typer.Argument(metavar="ARTIFACT", help="Id of the artifact.")]
Workflow = Annotated[
    str | None,
    typer.Option(
        "--workflow", metavar="ID", help="The artifact's workflow, where several have that id.", show_default=False
    ),
]


@app.callback()
def artifact() -> None:
    """List, print and save artifacts: page bodies, and whatever scripts kept.

    Example: scraper artifact list books-crawl-1
    """


@app.command("list")
def list_(
    ctx: typer.Context,
    workflow_id: Annotated[str, typer.Argument(metavar="WORKFLOW", help="Id of the workflow.")],
    op: Annotated[str | None, typer.Option("--op", metavar="OP", help="Only of this op.", show_default=False)] = None,
    limit: Limit = 50,
    offset: Offset = 0,
    engine_db: EngineDb = None,
    output: Output = Format.TABLE,
) -> None:
    """List the artifacts of a workflow, or of one op of it.

    Example: scraper artifact list books-crawl-1 --op fetch:list:1
    """
    from engine.store.operate import find_op
    from engine.views.lists import artifacts
    from engine.views.reader import find_workflow

    with reading(ctx, engine_db) as connection:
        workflow_pk = find_workflow(connection, workflow_id)
        op_pk = find_op(connection, op, workflow_id)[0] if op is not None else None
        lines = artifacts(connection, workflow_pk, op_pk, chosen(limit=limit, offset=offset))
    show_list(
        "artifacts",
        lines,
        ("ARTIFACT", "OP", "NAME", "KIND", "TYPE", "BYTES"),
        [(one.id, one.op_id, one.name, one.kind, one.content_type, one.size) for one in lines],
        output=output,
        limit=limit,
    )


@app.command()
def cat(ctx: typer.Context, artifact_id: Id, workflow: Workflow = None, engine_db: EngineDb = None) -> None:
    """Write the bytes of an artifact to stdout, as they are.

    Example: scraper artifact cat fetch:list:1:body > page.html
    """
    body = _body(ctx, artifact_id, workflow, engine_db)
    sys.stdout.flush()
    sys.stdout.buffer.write(body)
    sys.stdout.buffer.flush()


@app.command()
def save(
    ctx: typer.Context,
    artifact_id: Id,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="File to write; an existing one is left alone.")],
    workflow: Workflow = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.", show_default=False)] = False,
    engine_db: EngineDb = None,
    output: Output = Format.TABLE,
) -> None:
    """Save the bytes of an artifact to a file.

    Example: scraper artifact save fetch:list:1:body page.html
    """
    from engine.errors import UsageError

    body = _body(ctx, artifact_id, workflow, engine_db)
    try:
        with file.open("wb" if force else "xb") as target:
            target.write(body)
    except FileExistsError as error:
        raise UsageError(f"{file} exists: name another file, or use --force") from error
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}") from error
    if output is Format.JSON:
        print_json({"artifactID": artifact_id, "file": file, "bytes": len(body)})
        return
    fields((("Artifact", artifact_id), ("File", file), ("Bytes", len(body))))


def _body(ctx: typer.Context, artifact_id: str, workflow: str | None, engine_db: str | None) -> bytes:
    from engine.views.lists import artifact_body

    with reading(ctx, engine_db) as connection:
        return artifact_body(connection, artifact_id, workflow)
