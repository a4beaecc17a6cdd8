"""Hooks as processes: started, watched, timed out, adopted, ended (HOOK-29, HOOK-48, HOOK-53, HOOK-54, HOOK-71)."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from engine.hooks.layout import Place
from engine.hooks.outcome import End
from engine.hooks.process import become_subreaper, bury_forgotten, end_marked, marked, process_of, read_record
from engine.hooks.records import HookRecord
from engine.hooks.supervise import Job, Watch
from engine.liveness import own_identity, start_time
from tests.hooks.plugins import write_hook

MARKED = f"test-{os.getpid()}"


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    become_subreaper()
    yield
    left = marked(f"{MARKED};")
    asyncio.run(end_marked(f"{MARKED};", 0))
    assert left == []


class Bench:
    """Runs one script as a hook."""

    def __init__(self, root: Path, script: str, **values: Any) -> None:
        hook = write_hook(root / "plugins", "p/on_Snapshot__10_p.sh", script)
        place = Place(root / "snap")
        fields: dict[str, Any] = {
            "words": [str(hook)],
            "cwd": place.plugin("p"),
            "environment": {"PATH": os.environ["PATH"]},
            "traces": place.traces("p", hook.name),
            "mark": f"{MARKED};",
            "op": "op",
            "claim": 0,
            "machine": "m",
            "owner": own_identity(),
            "timeout": 30.0,
            "grace": 20.0,
        }
        self.job = Job(**(fields | values))
        self.records: list[HookRecord] = []
        self.watch = Watch(self.job, self._take)

    async def _take(self, records: Sequence[HookRecord]) -> None:
        self.records.extend(records)

    def run(self) -> End:
        return asyncio.run(self.watch.run())

    def during(self, meanwhile: Callable[[asyncio.Task[End]], Coroutine[Any, Any, None]]) -> End:
        async def both() -> End:
            task = asyncio.create_task(self.watch.run())
            await meanwhile(task)
            return await task

        return asyncio.run(both())


async def until(fact: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not fact():  # noqa: ASYNC110 - other processes set no event
            await asyncio.sleep(0.01)


def test_a_hook_runs_in_its_own_directory_and_session_with_an_empty_stdin(tmp_path: Path) -> None:
    bench = Bench(
        tmp_path, 'pwd; wc -c; ps -o sid= -p $$; echo "{\\"type\\": \\"Tag\\", \\"name\\": \\"$0\\"}"; exit 3'
    )
    assert bench.run() == End(code=3)
    directory, read, session = bench.job.traces.stdout.read_text().split("\n")[:3]
    assert directory == str(bench.job.cwd)
    assert read.strip() == "0"
    assert int(session) != os.getsid(0)
    assert [record.data["name"] for record in bench.records] == [bench.job.words[0]]


def test_a_hook_inherits_no_descriptor_and_no_signal_disposition(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    try:
        os.set_inheritable(writing, True)
        bench = Bench(tmp_path, "ls /proc/self/fd | wc -l; grep SigIgn /proc/self/status")
        bench.run()
    finally:
        os.close(reading)
        os.close(writing)
    count, ignored = bench.job.traces.stdout.read_text().splitlines()
    assert int(count) == 4  # three streams, and the directory that ls reads
    name, mask = ignored.split()
    assert (name, int(mask, 16) & 0x7FFF_FFFF) == ("SigIgn:", 0)  # from 32 on they are the C library's own


def test_records_arrive_while_the_hook_runs(tmp_path: Path) -> None:
    go = tmp_path / "go"
    bench = Bench(tmp_path, f"""echo '{{"type": "Tag", "name": "early"}}'; while [ ! -e {go} ]; do sleep 0.02; done""")

    async def meanwhile(task: asyncio.Task[End]) -> None:
        await until(lambda: bench.records)
        assert not task.done()
        go.touch()

    assert bench.during(meanwhile) == End(code=0)


def test_the_end_of_the_process_counts_not_that_of_its_pipes(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "exec 1>&-; echo closed >&2; exit 0")
    assert bench.run() == End(code=0)
    assert bench.job.traces.stderr.read_text() == "closed\n"


def test_at_its_timeout_a_hook_may_still_finish_and_what_it_says_counts(tmp_path: Path) -> None:
    script = """trap 'echo "{\\"type\\": \\"ArchiveResult\\", \\"status\\": \\"succeeded\\"}"; exit 0' TERM
