"""An empty store per test on either dialect, and an agenda over it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from engine.store.store import Store
from tests.fakes import FakeClock
from tests.schedules.agenda import Agenda
from tests.store.conftest import migrated_database, migrated_file, store
from tests.worker.conftest import either_lab, lab

__all__ = ["agenda", "either_lab", "lab", "migrated_database", "migrated_file", "store"]


@pytest.fixture
def agenda(store: Store, clock: FakeClock) -> Agenda:
    """Schedules of ops, and who looks after them."""
    return Agenda(store, clock)


@pytest.fixture
def light(migrated_file: Path, tmp_path: Path, clock: FakeClock) -> Iterator[Agenda]:
    """An agenda on SQLite alone, for what no database decides."""
    with closing(Store.open(shutil.copy(migrated_file, tmp_path / "engine.db"), clock=clock)) as opened:
        yield Agenda(opened, clock)
