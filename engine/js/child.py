"""The loop of one JS child process: one job at a time, no asyncio, no threads of its own.

An op that wrote to its site DB is committed in two steps: the child sends the result and keeps its transaction open,
the worker validates it and answers, and only then does the child commit it together with its inbox row. A result of
which the worker has nothing to store first is committed at once; that it is about to be is said before.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import traceback
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from engine.clock import SECOND, Clock
from engine.codec import decode_result, encode_result, result_to_dict
from engine.errors import OpError, ScraperError
from engine.js.frozen import WarmIsolates
from engine.js.host import Effects, Host, Identity
from engine.js.hostcall import HostError
from engine.js.isolate import Limits, Realm, execute
from engine.js.jobs import error_to_dict, outcome_data, stands_alone, unpack_site
from engine.js.modules import ModuleRoots
from engine.js.ports import (
    AlreadyApplied,
    CycleSteps,
    DatabaseBusy,
    EngineReads,
    SessionSpec,
    SiteDatabases,
    SiteSession,
    SqlRefused,
    StaleClaim,
)
from engine.js.scan import scan_verbs
from engine.js.wire import ChildChannel, Frame
from engine.model import Result
from engine.plugins.site import Site

_PR_SET_PDEATHSIG = 1
_MIGRATION_LIMITS = Limits(seconds=300.0, heap_bytes=256 << 20)


def die_with_parent(parent: int) -> None:
    """End this process when ``parent`` ends, however it ends. Linux asks the kernel; everywhere EOF ends the loop."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


