"""Ops of kind ``http/fetch``: one request over pooled connections, its response as data and, if wanted, an artifact."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from engine.clock import Clock, SystemClock
from engine.model import Result
from engine.runners.base import RunContext
from engine.runners.cookies import CookieJar
from engine.runners.http_client import USER_AGENT, HttpClient, HttpRunnerSettings
from engine.runners.http_request import read_request
from engine.runners.http_result import result_of
from engine.runners.http_wire import Wire

__all__ = ["USER_AGENT", "HttpRunner", "HttpRunnerSettings"]

#: Bodies from here on are hashed and looked through on a thread, so that other ops do not wait for it.
_LARGE = 1 << 20


class HttpRunner:
    """Fetches pages."""

    def __init__(self, settings: HttpRunnerSettings, clock: Clock | None = None, wire: Wire | None = None) -> None:
        self._clock = clock or SystemClock()
        self.client = HttpClient(settings, self._clock, wire or Wire())

    async def run(self, ctx: RunContext) -> Result:
        """Execute the op. Raises OpError, RunFailed and Refund."""
        request = read_request(ctx.op)
        jar = CookieJar(await ctx.cookies()) if ctx.site.http.cookies == "workflow" else None
        fetched = await self.client.fetch(ctx, request, self.client.manners(ctx.site), jar=jar)
        changes = jar.changes() if jar is not None else None
        given = (ctx.op.id, request, fetched.answer, changes, self._clock)
        if fetched.answer.size < _LARGE:
            result = result_of(*given)
        else:
            result = await asyncio.to_thread(result_of, *given)
        return replace(result, validators=fetched.validators) if fetched.validators is not None else result

    async def resolve(self, ctx: RunContext) -> Result | None:
        """Fetches leave nothing behind outside of the engine DB."""
        return None

    async def aclose(self) -> None:
        """Close the connections."""
        await self.client.aclose()