echo ready; while :; do sleep 0.02; done"""
    bench = Bench(tmp_path, script, timeout=0.3)
    assert bench.run() == End(code=0, timed_out=0.3)
    assert [record.type for record in bench.records] == ["ArchiveResult"]


def test_a_hook_that_ignores_sigterm_is_killed_after_the_grace_with_its_whole_group(tmp_path: Path) -> None:
    bench = Bench(
        tmp_path, "trap '' TERM; (sleep 60 & sleep 60) & while :; do sleep 0.02; done", timeout=0.2, grace=0.3
    )
    assert bench.run() == End(signal=signal.SIGKILL, timed_out=0.2)


def test_the_timeout_counts_from_the_start_of_the_hook(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "sleep 60", timeout=0.5)
    assert bench.run().timed_out == 0.5
    assert bench.watch.began + 0.5 <= time.time()


def test_nothing_of_the_group_is_left_when_a_hook_ends(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "sleep 60 & sleep 60 & exit 0")
    assert bench.run() == End(code=0)


def test_a_canceled_run_ends_its_hook_and_the_daemons_it_left(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "setsid -f sleep 61; echo up; sleep 60")

    async def meanwhile(task: asyncio.Task[End]) -> None:
        await until(lambda: len(marked(f"{MARKED};")) >= 3)
        task.cancel()

    with pytest.raises(asyncio.CancelledError):
        bench.during(meanwhile)


@pytest.mark.parametrize(("script", "number"), [("kill -KILL $$", 9), ("kill -SEGV $$", 11)])
def test_death_by_signal_is_told_as_such(tmp_path: Path, script: str, number: int) -> None:
    assert Bench(tmp_path, script).run() == End(signal=number)


def test_a_hook_may_delete_its_own_directory(tmp_path: Path) -> None:
    bench = Bench(tmp_path, """rm -rf "$PWD"; echo '{"type": "Tag", "name": "gone"}'""")
    assert bench.run() == End(code=0)
    assert len(bench.records) == 1
    assert not bench.job.cwd.exists()


def test_a_program_that_cannot_be_started_is_an_outcome(tmp_path: Path) -> None:
    end = Bench(tmp_path, "", words=["/nowhere/program"]).run()
    assert end.code == 127
    assert end.unlaunched


def test_five_hundred_megabytes_neither_fill_memory_nor_hide_the_record_behind_them(tmp_path: Path) -> None:
    script = (
        """head -c 500000000 /dev/zero | tr '\\0' 'x' | fold -w 1000; echo; echo '{"type": "Tag", "name": "end"}'"""
    )
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    bench = Bench(tmp_path, script)
    assert bench.run() == End(code=0)
    assert [record.data["name"] for record in bench.records] == ["end"]
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000
    bench.job.traces.stdout.unlink()


WORKER = """
import asyncio, sys
from pathlib import Path
from tests.hooks.test_supervision import Bench
Bench(Path(sys.argv[1]), sys.argv[2], mark=sys.argv[3]).run()
"""


def start_worker(tmp_path: Path, script: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", WORKER, str(tmp_path), script, f"{MARKED};"], cwd=Path.cwd())


def kill_hooks() -> None:
    """End all hooks at one instant: none of them, and no wrapper, gets to say how it ended."""
    for signal_number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in marked(f"{MARKED};"):
            with suppress(ProcessLookupError):
                os.kill(pid, signal_number)
    asyncio.run(end_marked(f"{MARKED};", 0))


def kill_worker(tmp_path: Path, script: str, ready: Callable[[], object]) -> None:
    worker = start_worker(tmp_path, script)
    asyncio.run(until(ready))
    worker.kill()
    worker.wait()


def test_a_hook_that_outlived_its_worker_is_adopted_with_all_it_has_said(tmp_path: Path) -> None:
    go, place = tmp_path / "go", Place(tmp_path / "snap").traces("p", "on_Snapshot__10_p.sh")
    script = f"""echo '{{"type": "Tag", "name": "one"}}'; while [ ! -e {go} ]; do sleep 0.02; done
