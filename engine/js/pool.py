"""The worker's side of the JS children: a fixed number of them, a warm spare, and a firm hand."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from engine.clock import SECOND
from engine.codec import result_from_dict
from engine.errors import OpError
from engine.js.jobs import (
    ChildBusy,
    CycleJob,
    ScriptJob,
    VerbJob,
    VerbOutcome,
    error_from_dict,
    pack_site,
    spec_to_dict,
)
from engine.js.ports import MigrationReport
from engine.js.wire import Frame, ParentChannel
from engine.model import Result
from engine.plugins.site import Site

#: Beyond a script's own time limit: for migrations on first use, the lock of the site DB, and the commit.
_GRACE_SECONDS = 60.0
_WATCH_SECONDS = 0.1
#: Signals that a script cannot bring upon its own process.
_FROM_OUTSIDE = frozenset({signal.SIGHUP, signal.SIGINT, signal.SIGKILL, signal.SIGTERM})
_PAGE = os.sysconf("SC_PAGE_SIZE")


class ScriptFailed(Exception):
    """A script failed; the error, and the log lines and artifacts it leaves as evidence."""

    def __init__(self, error: OpError, evidence: Result) -> None:
        super().__init__(str(error))
        self.error = error
        self.evidence = evidence


class ChildLost(OpError):
    """A child was killed from outside, or died in the middle of a commit: only the inbox knows what was kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSettings:
    """How children are started and watched."""

    #: The command of a child; its end of the channel is appended as a descriptor number, then the worker's pid.
    command: Sequence[str] = (sys.executable, "-m", "engine.jschild")
    environment: Mapping[str, str] | None = None
    size: int = 2
    resident_bytes: int = 512 << 20


@dataclass(slots=True, eq=False)
class _Process:
    process: asyncio.subprocess.Process
    channel: ParentChannel
    #: Why the worker ended it, for the error of the op that was running.
    verdict: OpError | None = None
    #: It was told to commit or said it would, and has not said that it did.
    committing: bool = False
    #: Seconds it may be silent, and when it has been for too long.
    patience: float = 0.0
    deadline: float = 0.0
    #: Sites of which it has run a script: their DBs are migrated.
    served: set[str] = field(default_factory=set)
    _killed: bool = False
    #: Where the kernel tells its memory, once that was asked.
    _memory: int | None = None

    def extend(self) -> None:
        """It gave a sign of life."""
        self.deadline = asyncio.get_running_loop().time() + self.patience

    def kill(self) -> None:
        # once: a second signal would look for the process's end itself, and asyncio would miss it and say so
        if not self._killed:
            self._killed = True
            with contextlib.suppress(ProcessLookupError):
                self.process.kill()

    def resident_bytes(self) -> int:
        try:
            if self._memory is None:
                self._memory = os.open(f"/proc/{self.process.pid}/statm", os.O_RDONLY | os.O_CLOEXEC)
            fields = os.pread(self._memory, 256, 0).split()
        except (FileNotFoundError, ProcessLookupError):
            return 0
        return int(fields[1]) * _PAGE

    async def close(self) -> None:
        self.kill()
        if self._memory is not None:
            os.close(self._memory)
            self._memory = None
        self.channel.close()
        await self.process.wait()


