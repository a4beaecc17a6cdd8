"""Browser ops and hooks in real Chromium."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

from engine.clock import SECOND, SystemClock
from engine.errors import OpError
from engine.model import JsonText, Result
from engine.plugins.site import HttpSettings
from engine.runners.base import RunFailed
from engine.runners.browser import BrowserRunner, BrowserRunnerSettings
from engine.runners.http_client import HttpClient, HttpRunnerSettings
from engine.runners.http_wire import Wire
from tests.runners.ops import Context, fetch_op
from tests.servers import Call

#: Nothing here waits longer for Chromium.
PATIENCE = 120.0
#: A page whose text only exists once its script has run.
SCRIPTED = """<!doctype html><title>before</title><p id="price">loading</p><script>
const value = 6 * 7;
document.title = "after";
document.getElementById("price").textContent = "EUR " + value;
</script>"""


def html(text: str, status: int = 200, headers: tuple[tuple[str, str], ...] = ()) -> Callable[[Call], None]:
    """A route that answers with a document."""
    typed = (("Content-Type", "text/html; charset=utf-8"), *headers)
    return lambda call: call.reply(text.encode(), status, typed, "Said")


def browse(given: Any, http: HttpSettings | None = None, cookies: JsonText | None = None, **settings: Any) -> Result:
    """The result of one op of kind ``browser/fetch``."""
    context = Context(fetch_op(given, kind="browser/fetch"), http, cookies)

    async def run() -> Result:
        async with patient_runner(**settings) as runner:
            return await runner.run(context.run)

    return asyncio.run(run())


@contextlib.asynccontextmanager
async def patient_runner(**settings: Any) -> AsyncIterator[BrowserRunner]:
    """A runner, and the client whose manners it has."""
    client = HttpClient(HttpRunnerSettings(), SystemClock(), Wire())
    try:
        yield BrowserRunner(BrowserRunnerSettings(**({"timeout": 60 * SECOND} | settings)), client)
    finally:
        await client.aclose()


def browse_failing(given: Any, **more: Any) -> tuple[OpError, Result]:
    """The error of one op, and its evidence."""
    try:
        result = browse(given, **more)
    except RunFailed as failed:
        return failed.error, failed.evidence
    except OpError as error:
        return error, Result()
    raise AssertionError(f"the op succeeded: {result}")


def kept(result: Result) -> dict[str, Any]:
    """The artifacts by kind."""
    return {artifact.kind: artifact for artifact in result.artifacts}


def response(result: Result) -> dict[str, Any]:
    """The response of a result's data."""
    told: dict[str, Any] = json.loads(result.data)["response"]
    return told
