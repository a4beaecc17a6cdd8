"""Putting new ops into the graph: ids, forward references, dedup keys, edges. Shared by submission and settling.

Planning reads and decides without writing, one emitter after another, so that a refused emitter takes nobody along;
:meth:`GraphPlan.write` then writes what all the accepted ones asked for.
"""

from __future__ import annotations

import graphlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sqlalchemy import Connection, bindparam, insert, select, tuple_, update

from engine.clock import Micros
from engine.dialect import Among, insert_or_ignore
from engine.errors import OpError
from engine.model import EdgeKind, NewOp, OpStatus
from engine.store.batches import IN_LIMIT, batches
from engine.store.prepared import Prepared
from engine.store.rows import dumps, retry_json, spec_hash
from engine.store.schema import edge, op, op_alias

UNBORN = "unborn"
_ENDED = (OpStatus.SUCCEEDED, OpStatus.FAILED, OpStatus.CANCELED)

#: (workflow surrogate, visible id)
Key = tuple[int, str]


@dataclass(slots=True)
class Node:
    """An op as planning sees it: stored, or to be inserted (``pk`` 0)."""

    key: Key
    pk: int
    kind: str
    status: str
    spec_hash: str
    reserved_by: int | None = None
    attempts: int = 0
    #: To be written; None for ops that stand.
    spec: NewOp | None = None
    lane: tuple[int, int] = (0, 0)
    edges: dict[Key, EdgeKind] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Inserted:
    """What became of the planned ops."""

    ready: tuple[tuple[int, int, int, Micros], ...]  # (op, workflow, lane, ready_at)
    pending: tuple[tuple[int, int], ...]  # (op, workflow)
    doomed: tuple[tuple[int, int], ...]  # (op, the failed dependency)
    met: tuple[int, ...] = ()  # waiting ops, once for each dependency that an alias turned out to satisfy


def find_cycle(ops: Sequence[NewOp]) -> list[str] | None:
    """A dependency cycle among ``ops``, spelled out, or None."""
    graph = {spec.id: [dependency.op_id for dependency in spec.depends_on] for spec in ops if spec.depends_on}
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return [str(node) for node in error.args[1]]
    return None


