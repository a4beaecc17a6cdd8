"""What the end of each hook means for its cycle: go on, with what, or skip.

Requests, envelopes, items and payloads are the plain objects that hooks see. Nothing here changes its arguments.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from engine.lifecycle.scripts import Called

Plain = dict[str, Any]
Item = dict[str, Any]

_REQUEST = ("url", "method", "headers", "timeout", "proxy", "max_body_size")
#: What override_fetch must return.
NO_RESPONSE = "override_fetch must return a response table"


def request_after(called: Called, request: Plain) -> Plain | None:
    """The request after ``before_fetch``; None: the run is skipped.

    What the hook left out of its request stays as it was; headers it returned replace the whole set.
    """
    if called.nil:
        return None
    if not called.is_table:
        return request
    returned = {name: called.value[name] for name in _REQUEST if called.value.get(name) is not None}
    return {**request, **returned}


def fetched(called: Called, request: Plain) -> Plain:
    """The envelope that ``override_fetch`` stands for."""
    if called.outcome == "threw":
        return failed(request, called.error)
    if not called.is_table:
        return failed(request, NO_RESPONSE)
    if "error" in called.value:
        return failed(request, called.value["error"])
    answer = called.value
    body = answer.get("body", "")
    response = {
        "status": answer.get("status", 200),
        "url": answer.get("url") or request["url"],
        "body": body,
        "headers": answer.get("headers", {}),
        "time_ms": called.duration_ms,
        "size": len(body.encode("utf-8", "replace")),
        "proxy": None,
    }
    return envelope(request, response)


def envelope(request: Plain, response: Plain) -> Plain:
    """The envelope of a response: ok for a status of 2xx only."""
    status = response["status"]
    if 200 <= status < 300:
        return {"ok": True, "request": request, "response": response}
    error = {"message": f"http status: {status}", "kind": "http"}
    return {"ok": False, "request": request, "response": response, "error": error}


def failed(request: Plain, message: str, kind: str = "unknown") -> Plain:
    """The envelope of a fetch without a response."""
    return {"ok": False, "request": request, "error": {"message": message, "kind": kind}}


@dataclass(frozen=True, slots=True)
class AfterFetch:
    """What became of a fetch. ``envelope`` holds the response to go on with; ``error`` says why it failed."""

    state: Literal["continue", "skip", "failed"]
    envelope: Plain
    error: str = ""


def after_fetch(called: Called, envelope: Plain) -> AfterFetch:
    """The fetch after ``after_fetch``. Of a good one only the body can be changed; a failed one can be answered for."""
    if called.nil:
        return AfterFetch("skip", envelope)
    response = envelope.get("response")
    returned = called.value["response"] if called.is_table else None
    if envelope["ok"]:
        if returned is None or "body" not in returned:
            return AfterFetch("continue", envelope)
        return AfterFetch("continue", {**envelope, "response": {**(response or {}), "body": returned["body"]}})
    if called.is_table and (returned is not None or response is not None):
        blank = {"status": 200, "url": envelope["request"]["url"], "body": "", "headers": {}, "time_ms": 0, "size": 0}
        return AfterFetch("continue", {**envelope, "response": {**blank, **(response or {}), **(returned or {})}})
    return AfterFetch("failed", envelope, envelope["error"]["message"])


def extracted(called: Called) -> list[Item] | None:
    """The items of ``override_extract``, none matched yet; None: there is no such hook, extract as the job says."""
    if called.outcome == "absent":
        return None
    return [{"fields": item["fields"], "matches": []} for item in called.value] if called.is_table else []


def items_after(called: Called, items: list[Item]) -> list[Item] | None:
    """The items after ``after_extract``, ``before_store`` or ``before_notify``; None: it returned nothing."""
    if called.nil:
        return None
    return called.value if called.is_table else items


def kept(called: Called, item: Item) -> Item | None:
    """The item after ``filter_item``; None: it is dropped."""
    if called.nil:
        return None
    return called.value if called.is_table else item


def payload_after(called: Called, payload: Any) -> Any:
    """The payload after ``before_webhook``; None: nothing is sent."""
    if called.nil:
        return None
    return called.value if called.is_table else payload
