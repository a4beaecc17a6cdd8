"""Options that several commands share."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import typer

from cli.output import Format

EngineDb: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--engine-db",
        metavar="PATH|URL",
        help="Engine database: a path, or a SQLAlchemy URL.  [default: state/engine.db]",
        show_default=False,
    ),
]
OpId: TypeAlias = Annotated[str, typer.Argument(metavar="OP", help="Id of the op.")]
OpWorkflow: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--workflow", metavar="ID", help="The op's workflow, where several have an op of that id.", show_default=False
    ),
]
SitesDir: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--sites-dir",
        metavar="DIR",
        help="Directory of the SQLite site databases.  [default: state/sites]",
        show_default=False,
    ),
]
WorkflowId: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--workflow-id",
        metavar="ID",
        help="Id of the new workflow.  [default: SITE-VERB-NANOSECONDS]",
        show_default=False,
    ),
]
Wait: TypeAlias = Annotated[
    bool | None,
    typer.Option(
        "--wait/--no-wait",
        help="Work in this process until the workflow has ended; exit 1 if it failed.",
        show_default=False,
    ),
]
Output: TypeAlias = Annotated[
    Format, typer.Option("--output", "-o", help="A table for people, or JSON for programs.", case_sensitive=False)
]
RunOutput: TypeAlias = Annotated[
    Format | None,
    typer.Option(
        "--output",
        help="A table for people, or JSON for programs.  [default: table]",
        case_sensitive=False,
        show_default=False,
    ),
]