class GraphPlan:
    """The new ops of one transaction."""

    def __init__(self, connection: Connection, lanes: Callable[[NewOp], tuple[int, int]], now: Micros) -> None:
        self._connection = connection
        self._lanes = lanes
        self._now = now
        self._nodes: dict[Key, Node] = {}
        self._aliases: dict[Key, Key] = {}
        self._new_aliases: dict[Key, Key] = {}
        self._dedup: dict[tuple[int, str, str], Key] = {}
        #: Of the ops that were checked last under these ids.
        self._hashes: dict[Key, str] = {}

    def load(self, specs: Iterable[tuple[int, NewOp]]) -> None:
        """Read, and lock in order, every stored op that the specs may touch: by id, dependency or dedup key."""
        ids: set[Key] = set()
        keys: set[tuple[int, str, str]] = set()
        for workflow, spec in specs:
            ids.add((workflow, spec.id))
            ids.update((workflow, dependency.op_id) for dependency in spec.depends_on)
            if spec.dedup_key:
                keys.add((workflow, spec.kind, spec.dedup_key))
        self._load_aliases(ids)
        ids.update(self._aliases.values())
        found = set(self._find(ids).values())
        for batch in batches(sorted(keys), IN_LIMIT):
            query = select(op.c.pk).where(
                tuple_(op.c.workflow_pk, op.c.kind, op.c.dedup_key).in_(batch), op.c.dedup_key != ""
            )
            found.update(self._connection.scalars(query))
        for row in self._locked(found):
            node = Node((row.workflow_pk, row.id), row.pk, row.kind, row.status, row.spec_hash)
            node.reserved_by, node.attempts = row.reserved_by, row.attempts
            self._nodes[node.key] = node
            if row.dedup_key:
                self._dedup[row.workflow_pk, row.kind, row.dedup_key] = node.key

    def _load_aliases(self, ids: set[Key]) -> None:
        for workflow, names in _by_workflow(ids):
            for row in _ALIASES.rows(self._connection, workflow=workflow, ids=names):
                self._aliases[workflow, row.alias] = (workflow, row.id)

    def _find(self, keys: set[Key]) -> dict[Key, int]:
        """The surrogates of those that are stored."""
        return {
            (workflow, row.id): row.pk
            for workflow, names in _by_workflow(keys)
            for row in _PKS.rows(self._connection, workflow=workflow, ids=names)
        }

    def _locked(self, pks: Iterable[int]) -> list[Any]:
        return _LOCKED.rows(self._connection, pks=sorted(pks)) if pks else []

    def check(self, workflow: int, specs: Sequence[NewOp], emitter: int | None) -> None:
        """Whether the ops of one emitter can stand. Raises OpError (``duplicate_op_id``, ``dependency_cycle``)."""
        cycle = find_cycle(specs)
        if cycle:
            raise OpError("dependency_cycle", f"the ops depend on each other in a circle: {' -> '.join(cycle)}")
        fresh: dict[str, str] = {}
        for spec in specs:
            digest = spec_hash(spec)
            standing = self._standing(workflow, spec.id)
            known = fresh.get(spec.id) or (standing.spec_hash if standing is not None else None)
            if known is not None and known != digest and not self._free_for(standing, emitter):
                raise OpError(
                    "duplicate_op_id",
                    f'op id "{spec.id}" is taken by another op of this workflow (kind '
                    f'"{standing.kind if standing else spec.kind}"); the new one has kind "{spec.kind}"',
                )
            fresh[spec.id] = self._hashes[workflow, spec.id] = digest

    def accept(self, workflow: int, specs: Sequence[NewOp]) -> None:
        """Take the ops of one emitter, which :meth:`check` found good, into the plan."""
        for spec in specs:
            self._accept(workflow, spec, self._hashes[workflow, spec.id])

    def _standing(self, workflow: int, op_id: str) -> Node | None:
        key = self._resolve((workflow, op_id))
        node = self._nodes.get(key)
        return None if node is None or (node.status == UNBORN and node.reserved_by is None) else node

    @staticmethod
    def _free_for(node: Node | None, emitter: int | None) -> bool:
        return node is not None and node.status == UNBORN and node.reserved_by == emitter

    def _accept(self, workflow: int, spec: NewOp, digest: str) -> None:
        key = (workflow, spec.id)
        standing = self._nodes.get(self._resolve(key))
        if standing is not None and standing.status != UNBORN:
            return
        if spec.dedup_key:
            holder = self._dedup.get((workflow, spec.kind, spec.dedup_key))
            if holder is not None and holder != key:
                self._new_aliases[key] = holder
                return
            self._dedup[workflow, spec.kind, spec.dedup_key] = key
        node = standing or Node(key, 0, spec.kind, UNBORN, digest)
        node.spec, node.kind, node.spec_hash = spec, spec.kind, digest
        node.status, node.lane = "new", self._lanes(spec)
        node.edges = {(workflow, dependency.op_id): dependency.kind for dependency in spec.depends_on}
        self._nodes[key] = node

    def _resolve(self, key: Key) -> Key:
        seen: set[Key] = set()
        while key not in seen:
            seen.add(key)
            following = self._new_aliases.get(key) or self._aliases.get(key)
            if following is None:
                return key
            key = following
        return key

    def write(self) -> Inserted:
        """Insert ops, placeholders, edges and aliases."""
        new = [node for node in self._nodes.values() if node.spec is not None]
        for node in new:
            node.edges = {self._resolve(key): kind for key, kind in node.edges.items()}
        placeholders = {key for node in new for key in node.edges} - self._nodes.keys()
        placeholders |= {key for key in self._new_aliases.values() if key not in self._nodes}
        self._insert_placeholders(placeholders)
        self._insert_ops(new)
        inserted = self._insert_edges(new)
        met, doomed = self._write_aliases()
        return replace(inserted, met=met, doomed=inserted.doomed + doomed)

    def _insert_placeholders(self, keys: set[Key], reservation: dict[str, Any] | None = None) -> None:
        if not keys:
            return
        common = _BLANK | {"created_at": self._now, "updated_at": self._now, "reserved_by": None} | (reservation or {})
        hashes = common.pop("hashes", {})
        rows = [
            common | {"workflow_pk": key[0], "id": key[1], "spec_hash": hashes.get(key, "")} for key in sorted(keys)
        ]
        self._connection.execute(insert_or_ignore(self._connection, op), rows)
        for row in self._locked(self._find(keys).values()):
            # somebody else may have given birth to the id in the meantime
            key = (row.workflow_pk, row.id)
            self._nodes[key] = Node(key, row.pk, row.kind, row.status, row.spec_hash, attempts=row.attempts)

    def _insert_ops(self, new: list[Node]) -> None:
        unborn = [node for node in new if node.pk]
        absent = [node for node in new if not node.pk]
        if unborn:
            statement = update(op).where(op.c.pk == bindparam("_pk"))
            self._connection.execute(
                statement, [{"_pk": node.pk, "reserved_by": None} | self._columns(node) for node in unborn]
            )
        if absent:
            _INSERT.many(self._connection, [self._columns(node) for node in absent])
            pks = self._find({node.key for node in absent})
            for node in absent:
                node.pk = pks[node.key]

    def _columns(self, node: Node) -> dict[str, Any]:
        spec = node.spec
        assert spec is not None
        unmet = sum(1 for key, kind in node.edges.items() if not self._is_met(key, kind))
        node.status = OpStatus.PENDING if unmet else OpStatus.READY
        lane, queue = node.lane
        return {
            "workflow_pk": node.key[0],
            "id": spec.id,
            "kind": spec.kind,
            "site": spec.site,
            "queue_pk": queue,
            "lane_pk": lane,
            "dedup_key": spec.dedup_key,
            "parent_id": spec.parent_id,
            "input_json": spec.input,
            "metadata_json": dumps(dict(spec.metadata)) if spec.metadata else "{}",
            "retry_json": retry_json(spec.retry),
            "spec_hash": node.spec_hash,
            "status": str(node.status),
            "unmet": unmet,
            "not_before": spec.not_before,
            "ready_at": max(self._now, spec.not_before),
            "created_at": self._now,
            "updated_at": self._now,
        }

    def _is_met(self, key: Key, kind: EdgeKind) -> bool:
        target = self._nodes.get(key)
        if target is None:
            return False
        match kind:
            case EdgeKind.SUCCESS:
                return target.status == OpStatus.SUCCEEDED
            case EdgeKind.TERMINAL:
                return target.status in _ENDED
            case EdgeKind.SETTLED | EdgeKind.BEGUN:
                return target.status in _ENDED or (target.status == OpStatus.READY and target.attempts > 0)

    def _write_aliases(self) -> tuple[tuple[int, ...], tuple[tuple[int, int], ...]]:
        met: list[int] = []
        doomed: list[tuple[int, int]] = []
        for key in sorted(self._new_aliases):
            holder = self._nodes[self._resolve(key)]
            self._connection.execute(insert(op_alias), {"workflow_pk": key[0], "alias": key[1], "op_pk": holder.pk})
            dropped = self._nodes.get(key)
            if dropped is not None and dropped.status == UNBORN and dropped.pk:
                self._redirect(dropped, holder, met, doomed)
        return tuple(met), tuple(doomed)

    def _redirect(self, dropped: Node, holder: Node, met: list[int], doomed: list[tuple[int, int]]) -> None:
        """Whoever waits for an id that was deduplicated away waits for the op that stands."""
        waiting = self._connection.execute(select(edge).where(edge.c.target_pk == dropped.pk, ~edge.c.satisfied)).all()
        owners = [row.op_pk for row in waiting]
        already = set(
            self._connection.scalars(
                select(edge.c.op_pk).where(edge.c.target_pk == holder.pk, edge.c.op_pk.in_(owners))
            )
        )
        for row in waiting:
            kind = EdgeKind(row.kind)
            this = update(edge).where(edge.c.op_pk == row.op_pk, edge.c.target_pk == dropped.pk)
            if row.op_pk in already or self._is_met(holder.key, kind):
                self._connection.execute(this.values(satisfied=True))
                met.append(row.op_pk)
            else:
                self._connection.execute(this.values(target_pk=holder.pk))
                if kind is EdgeKind.SUCCESS and holder.status in (OpStatus.FAILED, OpStatus.CANCELED):
                    doomed.append((row.op_pk, holder.pk))

    def _insert_edges(self, new: list[Node]) -> Inserted:
        rows, doomed = [], []
        for node in new:
            for key, kind in node.edges.items():
                target = self._nodes[key]
                met = self._is_met(key, kind)
                rows.append({"op_pk": node.pk, "target_pk": target.pk, "kind": kind.value, "satisfied": met})
                if kind is EdgeKind.SUCCESS and target.status in (OpStatus.FAILED, OpStatus.CANCELED):
                    doomed.append((node.pk, target.pk))
        _INSERT_EDGE.many(self._connection, rows)
        ready, pending = [], []
        for node in new:
            if node.status == OpStatus.READY:
                assert node.spec is not None
                ready.append((node.pk, node.key[0], node.lane[0], max(self._now, node.spec.not_before)))
            else:
                pending.append((node.pk, node.key[0]))
        return Inserted(tuple(ready), tuple(pending), tuple(doomed))

    def reserve(self, emitter: int) -> None:
        """Hold the accepted ids for ``emitter`` without creating the ops. Used before its site DB commits."""
        new = {node.key: node for node in self._nodes.values() if node.spec is not None}
        absent = {key for key, node in new.items() if not node.pk}
        hashes = {key: new[key].spec_hash for key in absent}
        for key in absent:
            del self._nodes[key]
        self._insert_placeholders(absent, {"reserved_by": emitter, "hashes": hashes})
        held = [
            {"_pk": node.pk, "reserved_by": emitter, "spec_hash": node.spec_hash}
            for key, node in new.items()
            if key not in absent
        ]
        if held:
            self._connection.execute(update(op).where(op.c.pk == bindparam("_pk")), held)


