"""Running one hook: what it is told, what it says, and what its end means."""

from __future__ import annotations

import asyncio
import contextlib
import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from engine.clock import rfc3339
from engine.codec import encode_result
from engine.errors import LeaseLost, OpError
from engine.hooks.binaries import from_record
from engine.hooks.daemons import is_over
from engine.hooks.files import Output, survey
from engine.hooks.graph import CrawlSpec, HookInput, control, dismissed_at_end, snapshot_op
from engine.hooks.inputs import environment, flags
from engine.hooks.launch import CannotLaunch, command
from engine.hooks.layout import Place, crawl_place
from engine.hooks.naming import Ground, parse_name
from engine.hooks.outcome import End, Verdict, judge
from engine.hooks.records import storable, text_in
from engine.hooks.supervise import Job, Watch, stderr_tail
from engine.model import LogLine, MachineFacts, Result
from engine.projection import archive_rows as rows
from engine.projection.archive import Statement
from engine.retry import delay, may_retry
from engine.runners.base import RunContext, RunFailed
from engine.runners.hook_hands import Hands, mark_of, paths_of
from engine.runners.hook_records import Sink
from engine.runners.hook_wait import Admission, release

_LOG_LINES = 50
#: How often a snapshot is begun; a hook that removes its snapshot's directory would have it begun for ever.
_ROUNDS = 3


