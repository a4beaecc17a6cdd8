"""The shapes that hooks may return; anything else counts as an error of the hook."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class Malformed(Exception):
    """What a hook returned has the wrong shape; the message says where."""


def check(stage: str, value: Any) -> Any:
    """What a hook of that stage returned, checked and with its texts as texts. Raises Malformed."""
    match stage:
        case "before_fetch":
            return _request(_object(stage, value))
        case "override_fetch":
            return _fetched(_object(stage, value))
        case "after_fetch":
            return _envelope(_object(stage, value))
    return value


def _object(stage: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Malformed(f"{stage} must return an object, not an array")
    return value


def _request(value: dict[str, Any]) -> dict[str, Any]:
    for name in ("url", "method", "proxy"):
        if value.get(name) is not None and not isinstance(value[name], str):
            raise Malformed(f"before_fetch: {name} must be a string")
    for name in ("timeout", "max_body_size"):
        number = value.get(name)
        if number is not None and (isinstance(number, bool) or not isinstance(number, int | float) or number <= 0):
            raise Malformed(f"before_fetch: {name} must be a positive number")
    return _with_headers("before_fetch", value)


def _fetched(value: dict[str, Any]) -> dict[str, Any]:
    if value.get("error") is not None:
        error = value["error"]
        if isinstance(error, Mapping):
            error = error.get("message")
        if not isinstance(error, str):
            raise Malformed("override_fetch: error must be a string")
        return {"error": error}
    if value.get("status") is None and value.get("body") is None:
        raise Malformed("override_fetch must return {status, body, url, headers} or {error}")
    return _response("override_fetch", value)


def _envelope(value: dict[str, Any]) -> dict[str, Any]:
    response = value.get("response")
    if response is None:
        top = {name: value[name] for name in ("status", "url", "body", "headers") if value.get(name) is not None}
        return {"response": _response("after_fetch", top) if top else None}
    if not isinstance(response, dict):
        raise Malformed("after_fetch: response must be an object")
    return {"response": _response("after_fetch", response)}


def _response(stage: str, value: dict[str, Any]) -> dict[str, Any]:
    """The members of a response that are there, each of its type."""
    status = value.get("status")
    if status is not None and (isinstance(status, bool) or not isinstance(status, int | float) or status % 1):
        raise Malformed(f"{stage}: status must be a whole number")
    for name in ("url", "body"):
        if value.get(name) is not None and not isinstance(value[name], str):
            raise Malformed(f"{stage}: {name} must be a string")
    known = {name: value[name] for name in ("status", "url", "body", "headers") if value.get(name) is not None}
    if "status" in known:
        known["status"] = int(known["status"])
    return _with_headers(stage, known)


def _with_headers(stage: str, value: dict[str, Any]) -> dict[str, Any]:
    headers = value.get("headers")
    if headers is None:
        return value
    if not isinstance(headers, dict):
        raise Malformed(f"{stage}: headers must be an object")
    shown: dict[str, str] = {}
    for name, text in headers.items():
        if isinstance(text, bool | dict | list):
            raise Malformed(f"{stage}: header {name} must be a string")
        if text is not None:
            shown[name] = text if isinstance(text, str) else str(text)
    return {**value, "headers": shown}