def _by_workflow(keys: Iterable[Key]) -> list[tuple[int, list[str]]]:
    names: dict[int, list[str]] = defaultdict(list)
    for workflow, name in sorted(keys):
        names[workflow].append(name)
    return list(names.items())


_INSERT = Prepared(insert(op))
_INSERT_EDGE = Prepared(insert(edge))
_PKS = Prepared(select(op.c.id, op.c.pk).where(op.c.workflow_pk == bindparam("workflow"), Among(op.c.id, "ids")))
_ALIASES = Prepared(
    select(op_alias.c.alias, op.c.id)
    .join(op, op.c.pk == op_alias.c.op_pk)
    .where(op_alias.c.workflow_pk == bindparam("workflow"), Among(op_alias.c.alias, "ids"))
)
_LOCKED = Prepared(
    select(op.c.pk, op.c.workflow_pk, op.c.id, op.c.kind, op.c.status, op.c.spec_hash)
    .add_columns(op.c.reserved_by, op.c.attempts, op.c.dedup_key)
    .where(Among(op.c.pk, "pks"))
    .order_by(op.c.pk)
    .with_for_update()
)

_BLANK: dict[str, Any] = {
    "kind": "",
    "site": "",
    "dedup_key": "",
    "input_json": "null",
    "metadata_json": "{}",
    "retry_json": "{}",
    "status": UNBORN,
    "unmet": 0,
    "not_before": 0,
    "ready_at": 0,
}
