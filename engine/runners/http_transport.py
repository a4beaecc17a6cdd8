"""How connections are opened: straight to a host, or through a proxy."""

from __future__ import annotations

import ssl

import httpcore
import httpx

from engine.runners.http_one import Http11Connection
from engine.runners.http_pool import Opener
from engine.runners.http_stream import Network

#: How long a connection is kept after its last use.
_KEEP = 20.0


def opener(network: Network, trust: ssl.SSLContext, proxy: str | None) -> Opener:
    """What opens connections through ``proxy``. Raises ValueError and httpx.InvalidURL where that is none."""
    trust.set_alpn_protocols(["http/1.1", "h2"])
    if proxy is None:
        return _Direct(network, trust).open
    way = _proxy(network, trust, httpx.Proxy(proxy))

    async def through(origin: httpcore.Origin) -> httpcore.AsyncConnectionInterface:
        return way.create_connection(origin)

    return through


class _Direct:
    def __init__(self, network: Network, trust: ssl.SSLContext) -> None:
        self._network = network
        self._trust = trust

    async def open(self, origin: httpcore.Origin) -> httpcore.AsyncConnectionInterface:
        """A connection that speaks what the server likes best."""
        host = origin.host.decode("ascii")
        stream = await self._network.connect_tcp(host, origin.port)
        if origin.scheme == b"https":
            stream = await stream.start_tls(self._trust, host)
            if stream.get_extra_info("ssl_object").selected_alpn_protocol() == "h2":
                return httpcore.AsyncHTTP2Connection(origin, stream, keepalive_expiry=_KEEP)
        return Http11Connection(origin, stream, _KEEP)


def _proxy(network: Network, trust: ssl.SSLContext, proxy: httpx.Proxy) -> httpcore.AsyncConnectionPool:
    url = proxy.url
    address = httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path)
    if url.scheme in ("socks5", "socks5h"):
        return httpcore.AsyncSOCKSProxy(
            address,
            proxy_auth=proxy.raw_auth,
            ssl_context=trust,
            keepalive_expiry=_KEEP,
            http2=True,
            network_backend=network,
        )
    return httpcore.AsyncHTTPProxy(
        address,
        proxy_auth=proxy.raw_auth,
        proxy_headers=proxy.headers.raw,
        ssl_context=trust,
        keepalive_expiry=_KEEP,
        http2=True,
        network_backend=network,
    )
