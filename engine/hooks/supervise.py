"""One run of a hook from its start (or its adoption) to its end, without knowing what its records mean."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import subprocess
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from engine.hooks.inputs import MARK
from engine.hooks.layout import Traces
from engine.hooks.outcome import NOT_STARTED, SKIPPED, End
from engine.hooks.process import (
    PidRecord,
    end_group,
    end_marked,
    end_processes,
    end_rest_of_group,
    group,
    marked,
    read_exit,
    read_record,
    reap,
    spawn,
    wait_for,
    write_record,
)
from engine.hooks.records import HookRecord, RecordStream
from engine.liveness import identity

_CHUNK = 1 << 20
#: How often a hook that says nothing is looked at.
_TICK = 0.1
#: Records handed on together.
_BATCH = 200
#: The end of stderr that is kept with a failure.
TAIL = 4_000

Take = Callable[[Sequence[HookRecord]], Awaitable[None]]


async def _nothing_to_do() -> None:
    return


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What is to be run, and how long it may take."""

    words: Sequence[str]
    cwd: Path
    environment: Mapping[str, str]
    traces: Traces
    #: How the mark of every process of this op begins, whatever its claim.
    mark: str
    op: str
    claim: int
    machine: str
    owner: str
    #: Seconds from its start.
    timeout: float
    grace: float


