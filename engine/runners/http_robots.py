"""robots.txt, as RFC 9309 has it: asked for before a host's pages, and remembered for a while by each worker."""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict
from dataclasses import dataclass, field

import httpx
from protego import Protego

from engine.clock import SECOND, Clock, Micros
from engine.errors import OpError
from engine.runners.http_fetch import Answer, FetchPlan, fetch
from engine.runners.http_request import FetchRequest
from engine.runners.http_result import retry_after
from engine.runners.http_wire import HostGates, Wire, shown

#: How long an answer holds, and how long none does.
AGE: Micros = 3600 * SECOND
PAUSE: Micros = 30 * SECOND
#: A host that asks for longer pauses between requests does not get them.
LONGEST_DELAY: Micros = 300 * SECOND

#: Hosts remembered at once.
_HOSTS = 1000
#: What is read of the file, and what is refused as a whole.
_READ = 512 << 10
_REFUSED = 8 << 20
_REDIRECTS = 5


@dataclass(slots=True)
class _Host:
    """What one origin said."""

    asking: asyncio.Lock = field(default_factory=asyncio.Lock)
    rules: Protego | None = None
    #: Why there are no rules, while that is known.
    fault: str = ""
    until: Micros = 0


class Robots:
    """The rules of the hosts one worker visits."""

    def __init__(self, wire: Wire, gates: HostGates, clock: Clock) -> None:
        self._wire = wire
        self._gates = gates
        self._clock = clock
        self._hosts: OrderedDict[str, _Host] = OrderedDict()

    async def permit(self, url: httpx.URL, user_agent: str, proxy: str | None, patience: Micros) -> Micros:
        """Ask whether ``url`` may be requested; the pause the host wants between two requests (0 = none).

        Raises OpError ``robots_disallowed``, and ``robots_unavailable`` (retryable) where the host does not say.
        """
        host = self._host(url)
        async with host.asking:
            if self._clock.now() >= host.until:
                await self._ask(host, url, user_agent, proxy, patience)
        if host.rules is None:
            pause = max(host.until - self._clock.now(), 0)
            raise OpError("robots_unavailable", host.fault, retryable=True, retry_after=pause)
        if not host.rules.can_fetch(str(url), user_agent):
            file = _file(url)
            message = f'{shown(url)}: {shown(file)} does not let "{user_agent}" fetch it'
            raise OpError("robots_disallowed", message)
        return _delay(host.rules.crawl_delay(user_agent))

    def _host(self, url: httpx.URL) -> _Host:
        key = str(_file(url).copy_with(username=None, password=None))
        host = self._hosts.setdefault(key, _Host())
        self._hosts.move_to_end(key)
        if len(self._hosts) > _HOSTS:
            self._hosts.popitem(last=False)
        return host

    async def _ask(self, host: _Host, url: httpx.URL, user_agent: str, proxy: str | None, patience: Micros) -> None:
        file = _file(url)
        plan = FetchPlan(
            request=_asking(file),
            user_agent=user_agent,
            timeout=patience,
            max_bytes=_REFUSED,
            max_redirects=_REDIRECTS,
            proxy=proxy,
        )
        host.rules, host.fault, wait = None, "", PAUSE
        try:
            answer = await fetch(plan, self._wire, self._gates, None, lambda: None)
        except OpError as error:
            host.fault = f"{shown(file)} cannot be read: {error.message}"
        else:
            status = answer.head.status_code
            if status == 429 or status >= 500:
                host.fault = f"{shown(file)} cannot be read: status {status}"
                wait = min(max(retry_after(answer.head, self._clock) or 0, PAUSE), AGE)
            else:
                host.rules, wait = _rules(answer), AGE
        host.until = self._clock.now() + wait


def _rules(answer: Answer) -> Protego:
    """What the answer says; any other than a success says nothing."""
    said = answer.body or b"" if answer.head.is_success else b""
    return Protego.parse(said[:_READ].decode("utf-8-sig", "replace"))


def _delay(seconds: float | None) -> Micros:
    if seconds is None or not math.isfinite(seconds) or seconds <= 0:
        return 0
    return min(round(seconds * SECOND), LONGEST_DELAY)


def _file(url: httpx.URL) -> httpx.URL:
    return url.copy_with(path="/robots.txt", query=None, fragment=None)


def _asking(url: httpx.URL) -> FetchRequest:
    return FetchRequest(method="GET", url_text=str(url), url=url)
