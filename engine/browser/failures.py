"""What Playwright's errors mean for an op."""

from __future__ import annotations

import re
from typing import Any

from engine.errors import OpError

_NET = re.compile(r"net::(ERR_[A-Z0-9_]+)")
_CALL_LOG = re.compile(r"\s*Call log:.*", re.DOTALL)
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")

#: The request is wrong and would be wrong again.
_INVALID = frozenset(
    {
        "ERR_INVALID_URL",
        "ERR_UNSAFE_PORT",
        "ERR_UNKNOWN_URL_SCHEME",
        "ERR_DISALLOWED_URL_SCHEME",
        "ERR_INVALID_ARGUMENT",
    }
)
_CRASHED = (
    "Page crashed",
    "Target crashed",
    "TargetClosedError",
    "has been closed",
    "Connection closed",
    "disconnected",
)
_LONGEST = 1_000

_SAID = re.compile(r"\[err\] (.*)")
_ENDED = re.compile(r"process did exit: ([^>]*)")
#: Where Chromium's own words need an explanation.
_KNOWN = {
    "sandboxing failed": 'its sandbox does not work here (or not for root): set browser.sandbox to "never", or mend it',
    "without having a XServer": "headless: false needs a display",
}


def classified(error: BaseException) -> OpError:
    """The error of an op for whatever went wrong in a browser."""
    if isinstance(error, OpError):
        return error
    message = _tidy(str(error)) or type(error).__name__
    kind = type(error).__name__
    if isinstance(error, TimeoutError) or kind == "TimeoutError":
        return OpError("transport_error", _tidy(str(error)) or "it took too long", retryable=True)
    net = _NET.search(message)
    if net is not None:
        code = net.group(1)
        if code == "ERR_TOO_MANY_REDIRECTS":
            return OpError("too_many_redirects", message)
        if code in _INVALID:
            return OpError("invalid_request", message)
        return OpError("transport_error", message, retryable=True)
    if kind == "TargetClosedError" or any(sign in message for sign in _CRASHED):
        return OpError("browser_failed", message, retryable=True)
    if kind == "Error":
        return OpError("page_error", message)
    return OpError("browser_failed", f"{kind}: {message}", retryable=True)


def told_failure(error: BaseException) -> dict[str, Any]:
    """An error as it travels: the arguments of an OpError."""
    failed = classified(error)
    return {"code": failed.code, "message": failed.message, "retryable": failed.retryable}


def unstarted(program: str, error: Exception) -> OpError:
    """The error for a Chromium that did not start, out of Playwright's long account of it."""
    text = _COLOUR.sub("", str(error))
    known = next((reason for sign, reason in _KNOWN.items() if sign in text), None)
    said = list(dict.fromkeys(_SAID.findall(text)))
    telling = [line for line in said if "FATAL" in line or "ERROR" in line] or said
    ended = _ENDED.search(text)
    reason = known or "; ".join(telling[:2]) or (ended.group(1) if ended else _tidy(text))
    return OpError("browser_failed", f"{program} did not start: {reason[:_LONGEST]}", retryable=True)


def _tidy(text: str) -> str:
    return _COLOUR.sub("", _CALL_LOG.sub("", text)).strip()[:_LONGEST]