class JsPool:
    """Runs jobs in children, at most ``size`` at once, in order of arrival."""

    def __init__(self, settings: PoolSettings) -> None:
        self._settings = settings
        self._places = asyncio.Semaphore(settings.size)
        self._idle: deque[_Process] = deque()
        self._busy: set[_Process] = set()
        self._spare: asyncio.Task[_Process] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._closed = False

    async def run(
        self, job: ScriptJob, prepare: Callable[[Result], Awaitable[None]], started: Callable[[], None]
    ) -> Result:
        """Execute an op's script. Raises ScriptFailed, OpError, ChildBusy; a cancellation kills the child."""
        async with self._child(job.timeout / SECOND) as child:
            message = _script_message("script", job)
            if job.site.name in child.served and not (job.earlier_claims or job.fence):
                # nothing stands before the script: it begins where the child reads this
                await child.channel.send({**message, "silent": True})
                started()
            else:
                await child.channel.send(message)
            result = Result()
            while True:
                frame = await child.channel.receive()
                child.committing = False
                match frame.header["say"]:
                    case "started":
                        child.served.add(job.site.name)
                        started()
                    case "committing":
                        child.committing = True
                        result = _result(frame)
                    case "prepared":
                        # more than once where the site DB was busy at the commit and the script ran again
                        result = _result(frame)
                        await self._let_commit(child, result, prepare)
                    case "committed":
                        return result
                    case _:
                        return _ended(frame)

    @staticmethod
    async def _let_commit(child: _Process, result: Result, prepare: Callable[[Result], Awaitable[None]]) -> None:
        try:
            await prepare(result)
        except OpError as error:
            await child.channel.send({"do": "abort"})
            await child.channel.receive()
            raise ScriptFailed(error, Result(artifacts=result.artifacts, logs=result.logs)) from error
        child.committing = True
        await child.channel.send({"do": "commit"})

    async def rehearse(self, job: ScriptJob) -> Result:
        """Execute a script and keep nothing of it. Raises ScriptFailed, OpError, ChildBusy."""
        async with self._child(job.timeout / SECOND) as child:
            await child.channel.send(_script_message("rehearse", job))
            return _ended(await child.channel.receive())

    async def resolve(self, job: ScriptJob) -> Result | None:
        """The outcome in the inbox, or None after its key was closed."""
        message = {
            "do": "resolve",
            "site": pack_site(job.site),
            "spec": spec_to_dict(job.spec),
            "fence": list(job.fence),
        }
        async with self._child(_GRACE_SECONDS) as child:
            await child.channel.send(message)
            frame = await child.channel.receive()
            return None if frame.header["say"] == "closed" else _ended(frame)

    async def verb(self, job: VerbJob, accept: Callable[[VerbOutcome], Awaitable[None]]) -> VerbOutcome:
        """Run a submit verb; ``accept`` stores what it asked for, and if that raises the site DB is rolled back."""
        message = {
            "do": "verb",
            "site": pack_site(job.site),
            "spec": spec_to_dict(job.spec),
            "function": job.function,
            "entry": job.entry,
            "ctx": dict(job.ctx),
            "timeout": job.timeout,
            "heap_mb": job.heap_mb,
        }
        async with self._child(job.timeout / SECOND) as child:
            await child.channel.send(message)
            frame = await child.channel.receive()
            if frame.header["say"] != "prepared":
                _ended(frame)
            outcome = VerbOutcome(result=_result(frame), settings=frame.header["settings"])
            try:
                await accept(outcome)
            except BaseException:
                child.kill()
                raise
            await child.channel.send({"do": "commit"})
            frame = await child.channel.receive()
            if frame.header["say"] != "committed":
                _ended(frame)
            return outcome

    async def cycle(self, job: CycleJob, asked: Callable[[str, Mapping[str, Any]], Awaitable[Any]]) -> Frame:
        """Do a step of a lifecycle job; what it came to. ``asked`` answers what only the worker can do.

        Raises OpError, ChildBusy; a cancellation kills the child.
        """
        message = {
            "do": "cycle",
            "site": pack_site(job.site),
            "spec": spec_to_dict(job.spec),
            "task": dict(job.task),
            "migrate": job.migrate,
        }
        async with self._child(job.timeout / SECOND) as child:
            await child.channel.send(message)
            while True:
                frame = await child.channel.receive()
                child.extend()
                match frame.header["say"]:
                    case "ask" if frame.header["name"] == "alive":
                        await child.channel.send({"do": "answer", "value": None})
                    case "ask":
                        await child.channel.send(await _answer(frame, asked))
                    case "stepped":
                        return frame
                    case _:
                        _ended(frame)

    async def scan(self, site: Site) -> list[dict[str, Any]]:
        """What the site's verb files declare."""
        async with self._child(_GRACE_SECONDS) as child:
            await child.channel.send({"do": "scan", "site": pack_site(site)})
            files: list[dict[str, Any]] = (await child.channel.receive()).header["files"]
            return files

    async def migrate(self, site: Site) -> MigrationReport:
        """Bring the site DB up to date. Raises OpError ``site_migration_failed``, ChildBusy."""
        async with self._child(10 * _GRACE_SECONDS) as child:
            await child.channel.send({"do": "migrate", "site": pack_site(site)})
            frame = await child.channel.receive()
            if frame.header["say"] != "migrated":
                _ended(frame)
            answer = frame.header
            return MigrationReport(site.name, answer["database"], tuple(answer["applied"]), answer["version"])

    async def aclose(self) -> None:
        """End all children."""
        self._closed = True
        if self._watching is not None:
            self._watching.cancel()
        if self._spare is not None:
            with contextlib.suppress(Exception, asyncio.CancelledError):
                self._idle.append(await self._spare)
        while self._idle:
            await self._idle.popleft().close()

    @contextlib.asynccontextmanager
    async def _child(self, seconds: float) -> AsyncIterator[_Process]:
        """A child for one job. It is used again only if the job came to a regular end."""
        async with self._places:
            child = await self._take()
            child.patience = seconds + _GRACE_SECONDS
            child.extend()
            self._busy.add(child)
            if self._watching is None:
                self._watching = asyncio.create_task(self._watch())
            fit = False
            try:
                yield child
                fit = True
            except (ScriptFailed, ChildBusy, OpError) as error:
                failure = error.error if isinstance(error, ScriptFailed) else error
                fit = not (isinstance(failure, OpError) and failure.code in ("js_timeout", "js_memory"))
                raise
            except (EOFError, ConnectionError) as error:
                status = await child.process.wait()
                raise _end(child, status) from error
            finally:
                self._busy.discard(child)
                if fit and not self._closed and self._is_slim(child):
                    self._idle.append(child)
                else:
                    await asyncio.shield(child.close())
                    self._warm()

    def _is_slim(self, child: _Process) -> bool:
        """Whether a child lives and may serve once more: short jobs are over before anyone watches them."""
        return child.process.returncode is None and child.resident_bytes() <= self._settings.resident_bytes

    async def _take(self) -> _Process:
        while self._idle:
            child = self._idle.popleft()
            if child.process.returncode is None:
                return child
            await child.close()
        spare, self._spare = self._spare, None
        child = await (spare if spare is not None else self._spawn())
        self._warm()
        return child

    def _warm(self) -> None:
        if self._spare is None and not self._closed and self._settings.size > 1:
            self._spare = asyncio.create_task(self._spawn())

    async def _spawn(self) -> _Process:
        mine, theirs = socket.socketpair()
        with theirs:
            descriptor = theirs.fileno()
            process = await asyncio.create_subprocess_exec(
                *self._settings.command,
                str(descriptor),
                str(os.getpid()),
                pass_fds=(descriptor,),
                stdin=asyncio.subprocess.DEVNULL,
                env=None if self._settings.environment is None else dict(self._settings.environment),
                start_new_session=True,
            )
        reader, writer = await asyncio.open_connection(sock=mine)
        return _Process(process, ParentChannel(reader, writer))

    async def _watch(self) -> None:
        """Look after the children while any of them works."""
        try:
            while self._busy:
                await asyncio.sleep(_WATCH_SECONDS)
                for child in self._busy:
                    self._check(child)
        finally:
            self._watching = None

    def _check(self, child: _Process) -> None:
        """End a child that grows or lasts beyond its limits; nothing inside it could stop it for sure."""
        limit = self._settings.resident_bytes
        if child.resident_bytes() > limit:
            child.verdict = OpError("js_memory", f"the script's process grew beyond {limit >> 20} MB")
            child.kill()
        elif asyncio.get_running_loop().time() >= child.deadline:
            child.verdict = OpError("js_timeout", f"the script's process did not answer within {child.patience:g} s")
            child.kill()


