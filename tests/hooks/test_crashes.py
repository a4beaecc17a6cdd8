"""Workers killed at random over a crawl with daemons and background hooks (HOOK-74 to HOOK-77)."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sqlite3
import time
from pathlib import Path

import pytest

from tests.hooks.crashing import await_file, living, start_worker
from tests.hooks.lab import Lab, record


def claims(lab: Lab, where: str = "1 = 1") -> int:
    """How many claims there have been."""
    with contextlib.closing(sqlite3.connect(lab.settings.engine_db)) as database:
        return int(database.execute(f"SELECT count(*) FROM attempts WHERE {where}").fetchone()[0])


@pytest.mark.parametrize(("kills", "snapshots"), [(10, 20), pytest.param(100, 150, marks=pytest.mark.chaos)])
def test_kills_lose_nothing_double_nothing_and_leave_nothing_running(
    tmp_path: Path, kills: int, snapshots: int
) -> None:
    lab = Lab(tmp_path)
    lab.hook(
        "daemon/on_Snapshot__00_daemon.daemon.bg.sh",
        "setsid -f sleep 900; touch up; trap 'rm -f up; exit 0' TERM; echo up; sleep 900 & wait",
    )
    lab.hook("need/on_Snapshot__10_need.sh", f"test -e ../daemon/up || exit 1; {record(type='Tag', name='needed')}")
    lab.hook(
        "again/on_Snapshot__15_again.sh",
        "[ -e second ] || { touch second; exit 1; }; test -e ../daemon/up || exit 1; "
        + record(type="Tag", name="again"),
    )
    lab.hook("bg/on_Snapshot__20_bg.bg.sh", f"sleep 0.3; {record(type='Tag', name='bg')}; echo x > x.txt")
    lab.hook("fg/on_Snapshot__30_fg.sh", f"{record(type='ArchiveResult', status='succeeded', output_str='ok')}")
    lab.hook("end/on_SnapshotEnd__50_end.sh", record(type="ArchiveResult", status="succeeded", output_str="end"))
    # the storm lasts longer than a minute
    lab.add(*(f"http://a.test/{n}" for n in range(snapshots)), config={"TIMEOUT": 3600})
    dice = random.Random(7)
    for _ in range(kills):
        # each worker ends at least one op: an op that none of five workers survives is given up, and rightly so
        before = claims(lab, "state = 'succeeded'")
        worker = start_worker(lab, "--until-idle")
        while claims(lab, "state = 'succeeded'") == before and worker.poll() is None:
            time.sleep(0.01)
        time.sleep(0.4 * dice.random())
        worker.kill()
        worker.wait()
    lost = claims(lab, "state IN ('lease_lost', 'running')")
    print(f"{kills} kills: {lost} claims lost")
    assert lost >= kills
    worker = start_worker(lab, "--until-idle")
    assert worker.wait(timeout=600) == 0
    assert living(lab) == []
    assert lab.statuses() == ["sealed"] * (snapshots + 1)
    rows = lab.rows("SELECT plugin, status, error, count(*) AS n FROM archive_results GROUP BY 1, 2, 3 ORDER BY 1")
    assert [(row["plugin"], row["status"], row["n"]) for row in rows] == [
        (name, "succeeded", snapshots) for name in ("again", "bg", "daemon", "end", "fg", "need")
    ], rows
    tags = lab.rows("SELECT tag, count(*) AS n FROM snapshot_tags GROUP BY tag ORDER BY tag")
    assert tags == [{"tag": "again", "n": snapshots}, {"tag": "bg", "n": snapshots}, {"tag": "needed", "n": snapshots}]


def test_a_stopped_worker_ends_its_hooks_refunds_them_and_the_next_one_runs_them_again(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    lab.hook("bg/on_Snapshot__05_bg.bg.sh", f"[ -e {tmp_path}/go ] || sleep 600; {record(type='Tag', name='bg')}")
    lab.hook("fg/on_Snapshot__10_fg.sh", f"touch {tmp_path}/up; [ -e {tmp_path}/go ] || sleep 600; exit 10")
    lab.add()
    worker = start_worker(lab, "--drain-timeout", "100ms")
    await_file(tmp_path / "up")
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(timeout=30) in (0, -signal.SIGTERM)
    assert living(lab) == []
    assert {row["attempts"] for row in lab.results("attempts").values()} == {1}
    (tmp_path / "go").touch()
    lab.work()
    rows = lab.results("status, attempts")
    assert [(row["status"], row["attempts"]) for row in rows.values()] == [("succeeded", 1), ("skipped", 1)]


def test_a_daemon_that_died_with_its_machine_is_started_again_before_the_hooks_that_need_it(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    lab.hook(
        "daemon/on_Snapshot__00_daemon.daemon.bg.sh",
        "touch up; trap 'rm -f up; exit 0' TERM; echo up; sleep 900 & wait",
    )
    lab.hook(
        "need/on_Snapshot__10_need.sh",
        f"if [ -e {tmp_path}/go ]; then test -e ../daemon/up || exit 1; exit 10; fi\ntouch {tmp_path}/up; sleep 600",
    )
    lab.add(attempts=1)
    worker = start_worker(lab)
    await_file(tmp_path / "up")
    worker.kill()
    worker.wait()
    for pid in living(lab):
        with contextlib.suppress(ProcessLookupError):  # it may have ended with the worker
            os.kill(pid, signal.SIGKILL)
    (lab.settings.data_dir).mkdir(exist_ok=True)
    for up in lab.settings.data_dir.rglob("daemon/up"):
        up.unlink()
    (tmp_path / "go").touch()
    lab.work(max_workers=1)
    assert [row["status"] for row in lab.results("status").values()] == ["succeeded", "skipped"]
    assert living(lab) == []


def test_a_worker_that_stood_still_writes_nothing_and_ends_nothing_of_its_successors(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    lab.hook(
        "fg/on_Snapshot__10_fg.sh",
        f"echo run >> {tmp_path}/log; while [ ! -e {tmp_path}/go ]; do sleep 0.05; done\n"
        + record(type="Tag", name="x"),
    )
    lab.add()

    def runs() -> int:
        return (tmp_path / "log").read_text().count("run") if (tmp_path / "log").exists() else 0

    def await_runs(number: int) -> None:
        deadline = time.monotonic() + 30
        while runs() < number and time.monotonic() < deadline:
            time.sleep(0.02)
        assert runs() == number

    frozen = start_worker(lab, "--lease-duration", "1s", "--drain-timeout", "0s")
    await_runs(1)
    frozen.send_signal(signal.SIGSTOP)
    successor = start_worker(lab, "--lease-duration", "1s", "--until-idle")
    await_runs(2)
    frozen.send_signal(signal.SIGCONT)
    frozen.terminate()
    frozen.wait(timeout=30)
    assert len(living(lab)) >= 1
    (tmp_path / "go").touch()
    assert successor.wait(timeout=30) == 0
    assert runs() == 2
    (row,) = lab.results("status, exit_code, attempts").values()
    assert (row["status"], row["exit_code"]) == ("succeeded", 0)
    assert living(lab) == []
    assert lab.statuses() == ["sealed", "sealed"]


def test_a_daemon_that_never_comes_back_holds_nobody_up_for_ever(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    lab.hook("daemon/on_Snapshot__00_daemon.daemon.bg.sh", "echo up; sleep 900 & wait")
    lab.hook("need/on_Snapshot__10_need.sh", f"touch {tmp_path}/up; [ -e {tmp_path}/go ] || sleep 600; exit 10")
    lab.add(attempts=1, ready_max=1.0)
    worker = start_worker(lab)
    await_file(tmp_path / "up")
    worker.kill()
    worker.wait()
    for pid in living(lab):
        os.kill(pid, signal.SIGKILL)
    (tmp_path / "go").touch()
    # again silent for ever
    lab.hook("daemon/on_Snapshot__00_daemon.daemon.bg.sh", "sleep 900 & wait")
    lab.work()
    assert [row["status"] for row in lab.results("status").values()] == ["succeeded", "skipped"]
    assert living(lab) == []
