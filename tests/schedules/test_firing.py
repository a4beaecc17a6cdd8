"""Due times become workflows exactly once, whoever looks (SCHED-20 to SCHED-26, SCHED-33)."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from sqlalchemy import update

from engine.clock import MINUTE, SECOND
from engine.errors import LeaseLost, OpError, UsageError
from engine.model import NewOp, Result, WorkflowStatus
from engine.outcome import Failed, Succeeded
from engine.schedules import After, Cron, Every, Missed, NewSchedule, OpsTarget, Origin, Overlap
from engine.store.firing import HOLD, PAUSE, TRIES
from engine.store.schema import schedule
from engine.store.store import Store
from tests.factories import SITE, claim, claim_one, settle, statuses, succeed
from tests.fakes import FakeClock
from tests.schedules.agenda import VERB, Agenda, at, ops


def test_a_due_time_becomes_one_workflow_that_knows_where_it_comes_from(agenda: Agenda) -> None:
    agenda.clock.instant = at("2026-01-05 10:00")
    agenda.add(Cron("30 10 * * *"), target=ops("a", "b"))
    assert agenda.look().workflows == []
    agenda.clock.instant = at("2026-01-05 10:30") + 7
    assert agenda.look().workflows == ["shop/s@20260105T103000Z"]
    assert agenda.look().workflows == []
    leased = claim(agenda.store).leased
    assert {item.op.id for item in leased} == {"a", "b"}
    assert leased[0].op.workflow.metadata == {
        "schedule": "shop/s",
        "scheduledFor": "2026-01-05T10:30:00.000000Z",
        "scheduleRun": "1",
    }
    known = agenda.get()
    assert (known.runs, known.due_at, known.last_workflow) == (
        1,
        at("2026-01-06 10:30"),
        "shop/s@20260105T103000Z",
    )


def test_two_workers_that_look_at_once_fire_each_due_time_once(agenda: Agenda) -> None:
    for number in range(40):
        agenda.add(Every(MINUTE), f"s{number}")
    agenda.clock.advance(MINUTE)
    made: list[str] = []

    def work(worker: str) -> None:
        while fired := agenda.look(worker).workflows:
            made.extend(fired)

    threads = [threading.Thread(target=work, args=(f"w{number}",)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    made += agenda.look().workflows
    assert len(made) == len(set(made)) == 40
    assert sorted(agenda.workflows()) == sorted(made)
    assert {known.runs for known in agenda.store.schedules.all()} == {1}


def test_a_verb_is_held_by_one_worker_until_what_it_emitted_is_stored(agenda: Agenda) -> None:
    agenda.add(Every(MINUTE), target=VERB)
    agenda.clock.advance(MINUTE)
    (firing,) = agenda.look("w1").verbs
    assert agenda.look("w2").verbs == []
    agenda.submit(firing)
    assert agenda.workflows() == [firing.workflow_id]
    assert agenda.get().runs == 1
    assert claim_one(agenda.store).op.workflow.metadata["submitVerb"] == "s"
    with pytest.raises(LeaseLost):
        agenda.submit(firing)


def test_the_verb_of_a_worker_that_died_is_run_again_under_the_same_id_and_stored_once(agenda: Agenda) -> None:
    agenda.add(Every(MINUTE), target=VERB)
    agenda.clock.advance(MINUTE)
    (dead,) = agenda.look("w1").verbs
    agenda.clock.advance(HOLD - 1)
    assert agenda.look("w2").verbs == []
    agenda.clock.advance(1)
    (taken,) = agenda.look("w2").verbs
    assert (taken.workflow_id, taken.due) == (dead.workflow_id, dead.due)
    agenda.submit(taken)
    with pytest.raises(LeaseLost):
        agenda.submit(dead)
    assert agenda.workflows() == [taken.workflow_id]


def test_a_worker_that_is_proved_dead_leaves_its_firings_at_once(agenda: Agenda) -> None:
    agenda.add(Every(MINUTE), target=VERB)
    agenda.clock.advance(MINUTE)
    (dead,) = agenda.look("w1").verbs
    agenda.store.bury_worker("w1")
    (taken,) = agenda.look("w2").verbs
    assert taken.due == dead.due


def test_a_worker_that_lives_keeps_what_it_holds_and_one_that_stops_lets_it_go(agenda: Agenda) -> None:
    agenda.add(Every(MINUTE), target=VERB)
    agenda.clock.advance(MINUTE)
    (firing,) = agenda.look("w1").verbs
    agenda.clock.advance(HOLD - 1)
    agenda.store.schedules.extend([firing.token])
    agenda.clock.advance(HOLD - 1)
    assert agenda.look("w2").verbs == []
    agenda.store.schedules.release([firing.token])
    assert [taken.due for taken in agenda.look("w2").verbs] == [firing.due]


def test_a_verb_that_fails_is_tried_again_and_then_given_up(agenda: Agenda) -> None:
    agenda.add(Every(60 * MINUTE), target=VERB)
    agenda.clock.advance(60 * MINUTE)
    for number in range(TRIES):
        (firing,) = agenda.look().verbs
        assert agenda.store.schedules.fail(firing, "no luck") is (number == TRIES - 1)
        assert agenda.get().error == "no luck"
        assert agenda.look().verbs == []
        agenda.clock.advance(PAUSE << number)
    assert agenda.look().verbs == []
    known = agenda.get()
    assert (known.runs, known.firing, known.due_at) == (0, None, firing.due + 60 * MINUTE)
    agenda.clock.instant = firing.due + 60 * MINUTE
    (fresh,) = agenda.look().verbs
    agenda.submit(fresh)
    assert agenda.get().error is None


def test_a_verb_that_kills_its_workers_is_given_up(agenda: Agenda) -> None:
    agenda.add(Every(60 * MINUTE), target=VERB)
    agenda.clock.advance(60 * MINUTE)
    for _ in range(TRIES):
        assert agenda.look().verbs
        agenda.clock.advance(HOLD)
    ((key, reason),) = agenda.look().refused
    assert (key, "given up" in reason) == ("shop/s", True)
    assert agenda.get().firing is None


def test_verbs_beyond_what_a_worker_can_run_wait_and_hold_no_list_of_ops_up(agenda: Agenda) -> None:
    for name in ("v1", "v2", "v3"):
        agenda.add(Every(MINUTE), name, target=VERB)
    agenda.add(Every(MINUTE), "z")
    agenda.clock.advance(MINUTE)
    fired = agenda.look(verbs=2)
    assert (len(fired.verbs), len(fired.workflows)) == (2, 1)
    assert agenda.look(verbs=0).seen == 0
    assert len(agenda.look("w2", verbs=2).verbs) == 1


def test_ops_that_cannot_be_stored_spoil_nobody_elses_firing(agenda: Agenda) -> None:
    bad = (NewOp(id="a", kind="js", site=SITE), NewOp(id="b", kind="js", site=SITE, workflow_id="nowhere"))
    agenda.add(Every(MINUTE), "bad", target=OpsTarget(bad, name="bad"))
    agenda.add(Every(MINUTE), "good")
    agenda.clock.advance(MINUTE)
    fired = agenda.look()
    assert [key for key, _ in fired.refused] == ["shop/bad"]
    assert len(fired.workflows) == 1
    known = agenda.get("bad")
    assert "nowhere" in str(known.error)
    assert known.due_at == agenda.clock.now() + MINUTE


def test_a_schedule_that_makes_no_sense_on_this_machine_holds_nobody_up(agenda: Agenda) -> None:
    agenda.add(Every(MINUTE), "odd")
    agenda.add(Every(MINUTE), "good")
    with agenda.store.database.write() as connection:
        rule = '{"cron": "0 4 * * *", "timezone": "Mars/Olympus"}'
        connection.execute(update(schedule).where(schedule.c.name == "odd").values(rule_json=rule))
    agenda.clock.advance(MINUTE)
    assert len(agenda.look().workflows) == 1
    assert agenda.look().seen == 0
    assert "Mars/Olympus" in str(agenda.get("odd").error)


def test_a_value_that_the_database_cannot_hold_spoils_nobody_elses_firing(agenda: Agenda) -> None:
    bad = (NewOp(id="a", kind="js", site=SITE, not_before=1 << 70),)
    agenda.add(Every(MINUTE), "bad", target=OpsTarget(bad, name="bad"))
    agenda.add(Every(MINUTE), "good")
    agenda.clock.advance(MINUTE)
    fired = agenda.look()
    assert ([key for key, _ in fired.refused], len(fired.workflows)) == (["shop/bad"], 1)


def test_a_workflow_that_is_there_already_counts_as_the_firing(agenda: Agenda) -> None:
    agenda.add(Every(MINUTE))
    agenda.clock.advance(MINUTE)
    (made,) = agenda.look().workflows
    agenda.store.schedules.delete(SITE, "s", Origin.OPERATOR)
    agenda.clock.advance(-MINUTE)
    agenda.add(Every(MINUTE))
    agenda.clock.advance(MINUTE)
    assert agenda.look().refused == []
    assert agenda.workflows() == [made]
    assert agenda.get().last_workflow == made


def test_the_delay_counts_from_the_end_of_the_run(agenda: Agenda) -> None:
    agenda.add(After(10 * MINUTE))
    (first,) = agenda.look().workflows
    agenda.clock.advance(60 * MINUTE)
    assert agenda.look().workflows == []
    assert agenda.get().due_at is None
    agenda.end_all()
    assert agenda.get().due_at == agenda.clock.now() + 10 * MINUTE
    agenda.clock.advance(10 * MINUTE - 1)
    assert agenda.look().workflows == []
    agenda.clock.advance(1)
    (second,) = agenda.look().workflows
    assert first != second


@pytest.mark.parametrize("ending", ["failed", "canceled"])
def test_a_run_that_does_not_succeed_stops_no_schedule(agenda: Agenda, ending: str) -> None:
    agenda.add(After(MINUTE))
    (made,) = agenda.look().workflows
    if ending == "failed":
        agenda.end_all(Failed(OpError("x", "x")))
    else:
        agenda.store.cancel(made)
    assert agenda.store.workflow_status(made) == WorkflowStatus(ending)
    agenda.clock.advance(MINUTE)
    assert len(agenda.look().workflows) == 1


def test_an_op_may_say_that_the_run_is_over_for_its_schedule(agenda: Agenda) -> None:
    agenda.add(After(10 * MINUTE), target=ops("finished", "deliver"))
    agenda.look()
    by_id = {item.op.id: item for item in claim(agenda.store).leased}
    settle(agenda.store, (by_id["finished"], Succeeded(Result(reschedule=MINUTE))))
    assert agenda.get().due_at == agenda.clock.now() + MINUTE
    agenda.clock.advance(MINUTE)
    assert len(agenda.look().workflows) == 1
    succeed(agenda.store, by_id["deliver"])
    assert agenda.get().due_at is None, "the end of an older run means nothing to the one under way"


def test_an_outcome_whose_lease_is_lost_reschedules_nothing(agenda: Agenda) -> None:
    agenda.add(After(10 * MINUTE), target=ops("finished", "deliver"))
    (made,) = agenda.look().workflows
    leased = claim_one(agenda.store)
    agenda.store.cancel(made)
    agenda.clock.advance(SECOND)
    before = agenda.get().due_at
    settle(agenda.store, (leased, Succeeded(Result(reschedule=MINUTE))))
    assert agenda.get().due_at == before


def test_a_run_without_ops_has_ended_at_once(agenda: Agenda) -> None:
    agenda.add(After(MINUTE), target=ops())
    assert len(agenda.pass_time(agenda.clock.now() + 3 * MINUTE)) == 4


def test_ops_are_pinned_to_their_machine_when_they_are_fired(agenda: Agenda) -> None:
    agenda.add(Every(MINUTE))
    agenda.clock.advance(MINUTE)
    agenda.look()
    assert claim(agenda.store, machine="m2").leased == ()
    assert claim_one(agenda.store, "a")


def test_a_paused_schedule_fires_nothing_and_what_passed_meanwhile_is_not_missed(agenda: Agenda) -> None:
    agenda.add(Every(10 * MINUTE), missed=Missed.ONCE)
    start = agenda.clock.now()
    agenda.store.schedules.pause(SITE, "s")
    assert agenda.pass_time(start + 35 * MINUTE) == []
    agenda.store.schedules.resume(SITE, "s")
    assert agenda.get().due_at == start + 40 * MINUTE
    assert len(agenda.pass_time(start + 50 * MINUTE)) == 2


def test_a_run_that_ends_during_a_pause_counts_when_its_schedule_is_resumed(agenda: Agenda) -> None:
    agenda.add(After(MINUTE))
    agenda.look()
    agenda.store.schedules.pause(SITE, "s")
    agenda.end_all()
    assert agenda.pass_time(agenda.clock.now() + 5 * MINUTE) == []
    agenda.store.schedules.resume(SITE, "s")
    assert len(agenda.look().workflows) == 1


def test_a_run_on_demand_fires_a_paused_schedule_and_waits_for_the_run_under_way(agenda: Agenda) -> None:
    agenda.add(Every(60 * MINUTE))
    due = agenda.get().due_at
    agenda.store.schedules.pause(SITE, "s")
    first = agenda.store.schedules.run(SITE, "s", lambda op: op)
    assert agenda.workflows() == [first]
    second = agenda.store.schedules.run(SITE, "s", lambda op: op)
    assert agenda.workflows() == [first]
    agenda.end_all()
    assert agenda.look().workflows == [second]
    assert agenda.get().due_at == due
    with pytest.raises(UsageError, match="did you mean"):
        agenda.store.schedules.run(SITE, "S", lambda op: op)


def test_a_run_on_demand_of_a_verb_is_left_to_a_worker(agenda: Agenda) -> None:
    agenda.add(Every(60 * MINUTE), target=VERB)
    promised = agenda.store.schedules.run(SITE, "s", lambda op: op)
    (firing,) = agenda.look().verbs
    assert firing.workflow_id == promised


def test_a_schedule_under_the_same_rule_keeps_its_due_time_and_its_pause(agenda: Agenda) -> None:
    rule = Every(60 * MINUTE)
    agenda.add(rule)
    due = agenda.get().due_at
    agenda.store.schedules.pause(SITE, "s")
    agenda.clock.advance(MINUTE)
    same = NewSchedule(site=SITE, name="s", rule=rule, target=ops("a"))
    assert agenda.store.schedules.put(same) is False
    assert agenda.store.schedules.put(NewSchedule(site=SITE, name="s", rule=rule, target=ops("b"))) is True
    assert (agenda.get().due_at, agenda.get().paused) == (due, True)
    agenda.store.schedules.put(NewSchedule(site=SITE, name="s", rule=Every(5 * MINUTE), target=ops("b")))
    assert agenda.get().due_at == agenda.clock.now() + 5 * MINUTE


def test_the_manifest_adds_changes_and_takes_away_its_own_schedules_only(agenda: Agenda) -> None:
    def wanted(name: str, interval: int) -> NewSchedule:
        return NewSchedule(
            site=SITE,
            name=name,
            rule=Every(interval * MINUTE),
            target=VERB,
            origin=Origin.MANIFEST,
            overlap=Overlap.QUEUE,
        )

    agenda.add(Every(MINUTE), "mine")
    assert agenda.store.schedules.sync(SITE, [wanted("a", 1), wanted("b", 1)]) is True
    assert agenda.store.schedules.sync(SITE, [wanted("a", 1), wanted("b", 1)]) is False
    assert agenda.store.schedules.sync(SITE, [wanted("b", 2), wanted("c", 1)]) is True
    rules = {known.name: str(known.rule) for known in agenda.store.schedules.all(SITE)}
    assert rules == {"mine": "every 1m", "b": "every 2m", "c": "every 1m"}
    with pytest.raises(UsageError, match=r"site\.yaml"):
        agenda.store.schedules.delete(SITE, "b", Origin.OPERATOR)
    with pytest.raises(UsageError, match="already"):
        agenda.add(Every(MINUTE), "b")


def test_a_schedule_that_is_deleted_leaves_its_run_alone(agenda: Agenda) -> None:
    agenda.add(Every(MINUTE))
    agenda.add(Every(MINUTE), "verb", target=VERB)
    agenda.clock.advance(MINUTE)
    (firing,) = agenda.look().verbs
    for name in ("s", "verb"):
        agenda.store.schedules.delete(SITE, name, Origin.OPERATOR)
    with pytest.raises(LeaseLost):
        agenda.submit(firing)
    assert statuses(agenda.store, agenda.workflows()[0]) == {"a": "ready"}
    agenda.end_all()


def test_schedules_outlive_the_process_that_made_them(tmp_path: Path, clock: FakeClock) -> None:
    first = Store.open(tmp_path / "engine.db", clock=clock)
    Agenda(first, clock).add(Every(MINUTE))
    first.close()
    clock.advance(MINUTE)
    second = Store.open(tmp_path / "engine.db", clock=clock)
    assert len(Agenda(second, clock).look().workflows) == 1
    second.close()
