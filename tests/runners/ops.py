"""Fetch ops and the contexts to run them in."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from engine.clock import SECOND, Clock
from engine.errors import OpError
from engine.model import NO_RETRY, JsonText, Lease, Op, Result, Validators, Workflow, WorkflowStatus
from engine.plugins.site import HttpSettings, Site
from engine.runners.base import RunContext, RunFailed
from engine.runners.http import HttpRunner, HttpRunnerSettings

T = TypeVar("T")


def fetch_op(given: Any, workflow_input: Any = None, **values: Any) -> Op:
    """An op of kind ``http/fetch`` with that input."""
    workflow = Workflow(
        id="w1",
        site="shop",
        name="test",
        status=WorkflowStatus.RUNNING,
        input=json.dumps(workflow_input or {}),
        metadata={},
    )
    fields: dict[str, Any] = {
        "pk": 1,
        "id": "fetch-1",
        "workflow": workflow,
        "kind": "http/fetch",
        "site": "shop",
        "queue": "site:shop:http",
        "dedup_key": "",
        "parent_id": None,
        "input": json.dumps(given),
        "metadata": {},
        "retry": NO_RETRY,
        "generation": 0,
        "created_at": 0,
    }
    return Op(**(fields | values))


class Context:
    """A claim on an op, and what its runner did with it."""

    def __init__(
        self,
        op: Op,
        http: HttpSettings | None = None,
        cookies: JsonText | None = None,
        pages: dict[tuple[str, str], Validators] | None = None,
    ) -> None:
        self.starts = 0
        self.turns = 0
        self.jar = cookies
        self.pages = {} if pages is None else pages
        self.run = RunContext(
            op=op,
            lease=Lease(
                op_pk=1, token="t", worker_id="a", acquired_at=0, expires_at=30 * SECOND, attempt=1, earlier_claims=0
            ),
            site=Site(
                name="shop",
                root=Path("/"),
                manifest=Path("/site.yaml"),
                database_file="shop.db",
                http=http or HttpSettings(),
            ),
            engine_uuid="e",
            started=self._started,
            prepare=self._prepare,
            cookies=self._cookies,
            turn=self._turn,
            validators=self._validators,
        )

    def _started(self) -> None:
        self.starts += 1

    async def _prepare(self, result: Result) -> None:
        raise AssertionError("a fetch prepares nothing")

    async def _turn(self, _name: str, _request: int) -> int:
        self.turns += 1
        return self.turns - 1

    async def _validators(self, scope: str, variant: str) -> Validators | None:
        return self.pages.get((scope, variant))

    async def _cookies(self) -> JsonText | None:
        return self.jar


def with_runner(work: Callable[[HttpRunner], Awaitable[T]], clock: Clock | None = None, **settings: Any) -> T:
    """Run ``work`` with a runner that is closed afterwards."""

    async def run() -> T:
        runner = HttpRunner(HttpRunnerSettings(**settings), clock)
        try:
            return await work(runner)
        finally:
            await runner.aclose()

    return asyncio.run(run())


def fetch(
    given: Any,
    workflow_input: Any = None,
    http: HttpSettings | None = None,
    cookies: JsonText | None = None,
    **settings: Any,
) -> Result:
    """The result of one op."""
    context = Context(fetch_op(given, workflow_input), http, cookies)
    return with_runner(lambda runner: runner.run(context.run), **settings)


def fetch_failing(given: Any, **settings: Any) -> tuple[OpError, Result]:
    """The error of one op, and its evidence."""
    try:
        result = fetch(given, **settings)
    except RunFailed as failed:
        return failed.error, failed.evidence
    except OpError as error:
        return error, Result()
    raise AssertionError(f"the op succeeded: {result}")


def get(url: str, **more: Any) -> dict[str, Any]:
    """The input of an op that fetches ``url``; ``more`` are members of the request."""
    return {"request": {"url": url, **more}, "persistBody": True}


def data_of(result: Result) -> dict[str, Any]:
    """The decoded data of a result."""
    decoded: dict[str, Any] = json.loads(result.data)
    return decoded


def body_of(result: Result) -> bytes:
    """The bytes of the one artifact."""
    (artifact,) = result.artifacts
    assert artifact.body is not None
    return artifact.body


def headers_seen(headers: Mapping[str, str], *names: str) -> dict[str, str | None]:
    """Those of ``headers`` that a test speaks about."""
    return {name: headers.get(name) for name in names}
