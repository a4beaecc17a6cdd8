"""What becomes of due times that come during a run, or while nobody is there; and of those around a change of clocks
(SCHED-30 to SCHED-34)."""

from __future__ import annotations

import threading
from contextlib import closing

import pytest

from engine.clock import MINUTE, SECOND, Micros
from engine.schedules import Cron, Every, Missed, Overlap, workflow_id
from engine.store.store import Store
from engine.timing import GRACE, LONGEST_QUEUE, next_due
from tests.factories import SITE, claim, succeed
from tests.fakes import FakeClock
from tests.schedules.agenda import VERB, Agenda, at

TEN = 10 * MINUTE


def ids(start: Micros, *minutes: int) -> list[str]:
    """The ids of the workflows of due times so many minutes after the start."""
    return [workflow_id(SITE, "s", start + minute * MINUTE) for minute in minutes]


@pytest.mark.parametrize(
    ("overlap", "during", "after", "skipped"),
    [
        # due every ten minutes; the run of minute 10 ends at minute 35
        (Overlap.SKIP, [10], [40], 2),
        (Overlap.QUEUE, [10], [20, 30, 40], 0),
        (Overlap.ALLOW, [10, 20, 30], [40], 0),
    ],
)
def test_due_times_during_a_run_are_passed_over_or_wait_or_run_beside_it(
    agenda: Agenda, overlap: Overlap, during: list[int], after: list[int], skipped: int
) -> None:
    """SCHED-30."""
    start = agenda.clock.now()
    agenda.add(Every(TEN), overlap=overlap)
    assert agenda.pass_time(start + 35 * MINUTE, ends=False) == ids(start, *during)
    agenda.end_all()
    assert agenda.pass_time(start + 45 * MINUTE) == ids(start, *after)
    known = agenda.get()
    assert (known.skipped, known.runs, known.queued) == (skipped, len(during) + len(after), ())
    assert known.due_at == start + 50 * MINUTE


def test_what_waits_runs_one_after_another(light: Agenda) -> None:
    """SCHED-30: never two at a time, in the order of their due times."""
    start = light.clock.now()
    light.add(Every(TEN), overlap=Overlap.QUEUE)
    light.pass_time(start + 35 * MINUTE, ends=False)
    order = []
    for _ in range(3):
        (leased,) = claim(light.store).leased
        order.append(leased.op.workflow.id)
        assert light.look().workflows == []
        succeed(light.store, leased)
        light.look()
    assert order == ids(start, 10, 20, 30)


def test_a_queue_does_not_grow_for_ever(light: Agenda) -> None:
    """SCHED-31."""
    start = light.clock.now()
    light.add(Every(SECOND), overlap=Overlap.QUEUE)
    light.clock.instant = start + SECOND
    light.look()
    with light.store.database.write() as connection:
        full = [start + SECOND] * LONGEST_QUEUE
        connection.exec_driver_sql(f"UPDATE schedule SET queued_json = '{full}'")
    light.clock.instant = start + 2 * SECOND
    light.look()
    known = light.get()
    assert (len(known.queued), known.skipped) == (LONGEST_QUEUE, 1)


