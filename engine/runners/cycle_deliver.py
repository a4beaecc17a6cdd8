"""One try of one delivery: a webhook by HTTP, a notification by the job's command."""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import hashlib
import hmac
import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from engine.clock import SECOND, Clock
from engine.errors import OpError
from engine.lifecycle.messages import render
from engine.plugins.site import NO_PROXIES
from engine.runners.base import RunContext
from engine.runners.http_client import HttpClient
from engine.runners.http_request import FetchRequest, checked_url
from engine.runners.http_result import retry_after

_TIMEOUT = 30 * SECOND
_ANSWER_BYTES = 1 << 20
_SECRET = "whsec_"
#: What the job's own headers must not change.
_OURS = frozenset({"x-delivery-id", "webhook-id", "webhook-timestamp", "webhook-signature", "content-length"})


class Delivery:
    """Delivers announcements."""

    def __init__(self, client: HttpClient, clock: Clock) -> None:
        self._client = client
        self._clock = clock

    async def attempt(
        self, ctx: RunContext, row: Mapping[str, Any], secret: str | None, command: Sequence[str]
    ) -> dict[str, Any]:
        """How a try of an outbox row went; ``error`` "" = delivered."""
        began = time.monotonic()
        error, pause = "", None
        try:
            if row["channel"] == "webhook":
                await self._post(ctx, row, secret)
            else:
                await _notify(row, command)
        except OpError as failed:
            error, pause = failed.message, failed.retry_after
        took = (time.monotonic() - began) * 1000
        return {"id": row["id"], "error": error, "duration_ms": took, "retry_after": pause}

    async def _post(self, ctx: RunContext, row: Mapping[str, Any], secret: str | None) -> None:
        body = str(row["payload"])
        own = {name: value for name, value in row["headers"].items() if name.lower() not in _OURS}
        own.setdefault("Content-Type", "application/json")
        headers = {**own, "X-Delivery-Id": str(row["id"])}
        if secret is not None:
            headers |= signature(secret, str(row["id"]), self._clock.now() // SECOND, body)
        request = FetchRequest(
            method="POST",
            url_text=str(row["target"]),
            url=checked_url(str(row["target"])),
            headers=headers,
            content_type=next(value for name, value in own.items() if name.lower() == "content-type"),
            body_text=body,
            timeout=_TIMEOUT,
            max_bytes=_ANSWER_BYTES,
            redirects=0,
            persist_body=False,
        )
        plain = replace(self._client.manners(ctx.site), proxies=NO_PROXIES, obey_robots=False, conditional=False)
        answer = (await self._client.fetch(ctx, request, plain)).answer
        if not 200 <= answer.head.status_code < 300:
            raise OpError(
                "delivery_failed",
                f"the webhook answered {answer.head.status_code}",
                retryable=True,
                retry_after=retry_after(answer.head, self._clock),
            )


def signature(secret: str, name: str, timestamp: int, body: str) -> dict[str, str]:
    """The headers of the Standard Webhooks convention: HMAC-SHA256 over ``id.timestamp.body``."""
    key = secret.encode()
    if secret.startswith(_SECRET):
        with contextlib.suppress(binascii.Error):
            key = base64.b64decode(secret.removeprefix(_SECRET), validate=True)
    digest = hmac.new(key, f"{name}.{timestamp}.{body}".encode(), hashlib.sha256).digest()
    return {
        "webhook-id": name,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": f"v1,{base64.b64encode(digest).decode()}",
    }


async def _notify(row: Mapping[str, Any], command: Sequence[str]) -> None:
    """Run the job's command with the texts filled in. Raises OpError."""
    if not command:
        return
    message = {name: str(value) for name, value in json.loads(str(row["payload"])).items()}
    words = [render(word, message) for word in command]
    environment = {**os.environ, "SCRAPER_DELIVERY_ID": str(row["id"])}
    try:
        process = await asyncio.create_subprocess_exec(
            *words,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            env=environment,
        )
    except (OSError, ValueError) as error:
        raise OpError("delivery_failed", f"the command {words[0]} cannot be run: {error}", retryable=True) from error
    try:
        async with asyncio.timeout(_TIMEOUT / SECOND):
            _, said = await process.communicate()
    except TimeoutError as error:
        message_text = f"the command {words[0]} took longer than {_TIMEOUT // SECOND} s"
        raise OpError("delivery_failed", message_text, retryable=True) from error
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    if process.returncode:
        text = said.decode("utf-8", "replace").strip()[-500:]
        message_text = f"the command {words[0]} ended with status {process.returncode}: {text}"
        raise OpError("delivery_failed", message_text, retryable=True)
