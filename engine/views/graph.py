"""The graph of a workflow's ops, and the tree in which people read it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import Connection, select

from engine.store.schema import edge, op, workflow

#: Edges are read a slice of ops at a time.
_SLICE = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """An op as a node. ``emitted_by`` is "" for ops of the submission."""

    id: str
    kind: str
    status: str
    emitted_by: str
    after: tuple[str, ...]

    @property
    def above(self) -> str:
        """The op it hangs below in a tree: the last one it waits for, else the one that emitted it, else ""."""
        return self.after[-1] if self.after else self.emitted_by


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """The ops of a workflow in the order they were made."""

    workflow_id: str
    nodes: Mapping[str, Node]

    def children(self) -> dict[str, list[Node]]:
        """Node id ("" = the workflow) to what hangs below it."""
        below: dict[str, list[Node]] = {}
        for node in self.nodes.values():
            below.setdefault(node.above if node.above in self.nodes else "", []).append(node)
        return below

    def levels(self) -> list[list[Node]]:
        """The nodes by their distance from the roots: every node comes after all it waits for."""
        depth: dict[str, int] = {}
        for node in self.nodes.values():
            before = [depth[name] for name in (*node.after, node.emitted_by) if name in depth]
            depth[node.id] = max(before, default=-1) + 1
        rows: list[list[Node]] = [[] for _ in range(max(depth.values(), default=-1) + 1)]
        for name, level in depth.items():
            rows[level].append(self.nodes[name])
        return rows

    @property
    def statuses(self) -> Counter[str]:
        """How many ops are in which state."""
        return Counter(node.status for node in self.nodes.values())


def load_graph(connection: Connection, workflow_pk: int) -> Graph:
    """The graph of a workflow."""
    name = connection.execute(select(workflow.c.id).where(workflow.c.pk == workflow_pk)).scalar_one()
    query = select(op.c.pk, op.c.id, op.c.kind, op.c.status, op.c.parent_id).where(op.c.workflow_pk == workflow_pk)
    rows = connection.execute(query.order_by(op.c.pk)).all()
    names = {row.pk: row.id for row in rows}
    after: dict[int, list[int]] = {}
    keys = list(names)
    for start in range(0, len(keys), _SLICE):
        first, last = keys[start], keys[min(start + _SLICE, len(keys)) - 1]
        edges = (
            select(edge.c.op_pk, edge.c.target_pk)
            .join(op, op.c.pk == edge.c.op_pk)
            .where(op.c.workflow_pk == workflow_pk, edge.c.op_pk >= first, edge.c.op_pk <= last)
            .order_by(edge.c.op_pk, edge.c.target_pk)
        )
        for row in connection.execute(edges):
            after.setdefault(row.op_pk, []).append(row.target_pk)
    nodes = {
        row.id: Node(
            id=row.id,
            kind=row.kind,
            status="unknown" if row.status == "unborn" else row.status,
            emitted_by=row.parent_id or "",
            after=tuple(names[pk] for pk in after.get(row.pk, ()) if pk in names),
        )
        for row in rows
    }
    return Graph(workflow_id=name, nodes=nodes)
