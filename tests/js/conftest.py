"""One bench per test."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.js.harness import Bench


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """A bench on an empty folder."""
    return Bench(tmp_path)
