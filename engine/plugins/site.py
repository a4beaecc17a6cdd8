"""A site plugin as the engine sees it, after its manifest was read and found valid."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from engine.clock import SECOND, Micros
from engine.model import QueuePolicy
from engine.schedules import NewSchedule

#: Op kinds that run a site's code against its site DB: where that is an SQLite file they stay on its home machine.
HOMED_KINDS = frozenset({"js", "hook", "cycle"})


@dataclass(frozen=True, slots=True, kw_only=True)
class JsSettings:
    """Limits of the site's scripts."""

    timeout: Micros = 60 * SECOND
    heap_mb: int = 256
    isolation: Literal["fresh", "frozen"] = "fresh"


_PROXY_SCHEMES = frozenset({"http", "https", "socks5", "socks5h"})


def is_proxy(url: str) -> bool:
    """Whether ``url`` names a proxy the HTTP client can use."""
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - a bad port raises here
    except ValueError:
        return False
    return parts.scheme in _PROXY_SCHEMES and bool(parts.hostname)


@dataclass(frozen=True, slots=True)
class Proxies:
    """Several proxies, and which of them a request takes: the next one, always the first, or any."""

    urls: tuple[str, ...] = ()
    rotate: Literal["RoundRobin", "Sticky", "Random"] = "RoundRobin"


NO_PROXIES = Proxies()


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSettings:
    """What the site wants of ``http/fetch``. None = the worker's setting."""

    cookies: Literal["off", "workflow"] = "off"
    user_agent: str | None = None
    timeout: Micros | None = None
    max_bytes: int | None = None
    proxy: str | None = None
    proxies: Proxies = NO_PROXIES
    robots: Literal["obey", "ignore"] | None = None
    #: Whether pages are only wanted if they have changed, unless a request says otherwise.
    conditional: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """One site plugin. Roots are absolute paths, None where the manifest leaves the feature off."""

    name: str
    root: Path
    manifest: Path
    database_file: str
    dialect: Literal["sqlite", "postgresql"] = "sqlite"
    scripts_root: Path | None = None
    verbs_root: Path | None = None
    sql_migrations_root: Path | None = None
    js_migrations_root: Path | None = None
    help_root: Path | None = None
    queue_policies: Mapping[str, QueuePolicy] = field(default_factory=dict)
    default_policy: QueuePolicy | None = None
    js: JsSettings = JsSettings()
    http: HttpSettings = HttpSettings()
    hook_dirs: tuple[str, ...] = ()
    interpreters: Mapping[str, str] = field(default_factory=dict)
    hook_config: Mapping[str, Any] = field(default_factory=dict)
    jobs_root: Path | None = None
    schedules: tuple[NewSchedule, ...] = ()

    def machine_for(self, kind: str, home: str) -> str:
        """The machine that must run an op of ``kind``: the site DB's ``home`` or "" for any."""
        return home if self.dialect == "sqlite" and kind in HOMED_KINDS else ""