@dataclass(slots=True)
class Watch:
    """A hook that runs, and what was read of it."""

    job: Job
    take: Take
    #: Called once, when the hook has first said something on stdout, or has ended.
    spoke: Callable[[], None] = lambda: None
    #: Called before its process is started.
    starting: Callable[[], None] = lambda: None
    #: Called instead where a process that an earlier claim started goes on, or has ended with its exit code.
    resumed: Callable[[], Awaitable[None]] = _nothing_to_do
    #: Called once, when its process runs.
    spawned: Callable[[float], None] = lambda _began: None
    #: Whether everything the hook serves is over: it is then told to end.
    over: Callable[[], bool] = lambda: False
    stream: RecordStream = field(default_factory=RecordStream)
    adopted: bool = False
    began: float = 0.0
    pid: int = 0
    _child: subprocess.Popen[bytes] | None = None
    _spoken: bool = False

    async def run(self) -> End:
        """Run the hook to its end. A cancellation ends it first, in the way a timeout would."""
        found = await self._found()
        if found is not None:
            await self.resumed()
            return found
        if not self.adopted:
            self.starting()
            if self.over():
                self._speak()
                return End(code=SKIPPED)
            try:
                self._start()
            except OSError as error:
                self._speak()
                return End(code=126, unlaunched=f"could not be started: {error}")
        self.spawned(self.began)
        try:
            if self.adopted:
                await self.resumed()
            return await self._watch()
        except asyncio.CancelledError:
            # without its record the hook is nobody's to adopt, and how it ends now says nothing about it
            self._disown()
            await _undisturbed(self._end())
            raise

    def _disown(self) -> None:
        record = read_record(self.job.traces.pid)
        if record is not None and (record.owner, record.claim) == (self.job.owner, self.job.claim):
            self._clear()

    @property
    def _own_mark(self) -> str:
        """The mark of the processes this claim answers for: another may have begun already."""
        return self.job.mark if self.adopted else own_mark(self.job.mark, self.job.claim)

    async def _found(self) -> End | None:
        """What an earlier claim of the op left: a hook that still runs (adopted), one that has ended, or nothing."""
        traces = self.job.traces
        if self.job.claim == 0:
            self._forget_end()
            return None
        record = read_record(traces.pid)
        if record is None or record.op != self.job.op:
            await end_marked(self.job.mark, self.job.grace)
            self._forget_end()
            return None
        self.began, self.pid = record.began, record.pid
        if record.alive() and record.orphaned():
            self.adopted = True
            with contextlib.suppress(OSError):
                write_record(traces.pid, replace(record, owner=self.job.owner, claim=self.job.claim))
                traces.dismissed.unlink(missing_ok=True)
            return None
        if record.alive():
            # its worker lives, but has lost the op: it is ending it, and if it is not, somebody must
            await end_marked(self.job.mark, self.job.grace)
        elif record.orphaned() and (code := read_exit(traces.exit)) is not None:
            await end_marked(self.job.mark, self.job.grace)
            await self._read_rest()
            self._speak()
            return self._judged(code)
        else:
            await end_marked(self.job.mark, self.job.grace)
        self._forget_end()
        return None

    def _forget_end(self) -> None:
        """How an earlier run ended; who ran it stays known until it is known who runs it now."""
        with contextlib.suppress(OSError):
            self.job.traces.exit.unlink(missing_ok=True)

    def _clear(self) -> None:
        with contextlib.suppress(OSError):
            self.job.traces.forget()

    def _start(self) -> None:
        job = self.job
        job.cwd.mkdir(parents=True, exist_ok=True)
        job.traces.base.parent.mkdir(parents=True, exist_ok=True)
        self.began = time.time()
        marks = {MARK: own_mark(job.mark, job.claim)}
        child = spawn(
            job.words, job.cwd, {**job.environment, **marks}, job.traces.stdout, job.traces.stderr, job.traces.exit
        )
        self._child, self.pid = child, child.pid
        record = PidRecord(
            pid=child.pid,
            process=identity(child.pid),
            owner=job.owner,
            machine=job.machine,
            op=job.op,
            claim=job.claim,
            began=self.began,
        )
        with contextlib.suppress(OSError):  # a full disk: the mark in its environment still finds it
            write_record(job.traces.pid, record)
            job.traces.dismissed.unlink(missing_ok=True)

    async def _watch(self) -> End:
        exited = asyncio.ensure_future(wait_for(self.pid))
        timed_out: float | None = None
        try:
            with self._open() as output:
                # the wall clock may be set meanwhile: it only says how long an adopted hook has run already
                deadline = time.monotonic() + self.job.timeout - max(0.0, time.time() - self.began)
                while not exited.done():
                    if not await self._read(output):
                        await asyncio.wait({exited}, timeout=max(0.001, min(_TICK, deadline - time.monotonic())))
                    if exited.done():
                        break
                    if self.over():
                        self.job.traces.dismissed.touch()
                    elif time.monotonic() >= deadline:
                        timed_out = self.job.timeout
                    else:
                        continue
                    await self._end_reading(output)
                    break
                code = await self._collect()
                while await self._read(output):
                    pass
                await self._hand_on(list(self.stream.close()))
        finally:
            exited.cancel()
        self._speak()
        return self._judged(code, timed_out)

    async def _end_reading(self, output: io.BufferedReader | io.BytesIO) -> None:
        """End the hook, and take what it says meanwhile."""
        ending = asyncio.ensure_future(self._end())
        try:
            while not ending.done():
                await self._read(output)
                await asyncio.wait({ending}, timeout=_TICK)
        except asyncio.CancelledError:
            await _undisturbed(ending)
            raise

    def _open(self) -> io.BufferedReader | io.BytesIO:
        try:
            return self.job.traces.stdout.open("rb")
        except OSError:
            return io.BytesIO()

    async def _read(self, output: io.BufferedReader | io.BytesIO) -> bool:
        """Take what there is, at most one chunk; whether there was anything."""
        chunk = output.read(_CHUNK)
        if not chunk:
            return False
        self._speak()
        await self._hand_on(list(self.stream.feed(chunk)))
        await asyncio.sleep(0)
        return True

    async def _read_rest(self) -> None:
        with self._open() as output:
            while await self._read(output):
                pass
            await self._hand_on(list(self.stream.close()))

    async def _hand_on(self, records: list[HookRecord]) -> None:
        for start in range(0, len(records), _BATCH):
            await self.take(records[start : start + _BATCH])

    def _speak(self) -> None:
        if not self._spoken:
            self._spoken = True
            self.spoke()

    async def _collect(self) -> int | None:
        """The exit code, once nothing of the hook's process group is left."""
        if self._child is None:
            await end_processes(lambda: sorted(set(group(self.pid)) & set(marked(self._own_mark))), self.job.grace)
            return read_exit(self.job.traces.exit)
        code = self._child.wait()
        await end_rest_of_group(self.pid, self.job.grace)
        reap(self.pid)
        written = read_exit(self.job.traces.exit)
        return code if written is None else written

    async def _end(self) -> None:
        if self._child is not None and self._child.returncode is None:
            await end_group(self.pid, self.job.grace)
            self._child.poll()
            reap(self.pid)
        await end_marked(self._own_mark, self.job.grace)

    def _judged(self, code: int | None, timed_out: float | None = None) -> End:
        dismissed = self.job.traces.dismissed.exists()
        number = -code if code is not None and code < 0 else code - 128 if code is not None and code > 128 else None
        if number is not None and 0 < number < 65:
            return End(signal=number, timed_out=timed_out, dismissed=dismissed)
        if code in NOT_STARTED:
            tail = stderr_tail(self.job.traces)
            return End(code=code, unlaunched=f"exit code {code}: {tail.strip()[-300:]}" if tail.strip() else "")
        return End(code=code, timed_out=timed_out, dismissed=dismissed)


def own_mark(mark: str, claim: int) -> str:
    """The mark of the processes of one claim."""
    return f"{mark}{claim};"


async def _undisturbed(work: Awaitable[None]) -> None:
    """Finish ``work`` however often the task is canceled meanwhile."""
    task = asyncio.ensure_future(work)
    while not task.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.shield(task)
    task.result()


def stderr_tail(traces: Traces) -> str:
    """The end of what a hook said to people."""
    try:
        with traces.stderr.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - TAIL))
            return file.read(TAIL).decode("utf-8", "replace")
    except OSError:
        return ""
