"""Our side of the benchmarks: filling an engine DB and running workers over it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.frame import Bench
from benchmarks.processes import Failed, Ran, run_measured
from engine.model import NewOp, NewWorkflow
from engine.store.store import Store

SITE = "bench"
#: The same site with frozen isolates.
FROZEN = "frozen"
#: Ops a worker of the no-op benchmarks runs at once: the size of a group of outcomes.
AT_ONCE = 200
#: Ops of one submission.
SUBMISSION = 5_000


@dataclass(frozen=True, slots=True)
class Place:
    """Where one run keeps its state."""

    engine_db: str
    folder: Path

    def told(self, **more: Any) -> dict[str, Any]:
        """What a worker process is told."""
        return {"engine_db": self.engine_db, "sites_dir": str(self.folder / "sites"), **more}

    def submit(self, ops: Iterable[NewOp], name: str = "w", site: str = SITE) -> None:
        """Store ops, in workflows of :data:`SUBMISSION`."""
        batch: list[NewOp] = []
        number = 0
        with closing(Store.open(self.engine_db)) as store:
            for spec in ops:
                batch.append(spec)
                if len(batch) == SUBMISSION:
                    number += 1
                    _store(store, f"{name}{number}", site, batch)
                    batch = []
            if batch:
                _store(store, f"{name}{number + 1}", site, batch)

    def work(self, timeout: float = 600.0, **more: Any) -> Ran:
        """Run a worker until idle. Raises Failed where an op did not succeed."""
        ran = run_measured(worker_command(self.told(**({"max_workers": AT_ONCE} | more))), timeout=timeout)
        require_success(ran.said)
        return ran


def worker_command(told: Mapping[str, Any]) -> list[str]:
    """The command of a worker process."""
    return [sys.executable, "-m", "benchmarks.worker_main", json.dumps(told)]


def require_success(said: Mapping[str, Any]) -> None:
    """Raise Failed where an op ended in any other way than well; one that was given back has another end."""
    other = {ending: count for ending, count in said["endings"].items() if ending not in ("succeeded", "interrupted")}
    if other:
        raise Failed(f"not all ops succeeded: {other}")


def _store(store: Store, workflow_id: str, site: str, ops: list[NewOp]) -> None:
    store.submit(NewWorkflow(id=workflow_id, site=site, name="bench", ops=tuple(ops)))


def noops(count: int, prefix: str = "n") -> Iterator[NewOp]:
    """Ops that do nothing."""
    return (NewOp(id=f"{prefix}{number}", kind="noop", site=SITE) for number in range(count))


@contextmanager
def place(bench: Bench, dialect: str) -> Iterator[Place]:
    """An empty engine DB of either dialect."""
    with bench.scratch() as folder:
        if dialect == "sqlite":
            yield Place(str(folder / "engine.db"), folder)
        else:
            with bench.postgres.database() as url:
                yield Place(url.replace("postgresql://", "postgresql+psycopg://", 1), folder)