@pytest.mark.parametrize("overlap", list(Overlap))
@pytest.mark.parametrize(
    ("missed", "away", "runs"),
    [
        # due at 10, 20, 30 and 40; a worker comes at 47
        (Missed.ONCE, 47 * MINUTE, [40]),
        (Missed.SKIP, 47 * MINUTE, []),
        # in time for the last one
        (Missed.SKIP, 40 * MINUTE + GRACE, [40]),
        (Missed.SKIP, 40 * MINUTE + GRACE + 1, []),
        (Missed.ONCE, 10 * MINUTE, [10]),
    ],
)
def test_due_times_that_nobody_saw_run_once_or_not_at_all(
    light: Agenda, overlap: Overlap, missed: Missed, away: Micros, runs: list[int]
) -> None:
    """SCHED-32, whatever the overlap policy."""
    start = light.clock.now()
    light.add(Every(TEN), overlap=overlap, missed=missed)
    light.clock.instant = start + away
    assert light.look().workflows == ids(start, *runs)
    light.end_all()
    assert light.get().skipped == (away > 10 * MINUTE)
    following = start + (away // TEN + 1) * TEN
    assert light.get().due_at == following
    assert light.pass_time(following) == [workflow_id(SITE, "s", following)]


def test_the_missed_due_times_of_a_cron_schedule_run_once(light: Agenda) -> None:
    """SCHED-32."""
    light.clock.instant = at("2026-01-01 00:00")
    light.add(Cron("0 3 * * *"))
    light.clock.instant = at("2026-02-11 12:00")
    assert light.look().workflows == [workflow_id(SITE, "s", at("2026-02-11 03:00"))]
    assert light.get().due_at == at("2026-02-12 03:00")


def test_a_run_that_outlasts_the_absence_of_all_workers_is_followed_by_one_run(light: Agenda) -> None:
    """SCHED-30, SCHED-32: what nobody saw is missed, and what is left of it waits."""
    start = light.clock.now()
    light.add(Every(TEN), overlap=Overlap.QUEUE)
    assert light.pass_time(start + TEN, ends=False) == ids(start, 10)
    light.clock.instant = start + 47 * MINUTE
    light.look()
    light.end_all()
    assert light.pass_time(start + 47 * MINUTE) == ids(start, 40)


def test_due_times_while_a_verb_is_on_its_way_follow_the_policy(agenda: Agenda) -> None:
    """SCHED-30: a verb that is being run counts as a run."""
    start = agenda.clock.now()
    agenda.add(Every(10 * SECOND), target=VERB, overlap=Overlap.QUEUE)
    agenda.clock.instant = start + 10 * SECOND
    (firing,) = agenda.look().verbs
    agenda.clock.instant = start + 20 * SECOND
    assert agenda.look().seen == 0
    agenda.submit(firing)
    agenda.look()
    assert agenda.get().queued == (start + 20 * SECOND,)


@pytest.mark.parametrize(
    ("begin", "hours"), [("2026-03-28 23:00", 23), ("2026-10-24 22:00", 25)], ids=["spring", "autumn"]
)
def test_two_workers_fire_every_due_time_of_a_day_of_23_or_25_hours_once(
    engine_url: str, clock: FakeClock, begin: str, hours: int
) -> None:
    """SCHED-20, SCHED-4: hourly and daily schedules in a zone whose clocks change, both workers at every due time."""
    clock.instant = at(begin) - 1
    end = at(begin) + hours * 60 * MINUTE - 1
    rules = {"hourly": Cron("0 * * * *", "Europe/Berlin"), "daily": Cron("30 2 * * *", "Europe/Berlin")}
    expected = set()
    for name, rule in rules.items():
        due = next_due(rule, clock.now(), 0)
        while due is not None and due <= end:
            expected.add(workflow_id(SITE, name, due))
            due = next_due(rule, due, due)
    assert len(expected) == hours + 1
    with closing(Store.open(engine_url, clock=clock)) as one, closing(Store.open(engine_url, clock=clock)) as other:
        workers = [Agenda(one, clock), Agenda(other, clock)]
        for name, rule in rules.items():
            workers[0].add(rule, name, overlap=Overlap.ALLOW)
        fired: list[str] = []
        together = threading.Barrier(2)

        def look(worker: Agenda, name: str) -> None:
            together.wait(60)
            fired.extend(worker.look(name).workflows)

        while (due := one.schedules.next_look([SITE], clock.now())) is not None and due <= end:
            clock.instant = due
            threads = [threading.Thread(target=look, args=(worker, str(id(worker)))) for worker in workers]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert workers[0].look().seen == 0
        assert sorted(fired) == sorted(expected) == sorted(workers[0].workflows())
        assert {known.skipped for known in one.schedules.all()} == {0}
