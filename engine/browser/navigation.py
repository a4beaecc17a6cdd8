"""A page on its way: which answer it shows, the headers it is asked with, and its document as it stands."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from engine.errors import OpError

#: What the owner has against an address; None = nothing.
Judge: TypeAlias = Callable[[str], Awaitable[OpError | None]]

#: Meant for the first host and its subdomains only.
_CONFIDENTIAL = frozenset({"authorization", "cookie", "cookie2"})
_DOCUMENTS = frozenset({"", "text/html", "application/xhtml+xml"})
#: What Chromium says of answers it does not show.
_PAGELESS = ("net::ERR_ABORTED", "net::ERR_HTTP_RESPONSE_CODE_FAILURE", "Download is starting")
_ERROR_PAGE = "chrome-error:"
_EMPTY = frozenset({204, 205})
_SIZE = "() => document.documentElement ? document.documentElement.outerHTML.length : 0"


@dataclass(frozen=True, slots=True)
class Landed:
    """The answer a page shows."""

    status: int
    reason: str
    url: str
    headers: tuple[tuple[str, str], ...] = ()
    #: Playwright's response; None for about: and data: pages.
    response: Any = None
    #: Whether Chromium shows it: it stays where it was, or shows a page of its own, where an answer has no document.
    shown: bool = True

    @property
    def content_type(self) -> str:
        """The media type without parameters."""
        declared = next((value for name, value in self.headers if name.lower() == "content-type"), "")
        return declared.partition(";")[0].strip().lower()

    @property
    def renders(self) -> bool:
        """Whether the answer is a document that scripts may have changed."""
        return self.shown and self.content_type in _DOCUMENTS

    def to_dict(self) -> dict[str, Any]:
        """As it travels."""
        return {
            "status": self.status,
            "reason": self.reason,
            "url": self.url,
            "headers": [list(pair) for pair in self.headers],
            "rendered": self.renders,
            "shown": self.shown,
        }


class Navigation:
    """The main frame of one page."""

    def __init__(self, page: Any) -> None:
        self._page = page
        self._last: Any = None
        #: Why the page did not go on to another address.
        self.refused: OpError | None = None
        page.on("response", self._seen)

    def _seen(self, response: Any) -> None:
        request = response.request
        with contextlib.suppress(Exception):  # a request of a service worker has no frame
            if request.is_navigation_request() and request.frame == self._page.main_frame:
                self._last = response

    async def escort(self, url: str, headers: Mapping[str, str], judge: Judge | None) -> None:
        """See to it that requests for the page's own document, hop by hop, carry ``headers`` and are permitted.

        Those for its images and scripts are not looked at. Playwright's own way would send the headers to every host
        that a redirect leads to.
        """
        if not headers and judge is None:
            return
        session = await self._page.context.new_cdp_session(self._page)
        tree = await session.send("Page.getFrameTree")
        frame, first = tree["frameTree"]["frame"]["id"], urlsplit(url).hostname or ""
        sending: set[asyncio.Task[None]] = set()

        async def answer(event: Mapping[str, Any]) -> None:
            own, told = event["frameId"] == frame, {"requestId": event["requestId"]}
            refused = await judge(event["request"]["url"]) if own and judge is not None else None
            with contextlib.suppress(Exception):  # the page has gone meanwhile
                if refused is not None:
                    self.refused = refused
                    await session.send("Fetch.failRequest", {**told, "errorReason": "BlockedByClient"})
                elif own:
                    listed = _merged(event["request"], first, headers)
                    await session.send("Fetch.continueRequest", {**told, "headers": listed})
                else:
                    await session.send("Fetch.continueRequest", told)

        def paused(event: Mapping[str, Any]) -> None:
            task = asyncio.create_task(answer(event))
            sending.add(task)
            task.add_done_callback(sending.discard)

        session.on("Fetch.requestPaused", paused)
        await session.send("Fetch.enable", {"patterns": [{"resourceType": "Document", "requestStage": "Request"}]})

    async def go(self, url: str, *, until: str, patience: float) -> Landed:
        """Open ``url`` within ``patience`` ms; any HTTP answer counts. Raises OpError and Playwright's errors."""
        self._last = self.refused = None
        try:
            await self._page.goto(url, wait_until=until, timeout=patience)
        except Exception as error:
            if self.refused is not None:
                raise self.refused from error
            if self._last is None or not any(sign in str(error) for sign in _PAGELESS):
                raise
            return await self._landed(shown=False)
        return await self._landed(shown=True)

    async def landed(self) -> Landed:
        """The answer shown by now: scripts may have gone on to another."""
        return await self._landed(shown=True)

    async def _landed(self, *, shown: bool) -> Landed:
        last = self._last
        if last is None:
            return Landed(200, "OK", self._page.url)
        listed = await last.headers_array()
        headers = tuple((pair["name"], pair["value"]) for pair in listed)
        return Landed(last.status, last.status_text, self._page.url if shown else last.url, headers, last, shown)

    async def content(self) -> str:
        """The document as it stands, once it stands still."""
        while True:
            try:
                return str(await self._page.content())
            except Exception as error:
                if "navigating" not in str(error):
                    raise
                await self._page.wait_for_load_state("domcontentloaded")

    async def length(self) -> int:
        """How long the document is, in UTF-16 units; never more than its bytes."""
        while True:
            try:
                return int(await self._page.evaluate(_SIZE))
            except Exception as error:
                if "navigat" not in str(error) and "context was destroyed" not in str(error):
                    raise
                await self._page.wait_for_load_state("domcontentloaded")


def _merged(request: Mapping[str, Any], first: str, headers: Mapping[str, str]) -> list[dict[str, str]]:
    """The headers of one hop: the browser's, and over them those that are meant for its host."""
    host = urlsplit(request["url"]).hostname or ""
    within = host == first or host.endswith(f".{first}")
    asked = {name: value for name, value in headers.items() if within or name.lower() not in _CONFIDENTIAL}
    named = {name.lower() for name in asked}
    kept = {name: value for name, value in request["headers"].items() if name.lower() not in named}
    return [{"name": name, "value": value} for name, value in {**kept, **asked}.items()]


async def rendered(navigation: Navigation, landed: Landed, most: int) -> tuple[bytes, Landed]:
    """The body of an answer: a document as its scripts left it, anything else as it came, nothing where there is none.

    Raises OpError ``body_too_large``.
    """
    if not landed.renders:
        body = b"" if landed.response is None else await _raw(landed)
        _check(landed, len(body), most)
        return body, landed
    _check(landed, await navigation.length(), most)
    body = (await navigation.content()).encode("utf-8", "replace")
    _check(landed, len(body), most)
    shown = await navigation.landed()
    if navigation.refused is not None:
        raise navigation.refused
    if shown.url.startswith(_ERROR_PAGE):
        raise OpError("transport_error", f"a script of {landed.url} went on to an address that fails", retryable=True)
    return body, shown


async def _raw(landed: Landed) -> bytes:
    if not landed.shown:
        if landed.status in _EMPTY or landed.status >= 400:
            return b""
        message = f"{landed.url} is a download ({landed.content_type or 'no type'}): fetch it with http/fetch"
        raise OpError("invalid_request", message)
    return bytes(await landed.response.body())


def _check(landed: Landed, size: int, most: int) -> None:
    if size > most:
        raise OpError("body_too_large", f"{landed.url}: the body is larger than {most} bytes")
