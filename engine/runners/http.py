"""Ops of kind ``http/fetch``: one request over a pooled client, its response as data and, if wanted, an artifact."""

from __future__ import annotations

import asyncio
import hashlib
import json
import ssl
from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http.cookiejar import Cookie
from typing import Any

import httpx

from engine.clock import SECOND, Micros
from engine.errors import OpError
from engine.model import Artifact, JsonText, Result
from engine.runners.base import RunContext, RunFailed
from engine.runners.http_request import FetchRequest, read_request

_USER_AGENT = "scraper/worker"
_LONGEST_RETRY_AFTER = 24 * 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRunnerSettings:
    """The worker's limits; a site or a request may set its own."""

    timeout: Micros = 15 * SECOND
    proxy: str | None = None
    max_bytes: int = 64 << 20
    max_redirects: int = 10
    #: Requests to one host at once, in this worker.
    per_host: int = 8


class HttpRunner:
    """Fetches pages."""

    def __init__(self, settings: HttpRunnerSettings) -> None:
        self._settings = settings
        self._clients: dict[str | None, httpx.AsyncClient] = {}
        self._hosts: defaultdict[str, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(settings.per_host))

    async def run(self, ctx: RunContext) -> Result:
        """Execute the op. Raises OpError and RunFailed."""
        request = read_request(ctx.op)
        client = self._client(ctx.site.http.proxy or self._settings.proxy)
        jar = await _open_jar(ctx)
        async with self._hosts[request.url.host]:
            ctx.started()
            timeout = (request.timeout or ctx.site.http.timeout or self._settings.timeout) / SECOND
            try:
                async with asyncio.timeout(timeout):
                    response, body = await self._fetch(client, ctx, request, jar)
            except TimeoutError as error:
                raise OpError("transport_error", f"{request.url} did not answer within {timeout:g} s", True) from error
        return _outcome(ctx, request, response, body, _closed_jar(jar))

    async def resolve(self, ctx: RunContext) -> Result | None:
        """Fetches leave nothing behind outside of the engine DB."""
        return None

    async def aclose(self) -> None:
        """Close the connections."""
        for client in self._clients.values():
            await client.aclose()

    def _client(self, proxy: str | None) -> httpx.AsyncClient:
        if proxy not in self._clients:
            self._clients[proxy] = httpx.AsyncClient(
                http2=True,
                proxy=proxy,
                trust_env=proxy is None,
                mounts=_DIRECT if proxy is None else None,
                timeout=None,
                verify=ssl.create_default_context(),
                limits=httpx.Limits(max_connections=None, max_keepalive_connections=64),
            )
        return self._clients[proxy]

    async def _fetch(
        self, client: httpx.AsyncClient, ctx: RunContext, request: FetchRequest, jar: httpx.Cookies | None
    ) -> tuple[httpx.Response, bytes]:
        user_agent = ctx.site.http.user_agent or _USER_AGENT
        prepared: httpx.Request | None = httpx.Request(
            request.method,
            request.url,
            headers={"User-Agent": user_agent, "Accept": "*/*", "Accept-Encoding": _ENCODINGS, **request.headers},
            content=request.body,
        )
        allowed = self._settings.max_redirects if request.redirects is None else request.redirects
        limit = request.max_bytes or ctx.site.http.max_bytes or self._settings.max_bytes
        followed = 0
        while True:
            assert prepared is not None
            if jar is not None:
                jar.set_cookie_header(prepared)
            response, body = await _exchange(client, prepared, limit)
            if jar is not None:
                jar.extract_cookies(response)
            if response.next_request is None or request.redirects == 0:
                return response, body
            followed += 1
            if followed > allowed:
                raise OpError("too_many_redirects", f"{request.url} redirected more than {allowed} times")
            prepared = response.next_request
            prepared.headers.pop("cookie", None)


async def _exchange(client: httpx.AsyncClient, request: httpx.Request, limit: int) -> tuple[httpx.Response, bytes]:
    try:
        response = await client.send(request, stream=True, follow_redirects=False)
    except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
        raise OpError("invalid_request", f"{request.url}: {error}") from error
    except (httpx.HTTPError, ssl.SSLError, OSError, ValueError) as error:
        raise OpError("transport_error", f"{request.url}: {_said(error)}", True) from error
    try:
        pieces: list[bytes] = []
        size = 0
        async for piece in response.aiter_bytes():
            size += len(piece)
            if size > limit:
                raise OpError("body_too_large", f"{request.url}: the body is larger than {limit} bytes")
            pieces.append(piece)
    except (httpx.HTTPError, httpx.StreamError, ssl.SSLError, OSError) as error:
        raise OpError("read_response_error", f"{request.url}: {_said(error)}", True) from error
    finally:
        await response.aclose()
    return response, b"".join(pieces)


