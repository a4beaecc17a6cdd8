"""One hook run by hand, in a directory of its own, with nothing stored: what it would record."""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.hooks.config import Layers
from engine.hooks.files import Output, survey
from engine.hooks.inputs import environment, flags
from engine.hooks.launch import CannotLaunch, command
from engine.hooks.layout import Place
from engine.hooks.outcome import End, Verdict, judge
from engine.hooks.plugins import Hook, Plugins
from engine.hooks.process import end_marked
from engine.hooks.records import HookRecord
from engine.hooks.supervise import Job, Watch, stderr_tail
from engine.liveness import own_identity


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """What one run of a hook would have left."""

    command: list[str]
    directory: Path
    end: End
    verdict: Verdict
    seconds: float
    records: tuple[HookRecord, ...]
    output: Output
    warnings: tuple[str, ...]
    stderr: str
    #: Configuration as the hook saw it, secrets covered.
    config: Mapping[str, Any]


def try_hook(
    plugins: Plugins,
    hook: Hook,
    layers: Layers,
    *,
    interpreters: Mapping[str, str],
    root: Path,
    data: Path,
    arguments: Mapping[str, Any],
    inherited: Mapping[str, str],
    grace: float,
) -> Tried:
    """Run ``hook`` below ``data`` to its end; whatever it leaves running is ended too."""
    resolved = layers.resolve(plugins, plugins.by_name[hook.plugin])
    place = Place(data / "trial")
    mark = f"trial-{secrets.token_hex(8)};"
    told = {
        "SNAP_DIR": str(place.root),
        "CRAWL_DIR": str(data / "crawl"),
        "DATA_DIR": str(data),
        "PERSONAS_DIR": str(data / "personas"),
        "LIB_DIR": str(data / "lib"),
        "ABX_RUNTIME": "archivebox",
        "EXTRA_CONTEXT": '{"snapshot_id": "trial"}',
    }
    env = environment(inherited, layers.explicit, resolved, told)
    traces = place.traces(hook.plugin, hook.name.file)
    records: list[HookRecord] = []
    words: list[str] = [str(hook.path)]
    warnings: Sequence[str] = ()
    began = time.monotonic()

    async def take(found: Sequence[HookRecord]) -> None:
        records.extend(found)

    async def run(job: Job) -> tuple[End, Sequence[str]]:
        watch = Watch(job, take)
        try:
            return await watch.run(), watch.stream.warnings
        finally:
            await end_marked(mark, grace)

    try:
        base = command(hook.path, hook.name.extension, interpreters, root, env.get("PATH", os.defpath))
        words = [*base, *flags(arguments)]
        job = Job(
            words=words,
            cwd=place.plugin(hook.plugin),
            environment=env,
            traces=traces,
            mark=mark,
            op=mark,
            claim=0,
            machine="",
            owner=own_identity(),
            timeout=layers.timeout(hook.plugin, resolved),
            grace=grace,
        )
        end, warnings = asyncio.run(run(job))
    except CannotLaunch as error:
        end = End(code=error.code, unlaunched=str(error))
    output = survey(place.plugin(hook.plugin))
    last = next((record.data for record in reversed(records) if record.type == "ArchiveResult"), None)
    produced = bool(output.count) or any(record.type != "ArchiveResult" for record in records)
    return Tried(
        command=words,
        directory=place.plugin(hook.plugin),
        end=end,
        verdict=judge(end, last, produced=produced),
        seconds=time.monotonic() - began,
        records=tuple(records),
        output=output,
        warnings=(*resolved.faults, *warnings),
        stderr=stderr_tail(traces),
        config=resolved.shown(),
    )
