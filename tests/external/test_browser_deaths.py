"""Browsers die with their op, whatever happens (docs/reference/browser.md)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from engine.browser.scratch import PREFIX, processes_of
from engine.errors import OpError
from engine.model import NewOp, RetryPolicy
from engine.store.store import Store
from tests.cli.console import SCRIPT, clean_env, make_site
from tests.external.browsing import PATIENCE, html, patient_runner
from tests.factories import SITE, statuses, submit
from tests.runners.ops import Context, fetch_op
from tests.servers import Call, Server, serve

pytestmark = pytest.mark.external


def eventually(holds: Callable[[], bool]) -> bool:
    """Whether something comes true in time: processes of others die without telling."""
    deadline = time.monotonic() + PATIENCE
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.02)
    return holds()


def commands(folder: Path) -> dict[int, str]:
    """The processes of the browsers that work in a directory, by pid."""
    found = {}
    for pid in processes_of(folder / PREFIX):
        try:
            found[pid] = Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
        except OSError:
            continue
    return found


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where browsers work during a test: pytest's own directories have too long names for them."""
    with tempfile.TemporaryDirectory(prefix="deaths-", dir="/tmp") as name:
        monkeypatch.setenv("TMPDIR", name)
        monkeypatch.setattr("tempfile.tempdir", name)
        yield Path(name).resolve()


def asked(server: Server) -> bool:
    """Whether Chromium is waiting for the page."""
    return "/never" in server.paths()


async def run_until(server: Server, then: Callable[[asyncio.Task[object]], None]) -> object:
    """Run an op on a page that never comes; do something when Chromium waits for it; the op's end."""
    op = fetch_op({"request": {"url": f"{server.url}/never"}}, kind="browser/fetch")
    async with patient_runner() as runner:
        task: asyncio.Task[object] = asyncio.create_task(runner.run(Context(op).run))
        assert await asyncio.to_thread(eventually, lambda: asked(server))
        then(task)
        return await task


def test_a_canceled_op_leaves_nothing(temporary: Path) -> None:
    """BRW-41: when its task is over its processes and files are gone."""

    def cancel(task: asyncio.Task[object]) -> None:
        task.cancel()

    with serve({"/never": Call.wait_for_client_to_leave}) as server, pytest.raises(asyncio.CancelledError):
        asyncio.run(run_until(server, cancel))
    assert commands(temporary) == {}
    assert list(temporary.iterdir()) == []


def test_a_chromium_that_is_killed_fails_its_op_for_now(temporary: Path) -> None:
    """BRW-30, BRW-41."""

    def kill(_: object) -> None:
        (main,) = [
            pid
            for pid, words in commands(temporary).items()
            if "--remote-debugging-pipe" in words and "--type=" not in words
        ]
        os.kill(main, signal.SIGKILL)

    with serve({"/never": Call.wait_for_client_to_leave}) as server, pytest.raises(OpError) as failed:
        asyncio.run(run_until(server, kill))
    assert (failed.value.code, failed.value.retryable) == ("browser_failed", True)
    assert commands(temporary) == {}
    assert list(temporary.iterdir()) == []


def test_a_host_that_is_killed_fails_its_op_for_now(temporary: Path) -> None:
    """BRW-41: the owner ends what the host has started."""

    def kill(_: object) -> None:
        (host,) = [pid for pid, words in commands(temporary).items() if "engine.browser.host" in words]
        os.kill(host, signal.SIGKILL)

    with serve({"/never": Call.wait_for_client_to_leave}) as server, pytest.raises(OpError) as failed:
        asyncio.run(run_until(server, kill))
    assert (failed.value.code, failed.value.retryable) == ("browser_failed", True)
    assert commands(temporary) == {}


@contextlib.contextmanager
def worker_of(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A worker process on the databases in ``folder``; killed at the end."""
    flags = ("--until-idle", "--engine-db", "engine.db", "--sites-dir", "state", "--sites-manifest-dir", "plugins")
    with (folder / "worker.log").open("ab") as log:
        worker = subprocess.Popen(
            [SCRIPT, "worker", "run", *flags],
            cwd=folder,
            env=clean_env(folder / "home", TMPDIR=os.environ["TMPDIR"]),
            stdout=log,
            stderr=log,
        )
    try:
        yield worker
    finally:
        worker.kill()
        worker.wait()


def submit_page(folder: Path, url: str) -> None:
    """Store an op that opens a page."""
    make_site(folder / "plugins" / SITE, SITE)
    with closing(Store.open(str(folder / "engine.db"))) as store:
        given = {"request": {"url": url}, "browser": {"screenshot": False}}
        retry = RetryPolicy(max_attempts=3)
        submit(store, [NewOp(id="page", kind="browser/fetch", site=SITE, input=json.dumps(given), retry=retry)])


def test_no_browser_outlives_a_worker_that_is_killed(tmp_path: Path, temporary: Path) -> None:
    """BRW-41: kill -9, and nobody starts another worker."""
    with serve({"/never": Call.wait_for_client_to_leave}) as server:
        submit_page(tmp_path, f"{server.url}/never")
        with worker_of(tmp_path):
            assert eventually(lambda: asked(server)), (tmp_path / "worker.log").read_text()
            assert any("--type=renderer" in words for words in commands(temporary).values())
        assert eventually(lambda: commands(temporary) == {}), commands(temporary)
        assert eventually(lambda: not list(temporary.glob(f"{PREFIX}*")))


def test_a_browser_whose_guards_were_killed_too_is_ended_by_the_next_worker(tmp_path: Path, temporary: Path) -> None:
    """BRW-42: even one that does not react to anything; the op is done then."""
    answers: list[Callable[[Call], None]] = [Call.wait_for_client_to_leave]
    with serve({"/never": lambda call: answers[-1](call)}) as server:
        submit_page(tmp_path, f"{server.url}/never")
        with worker_of(tmp_path) as worker:
            assert eventually(lambda: asked(server)), (tmp_path / "worker.log").read_text()
            found = commands(temporary)
            guards = [pid for pid, words in found.items() if "engine.browser.host" in words or "run-driver" in words]
            assert len(guards) == 2
            stopped = [pid for pid, words in found.items() if "/chromium" in words.split(" ")[0]]
            assert stopped
            for pid in stopped:
                os.kill(pid, signal.SIGSTOP)
            for pid in (worker.pid, *guards):
                os.kill(pid, signal.SIGKILL)
        assert set(stopped) & commands(temporary).keys()
        answers.append(html("<title>here</title>"))
        with worker_of(tmp_path) as worker:
            assert worker.wait(PATIENCE) == 0
        with closing(Store.open(str(tmp_path / "engine.db"))) as store:
            assert statuses(store) == {"page": "succeeded"}
    assert commands(temporary) == {}
    assert not list(temporary.glob(f"{PREFIX}*"))
