"""The ops around the hooks: a crawl begins, a snapshot begins, closes and is sealed, a crawl is sealed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from engine.codec import encode_result
from engine.errors import OpError
from engine.hooks.binaries import Need, needs
from engine.hooks.config import covered
from engine.hooks.graph import (
    CRAWL_END_EVENTS,
    CRAWL_EVENTS,
    Chain,
    CrawlSpec,
    Scope,
    binary_op,
    chain,
    control,
    result_id,
    seal_of,
    snapshot_op,
    wanted_hooks,
)
from engine.hooks.layout import Place, crawl_place, snapshot_place
from engine.hooks.plugins import Hook
from engine.hooks.process import bury_forgotten, end_marked, end_processes, pid_files, process_of
from engine.hooks.urls import identifier, normalised
from engine.model import Dependency, EdgeKind, NewOp, Result
from engine.projection import archive_rows as rows
from engine.projection.archive import Statement
from engine.projection.session import Database
from engine.runners.base import RunContext
from engine.runners.hook_files import make_place, mark_closed, read_text, tidy
from engine.runners.hook_hands import Hands, day_of, mark_of_crawl, mark_of_scope

#: Bytes of a snapshot's text that are searched; a tsvector takes no more than a megabyte of words and their places.
_SEARCHED = {"sqlite": 1 << 20, "postgresql": 1 << 18}
#: Tasks that work in the directory of a crawl or a snapshot.
_LOCAL = frozenset({"hook", "close", "seal", "binary"})


class ScopeRun:
    """One claim of an op that moves a crawl or a snapshot on."""

    def __init__(self, hands: Hands, ctx: RunContext) -> None:
        self._hands = hands
        self._ctx = ctx
        self._site = ctx.op.site
        self._spec = CrawlSpec.load(ctx.op.workflow.input)
        self._crawl_id = ctx.op.workflow.id
        self._given: dict[str, Any] = json.loads(ctx.op.input) or {}
        #: What hooks have set for all hooks of this machine.
        self._machine: Mapping[str, Any] = {}

    async def run(self) -> Result:
        """Do what the op's task says."""
        self._machine = (await self._ctx.machine_facts()).config
        match self._ctx.op.metadata.get("task", ""):
            case "crawl":
                return await self._begin_crawl()
            case "snapshot":
                return await self._begin_snapshot()
            case "close":
                return await self._close()
            case "seal":
                return await self._seal()
            case "check":
                return await self._check()
            case "crawl-seal":
                return await self._seal_crawl()
            case task:
                raise OpError("runner_error", f'op "{self._ctx.op.id}" of kind hook has no task "{task}"')

    @property
    def _crawl_place(self) -> Place:
        return crawl_place(self._spec.data, self._spec.user, self._crawl_id, self._spec.created)

    @property
    def _crawl_scope(self) -> Scope:
        url = self._spec.urls[0] if self._spec.urls else ""
        return Scope(
            kind="crawl", id=self._crawl_id, crawl_id=self._crawl_id, url=url, root=str(self._crawl_place.root)
        )

    def _hooks(self, *events: str) -> list[Hook]:
        plugins = self._hands.plugins(self._ctx.site, self._spec)
        return wanted_hooks(plugins, self._hands.chosen(self._ctx.site, self._spec, self._machine), events)

    def _needs(self) -> tuple[Need, ...]:
        site, spec = self._ctx.site, self._spec
        chosen = self._hands.chosen(site, spec, self._machine)
        return needs(self._hands.plugins(site, spec), chosen, self._hands.layers(site, spec, self._machine))

    async def _done(self, statements: Sequence[Statement], emitted: Iterable[NewOp], **data: Any) -> Result:
        ops = tuple(self._pinned(op) for op in emitted)
        result = Result(data=json.dumps(data, ensure_ascii=False), emitted=ops)
        await self._ctx.prepare(result)
        await self._hands.write(self._ctx, statements, outcome=encode_result(result))
        return result

    def _queued(self, scope: Scope, hooks: Sequence[Hook], first: int = 0) -> list[Statement]:
        place, at = Place(Path(scope.root)), self._hands.now()
        return [
            rows.queue_result(
                result_id(scope, hook),
                crawl_id=scope.crawl_id,
                snapshot_id=scope.snapshot_id,
                plugin=hook.plugin,
                hook=hook.name.file,
                event=hook.name.event,
                position=position,
                step=hook.name.step,
                background=hook.name.background,
                directory=str(place.plugin(hook.plugin)),
                at=at,
            )
            for position, hook in enumerate(hooks, first)
        ]

    def _pinned(self, op: NewOp) -> NewOp:
        """What works in a directory stays on the machine that has it; where the site has a home, that is its."""
        local = op.metadata.get("task") in _LOCAL and self._ctx.site.dialect == "postgresql"
        return replace(op, machine=self._ctx.machine) if local else op

    async def _begin_crawl(self) -> Result:
        spec, scope, at = self._spec, self._crawl_scope, self._hands.now()
        await asyncio.to_thread(make_place, self._crawl_place, spec.data)
        hooks = self._hooks(*CRAWL_EVENTS)
        wanted = [binary_op(self._site, spec, need, self._crawl_id) for need in self._needs()]
        found = tuple(Dependency(op.id, EdgeKind.SETTLED) for op in wanted)
        made = chain(self._site, spec, scope, hooks, found)
        statements: list[Statement] = [
            rows.add_crawl(
                self._crawl_id,
                label=spec.label,
                urls=spec.urls,
                max_depth=spec.max_depth,
                user=spec.user,
                config=covered(self._hands.plugins(self._ctx.site, spec), spec.config),
                directory=scope.root,
                at=at,
            ),
            *self._queued(scope, hooks),
        ]
        snapshots: dict[str, Scope] = {}
        for url in map(normalised, spec.urls):
            if url is not None and spec.filter.admits(url):
                name = identifier(self._crawl_id, url)
                snapshots.setdefault(name, Scope(kind="snapshot", id=name, crawl_id=self._crawl_id, url=url))
        statements.extend(
            rows.add_snapshot(
                one.id, crawl_id=self._crawl_id, parent=None, url=one.url, depth=0, title="", user=spec.user, at=at
            )
            for one in snapshots.values()
        )
        ops = [*wanted, *made.ops, *(snapshot_op(self._site, one, made.last) for one in snapshots.values())]
        after = [*(seal_of(name) for name in snapshots), *made.last, *_foreground(made)]
        given = {"number": 1, "waited": list(snapshots), "lasting": _names(made.lasting), "finite": _names(made.finite)}
        ops.append(control(self._site, "check:1", "check", given, _distinct(after)))
        return await self._done(statements, ops, snapshots=len(snapshots), hooks=len(hooks))

    async def _begin_snapshot(self) -> Result:
        spec, at = self._spec, self._hands.now()
        scope = Scope(**self._given)
        place = snapshot_place(spec.data, spec.user, scope.id, scope.url, self._ctx.op.created_at)
        await asyncio.to_thread(make_place, place, spec.data)
        scope = replace(scope, root=str(place.root))
        hooks = self._hooks("Snapshot")
        made = chain(self._site, spec, scope, hooks)
        # a child's row may not be there yet: its op comes first
        row = rows.add_snapshot(
            scope.id,
            crawl_id=scope.crawl_id,
            parent=scope.parent,
            url=scope.url,
            depth=scope.depth,
            title="",
            user=spec.user,
            at=at,
        )
        statements = [row, rows.start_snapshot(scope.id, scope.root, at), *self._queued(scope, hooks)]
        if scope.round > 1:
            statements += [rows.begin_round(scope.id, scope.round), rows.requeue(scope.id, at)]
        given = {"scope": asdict(scope), "lasting": _names(made.lasting), "hooks": len(hooks)}
        close = control(
            self._site, f"close:{scope.id}{scope.suffix}", "close", given, _distinct([*made.finite, *made.last])
        )
        return await self._done(statements, [*made.ops, close], hooks=len(hooks))

    async def _close(self) -> Result:
        """All but the daemons is over: they end, and the hooks of the end run."""
        scope = Scope(**self._given["scope"])
        if not await self._is_current(scope):
            gone = control(self._site, f"seal:{scope.id}{scope.suffix}", "seal", {"scope": asdict(scope)})
            return await self._done([], [gone], superseded=True)
        await asyncio.to_thread(mark_closed, Place(Path(scope.root)))
        hooks = self._hooks("SnapshotEnd")
        first = int(self._given["hooks"])
        made = chain(self._site, self._spec, scope, hooks, first=first)
        after = [*made.finite, *made.lasting, *_settled(self._given["lasting"])]
        seal = control(self._site, f"seal:{scope.id}{scope.suffix}", "seal", {"scope": asdict(scope)}, _distinct(after))
        return await self._done(self._queued(scope, hooks, first), [*made.ops, seal], hooks=len(hooks))

    async def _seal(self) -> Result:
        scope, again = Scope(**self._given["scope"]), self._given.get("again", "")
        place = Place(Path(scope.root))
        if not await self._is_current(scope):
            return await self._done([], [], superseded=True)
        if again and not await self._sealed_before("snapshots", scope.id):
            return await self._done([], [], premature=True)
        running = await self._running("snapshot_id", scope.id)
        if not running:
            await self._sweep(mark_of_scope(self._ctx.engine_uuid, self._crawl_id, scope.id), place)
        statements = rows.seal_snapshot(scope.id, self._hands.now())
        statements.extend(await self._text(scope, place))
        ops = [control(self._site, f"check:{again}", "check", {"again": again})] if again else []
        return await self._done(statements, ops, running=running)

    async def _check(self) -> Result:
        """Whether more snapshots have come; if not, the crawl closes."""
        number, waited = int(self._given.get("number", 1)), set(self._given.get("waited", ()))
        again = self._given.get("again", "")
        if again.startswith("r") and number == 1 and not await self._sealed_before("crawls", self._crawl_id):
            return await self._done([], [], premature=True)
        found = await self._hands.projector.read(self._ctx.site, lambda database: _unsealed(database, self._crawl_id))
        fresh = [name for name in found if name not in waited]
        if fresh:
            given = {**self._given, "number": number + 1, "waited": fresh}
            name = f"check:{again and f'{again}:'}{number + 1}"
            following = control(self._site, name, "check", given, map(seal_of, fresh))
            return await self._done([], [following], waiting=len(fresh))
        scope, name = self._crawl_scope, again or "1"
        given = {"finite": [], "lasting": []} | self._given
        await asyncio.to_thread(mark_closed, self._crawl_place)
        hooks = [] if again else self._hooks(*CRAWL_END_EVENTS)
        first = len(given["finite"]) + len(given["lasting"])
        made = chain(self._site, self._spec, scope, hooks, _distinct(_settled(given["finite"])), first=first)
        after = [*made.finite, *made.lasting, *_settled([*given["finite"], *given["lasting"]])]
        seal = control(self._site, f"crawl-seal:{name}", "crawl-seal", {"waited": found}, _distinct(after))
        return await self._done(self._queued(scope, hooks, first), [*made.ops, seal], hooks=len(hooks))

    async def _seal_crawl(self) -> Result:
        running = await self._running("crawl_id", self._crawl_id)
        if not running:
            await self._sweep(mark_of_crawl(self._ctx.engine_uuid, self._crawl_id), self._crawl_place)
        found = await self._hands.projector.read(self._ctx.site, lambda database: _unsealed(database, self._crawl_id))
        ops = []
        if set(found) - set(self._given.get("waited", ())):
            # a retry brought them meanwhile
            again = f"s{self._ctx.op.pk}"
            ops.append(control(self._site, f"check:{again}", "check", {"again": again}))
        return await self._done(rows.seal_crawl(self._crawl_id, self._hands.now()), ops, running=running)

    async def _is_current(self, scope: Scope) -> bool:
        """Whether the snapshot has not been begun again meanwhile."""
        sql = "SELECT round FROM snapshots WHERE id = ?"
        found = await self._hands.projector.read(self._ctx.site, lambda database: database.run(sql, (scope.id,)))
        return not found or int(found[0][0] or 1) <= scope.round

    async def _sealed_before(self, table: str, key: str) -> bool:
        """Whether the ordinary seal has come; until then a further one would be too early."""
        sql = f"SELECT sealed_at FROM {table} WHERE id = ?"
        found = await self._hands.projector.read(self._ctx.site, lambda database: database.run(sql, (key,)))
        return bool(found) and found[0][0] is not None

    async def _running(self, key: str, value: str) -> int:
        sql = f"SELECT count(*) FROM archive_results WHERE {key} = ? AND status = 'started'"
        found = await self._hands.projector.read(self._ctx.site, lambda database: database.run(sql, (value,)))
        return int(found[0][0] or 0)

    async def _sweep(self, mark: str, place: Place) -> None:
        """End whatever the hooks of a scope left behind, and forget who they were."""
        await end_marked(mark, self._hands.grace)
        self._hands.dead = await asyncio.to_thread(bury_forgotten, self._hands.dead)
        since = day_of(self._ctx.op.created_at) - 1.0
        await self._sweep_pid_files(place, since)
        await asyncio.to_thread(tidy, place)

    async def _sweep_pid_files(self, place: Place, since: float) -> None:
        started = day_of(self._spec.created) - 1.0

        def named() -> list[int]:
            found = (process_of(file, min(since, started)) for file in pid_files(place.root))
            return [pid for pid in found if pid is not None]

        await end_processes(named, self._hands.grace)

    async def _text(self, scope: Scope, place: Place) -> list[Statement]:
        """What the snapshot is found by: the text files of the hooks that succeeded."""
        sql = "SELECT plugin, output_files FROM archive_results WHERE snapshot_id = ? AND status = 'succeeded'"
        results = await self._hands.projector.read(self._ctx.site, lambda database: database.run(sql, (scope.id,)))
        title_sql = "SELECT title FROM snapshots WHERE id = ?"
        found = await self._hands.projector.read(self._ctx.site, lambda database: database.run(title_sql, (scope.id,)))
        title = str(found[0][0]) if found else ""
        texts = [(str(row[0]), str(row[1])) for row in results]
        body = await asyncio.to_thread(read_text, place, texts, _SEARCHED[self._ctx.site.dialect])
        return rows.index_text(scope.id, url=scope.url, title=title, body=body) if body or title else []


