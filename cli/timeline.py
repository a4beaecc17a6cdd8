"""The hooks of a snapshot over time: a table for terminals, a page with a Gantt chart for browsers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.projection.archive_views import ResultView, SnapshotView

HEADERS = ("STEP", "HOOK", "BG", "STATUS", "START", "SECONDS", "EXIT", "SIZE", "OUTPUT")
_COLORS = {
    "succeeded": "#2e7d32",
    "failed": "#c62828",
    "backoff": "#ef6c00",
    "skipped": "#9e9e9e",
    "noresults": "#607d8b",
    "started": "#1565c0",
    "canceled": "#6a1b9a",
}
_STYLE = """body{font:14px/1.4 system-ui,sans-serif;margin:2rem;color:#222}h1{font-size:1.2rem;overflow-wrap:anywhere}
table{border-collapse:collapse;width:100%}td,th{padding:.2rem .5rem;text-align:left;border-bottom:1px solid #eee}
td.bar{width:50%;position:relative;min-width:14rem}i{position:absolute;top:.35rem;height:.9rem;border-radius:3px;
min-width:2px}.bg i{opacity:.55}small{color:#666}"""


def cells(results: Sequence[ResultView]) -> list[tuple[object, ...]]:
    """A row for each hook; starts are seconds since the first one."""
    zero = _zero(results)
    return [
        (
            one.step,
            f"{one.plugin}/{one.hook}",
            "yes" if one.background else "",
            one.status,
            _number(_since(zero, one.start)),
            _number(_length(one)),
            one.exit_code,
            one.size or "",
            one.error or one.output[:80],
        )
        for one in results
    ]


def page(snapshot: SnapshotView, results: Sequence[ResultView]) -> str:
    """A self-contained page."""
    zero = _zero(results)
    ends = [_since(zero, one.end) or _since(zero, one.start) or 0.0 for one in results]
    total = max([*ends, 0.001])
    rows = "\n".join(_row(one, zero, total) for one in results)
    title = escape(snapshot.title or snapshot.url)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>{_STYLE}</style>'
        f"</head><body><h1>{title}</h1><p>{escape(snapshot.url)}<br><small>{escape(snapshot.id)} - {snapshot.status},"
        f" {len(results)} hooks, {total:.2f} s</small></p>\n<table><tr><th>step<th>hook<th>status<th>seconds<th></tr>\n"
        f"{rows}\n</table></body></html>\n"
    )


def _row(one: ResultView, zero: float, total: float) -> str:
    start, length = _since(zero, one.start), _length(one)
    bar = ""
    if start is not None:
        left, width = 100 * start / total, 100 * (length or 0.0) / total
        color = _COLORS.get(one.status, "#444")
        bar = f'<i style="left:{left:.2f}%;width:{width:.2f}%;background:{color}" title="{start:.3f} s"></i>'
    remark = escape(one.error or one.output[:200])
    return (
        f'<tr class="{"bg" if one.background else "fg"}"><td>{one.step}<td>{escape(f"{one.plugin}/{one.hook}")}'
        f"<br><small>{remark}</small><td>{one.status}<td>{_number(length)}<td class=bar>{bar}</tr>"
    )


def _instant(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def _zero(results: Sequence[ResultView]) -> float:
    return min((_instant(one.start) for one in results if one.start), default=0.0)


def _since(zero: float, text: str | None) -> float | None:
    return None if text is None else _instant(text) - zero


def _length(one: ResultView) -> float | None:
    return None if one.start is None or one.end is None else _instant(one.end) - _instant(one.start)


def _number(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds:.2f}"
