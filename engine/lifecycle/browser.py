"""The browser of hooks: ``cdp.launch``, ``browser.attach`` and what a page can do (the extra ``browser``)."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from engine.browser.client import Browser
from engine.browser.settings import BrowserSettings
from engine.errors import OpError
from engine.js.wire import Frame
from engine.lifecycle.extensions import Extension
from engine.lifecycle.later import Rejected, Resources

_SCRIPT = Path(__file__).with_name("browser.js")
#: Of each thing a page is asked for, in milliseconds.
_PATIENCE = 30_000
_LONGEST = 3_600_000
_WAITS = ("load", "domcontentloaded", "networkidle", "commit")
_STATES = ("attached", "detached", "visible", "hidden")


def browser_extension(settings: BrowserSettings) -> Extension:
    """The globals of a machine with these settings. Without Chromium ``cdp.launch`` says what to install."""

    def launch(resources: Resources, given: Any) -> int:
        headless = _member(given, "headless", bool, True, "cdp.launch")
        proxy = _member(given, "proxy", str, None, "cdp.launch")
        try:
            browser = Browser(settings)
        except OpError as error:
            raise _rejected(error) from error
        number = resources.add(browser, browser.close)
        try:
            _answer(browser.launch(headless=headless, proxy=proxy))
        except Rejected:
            resources.close(number)
            raise
        return number

    return Extension(
        javascript=_SCRIPT.read_text(encoding="utf-8"),
        later={"browser.launch": launch, "browser.attach": _attach, "browser.page": _page},
        directly={"browser.close": _close, "browser.close_page": _close_page},
    )


def _attach(resources: Resources, given: Any) -> int:
    agent = _member(given["with"], "userAgent", str, None, "browser.attach")
    number: int = _answer(_browser(resources, given).ask("attach", {"userAgent": agent}))
    return number


def _page(resources: Resources, given: Any) -> Any:
    do, told = given["do"], dict(given["with"])
    name = f"page.{do}"
    patience = _member(told, "timeout", (int, float), _PATIENCE, name)
    if not 0 < patience <= _LONGEST:
        raise Rejected(f"{name}: timeout must be between 0 and {_LONGEST} milliseconds, not {patience}")
    told |= {"page": given["page"], "timeout": patience}
    if do == "open":
        told["waitUntil"] = _one_of(told, "waitUntil", _WAITS, name)
    elif do == "wait_for":
        told["state"] = _one_of(told, "state", _STATES, name)
    elif do == "screenshot":
        told["fullPage"] = _member(told, "fullPage", bool, False, name)
    return _answer(_browser(resources, given).ask(do, told))


def _close(resources: Resources, number: Any) -> None:
    resources.close(number)


def _close_page(resources: Resources, given: Any) -> None:
    try:
        browser = _browser(resources, given)
    except Rejected:
        return
    _answer(browser.ask("close_page", {"page": given["page"]}))


def _browser(resources: Resources, given: Any) -> Browser:
    try:
        browser: Browser = resources.get(given["browser"])
    except Exception as error:
        raise Rejected("the browser is closed", kind="browser_closed", error="the browser is closed") from error
    return browser


def _answer(future: Future[Frame]) -> Any:
    try:
        return future.result().header["ok"]
    except OpError as error:
        raise _rejected(error) from error


def _rejected(error: OpError) -> Rejected:
    return Rejected(error.message, kind=error.code, error=error.message)


def _member(given: Mapping[str, Any], name: str, kind: Any, otherwise: Any, who: str) -> Any:
    value = given.get(name)
    if value is None:
        return otherwise
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        named = {bool: "true or false", str: "a string"}.get(kind, "a number")
        raise Rejected(f"{who}: {name} must be {named}")
    return value


def _one_of(given: Mapping[str, Any], name: str, known: tuple[str, ...], who: str) -> str:
    value = given.get(name, known[0])
    if value not in known:
        raise Rejected(f"{who}: {name} must be one of {', '.join(known)}")
    return str(value)
