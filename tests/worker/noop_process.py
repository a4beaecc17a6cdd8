"""A worker process that knows the kind ``noop``; its arguments are ENGINE_DB FOLDER LOG OPTIONS_JSON.

Running a ``noop`` appends the op's id to LOG: a proof of execution that no database can take back.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from engine import app
from engine.model import EMPTY_RESULT, Result
from engine.runners.base import RunContext, Runner
from tests.worker.lab import Lab


class NoOp:
    """Does nothing but say so."""

    def __init__(self, log: Path) -> None:
        self._log = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    async def run(self, ctx: RunContext) -> Result:
        ctx.started()
        os.write(self._log, f"{ctx.op.id}\n".encode())
        return EMPTY_RESULT

    async def resolve(self, ctx: RunContext) -> Result | None:
        return None

    async def aclose(self) -> None:
        os.close(self._log)


def main() -> None:
    """Work until idle."""
    engine_db, folder, log, options = sys.argv[1:5]

    def runners(*_: Any) -> dict[str, Runner]:
        return {"noop": NoOp(Path(log))}

    vars(app)["_runners"] = runners
    Lab(engine_db, Path(folder)).work(**json.loads(options))
