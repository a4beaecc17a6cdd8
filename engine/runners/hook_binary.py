"""Finding a program that hooks need, and, where the operator said so, installing it."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from engine.codec import encode_result
from engine.errors import OpError
from engine.hooks.binaries import ENV, Need, find, from_record, inspect
from engine.hooks.config import Resolved
from engine.hooks.files import survey
from engine.hooks.graph import CrawlSpec
from engine.hooks.inputs import environment, flags
from engine.hooks.launch import CannotLaunch, command
from engine.hooks.layout import Place, safe
from engine.hooks.outcome import End, judge
from engine.hooks.plugins import Hook
from engine.hooks.process import end_marked
from engine.hooks.records import HookRecord, text_in
from engine.hooks.supervise import Job, Watch
from engine.hooks.urls import identifier
from engine.model import Binary, LogLine, MachineFacts, Result
from engine.projection import archive_rows as rows
from engine.projection.archive import Statement
from engine.runners.base import RunContext
from engine.runners.hook_hands import Hands, mark_of, paths_of

EVENTS = ("Binary", "BinaryRequest", "Dependency")


class BinaryRun:
    """One claim of an op that looks for one program on this machine."""

    def __init__(self, hands: Hands, ctx: RunContext) -> None:
        given = json.loads(ctx.op.input)
        self._hands = hands
        self._ctx = ctx
        self._need = Need.load(given["need"])
        self._install = bool(given.get("install"))
        #: The crawl whose hooks need the program; "" where an operator asked for it.
        self._crawl = str(given.get("crawl", ""))
        self._spec = CrawlSpec.load(ctx.op.workflow.input)
        self._logs: list[LogLine] = []
        self._facts = MachineFacts()
        #: Hooks that were run.
        self._rows = 0

    async def run(self) -> Result:
        """Find it. Raises OpError where it was to be installed and could not be."""
        self._facts = await self._ctx.machine_facts()
        found = self._known() or await self._on_path()
        if found is None and self._install:
            found = await self._installed()
        if found is None:
            why = "no hook could install it" if self._install else "not on PATH; see scraper site NAME binary install"
            found = Binary(name=self._need.name, status="failed", error=why)
        await self._ctx.put_binary(found)
        if found.status == "failed" and self._install:
            raise OpError("binary_missing", f"{self._need.name}: {found.error}", retryable=True)
        data = {"name": found.name, "status": found.status, "abspath": found.abspath, "provider": found.provider}
        result = Result(data=json.dumps(data), logs=tuple(self._logs))
        if self._rows:
            await self._ctx.prepare(result)
            await self._hands.write(self._ctx, [], outcome=encode_result(result))
        return result

    def _known(self) -> Binary | None:
        known = self._facts.binaries.get(self._need.name)
        usable = known is not None and known.status == "succeeded" and os.access(known.abspath, os.X_OK)
        return known if usable else None

    async def _on_path(self) -> Binary | None:
        if not self._need.allows(ENV):
            return None
        path = self._hands.environment.get("PATH", os.defpath)
        return await asyncio.to_thread(find, self._need.name, path)

    async def _installed(self) -> Binary | None:
        """The first program that one of the hooks comes up with; the hooks after it are not run."""
        plugins = self._hands.plugins(self._ctx.site, self._spec)
        for event in EVENTS:
            for hook in plugins.hooks(event):
                if event == "Dependency":
                    self._log(f"{hook.label}: on_Dependency is an old name of on_Binary")
                found = await self._try(hook, self._rows)
                self._rows += 1
                if found is not None:
                    return found
        return None

    async def _try(self, hook: Hook, position: int) -> Binary | None:
        records: list[Mapping[str, Any]] = []
        last: list[Mapping[str, Any]] = []

        async def take(found: Sequence[HookRecord]) -> None:
            records.extend(record.data for record in found if record.type == "Binary")
            last.extend(record.data for record in found if record.type == "ArchiveResult")

        try:
            job: Job | None = self._job(hook)
            words = list(job.words) if job is not None else []
        except CannotLaunch as error:
            self._log(f"{hook.label}: {error}")
            job, words, end = None, [str(hook.path)], End(code=error.code, unlaunched=str(error))
        await self._begin(hook, position, words)
        if job is not None:
            end = await Watch(job, take).run()
            await end_marked(job.mark, self._hands.grace)
            if end.code != 0:
                self._log(f"{hook.label}: exit code {end.code}")
        await self._end(hook, end, last[-1] if last else None, produced=bool(records))
        return await self._found(hook, records)

    async def _found(self, hook: Hook, records: Sequence[Mapping[str, Any]]) -> Binary | None:
        """The first of the records that names a program that is there."""
        for data in records:
            told = from_record(data, self._need.name)
            if told is None or told.name != self._need.name:
                continue
            if not os.access(told.abspath, os.X_OK):
                self._log(f"{hook.label}: {told.abspath} is not there")
                continue
            provider = told.provider or hook.plugin
            if told.version and told.sha256:
                return Binary(
                    name=told.name,
                    abspath=told.abspath,
                    version=told.version,
                    sha256=told.sha256,
                    provider=provider,
                )
            path = self._hands.environment.get("PATH", os.defpath)
            return await asyncio.to_thread(inspect, told.name, told.abspath, provider, path)
        return None

    async def _begin(self, hook: Hook, position: int, words: Sequence[str]) -> None:
        """In a crawl a hook that installs has a row like any other."""
        if not self._crawl:
            return
        name, at = hook.name, self._hands.now()
        place = self._place
        queued = rows.queue_result(
            self._row(hook),
            crawl_id=self._crawl,
            snapshot_id=None,
            plugin=hook.plugin,
            hook=name.file,
            event=name.event,
            position=position,
            step=name.step,
            background=name.background,
            directory=str(place.plugin(hook.plugin)),
            at=at,
        )
        started = rows.start_result(
            self._row(hook),
            attempt=self._ctx.lease.attempt,
            command=words,
            machine=self._ctx.machine,
            iface=self._hands.iface,
            at=at,
        )
        await self._hands.write(self._ctx, [queued, started])

    async def _end(self, hook: Hook, end: End, last: Mapping[str, Any] | None, *, produced: bool) -> None:
        if not self._crawl:
            return
        verdict = judge(end, last, produced=produced)
        output = await asyncio.to_thread(survey, self._place.plugin(hook.plugin))
        ended = rows.end_result(
            self._row(hook),
            status=verdict.status,
            exit_code=end.code if end.signal is None else 128 + end.signal,
            error=verdict.error,
            files={file.path: file.described() for file in output.files},
            count=output.count,
            size=output.size,
            mimetypes=output.mimetypes,
            warnings=(),
            retry_at=None,
            at=self._hands.now(),
        )
        said = [] if last is None else [_said(self._row(hook), last, self._hands.now())]
        await self._hands.write(self._ctx, [*said, ended])

    def _row(self, hook: Hook) -> str:
        return f"{rows_of(self._crawl, self._need.name)}{hook.label}"

    @property
    def _place(self) -> Place:
        machine, name = safe(self._ctx.machine), safe(Path(self._need.name).name)
        return Place(self._spec.data / "machines" / machine / "binaries" / name / self._id)

    @property
    def _id(self) -> str:
        return identifier(self._ctx.machine, self._need.name)

    def _job(self, hook: Hook) -> Job:
        ctx, spec, need = self._ctx, self._spec, self._need
        plugins = self._hands.plugins(ctx.site, spec)
        layers = self._hands.layers(ctx.site, spec, self._facts.config)
        resolved = (
            layers.resolve(plugins, plugins.by_name[hook.plugin]) if hook.plugin in plugins.by_name else Resolved()
        )
        place = self._place
        told = {**paths_of(spec), "MACHINE_ID": ctx.machine, "CRAWL_DIR": str(place.root), "SNAP_DIR": str(place.root)}
        env = environment(self._hands.environment, layers.explicit, resolved, told)
        site = ctx.site
        words = command(hook.path, hook.name.extension, site.interpreters, site.root, env.get("PATH", os.defpath))
        arguments = {
            "binary-id": self._id,
            "machine-id": ctx.machine,
            "name": need.name,
            "bin-providers": need.providers,
            "overrides": dict(need.overrides) or None,
        }
        mark = f"{mark_of(ctx, 'binaries')}"
        return Job(
            words=[*words, *flags(arguments)],
            cwd=place.plugin(hook.plugin),
            environment=env,
            traces=place.traces(hook.plugin, hook.name.file),
            mark=mark,
            op=f"{mark}{hook.label}",
            claim=ctx.lease.earlier_claims,
            machine=ctx.machine,
            owner=self._hands.owner,
            timeout=layers.timeout(hook.plugin, resolved),
            grace=self._hands.grace,
        )

    def _log(self, message: str) -> None:
        self._logs.append(LogLine(at=self._hands.clock.now(), message=message.replace("\0", ""), level="warn"))


def rows_of(crawl_id: str, name: str) -> str:
    """How the ids of the rows begin that hooks have which look for a program on behalf of a crawl."""
    return f"{crawl_id}/binary:{name}/"


def _said(row: str, last: Mapping[str, Any], at: str) -> Statement:
    return rows.say_result(row, text=text_in(last, "output_str"), value=last.get("output_json"), at=at)
