"""``scraper workflow graph``: a workflow's ops as a tree for the terminal, as Mermaid or SVG for elsewhere."""

from __future__ import annotations

import html
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from cli.opening import reading
from cli.options import EngineDb, Output
from cli.output import Format, print_json, say

if TYPE_CHECKING:
    from engine.views.graph import Graph, Node

_MARKS = {"succeeded": "✓", "failed": "✗", "running": "▶", "canceled": "∅", "ready": "·", "pending": "…"}
_COLOURS = {
    "succeeded": "#2e7d32",
    "failed": "#c62828",
    "running": "#1565c0",
    "canceled": "#757575",
    "ready": "#ef6c00",
    "pending": "#9e9e9e",
}
_BOX_WIDTH, _BOX_HEIGHT, _GAP_X, _GAP_Y = 220, 34, 24, 46


def graph(
    ctx: typer.Context,
    workflow_id: Annotated[str, typer.Argument(metavar="WORKFLOW", help="Id of the workflow.")],
    mermaid: Annotated[bool, typer.Option("--mermaid", help="Print a Mermaid flowchart.", show_default=False)] = False,
    svg: Annotated[bool, typer.Option("--svg", help="Print an SVG picture.", show_default=False)] = False,
    most: Annotated[
        int, typer.Option("--most", metavar="N", min=1, help="Draw at most N ops below one op; the rest is counted.")
    ] = 20,
    engine_db: EngineDb = None,
    output: Output = Format.TABLE,
) -> None:
    """Draw the graph of a workflow's ops: each below the one it waits for, or the one that emitted it.

    Example: scraper workflow graph books-crawl-1 --mermaid
    """
    from engine.errors import UsageError
    from engine.views.graph import load_graph
    from engine.views.reader import find_workflow

    if mermaid and svg:
        raise UsageError("--mermaid and --svg exclude each other")
    with reading(ctx, engine_db) as connection:
        found = load_graph(connection, find_workflow(connection, workflow_id))
    if output is Format.JSON:
        print_json({"workflowID": found.workflow_id, "ops": list(found.nodes.values())})
        return
    drawn = as_mermaid(found, most) if mermaid else as_svg(found, most) if svg else as_tree(found, most)
    for line in drawn:
        say(line)


def as_tree(graph: Graph, most: int) -> Iterator[str]:
    """Lines of a tree; an op that waits for several names the others."""
    yield f"{graph.workflow_id} ({_counted(graph.statuses)})"
    below = graph.children()
    stack: list[tuple[Node | str, str, bool]] = []

    def push(children: Sequence[Node], indent: str) -> None:
        rows: list[Node | str] = list(children[:most])
        if len(children) > most:
            rest = children[most:]
            rows.append(f"… and {len(rest)} more ({_counted(Counter(node.status for node in rest))})")
        stack.extend((row, indent, index == 0) for index, row in enumerate(reversed(rows)))

    push(below.get("", []), "")
    while stack:
        row, indent, last = stack.pop()
        branch = "└─ " if last else "├─ "
        if isinstance(row, str):
            yield indent + branch + row
            continue
        others = [name for name in row.after if name != row.above]
        also = f"  (also after {', '.join(others[:3])}{', …' if len(others) > 3 else ''})" if others else ""
        yield f"{indent}{branch}{_MARKS.get(row.status, '?')} {row.id}  {row.kind} {row.status}{also}"
        push(below.get(row.id, []), indent + ("   " if last else "│  "))


def as_mermaid(graph: Graph, most: int) -> Iterator[str]:
    """A flowchart: solid arrows are dependencies, dotted ones lead from an op to what it emitted."""
    shown = _shown(graph, most)
    names = {name: f"n{index}" for index, name in enumerate(shown)}
    yield "flowchart TD"
    for name, key in names.items():
        yield f"  {key}[{json.dumps(name)}]:::{graph.nodes[name].status}"
    for name, key in names.items():
        node = graph.nodes[name]
        yield from (f"  {names[other]} --> {key}" for other in node.after if other in names)
        if node.emitted_by in names and node.emitted_by not in node.after:
            yield f"  {names[node.emitted_by]} -.-> {key}"
    for status in sorted({graph.nodes[name].status for name in names}):
        yield f"  classDef {status} stroke:{_COLOURS.get(status, '#000')},stroke-width:2px"


def as_svg(graph: Graph, most: int) -> Iterator[str]:
    """A picture in layers: every op below all it waits for."""
    shown = set(_shown(graph, most))
    rows = [row for level in graph.levels() if (row := [node for node in level if node.id in shown])]
    place = {
        node.id: (column * (_BOX_WIDTH + _GAP_X) + _GAP_X, line * (_BOX_HEIGHT + _GAP_Y) + _GAP_Y)
        for line, row in enumerate(rows)
        for column, node in enumerate(row)
    }
    width = max((len(row) for row in rows), default=1) * (_BOX_WIDTH + _GAP_X) + _GAP_X
    height = len(rows) * (_BOX_HEIGHT + _GAP_Y) + _GAP_Y
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
        ' font-family="sans-serif" font-size="11">'
    )
    yield f"<title>{html.escape(graph.workflow_id)}</title>"
    for name, (x, y) in place.items():
        node = graph.nodes[name]
        for other in dict.fromkeys((*node.after, node.emitted_by)):
            if other in place:
                dashes = "" if other in node.after else ' stroke-dasharray="4 3"'
                from_x, from_y = place[other]
                yield (
                    f'<line x1="{from_x + _BOX_WIDTH // 2}" y1="{from_y + _BOX_HEIGHT}" x2="{x + _BOX_WIDTH // 2}"'
                    f' y2="{y}" stroke="#888"{dashes}/>'
                )
    for name, (x, y) in place.items():
        node = graph.nodes[name]
        label = html.escape(name if len(name) <= 34 else f"{name[:33]}…")
        yield (
            f'<g><title>{html.escape(f"{name}: {node.kind} {node.status}")}</title><rect x="{x}" y="{y}" rx="4"'
            f' width="{_BOX_WIDTH}" height="{_BOX_HEIGHT}" fill="#fff" stroke="{_COLOURS.get(node.status, "#000")}"'
            f' stroke-width="2"/><text x="{x + 8}" y="{y + 21}">{label}</text></g>'
        )
    yield "</svg>"


def _shown(graph: Graph, most: int) -> list[str]:
    """The ops a picture draws: at most ``most`` below each."""
    below = graph.children()
    shown: list[str] = []
    waiting = list(reversed(below.get("", [])[:most]))
    while waiting:
        node = waiting.pop()
        shown.append(node.id)
        waiting.extend(reversed(below.get(node.id, [])[:most]))
    return shown


def _counted(statuses: Counter[str]) -> str:
    return ", ".join(f"{number} {status}" for status, number in sorted(statuses.items())) or "no ops"
