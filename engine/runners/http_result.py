"""From the final answer to what the op leaves behind: data, an artifact, or an error with its evidence."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from email.message import Message
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import Any

import httpx

from engine.clock import SECOND, Clock, Micros
from engine.errors import OpError
from engine.js.charset import own_word
from engine.model import Artifact, JsonText, Result
from engine.runners.base import RunFailed
from engine.runners.http_fetch import Answer
from engine.runners.http_request import FetchRequest
from engine.runners.http_wire import shown

#: A server that asks for a longer pause does not get it.
LONGEST_PAUSE: Micros = 24 * 3600 * SECOND

_TOO_MANY_REQUESTS = 429
_SERVER_ERROR = 500
_UTF_8 = frozenset({"utf-8", "utf8"})


def result_of(
    op_id: str,
    request: FetchRequest,
    answer: Answer,
    cookies: JsonText | None,
    clock: Clock,
    pictures: tuple[Artifact, ...] = (),
) -> Result:
    """The result of a fetch. Raises RunFailed ``http_status_<n>`` from 400 on, with the artifacts as evidence."""
    kept = () if answer.body is None else (_artifact(op_id, request, answer.head, answer.body),)
    artifacts = (*kept, *pictures)
    envelope = _envelope(request, answer, kept)
    for picture in pictures:
        envelope["response"]["screenshotArtifactID"] = picture.id
    status = answer.head.status_code
    if status >= 400:
        retryable = status == _TOO_MANY_REQUESTS or status >= _SERVER_ERROR
        error = OpError(
            f"http_status_{status}",
            f"{request.method} {shown(request.url)}: {_status(answer.head)}",
            retryable,
            retry_after(answer.head, clock) if retryable else None,
            envelope,
        )
        raise RunFailed(error, Result(artifacts=artifacts, cookies=cookies))
    data = json.dumps(envelope, ensure_ascii=False, separators=(",", ":"))
    return Result(data=data, artifacts=artifacts, cookies=cookies)


def _envelope(request: FetchRequest, answer: Answer, artifacts: tuple[Artifact, ...]) -> dict[str, Any]:
    head = answer.head
    asked: dict[str, Any] = {
        "method": request.method,
        "url": request.url_text,
        "headers": _grouped(request.headers.items()),
    }
    if request.body_text:
        asked["bodyText"] = request.body_text
    if request.content_type is not None:
        asked["contentType"] = request.content_type
    answered: dict[str, Any] = {
        "statusCode": head.status_code,
        "status": _status(head),
        "finalURL": str(head.request.url),
        "headers": _grouped(head.headers.multi_items()),
    }
    if answer.not_modified:
        answered["notModified"] = True
    if content_type := head.headers.get("content-type", ""):
        answered["contentType"] = content_type
    answered["contentLength"] = answer.size
    for artifact in artifacts:
        answered["bodyArtifactID"] = artifact.id
    return {"request": asked, "response": answered}


def _artifact(op_id: str, request: FetchRequest, head: httpx.Response, body: bytes) -> Artifact:
    media_type, charset = _media_type(head.headers.get("content-type", ""))
    metadata = {"method": request.method, "url": request.url_text, "status_code": str(head.status_code)}
    if charset and not (charset in _UTF_8 and _is_plainly_utf_8(body)):
        metadata["charset"] = charset
    return Artifact(
        id=f"{op_id}:response-body",
        name=request.artifact_name,
        kind="http-response-body",
        content_type=media_type,
        metadata=metadata,
        sha256=hashlib.sha256(body).hexdigest(),
        size=len(body),
        body=body,
    )


def retry_after(head: httpx.Response, clock: Clock) -> Micros | None:
    """The pause a response asks for: seconds, or the distance of a date from the server's own."""
    text = head.headers.get("retry-after", "").strip()
    if re.fullmatch(r"[0-9]+", text):
        return min(int(text[:12]) * SECOND, LONGEST_PAUSE)
    until = _instant(text)
    if until is None:
        return None
    now = _instant(head.headers.get("date", "")) or clock.now()
    return min(max(until - now, 0), LONGEST_PAUSE)


def _instant(text: str) -> Micros | None:
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, TypeError, OverflowError, IndexError):
        return None
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return round((aware - datetime.fromtimestamp(0, UTC)).total_seconds()) * SECOND


def _status(head: httpx.Response) -> str:
    return f"{head.status_code} {head.reason_phrase}".rstrip()


def _grouped(headers: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    grouped: dict[str, list[str]] = {}
    for name, value in headers:
        grouped.setdefault(_canonical(name), []).append(value)
    return grouped


@lru_cache(maxsize=1024)
def _canonical(name: str) -> str:
    return "-".join(part[:1].upper() + part[1:].lower() for part in name.split("-"))


@lru_cache(maxsize=64)
def _media_type(declared: str) -> tuple[str, str]:
    """The media type without parameters and its charset, "" where there is none."""
    header = Message()
    header["content-type"] = declared
    try:
        charset = str(header.get_content_charset() or "")
    except (LookupError, ValueError):
        charset = ""
    return declared.partition(";")[0].strip().lower() or "application/octet-stream", charset


def _is_plainly_utf_8(body: bytes) -> bool:
    """Whether nobody could take it for anything else, the document's own word included."""
    if (own_word(body) or "utf-8") not in _UTF_8:
        return False
    try:
        body.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True
