"""The fetch of a cycle: tried as often as the job says, its answer or its failure as the envelope that hooks see."""

from __future__ import annotations

import asyncio
import hashlib
import json
import socket
import ssl
import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

import httpcore

from engine.clock import SECOND, Clock
from engine.errors import OpError
from engine.lifecycle.verdicts import envelope as envelope_of
from engine.lifecycle.verdicts import failed
from engine.model import Artifact, Result
from engine.plugins.site import NO_PROXIES, Proxies
from engine.runners.base import RunContext
from engine.runners.http_client import Fetched, HttpClient
from engine.runners.http_request import FetchRequest, checked_url

_BODY = "response-body"
_KINDS = {"body_too_large": "size", "invalid_request": "unknown"}


class CycleFetch:
    """Fetches pages for jobs."""

    def __init__(self, client: HttpClient, clock: Clock) -> None:
        self._client = client
        self._clock = clock

    async def run(self, ctx: RunContext, request: dict[str, Any], given: Mapping[str, Any], started_at: int) -> Result:
        """The result of a fetch op: whatever came of the fetch, it is one. Raises LeaseLost, Refund."""
        fetching, plan = given["fetching"], given["plan"]
        manners = replace(
            self._client.manners(ctx.site),
            proxies=_proxies(fetching["proxies"]),
            scope=f"job/{ctx.site.name}/{plan['job_id']}",
            edition=plan["version"],
        )
        began, tries = time.monotonic(), int(fetching["max_attempts"])
        for number in range(1, tries + 1):
            once = time.monotonic()
            try:
                wanted = _fetch_request(request)
                fetched = await self._client.fetch(ctx, wanted, manners, number=number)
            except OpError as error:
                result = self._failure(request, error)
                again = error.retryable
            else:
                result = self._success(ctx, request, fetched, _since(once))
                again = fetched.answer.head.status_code >= 500 or fetched.answer.head.status_code == 429
            if not again or number == tries:
                break
            await asyncio.sleep(fetching["backoff"] / SECOND * 2 ** (number - 1))
        told = {**json.loads(result.data), "started_at": started_at, "duration_ms": _since(began), "tries": number}
        return replace(result, data=json.dumps(told, ensure_ascii=False))

    def _failure(self, request: dict[str, Any], error: OpError) -> Result:
        return Result(data=json.dumps({"envelope": failed(request, error.message, kind_of(error))}))

    def _success(self, ctx: RunContext, request: dict[str, Any], fetched: Fetched, took: float) -> Result:
        head, body = fetched.answer.head, fetched.answer.body or b""
        content_type = head.headers.get("content-type", "")
        response = {
            "status": head.status_code,
            "url": str(head.request.url),
            "headers": dict(head.headers.items()),
            "time_ms": took,
            "size": fetched.answer.size,
            "proxy": fetched.proxy,
        }
        artifact = _artifact(ctx, body, content_type.partition(";")[0].strip() or "application/octet-stream")
        told = {
            "envelope": envelope_of(request, response),
            "body": artifact.sha256,
            "content_type": content_type,
            "validators": None if fetched.validators is None else asdict(fetched.validators),
        }
        return Result(data=json.dumps(told, ensure_ascii=False), artifacts=(artifact,))

    def overridden(self, ctx: RunContext, envelope: dict[str, Any], body: bytes | None, started_at: int) -> Result:
        """The result of a fetch that a hook made."""
        told: dict[str, Any] = {"envelope": envelope, "started_at": started_at}
        if body is None:
            return Result(data=json.dumps(told, ensure_ascii=False))
        content_type = "text/html; charset=utf-8"
        artifact = _artifact(ctx, body, "text/html")
        told |= {"body": artifact.sha256, "content_type": content_type}
        return Result(data=json.dumps(told, ensure_ascii=False), artifacts=(artifact,))


def _artifact(ctx: RunContext, body: bytes, content_type: str) -> Artifact:
    return Artifact(
        id=f"{ctx.op.id}:{_BODY}",
        name=_BODY,
        kind="http-response-body",
        content_type=content_type,
        metadata={},
        sha256=hashlib.sha256(body).hexdigest(),
        size=len(body),
        body=body,
    )


def _proxies(told: Mapping[str, Any] | None) -> Proxies:
    return NO_PROXIES if told is None else Proxies(tuple(told["urls"]), told["rotate"])


def _fetch_request(request: Mapping[str, Any]) -> FetchRequest:
    """The request as hooks left it. Raises OpError ``invalid_request``."""
    text = str(request["url"]).strip()
    return FetchRequest(
        method=str(request.get("method") or "GET").upper(),
        url_text=text,
        url=checked_url(text),
        headers={str(name): str(value) for name, value in request["headers"].items()},
        timeout=round(float(request["timeout"]) * SECOND) or None,
        max_bytes=int(float(request["max_body_size"]) * (1 << 20)) or None,
        artifact_name=_BODY,
        proxy=request.get("proxy") or None,
    )


def kind_of(error: OpError) -> str:
    """What kind of failure an error of the transport is: dns, timeout, proxy, tls, connect, size or unknown."""
    if error.code in _KINDS:
        return _KINDS[error.code]
    cause: BaseException | None = error
    kind = "unknown"
    while cause is not None:
        match cause:
            case TimeoutError() | httpcore.TimeoutException():
                return "timeout"
            case httpcore.ProxyError():
                return "proxy"
            case socket.gaierror():
                return "dns"
            case ssl.SSLError():
                return "tls"
            case httpcore.ConnectError() | ConnectionError():
                kind = "connect"
        cause = cause.__cause__ or cause.__context__
    return kind


def _since(began: float) -> float:
    return (time.monotonic() - began) * 1000
