"""From an op's input to the request it means: shapes checked, templates filled in."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote_plus

import httpx

from engine.clock import Micros
from engine.durations import parse_duration
from engine.errors import OpError
from engine.model import Op
from engine.plugins.site import is_proxy
from engine.runners.template import render

FORM = "application/x-www-form-urlencoded"

_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_LONE_SURROGATE = re.compile(r"[\ud800-\udfff]")


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchRequest:
    """One request, templates filled in. None = whatever the site or the worker says."""

    method: str
    #: As the op spelled it; ``url`` is the same, normalised.
    url_text: str
    url: httpx.URL
    #: The headers the op set, in its spelling.
    headers: Mapping[str, str] = field(default_factory=dict)
    content_type: str | None = None
    body_text: str | None = None
    timeout: Micros | None = None
    max_bytes: int | None = None
    #: 0 = a redirect is an answer like any other.
    redirects: int | None = None
    persist_body: bool = True
    artifact_name: str = ""
    proxy: str | None = None
    #: Whether the page is wanted only if it has changed.
    conditional: bool | None = None

    @property
    def body(self) -> bytes | None:
        """The bytes to send."""
        return None if self.body_text is None else self.body_text.encode()


def read_request(op: Op) -> FetchRequest:
    """The request of an op. Raises OpError ``invalid_input``, ``template_error``, ``invalid_request``."""
    given = _object(op.input, "the op's input")
    request = given.get("request")
    if not isinstance(request, dict):
        raise _invalid(f"input.request must be an object, {_not(request)}")
    form, body = _strings(request, "form"), _text(request, "request.body")
    method = (_text(request, "request.method") or "").strip().upper() or "GET"
    if not _TOKEN.fullmatch(method):
        raise OpError("invalid_request", f"{_quoted(method)} is not a request method")
    template = _Filling(op, given)
    url_text = template.fill(_text(request, "request.url") or "", "request.url").strip()
    headers = {name: template.header(name, text) for name, text in _strings(request, "headers").items()}
    body_text: str | None
    if form:
        filled = {_whole(name): template.fill(text, f"request.form.{name}") for name, text in form.items()}
        body_text = "&".join(f"{quote_plus(name)}={quote_plus(filled[name])}" for name in sorted(filled))
    else:
        body_text = template.fill(body, "request.body") if body else None
    return FetchRequest(
        method=method,
        url_text=url_text,
        url=checked_url(url_text),
        headers=headers,
        content_type=_named(headers, "content-type") or (FORM if form else None),
        body_text=body_text,
        timeout=_timeout(request),
        max_bytes=_limit(request, "maxBytes", least=1),
        redirects=_redirects(request),
        persist_body=_truth(given, "persistBody"),
        artifact_name=_artifact_name(given),
        proxy=_proxy(request),
        conditional=None if request.get("conditional") is None else _truth(request, "request.conditional"),
    )


class _Filling:
    """The values of one op's templates."""

    def __init__(self, op: Op, given: Mapping[str, Any]) -> None:
        self._values = {
            "input": given,
            "workflow": {"input": _object(op.workflow.input, "the workflow's input")},
            "op": {
                "id": op.id,
                "site": op.site,
                "kind": op.kind,
                "queue": op.queue,
                "dedupKey": op.dedup_key,
                "metadata": dict(op.metadata),
            },
        }

    def fill(self, template: str, where: str) -> str:
        """``template`` rendered."""
        return _whole(render(template, self._values, where))

    def header(self, name: str, template: str) -> str:
        """The value of a header rendered."""
        value = self.fill(template, f"request.headers.{name}").strip(" \t")
        if not _TOKEN.fullmatch(name):
            raise OpError("invalid_request", f"{_quoted(name)} is not a header name")
        if _CONTROL.search(value):
            raise OpError("invalid_request", f"the value of header {name} has control characters: {_quoted(value)}")
        return value


