"""Ops of kind ``browser/fetch``: a page in Chromium, its document as its scripts left it, and a picture of it."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import httpx

from engine.browser.client import Browser, Judge
from engine.browser.settings import BrowserSettings, browser_settings, require_browser
from engine.clock import SECOND, Clock, Micros, SystemClock
from engine.config import Settings
from engine.errors import OpError
from engine.js.wire import Frame
from engine.model import Artifact, Op, Result
from engine.plugins.site import HttpSettings
from engine.runners.base import RunContext, RunFailed
from engine.runners.browser_cookies import BrowserCookies
from engine.runners.http_client import HttpClient
from engine.runners.http_fetch import Answer
from engine.runners.http_request import FetchRequest, read_request
from engine.runners.http_result import result_of

_WAITS = ("load", "domcontentloaded", "networkidle", "commit")
#: The connection's own business, as for ``http/fetch``.
_FRAMING = frozenset(
    {"connection", "content-length", "keep-alive", "proxy-connection", "te", "transfer-encoding", "upgrade"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrowserRunnerSettings:
    """The worker's limits; a site or a request may set its own."""

    browser: BrowserSettings = field(default_factory=BrowserSettings)
    #: For opening the page and all that is waited for; starting Chromium is not counted.
    timeout: Micros = 30 * SECOND
    #: Of the document.
    max_bytes: int = 64 << 20
    #: Browsers of this worker at once; 0 = one per processor.
    most: int = 0


@dataclass(frozen=True, slots=True)
class PageWishes:
    """What an op wants of the page beyond its request."""

    wait_until: str = "load"
    wait_for: str | None = None
    screenshot: Literal[True, False, "full"] = True


def browser_runner(settings: Settings, client: HttpClient, clock: Clock) -> BrowserRunner:
    """The runner of a worker with these settings; ``client`` knows the manners of its requests."""
    return BrowserRunner(
        BrowserRunnerSettings(
            browser=browser_settings(settings.browser),
            timeout=settings.browser.timeout,
            max_bytes=settings.http.max_bytes,
            most=settings.browser.most,
        ),
        client,
        clock,
    )


class BrowserRunner:
    """Opens pages, each in a browser of its own that is gone when the op is."""

    def __init__(self, settings: BrowserRunnerSettings, client: HttpClient, clock: Clock | None = None) -> None:
        self._settings = settings
        self._client = client
        self._clock = clock or SystemClock()
        self._places = asyncio.Semaphore(settings.most or os.cpu_count() or 1)

    async def run(self, ctx: RunContext) -> Result:
        """Execute the op. Raises OpError, RunFailed and Refund."""
        request, wishes = read_request(ctx.op), read_wishes(ctx.op)
        _check(request)
        require_browser(self._settings.browser)
        site = ctx.site.http
        cookies = BrowserCookies(await ctx.cookies()) if site.cookies == "workflow" else None
        manners = self._client.manners(ctx.site)
        asked = {**self._asked(request, wishes, site, cookies), "judged": manners.obey_robots}
        loop = asyncio.get_running_loop()
        async with self._places:
            proxy = await self._client.passage(ctx, request, manners)

            def judge(url: str) -> Future[None]:
                return asyncio.run_coroutine_threadsafe(self._client.permit(url, request, manners, proxy), loop)

            ctx.started()
            async with _browser(self._settings.browser, judge) as browser:
                await _answered(browser.launch(proxy=proxy))
                frame = await _answered(browser.ask("fetch", asked))
        return await asyncio.to_thread(_result, ctx.op.id, request, wishes, frame, cookies, self._clock)

    async def resolve(self, ctx: RunContext) -> Result | None:
        """Pages leave nothing behind outside of the engine DB."""
        return None

    async def aclose(self) -> None:
        """Browsers have ended with their ops."""

    def _asked(
        self, request: FetchRequest, wishes: PageWishes, site: HttpSettings, cookies: BrowserCookies | None
    ) -> dict[str, Any]:
        settings = self._settings
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _FRAMING}
        agents = [headers.pop(name) for name in list(headers) if name.lower() == "user-agent"]
        return {
            "url": str(request.url),
            "headers": headers,
            "userAgent": next(iter(agents), site.user_agent),
            "timeout": (request.timeout or site.timeout or settings.timeout) / SECOND,
            "maxBytes": request.max_bytes or site.max_bytes or settings.max_bytes,
            "waitUntil": wishes.wait_until,
            "waitFor": wishes.wait_for,
            "screenshot": wishes.screenshot,
            "keep": request.persist_body,
            "cookies": [] if cookies is None else cookies.told(),
        }


