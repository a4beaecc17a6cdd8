"""Structured lines on stderr, for pipes and log collectors: logfmt, or one JSON object a line."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, TypeAlias

import typer

from cli.output import note


class LogLines(StrEnum):
    """What ``--log-format`` takes."""

    TEXT = "text"
    JSON = "json"


LogFormat: TypeAlias = Annotated[
    LogLines | None,
    typer.Option(
        "--log-format",
        help="Progress as lines (logfmt or JSON) instead of a live table.  [default: text in a pipe]",
        case_sensitive=False,
        show_default=False,
    ),
]


def logger(lines: LogLines) -> Any:
    """A structlog logger whose lines go to stderr, free of control characters."""
    import structlog

    renderer: Any
    if lines is LogLines.JSON:
        renderer = structlog.processors.JSONRenderer()
    else:
        renderer = structlog.processors.LogfmtRenderer(key_order=["timestamp", "level", "event"], bool_as_flag=False)
    return structlog.wrap_logger(
        _Stderr(),
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            renderer,
        ],
    )


class _Stderr:
    """The end of the chain: one line, whatever its level."""

    def msg(self, line: str) -> None:
        note(line)

    debug = info = warning = error = critical = msg
