"""One store per test, on either dialect."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from engine.store.store import Store
from tests.fakes import FakeClock


@pytest.fixture
def store(engine_url: str, clock: FakeClock) -> Iterator[Store]:
    """An empty engine DB under the fake clock."""
    opened = Store.open(engine_url, clock=clock, max_lost=3)
    yield opened
    opened.close()
