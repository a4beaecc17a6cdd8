"""Requests with their manners: through whose proxies, whether robots.txt is obeyed, what need not be sent again."""

from __future__ import annotations

from dataclasses import dataclass, replace

import httpx

from engine.clock import SECOND, Clock, Micros
from engine.model import Validators
from engine.plugins.site import NO_PROXIES, Proxies, Site
from engine.runners.base import Refund, RunContext
from engine.runners.cookies import CookieJar
from engine.runners.http_conditional import learned, variant_of
from engine.runners.http_fetch import Answer, FetchPlan, fetch
from engine.runners.http_pace import Paces
from engine.runners.http_proxies import any_of, pick
from engine.runners.http_request import FetchRequest
from engine.runners.http_robots import Robots
from engine.runners.http_wire import HostGates, Wire

USER_AGENT = "scraper/worker"


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
    obey_robots: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Manners:
    """How requests are made, beside what they say themselves."""

    user_agent: str = USER_AGENT
    timeout: Micros = 15 * SECOND
    max_bytes: int = 64 << 20
    max_redirects: int = 10
    #: None = what the environment says; ``proxies`` win.
    proxy: str | None = None
    proxies: Proxies = NO_PROXIES
    #: Who takes turns with the proxies, and who remembers pages.
    scope: str = ""
    #: Pages that were seen under another one are not recognised.
    edition: str = ""
    obey_robots: bool = False
    conditional: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """An answer, and what came with it."""

    answer: Answer
    #: The proxy that was chosen for the request; None = none was.
    proxy: str | None
    #: For Result.validators of the op with which the page counts as seen.
    validators: Validators | None


class HttpClient:
    """One worker's requests. Its connections and what it knows of hosts are shared by all ops."""

    def __init__(self, settings: HttpRunnerSettings, clock: Clock, wire: Wire) -> None:
        self._settings = settings
        self._clock = clock
        self._wire = wire
        self._gates = HostGates(settings.per_host)
        self._robots = Robots(wire, self._gates, clock)
        self._paces = Paces(clock)

    def manners(self, site: Site) -> Manners:
        """What the site wants, else the worker's settings."""
        settings, http = self._settings, site.http
        return Manners(
            user_agent=http.user_agent or USER_AGENT,
            timeout=http.timeout or settings.timeout,
            max_bytes=http.max_bytes or settings.max_bytes,
            max_redirects=settings.max_redirects,
            proxy=http.proxy or settings.proxy,
            proxies=http.proxies,
            scope=f"site/{site.name}",
            obey_robots=settings.obey_robots if http.robots is None else http.robots == "obey",
            conditional=http.conditional,
        )

    async def fetch(
        self,
        ctx: RunContext,
        request: FetchRequest,
        manners: Manners,
        *,
        jar: CookieJar | None = None,
        number: int = 1,
    ) -> Fetched:
        """The answer to the op's ``number``-th request. Raises OpError, LeaseLost, and Refund for a host's pause.

        What ``request`` says itself wins over ``manners``. A request that must not be made takes no turn.
        """
        plan = await self._admitted(ctx, request, manners)
        seen_by = f"{manners.scope}@{manners.edition}" if manners.edition else manners.scope
        wanted = manners.conditional if request.conditional is None else request.conditional
        variant = variant_of(request) if wanted else None
        known = await ctx.validators(seen_by, variant) if variant is not None else None
        chosen = request.proxy or await pick(manners.proxies, manners.scope, ctx.turn, number)
        if chosen is not None or known is not None:
            plan = replace(plan, proxy=chosen or manners.proxy, validators=known)
        answer = await fetch(plan, self._wire, self._gates, jar, ctx.started)
        new = learned(seen_by, variant, answer, known) if variant is not None else None
        return Fetched(answer=answer, proxy=chosen, validators=new)

    async def passage(self, ctx: RunContext, request: FetchRequest, manners: Manners) -> str | None:
        """The proxy for a request that a browser makes, once it may be made. Raises as ``fetch`` does."""
        await self._admitted(ctx, request, manners)
        chosen = request.proxy or await pick(manners.proxies, manners.scope, ctx.turn)
        return chosen or manners.proxy

    async def permit(self, url: str, request: FetchRequest, manners: Manners, proxy: str | None) -> None:
        """Ask whether a browser may go on from ``request`` to ``url``. Raises OpError."""
        if manners.obey_robots:
            plan = self._plan(request, manners)
            await self._robots.permit(httpx.URL(url), plan.agent(), proxy, plan.timeout)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._wire.aclose()

    async def _admitted(self, ctx: RunContext, request: FetchRequest, manners: Manners) -> FetchPlan:
        await self._wire.ready()
        plan = self._plan(request, manners)
        if manners.obey_robots:
            await self._ask(ctx, plan, request.proxy or any_of(manners.proxies) or manners.proxy)
        return plan

    def _plan(self, request: FetchRequest, manners: Manners) -> FetchPlan:
        return FetchPlan(
            request=request,
            user_agent=manners.user_agent,
            timeout=request.timeout or manners.timeout,
            max_bytes=request.max_bytes or manners.max_bytes,
            max_redirects=manners.max_redirects if request.redirects is None else request.redirects,
            proxy=request.proxy or manners.proxy,
            doorkeeper=self._robots if manners.obey_robots else None,
        )

    async def _ask(self, ctx: RunContext, plan: FetchPlan, proxy: str | None) -> None:
        """Ask robots.txt, and wait outside of the worker for the op's place where the host wants pauses."""
        url = plan.request.url
        delay = await self._robots.permit(url, plan.agent(), proxy, plan.timeout)
        host = url.netloc.decode()
        if delay and (pause := self._paces.wait(host, ctx.op.pk, delay)):
            raise Refund(f"{host} wants {delay / SECOND:g} s between two requests", pause)