def _outcome(
    ctx: RunContext, request: FetchRequest, response: httpx.Response, body: bytes, cookies: JsonText | None
) -> Result:
    artifacts = (_artifact(ctx, request, response, body),) if request.persist_body else ()
    envelope = _envelope(request, response, body, artifacts)
    status = response.status_code
    if status >= 400:
        error = OpError(
            f"http_status_{status}",
            f"{request.method} {request.url}: {status} {response.reason_phrase}".rstrip(),
            status == 429 or status >= 500,
            _retry_after(response),
            envelope,
        )
        raise RunFailed(error, Result(artifacts=artifacts, cookies=cookies))
    data = json.dumps(envelope, ensure_ascii=False, separators=(",", ":"))
    return Result(data=data, artifacts=artifacts, cookies=cookies)


def _envelope(
    request: FetchRequest, response: httpx.Response, body: bytes, artifacts: tuple[Artifact, ...]
) -> dict[str, Any]:
    asked: dict[str, Any] = {
        "method": request.method,
        "url": str(request.url),
        "headers": {_canonical(name): [value] for name, value in request.headers.items()},
    }
    if request.body_text is not None:
        asked["bodyText"] = request.body_text
        content_type = next((v for n, v in request.headers.items() if n.lower() == "content-type"), None)
        if content_type:
            asked["contentType"] = content_type
    headers: dict[str, list[str]] = {}
    for name, value in response.headers.multi_items():
        headers.setdefault(_canonical(name), []).append(value)
    answered: dict[str, Any] = {
        "statusCode": response.status_code,
        "status": f"{response.status_code} {response.reason_phrase}".rstrip(),
        "finalURL": str(response.url),
        "headers": headers,
        "contentLength": len(body),
    }
    if "content-type" in response.headers:
        answered["contentType"] = response.headers["content-type"]
    if artifacts:
        answered["bodyArtifactID"] = artifacts[0].id
    return {"request": asked, "response": answered}


def _artifact(ctx: RunContext, request: FetchRequest, response: httpx.Response, body: bytes) -> Artifact:
    declared = response.headers.get("content-type", "")
    media_type = declared.partition(";")[0].strip() or "application/octet-stream"
    metadata = {
        "method": request.method,
        "url": str(request.url),
        "status_code": str(response.status_code),
    }
    if "charset=" in declared.lower():
        metadata["content_type"] = declared
    return Artifact(
        id=f"{ctx.op.id}:response-body",
        name=request.artifact_name,
        kind="http-response-body",
        content_type=media_type,
        metadata=metadata,
        sha256=hashlib.sha256(body).hexdigest(),
        size=len(body),
        body=body,
    )


def _retry_after(response: httpx.Response) -> Micros | None:
    text = response.headers.get("retry-after", "").strip()
    if not text:
        return None
    if text.isdigit():
        seconds = float(text)
    else:
        try:
            moment = parsedate_to_datetime(text)
        except ValueError:
            return None
        seconds = (moment - datetime.now(moment.tzinfo or UTC)).total_seconds()
    return int(min(max(seconds, 0.0), _LONGEST_RETRY_AFTER) * SECOND)


def _canonical(name: str) -> str:
    return "-".join(part[:1].upper() + part[1:].lower() for part in name.split("-"))


def _said(error: BaseException) -> str:
    return str(error) or type(error).__name__


async def _open_jar(ctx: RunContext) -> httpx.Cookies | None:
    if ctx.site.http.cookies != "workflow":
        return None
    jar = httpx.Cookies()
    stored = await ctx.cookies()
    for fields in json.loads(stored) if stored else ():
        jar.jar.set_cookie(Cookie(**fields))
    return jar


def _closed_jar(jar: httpx.Cookies | None) -> JsonText | None:
    if jar is None:
        return None
    return json.dumps([{name: getattr(cookie, name) for name in _COOKIE} | {"rest": {}} for cookie in jar.jar])


_COOKIE = (
    "version",
    "name",
    "value",
    "port",
    "port_specified",
    "domain",
    "domain_specified",
    "domain_initial_dot",
    "path",
    "path_specified",
    "secure",
    "expires",
    "discard",
    "comment",
    "comment_url",
)

_ENCODINGS = "gzip, deflate, zstd"

#: Loopback is never reached through a proxy of the environment.
_DIRECT: dict[str, httpx.AsyncBaseTransport | None] = {
    "all://localhost": None,
    "all://127.0.0.1": None,
    "all://[::1]": None,
}