def _object(text: str, what: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _invalid(f"{what} is not readable JSON: {error}") from error
    if value is None and what.startswith("the workflow"):
        return {}
    if not isinstance(value, dict):
        raise _invalid(f"{what} must be an object, {_not(value)}")
    return value


def checked_url(text: str) -> httpx.URL:
    """An absolute http or https URL. Raises OpError ``invalid_input``, ``invalid_request``."""
    if not text:
        raise _invalid("input.request.url is blank")
    try:
        url = httpx.URL(text)
        url.raw_host.decode().encode("idna")
    except (httpx.InvalidURL, ValueError) as error:
        raise OpError("invalid_request", f"{_quoted(text)} is not a URL: {error}") from error
    if url.scheme not in ("http", "https") or not url.host or url.port == 0 or (url.port or 0) > 65535:
        raise OpError("invalid_request", f"{_quoted(text)} is not an absolute http or https URL")
    return url


def _text(given: Mapping[str, Any], path: str) -> str | None:
    value = given.get(path.rpartition(".")[2])
    if value is not None and not isinstance(value, str):
        raise _invalid(f"input.{path} must be a string, {_not(value)}")
    return value


def _strings(request: Mapping[str, Any], name: str) -> dict[str, str]:
    value = request.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise _invalid(f"input.request.{name} must be an object, {_not(value)}")
    for key, item in value.items():
        if not isinstance(item, str):
            raise _invalid(f"input.request.{name}.{key} must be a string, {_not(item)}")
    return value


def _artifact_name(given: Mapping[str, Any]) -> str:
    name = _whole((_text(given, "artifactName") or "").strip())
    if "\0" in name:
        raise _invalid("input.artifactName has a NUL character")
    return name or "response-body"


def _proxy(request: Mapping[str, Any]) -> str | None:
    proxy = _text(request, "request.proxy") or None
    if proxy is not None and not is_proxy(proxy):
        raise _invalid(f"input.request.proxy must be a URL such as http://127.0.0.1:3128, {_not(proxy)}")
    return proxy


def _truth(given: Mapping[str, Any], path: str) -> bool:
    value = given.get(path.rpartition(".")[2])
    if value is not None and not isinstance(value, bool):
        raise _invalid(f"input.{path} must be true or false, {_not(value)}")
    return value is True


def _timeout(request: Mapping[str, Any]) -> Micros | None:
    value = request.get("timeout")
    if value is None:
        return None
    try:
        timeout = parse_duration(value)
    except ValueError as error:
        raise _invalid(f"input.request.timeout: {error}") from error
    if timeout == 0:
        raise _invalid("input.request.timeout must be above 0")
    return timeout


def _limit(request: Mapping[str, Any], name: str, least: int) -> int | None:
    value = request.get(name)
    if value is None:
        return None
    whole = isinstance(value, int | float) and not isinstance(value, bool) and float(value).is_integer()
    if not whole or value < least:
        raise _invalid(f"input.request.{name} must be a whole number of at least {least}, {_not(value)}")
    return int(value)


def _redirects(request: Mapping[str, Any]) -> int | None:
    match request.get("followRedirects"):
        case bool(follow):
            return None if follow else 0
        case str() | dict() | list() as value:
            raise _invalid(f"input.request.followRedirects must be true, false or a number, {_not(value)}")
        case _:
            return _limit(request, "followRedirects", least=0)


def _named(headers: Mapping[str, str], lower: str) -> str | None:
    return next((value for name, value in headers.items() if name.lower() == lower and value), None)


def _whole(text: str) -> str:
    """``text`` as it can be sent: half a surrogate pair becomes the replacement character."""
    return _LONE_SURROGATE.sub("\N{REPLACEMENT CHARACTER}", text)


def _not(value: Any) -> str:
    return f"not {_cut(json.dumps(value, ensure_ascii=False))}"


def _quoted(text: str) -> str:
    return _cut(json.dumps(text, ensure_ascii=False))


def _cut(text: str) -> str:
    return text if len(text) <= 200 else f"{text[:200]}…"


def _invalid(message: str) -> OpError:
    return OpError("invalid_input", message)