class Child:
    """Answers the worker's jobs until the channel closes."""

    def __init__(
        self,
        channel: ChildChannel,
        databases: SiteDatabases,
        reads: EngineReads | None,
        clock: Clock,
        cycles: Callable[[], CycleSteps] | None = None,
    ) -> None:
        self._channel = channel
        self._databases = databases
        self._reads = reads
        self._clock = clock
        self._open_cycles = cycles
        self._cycles: CycleSteps | None = None
        self._isolates = WarmIsolates()
        #: Isolates that are closed when the answer is out: nobody waits for that.
        self._spent: list[Realm] = []
        #: Scripts that wrote last time: they take the write lock at their first call.
        self._writers: set[tuple[str, str]] = set()
        self._jobs: Mapping[str, Callable[[dict[str, Any]], None]] = {
            "script": self._script,
            "rehearse": self._rehearse,
            "resolve": self._resolve,
            "verb": self._verb,
            "scan": self._scan,
            "migrate": self._migrate,
            "cycle": self._cycle,
        }

    def serve(self) -> None:
        """Work until the worker closes its end."""
        while True:
            try:
                frame = self._channel.receive()
                self._answer(frame)
                self._dispose()
            except (EOFError, ConnectionError):  # the worker is gone
                return

    def _dispose(self) -> None:
        while self._spent:
            self._spent.pop().close()

    def _answer(self, frame: Frame) -> None:
        job = frame.header
        try:
            self._jobs[job["do"]](job)
        except OpError as error:
            self._channel.send({"say": "failed", "error": error_to_dict(error)})
        except DatabaseBusy as error:
            self._channel.send({"say": "busy", "reason": str(error)})
        except ScraperError as error:
            failure = OpError("site_migration_failed", str(error))
            self._channel.send({"say": "failed", "error": error_to_dict(failure)})

    def _script(self, job: dict[str, Any]) -> None:
        site, spec = unpack_site(job["site"]), SessionSpec(**job["spec"])
        self._databases.migrate(site, self._migration(site))
        for generation in job["fence"]:
            self._databases.fence(site, _at(spec, generation))
        if job["earlier_claims"] and self._replay(site, spec):
            return
        if not job.get("silent"):
            self._channel.send({"say": "started"})
        key = (site.name, job["entry"])
        try:
            self._execute(job, site, spec, writer=key in self._writers)
        except DatabaseBusy:
            # somebody committed between this script's reads and its first write: once more, holding the lock
            self._writers.add(key)
            self._execute(job, site, spec, writer=True)

    def _rehearse(self, job: dict[str, Any]) -> None:
        """Run a script as its op did and tell what came of it; the site DB is not migrated and keeps nothing."""
        site, spec = unpack_site(job["site"]), SessionSpec(**job["spec"])
        try:
            self._execute(job, site, spec, writer=False)
        except DatabaseBusy:
            self._execute(job, site, spec, writer=True)

    def _replay(self, site: Site, spec: SessionSpec) -> bool:
        stored = self._databases.outcome(site, spec)
        if stored is None:
            return False
        self._send_result("done", decode_result(stored))
        return True

    def _execute(self, job: dict[str, Any], site: Site, spec: SessionSpec, *, writer: bool) -> None:
        session = self._databases.session(site, spec, writer=writer)
        roots = [] if site.scripts_root is None else [_root(site, site.scripts_root)]
        modules = ModuleRoots(roots, instead=job["source"])
        identity = Identity(spec.workflow_id, site.name, spec.op_id, self._clock.now())
        host = Host(modules, self._clock, identity=identity, session=session, reads=self._reads)
        try:
            returned = self._isolated(site, host, job)
            data, error = outcome_data(returned)
            if error is not None:
                raise error
        except OpError as error:
            session.rollback()
            if host.busy:
                raise DatabaseBusy(error.message) from error
            self._send_failure(error, host.effects)
            return
        if host.busy:
            session.rollback()
            raise DatabaseBusy("the script caught the error of a busy database")
        if job["do"] == "rehearse":
            session.rollback()
            self._send_result("done", _result(host.effects, data))
            return
        self._finish(site, spec, session, _result(host.effects, data))
        if session.wrote:
            self._writers.add((site.name, job["entry"]))

    def _isolated(self, site: Site, host: Host, job: dict[str, Any]) -> str:
        asked = {"mode": "script", "entry": job["entry"], "ctx": job["ctx"]}
        if site.js.isolation == "frozen":
            return self._isolates.execute((site.name, site.scripts_root), host, asked, _limits(job))
        self._dispose()
        return execute(host, asked, _limits(job), dispose=self._spent.append)

    def _finish(self, site: Site, spec: SessionSpec, session: SiteSession, result: Result) -> None:
        if not session.wrote:
            session.rollback()
            self._send_result("done", result)
            return
        if stands_alone(result):
            self._send_result("committing", result)
        else:
            self._send_result("prepared", result)
            if self._channel.receive().header["do"] != "commit":
                session.rollback()
                self._channel.send({"say": "aborted"})
                return
        try:
            session.commit(encode_result(result))
        except AlreadyApplied:
            stored = self._databases.outcome(site, spec)
            if stored is None:
                raise OpError("fenced", "the op was given up while it ran; its site writes were rolled back") from None
            self._send_result("done", decode_result(stored))
            return
        except StaleClaim:
            raise OpError("fenced", "the claim is older than the inbox; its site writes were rolled back") from None
        except SqlRefused as error:
            self._send_failure(OpError("runner_error", f"the site database refused the commit: {error}"), Effects())
            return
        self._channel.send({"say": "committed"})

    def _resolve(self, job: dict[str, Any]) -> None:
        site, spec = unpack_site(job["site"]), SessionSpec(**job["spec"])
        self._databases.migrate(site, self._migration(site))
        for generation in job["fence"]:
            self._databases.fence(site, _at(spec, generation))
        stored = self._databases.fence(site, spec)
        if stored is None:
            self._channel.send({"say": "closed"})
        else:
            self._send_result("done", decode_result(stored))

    def _verb(self, job: dict[str, Any]) -> None:
        site, spec = unpack_site(job["site"]), SessionSpec(**job["spec"])
        self._databases.migrate(site, self._migration(site))
        session = self._databases.session(site, spec, writer=True)
        assert site.verbs_root is not None
        roots = ModuleRoots([("", site.root), _root(site, site.verbs_root)])
        identity = Identity(spec.workflow_id, site.name, None, self._clock.now())
        host = Host(roots, self._clock, identity=identity, session=session, reads=self._reads)
        call = {"mode": "verb", "entry": job["entry"], "function": job["function"], "ctx": job["ctx"]}
        try:
            returned = execute(host, call, _limits(job))
            session.check()
        except OpError:
            session.rollback()
            raise
        except SqlRefused as error:
            session.rollback()
            raise OpError("runner_error", str(error)) from error
        self._send_result("prepared", _result(host.effects, returned), settings=host.effects.settings)
        if self._channel.receive().header["do"] != "commit":
            session.rollback()
            self._channel.send({"say": "aborted"})
            return
        if session.wrote:
            session.commit(encode_result(Result()))
        session.rollback()
        self._channel.send({"say": "committed"})

    def _cycle(self, job: dict[str, Any]) -> None:
        site = unpack_site(job["site"])
        if self._cycles is None:
            assert self._open_cycles is not None
            self._cycles = self._open_cycles()
        if job["migrate"]:
            self._databases.migrate(site, self._migration(site))
        try:
            answer = self._cycles.run(site, SessionSpec(**job["spec"]), job["task"], self._ask)
        except (OpError, DatabaseBusy, ScraperError, EOFError, ConnectionError):
            raise
        except Exception as error:
            # a database that is full or gone; or a bug: as a death of the child it would be blamed on a hook
            details = {"traceback": traceback.format_exc()}
            raise OpError("site_db_error", f"{type(error).__name__}: {error}", True, details=details) from error
        logs = [[line.at, line.level, line.message] for line in answer.logs]
        self._channel.send({"say": "stepped", "value": answer.value, "logs": logs}, answer.bodies)

    def _ask(self, name: str, arguments: Mapping[str, Any]) -> Any:
        """Let the worker do what only it can. Raises HostError."""
        self._channel.send({"say": "ask", "name": name, "arguments": dict(arguments)})
        answer = self._channel.receive().header
        if answer["do"] == "refuse":
            raise HostError(answer["reason"])
        return answer["value"]

    def _scan(self, job: dict[str, Any]) -> None:
        self._channel.send({"say": "scanned", "files": scan_verbs(unpack_site(job["site"]), self._clock)})

    def _migrate(self, job: dict[str, Any]) -> None:
        site = unpack_site(job["site"])
        report = self._databases.migrate(site, self._migration(site))
        self._channel.send(
            {"say": "migrated", "database": report.database, "applied": list(report.applied), "version": report.version}
        )

    def _migration(self, site: Site) -> Callable[[str, SiteSession], None]:
        def run(path: str, session: SiteSession) -> None:
            assert site.js_migrations_root is not None
            roots = ModuleRoots([_root(site, site.js_migrations_root)])
            host = Host(roots, self._clock, session=session)
            execute(host, {"mode": "migration", "entry": path}, _MIGRATION_LIMITS)

        return run

    def _send_result(self, say: str, result: Result, **more: Any) -> None:
        bodies = [item.body for item in result.artifacts if item.body is not None]
        self._channel.send({"say": say, "result": result_to_dict(result), **more}, bodies)

    def _send_failure(self, error: OpError, effects: Effects) -> None:
        evidence = Result(artifacts=tuple(effects.artifacts), logs=tuple(effects.logs))
        bodies = [item.body for item in evidence.artifacts if item.body is not None]
        answer = {"say": "failed", "error": error_to_dict(error), "result": result_to_dict(evidence)}
        self._channel.send(answer, bodies)


def _at(spec: SessionSpec, generation: int) -> SessionSpec:
    return SessionSpec(
        engine_uuid=spec.engine_uuid,
        op_key=spec.op_key,
        generation=generation,
        claimed_at=spec.claimed_at,
        workflow_id=spec.workflow_id,
        op_id=spec.op_id,
    )


def _limits(job: dict[str, Any]) -> Limits:
    return Limits(seconds=job["timeout"] / SECOND, heap_bytes=job["heap_mb"] << 20)


def _result(effects: Effects, data: str) -> Result:
    return Result(
        data=data,
        records=tuple(effects.records),
        artifacts=tuple(effects.artifacts),
        emitted=tuple(effects.emitted),
        logs=tuple(effects.logs),
    )


def _root(site: Site, folder: Path) -> tuple[str, Path]:
    """A root of modules, and how positions name it: relative to the site's folder."""
    return _shown(site.root, folder), folder


@lru_cache(maxsize=256)
def _shown(root: Path, folder: Path) -> str:
    return str(folder.relative_to(root)) if folder.is_relative_to(root) else folder.name