def _script_message(do: str, job: ScriptJob) -> dict[str, Any]:
    return {
        "do": do,
        "site": pack_site(job.site),
        "spec": spec_to_dict(job.spec),
        "entry": job.entry,
        "source": job.source,
        "ctx": dict(job.ctx),
        "earlier_claims": job.earlier_claims,
        "fence": list(job.fence),
        "timeout": job.timeout,
        "heap_mb": job.heap_mb,
    }


async def _answer(frame: Frame, asked: Callable[[str, Mapping[str, Any]], Awaitable[Any]]) -> dict[str, Any]:
    try:
        return {"do": "answer", "value": await asked(frame.header["name"], frame.header["arguments"])}
    except OpError as error:
        return {"do": "refuse", "reason": error.message}


def _result(frame: Frame) -> Result:
    plain = frame.header["result"]
    digests = [item["sha256"] for item in plain["artifacts"]] if frame.attachments else []
    return result_from_dict(plain, dict(zip(digests, frame.attachments, strict=True)))


def _ended(frame: Frame) -> Result:
    match frame.header["say"]:
        case "done":
            return _result(frame)
        case "failed" if "result" in frame.header:
            raise ScriptFailed(error_from_dict(frame.header["error"]), _result(frame))
        case "failed":
            raise error_from_dict(frame.header["error"])
        case "busy":
            raise ChildBusy(frame.header["reason"])
        case other:
            raise OpError("internal_error", f"the child said {other}")


def _end(child: _Process, status: int) -> OpError:
    """What the end of a child's process means for its op."""
    how = f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"
    if child.committing or (child.verdict is None and -status in _FROM_OUTSIDE):
        return ChildLost("js_crashed", f"the script's process {how}")
    return child.verdict or OpError("js_crashed", f"the script's process {how}")
