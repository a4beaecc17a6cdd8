"""Hooks that run again beside and after the others (HOOK-56, HOOK-57, HOOK-65)."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.app import open_store
from engine.clock import MILLISECOND, SECOND
from engine.hooks.daemons import State, daemons, is_over, need, need_no_more
from engine.hooks.graph import HookInput
from engine.hooks.layout import CLOSED, Place
from engine.hooks.process import PidRecord, write_record
from engine.hooks.turn import Turn
from engine.liveness import identity, own_identity
from engine.model import Lease, Op, RetryPolicy, Workflow, WorkflowStatus
from engine.runners.base import RunContext
from engine.runners.hook import hook_runner
from tests.hooks.crashing import living
from tests.hooks.lab import SITE, Lab

DAEMON = "touch up; trap 'rm -f up; exit 0' TERM; echo up; sleep 900 & wait"


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    made = Lab(tmp_path)
    yield made
    assert living(made) == []


def test_a_retry_after_the_seal_has_the_daemons_of_the_first_attempt(lab: Lab) -> None:
    lab.hook("chrome/on_CrawlSetup__90_chrome.daemon.bg.sh", DAEMON)
    lab.hook("tab/on_Snapshot__05_tab.daemon.bg.sh", f'test -e "$CRAWL_DIR/chrome/up" || exit 1\n{DAEMON}')
    lab.hook(
        "pdf/on_Snapshot__50_pdf.sh",
        '[ -e second ] || { touch second; exit 1; }; test -e ../tab/up && test -e "$CRAWL_DIR/chrome/up" && exit 10',
    )
    lab.add(retry_delay=3600 * SECOND, attempts=2)
    lab.work(until_idle=False, until=lambda: lab.statuses() == ["sealed", "sealed"])
    assert living(lab) == []
    with contextlib.closing(open_store(lab.settings)) as store:
        assert store.hurry("c1") == 1
    lab.work()
    rows = lab.results("status, attempts").values()
    assert [(row["plugin"], row["status"], row["attempts"]) for row in rows] == [
        ("chrome", "succeeded", 1),
        ("tab", "succeeded", 1),
        ("pdf", "skipped", 2),
    ]
    assert lab.statuses() == ["sealed", "sealed"]


def test_a_retry_never_runs_beside_another_foreground_hook_of_its_snapshot(lab: Lab) -> None:
    alone = f"mkdir {lab.folder}/page || touch {lab.folder}/clash; sleep 0.4; rmdir {lab.folder}/page; exit 10"
    lab.hook("a/on_Snapshot__10_a.sh", f"[ -e second ] || {{ touch second; exit 1; }}; {alone}")
    lab.hook("b/on_Snapshot__20_b.sh", alone)
    lab.hook("c/on_Snapshot__30_c.sh", alone)
    lab.crawl(retry_delay=MILLISECOND, attempts=2)
    assert not (lab.folder / "clash").exists()
    assert [row["status"] for row in lab.results("status").values()] == ["skipped"] * 3
    assert lab.statuses() == ["sealed", "sealed"]


def test_the_turn_is_one_hooks_at_a_time_and_over_with_its_process(tmp_path: Path) -> None:
    place, worker = Place(tmp_path), own_identity()
    gone = f"{worker.rpartition(' ')[0]} 1"  # this pid, at another time
    traces = [place.traces("p", f"on_Snapshot__{number}0_x.sh") for number in (1, 2)]
    first, second = (Turn(place, one, worker) for one in traces)
    assert first.take()
    assert second.take(), "without a directory there is nothing to keep others from"
    place.private.mkdir()
    assert first.take()
    assert not second.take()
    assert Turn(place, traces[0], gone).take(), "a later claim of the same hook takes over"
    first.give_back()
    assert second.take(), "the later worker is dead"
    second.give_back()
    assert first.take()
    first.give_back()
    # a worker that is gone; its hook runs on, then ends
    assert Turn(place, traces[0], gone).take()
    child = subprocess.Popen(["sleep", "60"])
    known = {"pid": child.pid, "process": identity(child.pid), "owner": "", "machine": "m", "op": "o"}
    write_record(traces[0].pid, PidRecord(**known, claim=0, began=0.0))  # type: ignore[arg-type]
    assert not second.take()
    child.kill()
    child.wait()
    assert second.take()


def test_how_a_daemon_stands_is_read_from_its_traces(tmp_path: Path) -> None:
    crawl, place = Place(tmp_path / "crawl"), Place(tmp_path / "snap")
    for one in (crawl, place):
        one.private.mkdir(parents=True)
    child = subprocess.Popen(["sleep", "60"])
    known = {"pid": child.pid, "process": identity(child.pid), "machine": "m", "op": "o", "claim": 0}
    late = place.traces("z", "on_Snapshot__05_z.daemon.bg.sh")
    for traces in (
        place.traces("a", "on_Snapshot__10_a.daemon.bg.sh"),
        late,
        crawl.traces("c", "on_Crawl__90_c.daemon.bg.sh"),
    ):
        write_record(traces.pid, PidRecord(**known, owner=own_identity(), began=time.time()))  # type: ignore[arg-type]
    write_record(place.traces("b", "on_Snapshot__10_b.sh").pid, PidRecord(**known, owner="", began=0.0))  # type: ignore[arg-type]
    found = list(daemons((crawl, place)))
    assert [one.label for one in found] == [
        "c/on_Crawl__90_c.daemon.bg.sh",
        "z/on_Snapshot__05_z.daemon.bg.sh",
        "a/on_Snapshot__10_a.daemon.bg.sh",
    ]
    daemon = found[1]
    assert daemon.state(60.0) is State.CHANGING, "it has not spoken yet"
    assert daemon.state(0.0) is State.SETTLED, "nobody waits for ever"
    late.stdout.write_text("up")
    assert daemon.state(60.0) is State.SETTLED
    late.dismissed.touch()
    assert daemon.state(60.0) is State.CHANGING, "it is just being ended"
    child.kill()
    child.wait()
    assert daemon.state(60.0) is State.DISMISSED
    late.dismissed.unlink()
    assert daemon.state(60.0) is State.SETTLED, "its worker lives and sees to it"
    gone = f"{own_identity().rpartition(' ')[0]} 1"
    write_record(late.pid, PidRecord(**known, owner=gone, began=0.0))  # type: ignore[arg-type]
    assert daemon.state(60.0) is State.CHANGING, "it died with its worker: its op runs again"
    late.exit.write_text("0")
    assert daemon.state(60.0) is State.SETTLED, "it ended by itself"


def test_daemons_are_over_when_all_is_that_is_known_to_need_them(tmp_path: Path) -> None:
    crawl, place, other = (Place(tmp_path / name) for name in ("crawl", "snap", "other"))
    for one in (crawl, place, other):
        one.private.mkdir(parents=True)
        assert not is_over(one)
        (one.private / CLOSED).touch()
        assert is_over(one)
    hooks = [one.traces("p", "on_Snapshot__10_p.sh") for one in (place, other)]
    need((crawl, place), hooks[0])
    need((crawl, other), hooks[1])
    assert not any(map(is_over, (crawl, place, other)))
    need_no_more((crawl, place), hooks[0])
    assert (is_over(crawl), is_over(place)) == (False, True)
    need_no_more((crawl, other), hooks[1])
    assert is_over(crawl)


def test_a_hook_whose_outcome_outlived_its_worker_lets_the_daemons_go(lab: Lab) -> None:
    """Killed between the commit in the site DB and the end of the run, it does not run again."""
    lab.hook("p/on_Snapshot__10_p.sh", "exit 10")
    lab.crawl()
    with contextlib.closing(open_store(lab.settings)) as store:
        with store.database.read() as connection:
            sql = "SELECT o.pk, o.id, o.input_json, w.input_json FROM op o JOIN workflow w ON w.pk = o.workflow_pk"
            pk, name, given, spec = connection.exec_driver_sql(f"{sql} WHERE o.id LIKE '%_p.sh'").one()
        uuid, clock = store.uuid, store.clock
    hook = HookInput.load(given)
    place = Place(Path(hook.scope.root))
    need((place,), place.traces(hook.plugin, hook.file))
    (place.private / CLOSED).touch()
    assert not is_over(place)
    workflow = Workflow(
        id="c1", site=SITE, name="", status=WorkflowStatus.RUNNING, input=spec, metadata={"crawl": "true"}
    )
    op = Op(
        pk=pk,
        id=name,
        workflow=workflow,
        kind="hook",
        site=SITE,
        queue="hooks:fg",
        dedup_key="",
        parent_id=None,
        input=given,
        metadata={"task": "hook"},
        retry=RetryPolicy(),
        created_at=clock.now(),
        generation=0,
    )
    lease = Lease(
        op_pk=pk, token="t", worker_id="w", acquired_at=clock.now(), expires_at=0, attempt=1, earlier_claims=1
    )
    unused: Any = None
    ctx = RunContext(
        op=op, lease=lease, site=lab.site, engine_uuid=uuid, started=lambda: None, prepare=unused, cookies=unused
    )

    async def again() -> str | None:
        runner = hook_runner(lab.settings, clock)
        try:
            return (await runner.run(ctx)).data
        finally:
            await runner.aclose()

    assert '"skipped"' in str(asyncio.run(again()))
    assert is_over(place)
