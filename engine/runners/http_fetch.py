"""One request to its final answer: redirects, cookies, time and size limits."""

from __future__ import annotations

import asyncio
import base64
import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import unquote

import httpx

from engine.clock import SECOND, Micros
from engine.errors import OpError
from engine.model import Validators
from engine.runners.cookies import CookieJar
from engine.runners.http_body import ACCEPTED, BadEncoding, BodyTooLarge, Nowhere, read_body, skip_body
from engine.runners.http_request import FetchRequest
from engine.runners.http_wire import WIRE_ERRORS, HostGates, Wire, said, shown

NOT_MODIFIED = 304
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
#: What is read of a redirect's body so that its connection can be used again.
_SKIPPED = 64 << 10

#: The connection's own business: never taken from an op.
_FRAMING = frozenset(
    {"connection", "content-length", "keep-alive", "proxy-connection", "te", "transfer-encoding", "upgrade"}
)
#: Meant for the first host and its subdomains only.
_CONFIDENTIAL = frozenset({"authorization", "cookie", "cookie2", "host"})


class Doorkeeper(Protocol):
    """Who is asked before each request goes out."""

    async def permit(self, url: httpx.URL, user_agent: str, proxy: str | None, patience: Micros, /) -> object:
        """Raises OpError where ``url`` must not be requested."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchPlan:
    """A request with every limit decided."""

    request: FetchRequest
    user_agent: str
    timeout: Micros
    max_bytes: int
    max_redirects: int
    proxy: str | None
    #: What the page is recognised by, if it was seen before.
    validators: Validators | None = None
    #: None = everything may be requested.
    doorkeeper: Doorkeeper | None = None

    def agent(self) -> str:
        """How the request calls its sender."""
        own = (value for name, value in self.request.headers.items() if name.lower() == "user-agent")
        return next(own, self.user_agent)


@dataclass(frozen=True, slots=True)
class Answer:
    """The final response, read and closed; ``body`` is None where the op does not keep it."""

    head: httpx.Response
    size: int
    body: bytes | None

    @property
    def not_modified(self) -> bool:
        """Whether the server only says that the page is as it was."""
        return self.head.status_code == NOT_MODIFIED


@dataclass(frozen=True, slots=True)
class _Hop:
    """One request of a chain of redirects."""

    method: str
    url: httpx.URL
    with_body: bool


async def fetch(
    plan: FetchPlan, wire: Wire, gates: HostGates, jar: CookieJar | None, started: Callable[[], None]
) -> Answer:
    """The answer to ``plan``. ``started`` is called when the request may first go out.

    Waiting for a place among the requests to a host is not counted as the request's time. Raises OpError.
    """
    asked = plan.request
    hop = _Hop(asked.method, asked.url, with_body=True)
    left, followed = plan.timeout / SECOND, 0
    clock = asyncio.get_running_loop()
    while True:
        if plan.doorkeeper is not None:
            await plan.doorkeeper.permit(hop.url, plan.agent(), plan.proxy, plan.timeout)
        async with gates.passing(hop.url.host):
            if followed == 0:
                started()
            began = clock.time()
            try:
                async with asyncio.timeout(left):
                    answer = await _exchange(plan, hop, wire, jar)
            except TimeoutError as error:
                message = f"{shown(hop.url)}: no complete answer within {plan.timeout / SECOND:g} s"
                raise OpError("transport_error", message, retryable=True) from error
            left -= clock.time() - began
        if isinstance(answer, Answer):
            return answer
        followed += 1
        if followed > plan.max_redirects:
            message = f"{shown(asked.url)} redirected more than {plan.max_redirects} times, last to {shown(answer.url)}"
            raise OpError("too_many_redirects", message)
        hop = answer


async def _exchange(plan: FetchPlan, hop: _Hop, wire: Wire, jar: CookieJar | None) -> Answer | _Hop:
    """Send one request; the answer, or where it redirects to."""
    request = httpx.Request(
        hop.method,
        hop.url,
        headers=_headers(plan, hop),
        content=plan.request.body if hop.with_body else None,
    )
    if jar is not None:
        jar.add_to(request)
    response = await wire.send(request, plan.proxy)
    try:
        if jar is not None:
            jar.take_from(response)
        following = None if plan.request.redirects == 0 else _redirect(hop, response)
        if following is not None:
            await skip_body(response, _SKIPPED)
            return following
        wanted = plan.request.persist_body and response.status_code != NOT_MODIFIED
        kept = io.BytesIO() if wanted else Nowhere()
        size = await read_body(response, plan.max_bytes, kept)
        return Answer(response, size, kept.getvalue() if isinstance(kept, io.BytesIO) else None)
    except BodyTooLarge:
        message = f"{shown(hop.url)}: the body is larger than {plan.max_bytes} bytes"
        raise OpError("body_too_large", message) from None
    except (BadEncoding, *WIRE_ERRORS) as error:
        raise OpError("read_response_error", f"{shown(hop.url)}: {said(error)}", retryable=True) from error
    finally:
        await response.aclose()


def _headers(plan: FetchPlan, hop: _Hop) -> httpx.Headers:
    asked = plan.request
    headers = httpx.Headers({"User-Agent": plan.user_agent, "Accept": "*/*", "Accept-Encoding": ACCEPTED})
    if hop.with_body and asked.content_type is not None:
        headers["Content-Type"] = asked.content_type
    trusted = _is_within(hop.url.host, asked.url.host)
    for name, value in asked.headers.items():
        lower = name.lower()
        if lower in _FRAMING or lower == "content-type" or (lower in _CONFIDENTIAL and not trusted):
            continue
        if lower == "host" and hop.url.host != asked.url.host:
            continue
        headers.update([(name.encode(), value.encode())])
    if plan.validators is not None and plan.validators.url == str(hop.url.copy_with(fragment=None)):
        if plan.validators.etag:
            headers["If-None-Match"] = plan.validators.etag
        if plan.validators.last_modified:
            headers["If-Modified-Since"] = plan.validators.last_modified
    if hop.url.userinfo and "authorization" not in headers:
        login = ":".join(unquote(part) for part in (hop.url.username, hop.url.password))
        headers["Authorization"] = f"Basic {base64.b64encode(login.encode()).decode()}"
    return headers


def _redirect(hop: _Hop, response: httpx.Response) -> _Hop | None:
    """Where ``response`` sends its reader, as browsers understand it."""
    if response.status_code not in _REDIRECTS:
        return None
    location = response.headers.get("location", "")
    if not location:
        return None
    try:
        url = hop.url.join(location)
        url.raw_host.decode().encode("idna")
    except (httpx.InvalidURL, ValueError) as error:
        message = f'{shown(hop.url)} redirects to "{location[:200]}", which is not a URL: {error}'
        raise OpError("transport_error", message, retryable=True) from error
    if url.scheme not in ("http", "https") or not url.host:
        raise OpError(
            "invalid_request", f'{shown(hop.url)} redirects to "{location[:200]}", which is not a web address'
        )
    if hop.url.fragment and not url.fragment:
        url = url.copy_with(fragment=hop.url.fragment)
    if response.status_code in (307, 308) or hop.method in ("GET", "HEAD"):
        return _Hop(hop.method, url, hop.with_body)
    return _Hop("GET", url, with_body=False)


def _is_within(host: str, first: str) -> bool:
    return host == first or host.endswith(f".{first}")