def read_wishes(op: Op) -> PageWishes:
    """The member ``browser`` of an op's input. Raises OpError ``invalid_input``."""
    given = json.loads(op.input).get("browser")
    if given is None:
        return PageWishes()
    if not isinstance(given, dict):
        raise _invalid("browser", "must be an object", given)
    for name in given:
        if name not in ("waitUntil", "waitFor", "screenshot"):
            raise OpError("invalid_input", f"input.browser.{name} is not known: waitUntil, waitFor, screenshot are")
    until, selector, picture = given.get("waitUntil"), given.get("waitFor"), given.get("screenshot")
    if until is not None and until not in _WAITS:
        raise _invalid("browser.waitUntil", f"must be one of {', '.join(_WAITS)}", until)
    if selector is not None and not (isinstance(selector, str) and selector.strip()):
        raise _invalid("browser.waitFor", "must be a selector", selector)
    if picture is not None and picture is not True and picture is not False and picture != "full":
        raise _invalid("browser.screenshot", 'must be true, false or "full"', picture)
    return PageWishes(until or "load", selector, True if picture is None else picture)


def _check(request: FetchRequest) -> None:
    if request.method != "GET" or request.body_text is not None:
        raise OpError("invalid_request", f"a browser opens pages with GET and without body, not with {request.method}")
    if request.redirects is not None:
        raise OpError("invalid_request", "a browser follows redirects by itself: leave followRedirects out")
    for name in request.headers:
        if name.lower() == "host":
            raise OpError("invalid_request", "a browser sets the header Host itself")


@contextlib.asynccontextmanager
async def _browser(settings: BrowserSettings, judge: Judge) -> AsyncIterator[Browser]:
    """A browser that has gone, with all its processes, when the block is left in whatever way."""
    starting = asyncio.ensure_future(asyncio.to_thread(Browser, settings, judge))
    try:
        yield await asyncio.shield(starting)
    finally:
        await _undisturbed(_ended(starting))


async def _ended(starting: asyncio.Future[Browser]) -> None:
    with contextlib.suppress(OpError):
        await asyncio.to_thread((await starting).close)


async def _undisturbed(work: Any) -> None:
    """Finish ``work`` however often the task is canceled meanwhile."""
    task = asyncio.ensure_future(work)
    canceled = False
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            canceled = True
    task.result()
    if canceled:
        raise asyncio.CancelledError


async def _answered(future: Any) -> Frame:
    frame: Frame = await asyncio.wrap_future(future)
    return frame


def _result(
    op_id: str,
    request: FetchRequest,
    wishes: PageWishes,
    frame: Frame,
    cookies: BrowserCookies | None,
    clock: Clock,
) -> Result:
    landed, attachments = frame.header["ok"], list(frame.attachments)
    body = attachments.pop(0) if request.persist_body else None
    pictures = tuple(_picture(op_id, landed["url"], item) for item in attachments)
    head = httpx.Response(
        landed["status"],
        headers=[(name.encode(), value.encode()) for name, value in landed["headers"]],
        request=httpx.Request("GET", landed["url"]),
        extensions={"reason_phrase": landed["reason"].encode()},
    )
    changes = None if cookies is None else cookies.changes(landed["cookies"])
    try:
        result = result_of(op_id, request, Answer(head, landed["size"], body), changes, clock, pictures)
    except RunFailed as failed:
        raise RunFailed(failed.error, _in_utf_8(failed.evidence, landed)) from failed.error
    return _in_utf_8(result, landed)


def _in_utf_8(result: Result, landed: Mapping[str, Any]) -> Result:
    """A document was written out anew, in UTF-8, whatever its server and its own words say."""
    if not landed["rendered"]:
        return result
    kept = tuple(
        replace(item, metadata={**item.metadata, "charset": "utf-8"}) if item.kind == "http-response-body" else item
        for item in result.artifacts
    )
    return replace(result, artifacts=kept)


def _picture(op_id: str, url: str, png: bytes) -> Artifact:
    return Artifact(
        id=f"{op_id}:screenshot",
        name="screenshot.png",
        kind="screenshot",
        content_type="image/png",
        metadata={"url": url},
        sha256=hashlib.sha256(png).hexdigest(),
        size=len(png),
        body=png,
    )


def _invalid(member: str, rule: str, value: Any) -> OpError:
    return OpError("invalid_input", f"input.{member} {rule}, not {json.dumps(value, ensure_ascii=False)[:200]}")
