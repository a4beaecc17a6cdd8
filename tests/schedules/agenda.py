"""Schedules over a store with a hand-moved clock, without any worker process."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from engine.clock import Micros
from engine.model import NewOp, NewWorkflow, Result
from engine.outcome import Outcome, Succeeded
from engine.schedules import NewSchedule, OpsTarget, Rule, Schedule, VerbTarget
from engine.store.firing import Fired, Firing
from engine.store.store import Store
from tests.factories import SITE, claim, settle
from tests.fakes import FakeClock

VERB = VerbTarget("seed", {"n": 3})


def at(text: str) -> Micros:
    """An instant in UTC: ``2026-03-29 01:00``."""
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * 1_000_000


def ops(*ids: str) -> OpsTarget:
    """A target of ops without dependencies."""
    return OpsTarget(tuple(NewOp(id=op_id, kind="js", site=SITE) for op_id in ids), name="test")


def pinned(op: NewOp) -> NewOp:
    """The op on the machine of the test."""
    return replace(op, machine="m1")


@dataclass(slots=True)
class Agenda:
    """Make schedules, let time pass, look, and end what was fired."""

    store: Store
    clock: FakeClock

    def add(self, rule: Rule, name: str = "s", **values: Any) -> None:
        """A schedule of one op, unless told otherwise."""
        given: dict[str, Any] = {"site": SITE, "name": name, "rule": rule, "target": ops("a")} | values
        self.store.schedules.add(NewSchedule(**given))

    def look(self, worker: str = "w1", verbs: int = 4) -> Fired:
        """One look of one worker."""
        return self.store.schedules.fire([SITE], worker, pinned, verbs)

    def pass_time(self, until: Micros, ends: bool = True, worker: str = "w1") -> list[str]:
        """Look at every instant for which a look is wished until ``until``; the workflows made. Runs end at once."""
        made: list[str] = []
        while True:
            fired = self.look(worker)
            made += fired.workflows
            if ends:
                self.end_all()
            if fired.seen:
                continue
            following = self.store.schedules.next_look([SITE], self.clock.now())
            if following is None or following > until:
                self.clock.instant = until
                return made
            self.clock.instant = following

    def end_all(self, outcome: Outcome | None = None) -> int:
        """End every op that can be claimed; how many."""
        ended = 0
        while leased := claim(self.store, 100).leased:
            settle(self.store, *((item, outcome or Succeeded(Result())) for item in leased))
            ended += len(leased)
        return ended

    def submit(self, firing: Firing) -> None:
        """What a worker does when the verb of a firing has run."""
        seeded = NewOp(id="seeded", kind="js", site=SITE, machine="m1")
        self.store.schedules.submit(
            firing,
            NewWorkflow(id=firing.workflow_id, site=SITE, name="verb", ops=(seeded,), metadata={"submitVerb": "s"}),
        )

    def get(self, name: str = "s") -> Schedule:
        return self.store.schedules.get(SITE, name)

    def workflows(self) -> list[str]:
        """The ids of all workflows, in order."""
        with self.store.database.read() as connection:
            return [str(row[0]) for row in connection.exec_driver_sql("SELECT id FROM workflow ORDER BY pk")]