class HookRun:
    """One claim of an op that runs a hook."""

    def __init__(self, hands: Hands, ctx: RunContext) -> None:
        self._hands = hands
        self._ctx = ctx
        self._given = HookInput.load(ctx.op.input)
        self._spec = CrawlSpec.load(ctx.op.workflow.input)
        self._place = Place(Path(self._given.scope.root))
        self._traces = self._place.traces(self._given.plugin, self._given.file)
        scope = self._given.scope
        #: The row's id, which is the op's in the first round.
        self._row = f"{scope.id}/{self._given.plugin}/{self._given.file}"
        self._sink = Sink(hands, ctx, self._spec, scope, self._row)
        self._faults: tuple[str, ...] = ()

    async def run(self) -> Result:
        """Run it. Raises RunFailed for a hard failure, LeaseLost."""
        if self._given.scope.kind == "snapshot":
            if not await self._is_current():
                release(self._given, self._spec)
                return Result(data='{"status": "superseded"}')
            if self._given.scope.round < _ROUNDS and not self._place.private.is_dir():
                return await self._begin_again()
        async with Admission(self._hands, self._ctx, self._given, self._spec).granted():
            return await self._finish()

    async def _finish(self) -> Result:
        end, watch = await self._run()
        output = await asyncio.to_thread(survey, self._place.plugin(self._given.plugin))
        warnings = [*self._faults, *watch.stream.warnings, *self._sink.warnings]
        verdict = judge(end, self._sink.last, produced=bool(self._sink.produced or output.count))
        for binary in filter(None, map(from_record, self._sink.binaries)):
            await self._ctx.put_binary(binary)
        exited = end.code is not None and end.timed_out is None and not end.unlaunched
        if verdict.again and exited and not text_in(self._sink.last or {}, "output_str"):
            verdict = replace(verdict, error=await asyncio.to_thread(self._explained, verdict.error))
        return await self._settle(end, verdict, output, warnings)

    async def _is_current(self) -> bool:
        """Whether the snapshot has not been begun again meanwhile."""
        scope = self._given.scope
        sql = "SELECT round FROM snapshots WHERE id = ?"
        found = await self._hands.projector.read(self._ctx.site, lambda database: database.run(sql, (scope.id,)))
        return not found or int(found[0][0] or 1) <= scope.round

    async def _begin_again(self) -> Result:
        """The snapshot's directory is gone, or is on a machine that is: it starts again from its first hook."""
        scope = replace(self._given.scope, round=self._given.scope.round + 1, root="")
        await self._ctx.emit([snapshot_op(self._ctx.op.site, scope)])
        await self._hands.write(self._ctx, [rows.begin_round(scope.id, scope.round)])
        return Result(data='{"status": "superseded"}')

    async def _run(self) -> tuple[End, Watch]:
        known = await self._ctx.machine_facts()
        try:
            job = self._job(known)
        except CannotLaunch as error:
            job = None
            end = End(code=error.code, unlaunched=str(error))
        words = list(job.words) if job is not None else [self._given.path]
        await self._begin(words)
        if job is None:
            self._ctx.started()
            return end, Watch(_nothing(self._traces), self._sink.take)
        watch = Watch(job, self._sink.take, over=self._over, starting=self._ctx.started, resumed=self._resumed)
        if self._given.ground is Ground.FOREGROUND:
            return await watch.run(), watch
        spawned, spoke = asyncio.Event(), asyncio.Event()
        watch.spawned = lambda _began: spawned.set()
        watch.spoke = spoke.set
        detaching = asyncio.create_task(self._detach(spawned, spoke, min(job.timeout, self._spec.ready_max)))
        try:
            return await watch.run(), watch
        finally:
            detaching.cancel()
            await asyncio.gather(detaching, return_exceptions=True)

    async def _resumed(self) -> None:
        await self._ctx.survived()
        self._ctx.started()

    async def _detach(self, spawned: asyncio.Event, spoke: asyncio.Event, patience: float) -> None:
        await spawned.wait()
        if self._given.ground in (Ground.FINITE, Ground.DAEMON):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(spoke.wait(), patience)
        with contextlib.suppress(LeaseLost):  # the worker learns of it by its heartbeat
            await self._ctx.background()

    def _over(self) -> bool:
        if not dismissed_at_end(self._spec.bg_policy, self._given.ground):
            return False
        return is_over(self._place)

    def _job(self, known: MachineFacts) -> Job:
        given, spec, site = self._given, self._spec, self._ctx.site
        prepared = self._hands.prepare(self._ctx, spec, given.plugin, known.config)
        layers, resolved = prepared.layers, prepared.resolved
        self._faults = resolved.faults
        mark = mark_of(self._ctx, given.scope.id)
        told = self._told()
        for need in prepared.needs:
            binary = known.binaries.get(need.name)
            if binary is not None and binary.status == "succeeded":
                told[need.key] = binary.abspath
        env = environment(self._hands.environment, layers.explicit, resolved, told)
        name = parse_name(given.file)
        words = command(
            Path(given.path), name.extension if name else "", site.interpreters, site.root, env.get("PATH", "")
        )
        return Job(
            words=[*words, *flags(self._arguments())],
            cwd=self._place.plugin(given.plugin),
            environment=env,
            traces=self._traces,
            mark=mark,
            op=mark,
            claim=self._ctx.lease.earlier_claims,
            machine=self._ctx.machine,
            owner=self._hands.owner,
            timeout=layers.timeout(given.plugin, resolved),
            grace=self._hands.grace,
        )

    def _arguments(self) -> dict[str, Any]:
        scope = self._given.scope
        own: dict[str, Any] = {"url": scope.url, "crawl-id": scope.crawl_id}
        if scope.kind == "snapshot":
            own |= {"snapshot-id": scope.id, "depth": scope.depth}
        else:
            own["source-url"] = "\n".join(self._spec.urls)
        return {**self._spec.arguments, **own}

    def _told(self) -> dict[str, str]:
        scope, spec = self._given.scope, self._spec
        crawl = crawl_place(spec.data, spec.user, scope.crawl_id, spec.created)
        told = {
            **paths_of(spec),
            "CRAWL_DIR": str(crawl.root),
            "CRAWL_ID": scope.crawl_id,
            "MACHINE_ID": self._ctx.machine,
        }
        if scope.kind == "snapshot":
            told |= {
                "SNAP_DIR": scope.root,
                "SNAPSHOT_ID": scope.id,
                "EXTRA_CONTEXT": json.dumps({"snapshot_id": scope.id, "crawl_id": scope.crawl_id}),
            }
        return told

    async def _begin(self, words: list[str]) -> None:
        scope, at = self._given.scope, self._hands.now()
        statements: list[Statement] = [
            rows.start_result(
                self._row,
                attempt=self._ctx.lease.attempt,
                command=words,
                machine=self._ctx.machine,
                iface=self._hands.iface,
                at=at,
            )
        ]
        if self._ctx.lease.earlier_claims or self._given.revived:
            statements.extend(rows.reopen(scope.crawl_id, scope.snapshot_id, at))
        await self._hands.write(self._ctx, statements)

    async def _settle(self, end: End, verdict: Verdict, output: Output, warnings: list[str]) -> Result:
        ctx, scope, now = self._ctx, self._given.scope, self._hands.clock.now()
        retrying = verdict.again and may_retry(ctx.op.retry, ctx.lease.attempt)
        statements: list[Statement] = [
            rows.end_result(
                self._row,
                status="backoff" if retrying else verdict.status,
                exit_code=end.code if end.signal is None else 128 + end.signal,
                error=verdict.error,
                files={file.path: file.described() for file in output.files},
                count=output.count,
                size=output.size,
                mimetypes=output.mimetypes,
                warnings=warnings,
                retry_at=rfc3339(now + delay(ctx.op.retry, ctx.lease.attempt)) if retrying else None,
                at=rfc3339(now),
            )
        ]
        title = await asyncio.to_thread(self._title, verdict) if _has_title(self._given, verdict) else ""
        if title:
            statements.append(rows.change_snapshot(scope.id, title=title, at=rfc3339(now)))
        again = [self._reseal()] if ctx.lease.earlier_claims or self._given.revived else []
        logs = tuple(LogLine(at=now, message=storable(text), level="warn") for text in warnings[:_LOG_LINES])
        if verdict.again:
            await self._hands.write(ctx, statements)
            if again:
                await ctx.emit(again)
            tail = await asyncio.to_thread(stderr_tail, self._traces)
            with contextlib.suppress(OSError):
                self._traces.forget()
            code = "hook_timeout" if end.timed_out is not None else "hook_failed"
            told = LogLine(at=now, message=storable(tail), level="error")
            error = OpError(code, verdict.error, retryable=True)
            raise RunFailed(error, Result(logs=(*logs, told) if tail else logs))
        data = {"status": verdict.status, "exitCode": end.code, "error": verdict.error, "outputSize": output.size}
        result = Result(data=json.dumps(data, ensure_ascii=False), emitted=tuple(again), logs=logs)
        await ctx.prepare(result)
        await self._hands.write(ctx, statements, outcome=encode_result(result))
        return result

    def _reseal(self) -> Any:
        """What was sealed while the hook waited for its retry is looked at again."""
        ctx, scope = self._ctx, self._given.scope
        name = f"r{ctx.op.pk}.{ctx.lease.earlier_claims}"
        if scope.kind == "crawl":
            return control(ctx.op.site, f"check:{name}", "check", {"again": name})
        seal = control(ctx.op.site, f"seal:{scope.id}:{name}", "seal", {"scope": asdict(scope), "again": name})
        return replace(seal, machine=ctx.machine) if ctx.site.dialect == "postgresql" else seal

    def _explained(self, error: str) -> str:
        """The error with the last thing the hook said to people, which is usually why."""
        lines = [line.strip() for line in stderr_tail(self._traces).replace("\0", "").splitlines() if line.strip()]
        return f"{error}: {lines[-1][:300]}" if lines and lines[-1] not in error else error

    def _title(self, verdict: Verdict) -> str:
        """The title that a plugin of that name found."""
        with contextlib.suppress(OSError):
            with (self._place.plugin("title") / "title.txt").open("rb") as file:
                text = file.read(4_000).decode("utf-8", "replace").strip()
            if text:
                return text.replace("\0", "")[:1_000]
        return text_in(self._sink.last or {}, "output_str", 1_000)


def _has_title(given: HookInput, verdict: Verdict) -> bool:
    """Whether the hook was to find the title of a page, and has."""
    return given.plugin == "title" and verdict.status == "succeeded" and given.scope.kind == "snapshot"


def _nothing(traces: Any) -> Job:
    """The job of a hook that cannot be launched: nothing."""
    return Job(
        words=(),
        cwd=Path(),
        environment={},
        traces=traces,
        mark="",
        op="",
        claim=0,
        machine="",
        owner="",
        timeout=0,
        grace=0,
    )
