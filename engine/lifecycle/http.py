"""HTTP as hooks call it: any response is an answer, only a failed transport is a failure."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Mapping
from typing import Any

from engine.js.charset import decode_body
from engine.lifecycle.later import Rejected

SECONDS = 30.0
MEGABYTES = 10.0
_FORM = "application/x-www-form-urlencoded"
_CHUNK = 64 * 1024


class TooLarge(Exception):
    """The body is larger than allowed."""


def send(request: Mapping[str, Any], user_agent: str) -> dict[str, Any]:
    """Send a request: ``{status, body, headers, url, time_ms, size}``. Raises Rejected with ``kind`` and ``error``."""
    import httpx  # few hooks fetch; children start often

    proxy = request.get("proxy") or None
    try:
        timeout = _positive(request.get("timeout"), SECONDS, "timeout")
        largest = int(_positive(request.get("max_body_size"), MEGABYTES, "max_body_size") * (1 << 20))
        content, files = _content(request)
        headers = [("user-agent", user_agent), *_headers(request, content)]
        began = time.monotonic()
        with httpx.Client(
            timeout=timeout, follow_redirects=True, proxy=proxy, trust_env=True, verify=_context()
        ) as client:
            wanted = client.build_request(
                str(request["method"]).upper(), request["url"], headers=headers, content=content, files=files
            )
            answer = client.send(wanted, stream=True)
            try:
                body = _body(answer, largest, began + timeout)
            finally:
                answer.close()
    except Exception as error:
        kind = kind_of(error, proxied=proxy is not None)
        message = str(error) or type(error).__name__
        members = {"kind": kind, "error": message} | ({"proxy": proxy} if proxy else {})
        raise Rejected(f"{request['method']} {request['url']}: {message}", **members) from error
    return {
        "status": answer.status_code,
        "body": decode_body(body, answer.headers.get("content-type", "")),
        "headers": dict(answer.headers.items()),
        "url": str(answer.url),
        "time_ms": round((time.monotonic() - began) * 1000, 3),
        "size": len(body),
    }


def kind_of(error: BaseException, *, proxied: bool = False) -> str:
    """What failed: dns, timeout, proxy, tls, connect, size, http or unknown."""
    import httpx

    chain: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in chain:
        chain.append(cause)
        cause = cause.__cause__ or cause.__context__
    if any(isinstance(item, TooLarge) for item in chain):
        return "size"
    if any(isinstance(item, httpx.ProxyError) for item in chain):
        return "proxy"
    if any(isinstance(item, httpx.TimeoutException | TimeoutError) for item in chain):
        return "timeout"
    if any(isinstance(item, ssl.SSLError) for item in chain):
        return "tls"
    if any(isinstance(item, socket.gaierror) for item in chain):
        return "proxy" if proxied else "dns"
    if any(isinstance(item, httpx.ConnectError) for item in chain):
        return "proxy" if proxied else "connect"
    if any(isinstance(item, httpx.NetworkError) for item in chain):
        return "connect"
    if any(isinstance(item, httpx.HTTPError | httpx.InvalidURL) for item in chain):
        return "http"
    return "unknown"


def _positive(value: Any, otherwise: float, name: str) -> float:
    if value is None:
        return otherwise
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        raise ValueError(f"{name} must be a positive number")
    return float(value)


def _headers(request: Mapping[str, Any], content: bytes | None) -> list[tuple[str, str]]:
    given = [(str(name).lower(), str(value)) for name, value in request.get("headers") or ()]
    if request.get("form") and content is not None and not any(name == "content-type" for name, _ in given):
        given.append(("content-type", _FORM))
    names = {name for name, _ in given}
    return [*given, *((("accept", "*/*"),) if "accept" not in names else ())]


def _content(request: Mapping[str, Any]) -> tuple[bytes | None, list[tuple[str, Any]] | None]:
    parts = request.get("parts")
    if parts is None:
        return _bytes(request.get("body")), None
    return None, [(part["name"], (part["filename"], _bytes(part["content"]) or b"", part["type"])) for part in parts]


def _bytes(body: Mapping[str, str] | None) -> bytes | None:
    if body is None:
        return None
    return body["$bytes"].encode("latin-1") if "$bytes" in body else body["$text"].encode("utf-8", "replace")


def _body(answer: Any, largest: int, deadline: float) -> bytes:
    body = bytearray()
    for chunk in answer.iter_bytes(_CHUNK):
        body += chunk
        if len(body) > largest:
            raise TooLarge(f"the body is larger than {largest} bytes")
        if time.monotonic() > deadline:
            raise TimeoutError("the body did not arrive in time")
    return bytes(body)


_made: list[ssl.SSLContext] = []


def _context() -> ssl.SSLContext:
    """One for all requests: loading the certificates costs more than a request."""
    if not _made:
        import httpx

        _made.append(httpx.create_ssl_context())
    return _made[0]
