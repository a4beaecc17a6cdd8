"""The page that ``scraper shell`` looks at: a file, or what a server answers, and the prompt on it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from engine.authoring.bench import Bench
from engine.config import Settings
from engine.errors import OpError, ScraperError, UsageError
from engine.js.charset import decode_body
from engine.runners.http import USER_AGENT
from engine.runners.http_fetch import Answer, FetchPlan, fetch
from engine.runners.http_request import FetchRequest
from engine.runners.http_wire import HostGates, Wire


@dataclass(frozen=True, slots=True)
class LoadedPage:
    """A page as text. ``remark`` is what a person should know about how it came."""

    url: str
    html: str
    remark: str = ""


def load_page(target: str, settings: Settings) -> LoadedPage:
    """The page at a URL or in a file. Raises UsageError, ScraperError."""
    if target.partition("://")[0].lower() in ("http", "https"):
        return _fetched(target, settings)
    path = Path(target).expanduser()
    try:
        body = path.read_bytes()
    except FileNotFoundError as error:
        hint = ": a URL begins with http:// or https://" if "/" not in target else ""
        raise UsageError(f"there is no file {target}{hint}") from error
    except OSError as error:
        raise UsageError(f"{target}: cannot be read: {error.strerror or error}") from error
    return LoadedPage(path.absolute().as_uri(), decode_body(body, ""))


def _fetched(target: str, settings: Settings) -> LoadedPage:
    try:
        url = httpx.URL(target)
        url.raw_host.decode().encode("idna")
    except (httpx.InvalidURL, ValueError) as error:
        raise UsageError(f"{target} is not a URL: {error}") from error
    if not url.host:
        raise UsageError(f"{target} is not a URL: it names no host")
    try:
        answer = asyncio.run(_fetch(target, url, settings))
    except OpError as error:
        raise ScraperError(error.message) from error
    head, status = answer.head, answer.head.status_code
    html = decode_body(answer.body or b"", head.headers.get("content-type", ""))
    remark = f"{status} {head.reason_phrase}".rstrip() if status >= 400 else ""
    return LoadedPage(str(head.request.url), html, remark)


async def _fetch(target: str, url: httpx.URL, settings: Settings) -> Answer:
    request = FetchRequest(method="GET", url_text=target, url=url, artifact_name="page")
    plan = FetchPlan(
        request=request,
        user_agent=USER_AGENT,
        timeout=settings.http.timeout,
        max_bytes=settings.http.max_bytes,
        max_redirects=settings.http.max_redirects,
        proxy=settings.http.proxy or None,
    )
    wire = Wire()
    try:
        await wire.ready()
        return await fetch(plan, wire, HostGates(1), None, lambda: None)
    finally:
        await wire.aclose()


@dataclass(frozen=True, slots=True)
class Evaluated:
    """What became of a line: its value as text, or an error; and what it logged."""

    text: str
    error: str
    logs: tuple[str, ...]

    @property
    def is_incomplete(self) -> bool:
        """Whether the line is only the beginning of a statement."""
        return self.error.startswith("SyntaxError: ") and (
            "Unexpected end of input" in self.error or "Unterminated template literal" in self.error
        )


class PageSession:
    """Lines evaluated one after another on a page, in one isolate for as long as that lives."""

    def __init__(self, page: LoadedPage) -> None:
        self._page = page
        self._bench = Bench()
        #: Whether an isolate knows what earlier lines declared.
        self.is_open = False

    def evaluate(self, source: str, *, as_json: bool) -> Evaluated:
        """Evaluate ``source``. Raises ChildEnded; the line after that starts afresh."""
        try:
            if not self.is_open:
                self._bench.ask({"do": "open", "html": self._page.html, "url": self._page.url})
                self.is_open = True
            answer: dict[str, Any] = self._bench.ask({"do": "evaluate", "source": source, "json": as_json})
        except BaseException:
            self.is_open = False
            raise
        return Evaluated(answer.get("text", ""), answer.get("error", ""), tuple(answer["logs"]))

    def close(self) -> None:
        """End the isolate."""
        self._bench.close()
