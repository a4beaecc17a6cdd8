"""From an op's input to the request it means."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote_plus

import httpx

from engine.clock import Micros
from engine.durations import parse_duration
from engine.errors import OpError
from engine.model import Op
from engine.runners.template import render

FORM = "application/x-www-form-urlencoded"


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchRequest:
    """One request, templates filled in."""

    method: str
    url: httpx.URL
    headers: dict[str, str]
    body: bytes | None
    body_text: str | None
    timeout: Micros | None
    max_bytes: int | None
    #: None = the runner's limit; 0 = redirects are not followed.
    redirects: int | None
    persist_body: bool
    artifact_name: str


def read_request(op: Op) -> FetchRequest:
    """The request of an op. Raises OpError ``invalid_input``, ``template_error``, ``invalid_request``."""
    given = json.loads(op.input)
    if not isinstance(given, dict):
        raise _invalid("the op has no input object")
    request = given.get("request")
    if not isinstance(request, dict):
        raise _invalid("input.request must be an object")
    values = {
        "input": given,
        "workflow": {"input": json.loads(op.workflow.input)},
        "op": {
            "id": op.id,
            "site": op.site,
            "kind": op.kind,
            "queue": op.queue,
            "dedupKey": op.dedup_key,
            "metadata": dict(op.metadata),
        },
    }
    headers = {name: render(text, values, f"header {name}") for name, text in _strings(request, "headers").items()}
    form = {name: render(text, values, f"form field {name}") for name, text in _strings(request, "form").items()}
    body_text = _body(request, form, values)
    if form and "content-type" not in {name.lower() for name in headers}:
        headers["Content-Type"] = FORM
    return FetchRequest(
        method=(_text(request, "method") or "GET").strip().upper() or "GET",
        url=_url(render(_text(request, "url") or "", values, "url")),
        headers=headers,
        body=None if body_text is None else body_text.encode(),
        body_text=body_text,
        timeout=_timeout(request),
        max_bytes=_whole(request, "maxBytes"),
        redirects=_redirects(request),
        persist_body=given.get("persistBody") is True,
        artifact_name=_text(given, "artifactName") or "response-body",
    )


def _body(request: dict[str, Any], form: dict[str, str], values: dict[str, Any]) -> str | None:
    if form:
        return "&".join(f"{quote_plus(name)}={quote_plus(form[name])}" for name in sorted(form))
    body = _text(request, "body")
    return None if not body else render(body, values, "body")


def _url(text: str) -> httpx.URL:
    if not text.strip():
        raise _invalid("input.request.url is blank")
    try:
        url = httpx.URL(text.strip())
    except httpx.InvalidURL as error:
        raise OpError("invalid_request", f'"{text}" is not a URL: {error}') from error
    if url.scheme not in ("http", "https") or not url.host:
        raise OpError("invalid_request", f'"{text}" is not an absolute http or https URL')
    return url


def _text(given: dict[str, Any], name: str) -> str | None:
    value = given.get(name)
    if value is not None and not isinstance(value, str):
        raise _invalid(f"input.{'' if name == 'artifactName' else 'request.'}{name} must be a string")
    return value


def _strings(request: dict[str, Any], name: str) -> dict[str, str]:
    value = request.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise _invalid(f"input.request.{name} must be an object")
    for key, item in value.items():
        if not isinstance(item, str):
            raise _invalid(f"input.request.{name}.{key} must be a string, not {json.dumps(item)}")
    return value


def _timeout(request: dict[str, Any]) -> Micros | None:
    value = request.get("timeout")
    try:
        return None if value is None else parse_duration(value)
    except ValueError as error:
        raise _invalid(f"input.request.timeout: {error}") from error


def _whole(request: dict[str, Any], name: str) -> int | None:
    value = request.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
        raise _invalid(f"input.request.{name} must be a number, not {json.dumps(value)}")
    return int(value)


def _redirects(request: dict[str, Any]) -> int | None:
    value = request.get("followRedirects")
    if isinstance(value, bool):
        return None if value else 0
    return _whole(request, "followRedirects")


def _invalid(message: str) -> OpError:
    return OpError("invalid_input", message)