echo '{{"type": "Tag", "name": "two"}}'; exit 7"""
    kill_worker(tmp_path, script, lambda: place.pid.exists() and place.stdout.stat().st_size)
    bench = Bench(tmp_path, "echo must not run", claim=1)

    async def meanwhile(_: asyncio.Task[End]) -> None:
        await until(lambda: bench.records)
        go.touch()

    assert bench.during(meanwhile) == End(code=7)
    assert bench.watch.adopted
    assert [record.data["name"] for record in bench.records] == ["one", "two"]


def test_a_hook_that_ended_while_no_worker_lived_is_read_from_its_files(tmp_path: Path) -> None:
    go, place = tmp_path / "go", Place(tmp_path / "snap").traces("p", "on_Snapshot__10_p.sh")
    script = f"""while [ ! -e {go} ]; do sleep 0.02; done; echo '{{"type": "Tag", "name": "late"}}'; exit 5"""
    kill_worker(tmp_path, script, place.pid.exists)
    go.touch()
    asyncio.run(until(place.exit.exists))
    bench = Bench(tmp_path, "echo must not run", claim=1)
    assert bench.run() == End(code=5)
    assert [record.data["name"] for record in bench.records] == ["late"]


def test_a_hook_killed_with_its_worker_runs_again(tmp_path: Path) -> None:
    place = Place(tmp_path / "snap").traces("p", "on_Snapshot__10_p.sh")
    kill_worker(tmp_path, "echo first; sleep 60", place.pid.exists)
    kill_hooks()
    bench = Bench(tmp_path, "echo second", claim=1)
    assert bench.run() == End(code=0)
    assert place.stdout.read_text() == "second\n"


def test_a_reused_pid_is_never_taken_for_the_hook(tmp_path: Path) -> None:
    place = Place(tmp_path / "snap").traces("p", "on_Snapshot__10_p.sh")
    kill_worker(tmp_path, "sleep 60", place.pid.exists)
    record = read_record(place.pid)
    assert record is not None
    kill_hooks()
    innocent = subprocess.Popen(["sleep", "30"])
    try:
        text = place.pid.read_text().replace(f'"pid": {record.pid}', f'"pid": {innocent.pid}')
        place.pid.write_text(text)
        bench = Bench(tmp_path, "exit 4", claim=1)
        assert bench.run() == End(code=4)
        assert innocent.poll() is None
    finally:
        innocent.kill()
        innocent.wait()


def test_a_foreign_pid_file_is_only_believed_if_the_process_fits_it(tmp_path: Path) -> None:
    file = tmp_path / "browser.pid"
    since = time.time()
    process = subprocess.Popen(["sleep", "30"])
    try:
        file.write_text(f"{process.pid}\n")
        assert process_of(file, since) == process.pid
        assert process_of(file, since + 60) is None
        os.utime(file, (since - 60, since - 60))
        assert process_of(file, since) is None
        for junk in ("", "junk", "1", "0", "-5", str(os.getpid()), str(os.getppid()), "99999999"):
            file.write_text(junk)
            assert process_of(file, since) is None
    finally:
        process.kill()
        process.wait()
    assert start_time(process.pid) is None


def test_fifty_background_hooks_run_at_once(tmp_path: Path) -> None:
    benches = [Bench(tmp_path / str(n), f"sleep 0.5; exit {n}") for n in range(50)]

    async def all_of_them() -> list[End]:
        return await asyncio.gather(*(bench.watch.run() for bench in benches))

    began = time.monotonic()
    assert asyncio.run(all_of_them()) == [End(code=n) for n in range(50)]
    assert time.monotonic() - began < 20


def test_dead_children_that_hooks_left_behind_are_buried_at_the_second_look(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "setsid -f sh -c 'echo $$ > pid; exec sleep 0.2'; while [ ! -s pid ]; do sleep 0.01; done")
    bench.run()
    pid = int((bench.job.cwd / "pid").read_text())
    asyncio.run(until(lambda: start_time(pid) is None))
    seen = bury_forgotten(frozenset())
    assert pid in {number for number, _ in seen}
    bury_forgotten(seen)
    assert not Path(f"/proc/{pid}").exists()
