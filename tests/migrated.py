"""Engine DBs that need no migration: the migrations run once for each test process, their outcome is copied."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

from engine.store.store import Store


@cache
def _template() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "engine.db"
        Store.open(path).close()
        return path.read_bytes()


def engine_db(folder: Path) -> str:
    """A new engine DB without workflows, ``engine.db`` in ``folder``."""
    path = folder / "engine.db"
    path.write_bytes(_template())
    return str(path)
