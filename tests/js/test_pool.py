"""The worker's side of the children: what it is told of an op's way, and what a child's death means."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from engine.js.jobs import ScriptJob
from engine.js.pool import ChildLost, JsPool, PoolSettings
from engine.jschild import ENVIRONMENT
from engine.model import Result
from tests.js.harness import SPEC
from tests.js.sites import site_at

_WRITE = "require('site-db').exec('INSERT INTO notes VALUES (?)', ctx.input);"


@dataclass(slots=True)
class Lab:
    """A pool of one child over a folder of scripts, and what the worker was told."""

    folder: Path
    pool: JsPool
    told: list[str] = field(default_factory=list)

    async def run(self, body: str, number: int, earlier_claims: int = 0) -> Result:
        """Run an op whose script has this body."""
        (self.folder / "main.js").write_text(f"module.exports = function (ctx) {{ {body} }}", "utf-8")
        site = replace(site_at(self.folder), sql_migrations_root=self.folder / "migrations")
        spec = replace(SPEC, op_key=str(number))
        job = ScriptJob(site=site, spec=spec, entry="main.js", ctx={"input": number}, earlier_claims=earlier_claims)

        async def prepare(result: Result) -> None:
            self.told.append("prepare")

        return await self.pool.run(job, prepare, lambda: self.told.append("started"))


def play(folder: Path, scene: Callable[[Lab], Awaitable[None]], *command: str) -> Lab:
    """A scene in a lab whose children are started by ``command``."""
    (folder / "migrations").mkdir()
    (folder / "migrations" / "001_notes.sql").write_text("CREATE TABLE notes (n INTEGER NOT NULL);")
    settings = PoolSettings(
        command=(sys.executable, "-m", *command),
        environment={ENVIRONMENT: json.dumps({"sites_dir": str(folder)}), "PYTHONPATH": ":".join(sys.path)},
        size=1,
    )
    lab = Lab(folder, JsPool(settings))

    async def act() -> None:
        try:
            await scene(lab)
        finally:
            await lab.pool.aclose()

    asyncio.run(act())
    return lab


def test_a_child_begins_each_script_once_and_asks_only_where_the_engine_must_store_first(tmp_path: Path) -> None:
    async def scene(lab: Lab) -> None:
        for number, more in enumerate(("", _WRITE, f"{_WRITE} ctx.writeArtifact({{ name: 'a', body: 'b' }});")):
            await lab.run(more, number)
            lab.told.append("ended")
        lab.told.append((await lab.run("return require('site-db').query('SELECT n FROM notes');", 9)).data)

    told = play(tmp_path, scene, "engine.jschild").told
    assert told == [
        *("started", "ended"),
        *("started", "ended"),
        *("started", "prepare", "ended"),
        *("started", '[{"n":1},{"n":2}]'),
    ]


def test_a_child_that_dies_in_a_commit_of_its_own_may_have_kept_it(tmp_path: Path) -> None:
    async def scene(lab: Lab) -> None:
        with pytest.raises(ChildLost):
            await lab.run(f"{_WRITE} return 'first';", 1)
        again = await lab.run(f"{_WRITE} return 'second';", 1, earlier_claims=1)
        lab.told.append(again.data)

    marker = str(tmp_path / "marker")
    told = play(tmp_path, scene, "tests.crash.child_main", marker, "child-aborts-after-site-commit").told
    assert told == ["started", '"first"']
