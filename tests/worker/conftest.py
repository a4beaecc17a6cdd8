"""A lab per test."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.worker.lab import Lab


@pytest.fixture
def lab(sqlite_engine: str, tmp_path: Path) -> Lab:
    """A lab on SQLite."""
    return Lab(sqlite_engine, tmp_path)


@pytest.fixture
def either_lab(engine_url: str, tmp_path: Path) -> Lab:
    """A lab on either dialect."""
    return Lab(engine_url, tmp_path)
