"""Ops of kind ``http/fetch``: one request over pooled connections, its response as data and, if wanted, an artifact."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from engine.clock import SECOND, Clock, Micros, SystemClock
from engine.model import Result
from engine.plugins.site import HttpSettings
from engine.runners.base import RunContext
from engine.runners.cookies import CookieJar
from engine.runners.http_fetch import FetchPlan, fetch
from engine.runners.http_request import FetchRequest, read_request
from engine.runners.http_result import result_of
from engine.runners.http_wire import HostGates, Wire

USER_AGENT = "scraper/worker"

#: Bodies from here on are hashed and looked through on a thread, so that other ops do not wait for it.
_LARGE = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRunnerSettings:
    """The worker's limits; a site or a request may set its own."""

    #: For the whole fetch: connecting, redirects and body.
    timeout: Micros = 15 * SECOND
    #: None = what the environment says.
    proxy: str | None = None
    #: Of the decoded body.
    max_bytes: int = 64 << 20
    max_redirects: int = 10
    #: Requests to one host at once, in this worker.
    per_host: int = 8


class HttpRunner:
    """Fetches pages."""

    def __init__(self, settings: HttpRunnerSettings, clock: Clock | None = None, wire: Wire | None = None) -> None:
        self._settings = settings
        self._clock = clock or SystemClock()
        self._wire = wire or Wire()
        self._gates = HostGates(settings.per_host)

    async def run(self, ctx: RunContext) -> Result:
        """Execute the op. Raises OpError and RunFailed."""
        request = read_request(ctx.op)
        await self._wire.ready()
        jar = CookieJar(await ctx.cookies()) if ctx.site.http.cookies == "workflow" else None
        answer = await fetch(self._plan(request, ctx.site.http), self._wire, self._gates, jar, ctx.started)
        changes = jar.changes() if jar is not None else None
        if answer.size < _LARGE:
            return result_of(ctx.op.id, request, answer, changes, self._clock)
        return await asyncio.to_thread(result_of, ctx.op.id, request, answer, changes, self._clock)

    async def resolve(self, ctx: RunContext) -> Result | None:
        """Fetches leave nothing behind outside of the engine DB."""
        return None

    async def aclose(self) -> None:
        """Close the connections."""
        await self._wire.aclose()

    def _plan(self, request: FetchRequest, site: HttpSettings) -> FetchPlan:
        settings = self._settings
        return FetchPlan(
            request=request,
            user_agent=site.user_agent or USER_AGENT,
            timeout=request.timeout or site.timeout or settings.timeout,
            max_bytes=request.max_bytes or site.max_bytes or settings.max_bytes,
            max_redirects=settings.max_redirects if request.redirects is None else request.redirects,
            proxy=site.proxy or settings.proxy,
        )
