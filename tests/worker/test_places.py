"""What a worker runs at once, and what it claims ahead of that."""

from __future__ import annotations

import asyncio
from contextlib import closing
from typing import Any

import pytest

from engine import app
from engine.model import EMPTY_RESULT, NewOp, Result
from engine.runners.base import RunContext, Runner
from engine.worker.places import MOST_AHEAD, Places
from tests.worker.lab import SITE, Lab


def test_nothing_is_claimed_ahead_before_anything_is_known() -> None:
    assert Places(4).at_hand() == 4


@pytest.mark.parametrize(
    ("seconds", "ahead"), [(0.0, MOST_AHEAD), (0.0001, MOST_AHEAD), (0.01, 20), (0.2, 1), (1.0, 0)]
)
def test_ops_that_take_a_moment_are_claimed_ahead_and_slow_ones_are_not(seconds: float, ahead: int) -> None:
    async def served() -> Places:
        places = Places(4)
        assert places.enter()
        places.leave(seconds)
        return places

    assert asyncio.run(served()).at_hand() == 4 + ahead


def test_one_slow_op_ends_the_claiming_ahead_until_many_quick_ones_have_come() -> None:
    async def served() -> list[int]:
        places = Places(4)
        held = []
        for seconds in (0.0, 1.0, *[0.0] * 200):
            assert places.enter()
            places.leave(seconds)
            held.append(places.at_hand())
        return held

    first, slow, *quick = asyncio.run(served())
    assert (first, slow, quick[0], quick[-1]) == (4 + MOST_AHEAD, 4, 4, 4 + MOST_AHEAD)


def test_there_are_as_many_places_as_ops_may_run_at_once() -> None:
    places = Places(2)
    taken = [places.enter() for _ in range(3)]
    places.leave(1.0)
    assert [*taken, places.enter(), places.enter()] == [True, True, False, True, False]


class Crowd:
    """Ops that take three turns of the event loop each, and who was there together."""

    def __init__(self) -> None:
        self.inside = 0
        self.most = 0

    async def run(self, ctx: RunContext) -> Result:
        ctx.started()
        self.inside += 1
        self.most = max(self.most, self.inside)
        for _ in range(3):
            await asyncio.sleep(0)
        self.inside -= 1
        return EMPTY_RESULT

    async def resolve(self, ctx: RunContext) -> Result | None:
        return None

    async def aclose(self) -> None: ...


def test_more_ops_are_held_than_run_at_once(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    crowd = Crowd()

    def runners(*_: Any) -> dict[str, Runner]:
        return {"crowd": crowd}

    monkeypatch.setattr(app, "_runners", runners)
    lab.submit(*(NewOp(id=f"op{number}", kind="crowd", site=SITE) for number in range(400)))
    report = lab.work(max_workers=2)
    assert report.succeeded == 400
    assert crowd.most == 2
    assert report.cycles < 100, "each claim brought two ops and no more"


class Slow(Crowd):
    """Ops that take long enough for a worker to know it."""

    async def run(self, ctx: RunContext) -> Result:
        ctx.started()
        await asyncio.sleep(0.22 + 0.01 * (int(ctx.op.id[2:]) % 7))
        return EMPTY_RESULT


def test_slow_ops_never_wait_for_a_place_with_a_lease_in_hand(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two claims that are under way at once do not ask for the same room."""

    def runners(*_: Any) -> dict[str, Runner]:
        return {"slow": Slow()}

    monkeypatch.setattr(app, "_runners", runners)
    monkeypatch.setattr("engine.worker.worker.PATIENCE", 0.01)
    lab.submit(*(NewOp(id=f"op{number}", kind="slow", site=SITE) for number in range(40)))
    report = lab.work(max_workers=4)
    assert (report.succeeded, report.interrupted) == (40, 0)


def test_a_busy_worker_notices_that_it_has_worked_enough(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Although its commits bring all the work, so that it never has to ask for any."""
    crowd = Crowd()

    def runners(*_: Any) -> dict[str, Runner]:
        return {"crowd": crowd}

    monkeypatch.setattr(app, "_runners", runners)
    lab.submit(*(NewOp(id=f"op{number}", kind="crowd", site=SITE) for number in range(3_000)))
    counted = "SELECT 1 FROM op WHERE status = 'succeeded'"

    def enough() -> bool:
        with closing(lab.store()) as store, store.database.read() as connection:
            return connection.exec_driver_sql(counted).first() is not None

    report = lab.work(max_workers=4, until_idle=False, until=enough)
    assert 0 < report.succeeded < 3_000
