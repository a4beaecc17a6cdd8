"""Processes that start in milliseconds: forks of a server which has imported the product already.

Each is a process of its own, with its own arguments, environment, working directory and streams; only the seconds of
importing are spent once. What a start itself does (the installed script, its imports, its streams, the locale) is
tested with real starts instead.
"""

from __future__ import annotations

import array
import atexit
import contextlib
import gc
import importlib
import io
import json
import os
import pkgutil
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
_PRELOADED: Final = (
    *("engine.app", "engine.demo", "engine.doctor", "engine.upkeep", "engine.views.graph", "engine.views.progress"),
    *("engine.authoring.check", "engine.authoring.stage", "engine.authoring.testing"),
    *("alembic.command", "alembic.config", "psycopg", "sqlalchemy.dialects.postgresql.psycopg", "typer._adapters"),
    *("rich.live", "rich.progress", "rich.table", "structlog"),
)
_REQUEST = 1 << 20


class Warm:
    """A running process, as ``subprocess.Popen`` shows one."""

    def __init__(self, pid: int, ending: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._ending = ending

    def poll(self) -> int | None:
        """How it ended, negative for a signal; None while it runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end. Raises subprocess.TimeoutExpired."""
        if self.returncode is None:
            if not select.select([self._ending], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("a warm process", timeout or 0)
            said = os.read(self._ending, 16)
            os.close(self._ending)
            self.returncode = int(said) if said else -signal.SIGKILL
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Signal it, unless it is known to have ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        """SIGTERM."""
        self.send_signal(signal.SIGTERM)


def start(
    call: str,
    arguments: Sequence[str | Path],
    *,
    cwd: Path = ROOT,
    env: Mapping[str, str] | None = None,
    stdin: int | None = None,
    stdout: int = 1,
    stderr: int = 2,
) -> Warm:
    """Start a process that calls ``module:function``; the streams are descriptors, None is an empty one."""
    given = {
        "call": call,
        "arguments": [str(one) for one in arguments],
        "cwd": str(cwd),
        "env": dict(os.environ if env is None else env),
    }
    with open(os.devnull) as nothing:
        return _server().start(given, (nothing.fileno() if stdin is None else stdin, stdout, stderr))


def run(
    call: str,
    arguments: Sequence[str | Path],
    *,
    cwd: Path,
    env: Mapping[str, str],
    text: str = "",
    timeout: float = 100,
) -> tuple[int, str, str]:
    """Run such a process on ``text`` to its end: exit code, output, error output. Raises subprocess.TimeoutExpired."""
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        given.write(text.encode())
        given.seek(0)
        streams = {"stdin": given.fileno(), "stdout": out.fileno(), "stderr": err.fileno()}
        process = start(call, arguments, cwd=cwd, env=env, **streams)
        try:
            code = process.wait(timeout)
        except BaseException:
            process.kill()
            process.wait()
            raise
        for stream in (out, err):
            stream.seek(0)
        return code, out.read().decode(), err.read().decode()


class _Server:
    """This side of the forking server."""

    def __init__(self) -> None:
        mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._channel = mine
        self._lock = threading.Lock()
        for end in (mine, theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _REQUEST)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.warm", str(theirs.fileno())],
                cwd=ROOT,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        atexit.register(self.close)

    def start(self, given: Mapping[str, Any], streams: tuple[int, int, int]) -> Warm:
        ending, told = os.pipe()
        try:
            with self._lock:
                handles = array.array("i", [*streams, told])
                rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, handles)
                self._channel.sendmsg([json.dumps(given).encode()], [rights])
                said = self._channel.recv(16)
        finally:
            os.close(told)
        if not said:
            os.close(ending)
            raise RuntimeError("the server that forks processes has ended; it said why on standard error")
        return Warm(int(said), ending)

    def close(self) -> None:
        self._channel.close()
        self._process.wait()


@cache
def _server() -> _Server:
    return _Server()


def _serve(channel: socket.socket) -> None:
    """Fork until the other side closes the channel, and tell how each process ended."""
    endings: dict[int, int] = {}
    alarm, waker = os.pipe()
    for end in (alarm, waker):
        os.set_blocking(end, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    while True:
        ready = select.select([channel.fileno(), alarm], [], [])[0]
        if alarm in ready:
            os.read(alarm, 4096)
            _bury(endings)
        if channel.fileno() in ready:
            asked, rights, _, _ = channel.recvmsg(_REQUEST, socket.CMSG_SPACE(4 * array.array("i").itemsize))
            if not asked:
                for pid in endings:
                    os.kill(pid, signal.SIGKILL)
                return
            *streams, told = array.array("i", rights[0][2])
            pid = os.fork()
            if pid == 0:
                for end in (channel.detach(), alarm, waker, told, *endings.values()):
                    os.close(end)
                _become(json.loads(asked), streams)
            for stream in streams:
                os.close(stream)
            endings[pid] = told
            channel.send(str(pid).encode())


def _bury(endings: dict[int, int]) -> None:
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            told = endings.pop(pid)
            with contextlib.suppress(BrokenPipeError):
                os.write(told, str(os.waitstatus_to_exitcode(status)).encode())
            os.close(told)


def _become(given: dict[str, Any], streams: Sequence[int]) -> None:
    """Turn this fork into the process that was asked for; never returns."""
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for target, source in enumerate(streams):
            os.dup2(source, target)
            os.close(source)
        os.chdir(given["cwd"])
        os.environ.clear()
        os.environ.update(given["env"])
        tempfile.tempdir = None
        sys.stdin = io.TextIOWrapper(open(0, "rb", closefd=False), encoding="utf-8")  # noqa: SIM115
        sys.stdout = io.TextIOWrapper(open(1, "wb", closefd=False), encoding="utf-8")  # noqa: SIM115
        sys.stderr = io.TextIOWrapper(open(2, "wb", closefd=False), "utf-8", "backslashreplace", line_buffering=True)  # noqa: SIM115
        sys.argv = [given["call"], *given["arguments"]]
        module, _, function = given["call"].partition(":")
        code = _exit_code(getattr(importlib.import_module(module), function)())
    except SystemExit as end:
        code = _exit_code(end.code)
    except BaseException:
        traceback.print_exc()
    finally:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        os._exit(code)


def _exit_code(value: object) -> int:
    if value is None or isinstance(value, int):
        return value or 0
    print(value, file=sys.stderr)
    return 1


def _rehearse() -> None:
    """Let a worker run an op, so that its statements are compiled before any process is forked."""
    from engine import app
    from engine.model import NewOp
    from tests.worker.lab import SITE, Lab
    from tests.worker.noop_process import NoOp

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        lab = Lab(str(folder / "engine.db"), folder)
        lab.submit(NewOp(id="a", kind="noop", site=SITE))
        runners = vars(app)["_runners"]
        vars(app)["_runners"] = lambda *_: {"noop": NoOp(folder / "log")}
        lab.work()
        vars(app)["_runners"] = runners


def _main() -> None:
    import cli
    from tests import statements

    statements.share()
    for name in _PRELOADED:
        importlib.import_module(name)
    for module in pkgutil.iter_modules(cli.__path__, "cli."):
        importlib.import_module(module.name)
    _rehearse()
    gc.collect()
    gc.freeze()
    with socket.socket(fileno=int(sys.argv[1])) as channel:
        _serve(channel)


if __name__ == "__main__":
    _main()