def _unsealed(database: Database, crawl_id: str) -> list[str]:
    found = database.run(
        "SELECT id, round FROM snapshots WHERE crawl_id = ? AND sealed_at IS NULL AND status IN ('queued', 'started')"
        " ORDER BY id",
        (crawl_id,),
    )
    return [str(row[0]) if row[1] == 1 else f"{row[0]!s}#{row[1]!s}" for row in found]


def _names(dependencies: Iterable[Dependency]) -> list[str]:
    return [one.op_id for one in dependencies]


def _settled(names: Iterable[str]) -> list[Dependency]:
    return [Dependency(name, EdgeKind.SETTLED) for name in names]


def _foreground(made: Chain) -> list[Dependency]:
    """The foreground hooks of a chain: what they emit belongs to the crawl's first snapshots."""
    background = {op.id for op in made.ops if op.queue != "hooks:fg"}
    return [one for one in made.finite if one.op_id not in background]


def _distinct(dependencies: Iterable[Dependency]) -> tuple[Dependency, ...]:
    """One edge for each op: the one that waits longer."""
    found: dict[str, Dependency] = {}
    for one in dependencies:
        standing = found.get(one.op_id)
        if standing is None or standing.kind is EdgeKind.BEGUN:
            found[one.op_id] = one
    return tuple(found.values())
