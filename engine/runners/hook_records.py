"""What the records of a running hook mean: children, tags, titles, and its own result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from engine.hooks.graph import CrawlSpec, Scope, snapshot_op
from engine.hooks.machine import machine_config
from engine.hooks.records import HookRecord, text_in
from engine.hooks.urls import identifier, normalised
from engine.model import NewOp
from engine.projection import archive_rows as rows
from engine.projection.archive import Statement
from engine.projection.session import Database
from engine.runners.base import RunContext
from engine.runners.hook_hands import Hands

_LONGEST_TAG = 200
#: Children looked up at once.
_LOOK_UP = 200


@dataclass(slots=True)
class Sink:
    """Takes the records of one run, batch by batch: the engine DB first, the site DB second."""

    hands: Hands
    ctx: RunContext
    spec: CrawlSpec
    scope: Scope
    result_id: str
    #: The last ArchiveResult.
    last: Mapping[str, Any] | None = None
    #: Records besides ArchiveResult that were acted upon.
    produced: int = 0
    binaries: list[Mapping[str, Any]] = field(default_factory=list)
    #: What was set for all hooks of the machine.
    machine: dict[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    async def take(self, records: Sequence[HookRecord]) -> None:
        """Act on a batch. Raises LeaseLost."""
        at = self.hands.now()
        statements: list[Statement] = []
        children: dict[str, tuple[Scope, Mapping[str, Any]]] = {}
        for record in records:
            match record.type:
                case "ArchiveResult":
                    self.last = record.data
                case "Snapshot" if self._is_own(record.data):
                    statements.extend(self._change(self.scope.id, record.data, at))
                case "Snapshot":
                    child = self._child(record)
                    if child is not None:
                        children.setdefault(child.id, (child, record.data))
                case "Tag":
                    statements.extend(self._tag(self.scope.snapshot_id, text_in(record.data, "name"), at))
                case "Crawl" if self.scope.kind == "crawl" and text_in(record.data, "label"):
                    statements.append(rows.change_crawl(self.scope.id, label=text_in(record.data, "label"), at=at))
                case "Binary":
                    self.binaries.append(record.data)
                case "Machine":
                    self._configure(record)
        if self.last is not None:
            statements.append(
                rows.say_result(
                    self.result_id,
                    text=text_in(self.last, "output_str"),
                    value=self.last.get("output_json"),
                    at=at,
                )
            )
        statements.extend(await self._adopt(children, at))
        self.produced += sum(record.type != "ArchiveResult" for record in records)
        await self.hands.write(self.ctx, statements, line=records[-1].line)
        if self.machine:
            # whoever has lost the op got no further than the line above
            await self.ctx.configure_machine(self.machine)
            self.machine = {}

    def _configure(self, record: HookRecord) -> None:
        found = machine_config(record.data)
        if not found:
            self._warn(f"line {record.line}: a Machine that sets nothing a hook may set: ignored")
        self.machine.update(found)

    def _is_own(self, data: Mapping[str, Any]) -> bool:
        return self.scope.kind == "snapshot" and data.get("id") == self.scope.id

    def _change(self, snapshot_id: str, data: Mapping[str, Any], at: str) -> list[Statement]:
        statements: list[Statement] = []
        title = text_in(data, "title", 1_000)
        if title:
            statements.append(rows.change_snapshot(snapshot_id, title=title, at=at))
        for name in text_in(data, "tags").split(","):
            statements.extend(self._tag(snapshot_id, name, at))
        return statements

    def _tag(self, snapshot_id: str | None, name: str, at: str) -> list[Statement]:
        name = name.strip()[:_LONGEST_TAG]
        return rows.add_tag(snapshot_id, name, at) if name and snapshot_id is not None else []

    def _child(self, record: HookRecord) -> Scope | None:
        url = normalised(text_in(record.data, "url"))
        if url is None:
            self._warn(f"line {record.line}: a Snapshot without a URL that can be fetched: ignored")
            return None
        depth = self._depth(record.data)
        if depth > self.spec.max_depth or not self.spec.filter.admits(url):
            return None
        return Scope(
            kind="snapshot",
            id=identifier(self.scope.crawl_id, url),
            crawl_id=self.scope.crawl_id,
            url=url,
            depth=depth,
            parent=self.scope.snapshot_id,
        )

    def _depth(self, data: Mapping[str, Any]) -> int:
        told = data.get("depth")
        if isinstance(told, int) and not isinstance(told, bool) and told > 0:
            return told
        return self.scope.depth + 1 if self.scope.kind == "snapshot" else 0

    async def _adopt(self, children: Mapping[str, tuple[Scope, Mapping[str, Any]]], at: str) -> list[Statement]:
        """Ops for the children nobody knows yet, then the rows."""
        children = {key: value for key, value in children.items() if key != self.scope.id}
        if not children:
            return []
        known = await self.hands.projector.read(self.ctx.site, lambda database: _known(database, list(children)))
        fresh = {key: value for key, value in children.items() if key not in known}
        if fresh:
            emitter = f"{self.ctx.op.pk}.{self.ctx.lease.earlier_claims}"
            ops: list[NewOp] = [snapshot_op(self.ctx.op.site, child, emitter=emitter) for child, _ in fresh.values()]
            await self.ctx.emit(ops)
        statements: list[Statement] = []
        for child, data in fresh.values():
            statements.append(
                rows.add_snapshot(
                    child.id,
                    crawl_id=child.crawl_id,
                    parent=child.parent,
                    url=child.url,
                    depth=child.depth,
                    title=text_in(data, "title", 1_000),
                    user=self.spec.user,
                    at=at,
                )
            )
            for name in text_in(data, "tags").split(","):
                statements.extend(self._tag(child.id, name, at))
        return statements

    def _warn(self, message: str) -> None:
        if len(self.warnings) < 100:
            self.warnings.append(message)


def _known(database: Database, ids: Sequence[str]) -> set[str]:
    found: set[str] = set()
    for start in range(0, len(ids), _LOOK_UP):
        batch = ids[start : start + _LOOK_UP]
        marks = ", ".join("?" for _ in batch)
        found.update(str(row[0]) for row in database.run(f"SELECT id FROM snapshots WHERE id IN ({marks})", batch))
    return found
