"""``scraper workflow watch``: a workflow's progress until it has ended, whoever works on it."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from cli.log import LogFormat, LogLines, logger
from cli.opening import views_of
from cli.options import EngineDb, Output
from cli.output import Format, print_json, say

if TYPE_CHECKING:
    from engine.views.progress import Progress
    from engine.views.reader import Views

_INTERVAL = 0.5
_ENDED = ("succeeded", "failed", "canceled")


def watch(
    ctx: typer.Context,
    workflow_id: Annotated[str, typer.Argument(metavar="WORKFLOW", help="Id of the workflow.")],
    engine_db: EngineDb = None,
    log_format: LogFormat = None,
    output: Output = Format.TABLE,
) -> None:
    """Show a workflow's progress until it has ended; exit 1 if it failed. Watching works on nothing itself.

    Example: scraper workflow watch books-crawl-1
    """
    with views_of(ctx, engine_db) as views:
        look = looks(views, workflow_id)
        live = log_format is None and sys.stderr.isatty()
        last = _live(look) if live else _lines(look, log_format or LogLines.TEXT)
    if output is Format.JSON:
        print_json({"workflowID": workflow_id, "status": last.status, "queues": last.queues})
    else:
        say(f"Status: {last.status}")
    if last.status != "succeeded":
        raise typer.Exit(1)


def looks(views: Views, workflow_id: str) -> Callable[[], Progress]:
    """A function that looks at the workflow. Raises UsageError where there is none."""
    from engine.clock import SystemClock
    from engine.views.progress import of_workflow
    from engine.views.reader import find_workflow

    with views.snapshot() as connection:
        pk = find_workflow(connection, workflow_id)

    def look() -> Progress:
        with views.connection() as connection:
            return of_workflow(connection, pk, SystemClock().now())

    return look


def _live(look: Callable[[], Progress]) -> Progress:
    from rich.console import Console
    from rich.live import Live

    from cli.board import Board

    board = Board()
    with Live(get_renderable=board.render, console=Console(stderr=True), refresh_per_second=4, transient=True):
        while True:
            progress = look()
            board.seen(progress)
            if progress.status in _ENDED:
                return progress
            time.sleep(_INTERVAL)


def _lines(look: Callable[[], Progress], lines: LogLines) -> Progress:
    log = logger(lines)
    told: object = None
    while True:
        progress = look()
        states: dict[str, int] = {}
        for queue in progress.queues.values():
            for state, number in queue.items():
                states[state] = states.get(state, 0) + number
        if states != told:
            log.info("progress", status=progress.status, **states)
            told = states
        if progress.status in _ENDED:
            return progress
        time.sleep(_INTERVAL)
