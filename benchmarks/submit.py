"""Storing a workflow of many ops, beside a bare ``executemany`` of the very rows that it leaves."""

from __future__ import annotations

import time
from contextlib import closing
from functools import partial

from sqlalchemy import Table, insert, select

from benchmarks.frame import Bench, Benchmark, Contestant, Goal, Sample
from benchmarks.ours import SITE, SUBMISSION, noops, place
from engine.model import NewWorkflow
from engine.store import schema
from engine.store.store import Store

NAME = "submit"
TITLE = "bulk submission of ready ops"

_TABLES: tuple[Table, ...] = (schema.workflow, schema.op)


def benchmark(bench: Bench) -> Benchmark:
    """Ours beside bare Core, on both databases."""
    count = bench.size(20_000, 5_000)
    contestants = [
        Contestant(f"{who.__name__} on {shown}", partial(who, bench, dialect, count))
        for shown, dialect in (("SQLite", "sqlite"), ("PostgreSQL", "postgresql"))
        for who in (ours, core)
    ]
    return Benchmark(
        title=TITLE,
        figure="rate",
        unit="ops/s",
        rounds=min(2, bench.rounds),
        sizes={"ops": count, "ops of a submission": SUBMISSION},
        contestants=contestants,
        goals=[Goal(f"ours on {shown}", f"core on {shown}", ">=", 0.3) for shown in ("SQLite", "PostgreSQL")],
    )


def ours(bench: Bench, dialect: str, count: int) -> Sample:
    """``Store.submit``, one workflow and transaction after another."""
    with place(bench, dialect) as here, closing(Store.open(here.engine_db)) as store:
        return {"rate": count / _submit(store, count)}


def core(bench: Bench, dialect: str, count: int) -> Sample:
    """The rows that a submission left, inserted into an empty engine DB by SQLAlchemy Core."""
    with place(bench, dialect) as here, closing(Store.open(here.engine_db)) as store:
        _submit(store, count)
        with store.database.read() as connection:
            rows = {table: [row._asdict() for row in connection.execute(select(table))] for table in _TABLES}
        with place(bench, dialect) as other, closing(Store.open(other.engine_db)) as empty:
            began = time.monotonic()
            for start in range(0, count, SUBMISSION):
                with empty.database.write() as connection:
                    connection.execute(insert(schema.workflow), rows[schema.workflow][start // SUBMISSION])
                    connection.execute(insert(schema.op), rows[schema.op][start : start + SUBMISSION])
            return {"rate": count / (time.monotonic() - began)}


def _submit(store: Store, count: int) -> float:
    """The seconds it took."""
    workflows = [
        NewWorkflow(id=f"w{start}", site=SITE, name="bench", ops=tuple(noops(min(SUBMISSION, count - start))))
        for start in range(0, count, SUBMISSION)
    ]
    began = time.monotonic()
    for workflow in workflows:
        store.submit(workflow)
    return time.monotonic() - began
