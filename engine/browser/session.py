"""What a host does with its browser; the only modules that see Playwright are this one and :mod:`navigation`."""

from __future__ import annotations

import asyncio
import base64
import itertools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

from engine.browser.failures import unstarted
from engine.browser.navigation import Navigation, rendered
from engine.errors import OpError
from engine.js.wire import ParentChannel

#: Beyond Playwright's own, which already keep Chromium from calling home.
_FLAGS = ("--disable-quic", "--no-first-run", "--disable-crash-reporter", "--disable-breakpad")
#: For Chromium to start; machines under load take long.
_LAUNCH = 60_000.0
#: What scripts may open: no files of the machine, nothing of the browser's own.
_SCHEMES = frozenset({"http", "https", "data", "about"})


@dataclass(frozen=True, slots=True)
class Answer:
    """A JSON value and bytes."""

    value: Any
    attachments: Sequence[bytes] = ()


@dataclass(slots=True)
class _Tab:
    page: Any
    context: Any
    navigation: Navigation


@dataclass(slots=True)
class Session:
    """One Playwright, one Chromium, and its pages by number."""

    channel: ParentChannel
    _playwright: Any = None
    _browser: Any = None
    _tabs: dict[int, _Tab] = field(default_factory=dict)
    _numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))
    _cases: dict[int, asyncio.Future[OpError | None]] = field(default_factory=dict)

    async def do(self, name: str, given: Mapping[str, Any]) -> Any:
        """One question of the owner's."""
        known: Mapping[str, Callable[[Mapping[str, Any]], Awaitable[Any]]] = {
            "launch": self._launch,
            "attach": self._attach,
            "fetch": self._fetch,
            "open": self._open,
            "content": self._content,
            "eval": self._eval,
            "wait_for": self._wait_for,
            "click": self._click,
            "type": self._type,
            "screenshot": self._screenshot,
            "close_page": self._close_page,
            "verdict": self._verdict,
        }
        return await known[name](given)

    async def _launch(self, given: Mapping[str, Any]) -> None:
        from playwright.async_api import async_playwright

        self._playwright = await async_playwright().start()
        try:
            self._browser = await self._playwright.chromium.launch(
                executable_path=given["program"],
                headless=given["headless"],
                chromium_sandbox=given["sandbox"],
                proxy=_proxy(given["proxy"]),
                args=list(_FLAGS),
                timeout=_LAUNCH,
                handle_sigint=False,
                handle_sigterm=False,
                handle_sighup=False,
            )
        except Exception as error:
            raise unstarted(given["program"], error) from error

    async def _attach(self, given: Mapping[str, Any]) -> int:
        if self._browser is None:
            raise OpError("browser_failed", "the browser was not launched")
        context = await self._browser.new_context(user_agent=given.get("userAgent"), accept_downloads=False)
        if given.get("cookies"):
            await context.add_cookies(given["cookies"])
        page = await context.new_page()
        number = next(self._numbers)
        self._tabs[number] = _Tab(page, context, Navigation(page))
        return number

    async def _fetch(self, given: Mapping[str, Any]) -> Answer:
        """Everything an op of kind ``browser/fetch`` wants of a page, in one go."""
        tab = self._tabs[await self._attach(given)]
        url, seconds = given["url"], given["timeout"]
        judge = self._judged if given["judged"] else None
        try:
            async with asyncio.timeout(seconds):
                await tab.navigation.escort(url, given["headers"], judge)
                landed = await tab.navigation.go(url, until=given["waitUntil"], patience=seconds * 1000)
                if given["waitFor"] and landed.renders:
                    await tab.page.wait_for_selector(given["waitFor"], state="attached", timeout=seconds * 1000)
                body, landed = await rendered(tab.navigation, landed, given["maxBytes"])
                attachments = [body] if given["keep"] else []
                if given["screenshot"] and landed.shown:
                    whole = given["screenshot"] == "full"
                    attachments.append(await tab.page.screenshot(full_page=whole, timeout=seconds * 1000))
                value = {**landed.to_dict(), "size": len(body), "cookies": await tab.context.cookies()}
        except TimeoutError as error:
            raise _late(url, seconds, given["waitFor"]) from error
        except Exception as error:
            if type(error).__name__ == "TimeoutError":
                raise _late(url, seconds, given["waitFor"]) from error
            raise
        return Answer(value, attachments)

    async def _judged(self, url: str) -> OpError | None:
        """What the owner has against an address."""
        case = next(self._numbers)
        self._cases[case] = asyncio.get_running_loop().create_future()
        await self.channel.send({"judge": url, "case": case})
        return await self._cases[case]

    async def _verdict(self, given: Mapping[str, Any]) -> None:
        refused = given["refused"]
        self._cases.pop(given["case"]).set_result(None if refused is None else OpError(**refused))

    async def _open(self, given: Mapping[str, Any]) -> dict[str, Any]:
        url = given["url"]
        if urlsplit(url).scheme.lower() not in _SCHEMES:
            raise OpError("invalid_request", f'"{url[:200]}" cannot be opened: only http and https URLs can')
        landed = await self._tab(given).navigation.go(url, until=given["waitUntil"], patience=given["timeout"])
        return landed.to_dict()

    async def _content(self, given: Mapping[str, Any]) -> str:
        async with asyncio.timeout(given["timeout"] / 1000):
            return await self._tab(given).navigation.content()

    async def _eval(self, given: Mapping[str, Any]) -> Any:
        async with asyncio.timeout(given["timeout"] / 1000):
            return await self._tab(given).page.evaluate(given["script"], given.get("argument"))

    async def _wait_for(self, given: Mapping[str, Any]) -> None:
        page = self._tab(given).page
        await page.wait_for_selector(given["selector"], state=given.get("state", "attached"), timeout=given["timeout"])

    async def _click(self, given: Mapping[str, Any]) -> None:
        await self._tab(given).page.click(given["selector"], timeout=given["timeout"])

    async def _type(self, given: Mapping[str, Any]) -> None:
        locator = self._tab(given).page.locator(given["selector"]).first
        await locator.click(timeout=given["timeout"])
        await locator.press_sequentially(given["text"], timeout=given["timeout"])

    async def _screenshot(self, given: Mapping[str, Any]) -> str:
        page = self._tab(given).page
        picture = await page.screenshot(full_page=given.get("fullPage", False), timeout=given["timeout"])
        return base64.b64encode(picture).decode()

    async def _close_page(self, given: Mapping[str, Any]) -> None:
        tab = self._tabs.pop(given["page"], None)
        if tab is not None:
            await tab.context.close()

    def _tab(self, given: Mapping[str, Any]) -> _Tab:
        tab = self._tabs.get(given["page"])
        if tab is None:
            raise OpError("browser_closed", "the page is closed")
        return tab


def _proxy(url: str | None) -> dict[str, str] | None:
    if url is None:
        return None
    parts = urlsplit(url)
    # Chromium lets every SOCKS proxy look names up
    told = {"server": f"{parts.scheme.replace('socks5h', 'socks5')}://{parts.netloc.rpartition('@')[2]}"}
    if parts.username:
        told |= {"username": unquote(parts.username), "password": unquote(parts.password or "")}
    return told


def _late(url: str, seconds: float, selector: str | None) -> OpError:
    wanted = f' with "{selector}"' if selector else ""
    return OpError("transport_error", f"{url}: no complete page{wanted} within {seconds:g} s", retryable=True)
