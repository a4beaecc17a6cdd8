"""``scraper op replay``: run a finished op's script again, on what it had, and keep nothing."""

from __future__ import annotations

import difflib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.invocation import invocation_of
from cli.opening import views_of
from cli.options import EngineDb, OpId, OpWorkflow, Output, SitesDir
from cli.output import Format, fields, instant, jsonable, note, print_json, say
from engine.errors import UsageError

if TYPE_CHECKING:
    from engine.replay import Replay
    from engine.views.runs import Outcome


def replay(
    ctx: typer.Context,
    op_id: OpId,
    workflow: OpWorkflow = None,
    script: Annotated[
        Path | None,
        typer.Option(
            "--script",
            metavar="FILE",
            help="Script to run in place of the op's.  [default: the site's]",
            show_default=False,
        ),
    ] = None,
    diff: Annotated[
        bool,
        typer.Option(
            "--diff", help="Show what differs from the stored result; exit 1 if anything does.", show_default=False
        ),
    ] = False,
    engine_db: EngineDb = None,
    sites_dir: SitesDir = None,
    output: Output = Format.TABLE,
) -> None:
    """Run a finished js op's script again: same input, same dependencies, same ctx.now. Nothing is kept.

    What it writes to the site database is rolled back, what it emits is only shown. Exit 1 if the script fails.

    Example: scraper op replay extract:3 --workflow books-crawl-1 --script fixed.js --diff
    """
    from engine.app import replay_op

    invocation = invocation_of(ctx)
    invocation.flag("sitesDir", "--sites-dir", sites_dir)
    source = None if script is None else _source(script)
    with views_of(ctx, engine_db) as views:
        views.require()
    replayed = replay_op(invocation.settings, invocation.registry, op_id, workflow, source)
    lines = _difference(replayed)
    if output is Format.JSON:
        shown = jsonable(replayed) | {"equal": not lines}
        print_json(shown | {"diff": lines} if diff else shown)
    elif diff:
        for line in lines:
            say(line)
    else:
        _print(replayed, script)
    if diff and not lines:
        note("the replay gives the stored result")
    if (diff and lines) or (not diff and replayed.replayed.error is not None):
        raise typer.Exit(1)


def _source(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except OSError as error:
        raise UsageError(f"--script {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"--script {path} is not UTF-8 text: {error}") from error


def _difference(replay: Replay) -> list[str]:
    pair = (_lines(replay.stored), _lines(replay.replayed))
    return list(difflib.unified_diff(*pair, "stored", "replayed", lineterm=""))


def _lines(outcome: Outcome) -> list[str]:
    return _pretty(jsonable(outcome), sort_keys=True).splitlines()


def _pretty(value: Any, **how: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, **how)


def _print(replay: Replay, script: Path | None) -> None:
    outcome = replay.replayed
    fields(
        (
            ("Op", replay.op_id),
            ("Workflow", replay.workflow_id),
            ("Script", replay.script if script is None else f"{script} in place of {replay.script}"),
            ("Now", instant(replay.now_at)),
            ("Outcome", "succeeded" if outcome.error is None else f"failed: {outcome.error['code']}"),
        )
    )
    for title, value in (
        ("Data", outcome.data),
        ("Records", outcome.records),
        ("Emitted ops", outcome.emitted),
        ("Artifacts", outcome.artifacts),
        ("Error", outcome.error),
    ):
        if value or title == "Data":
            say(f"{title}:")
            say(_pretty(value))
    if outcome.log:
        say("Log:")
        for line in outcome.log:
            say(f"  {line}")
