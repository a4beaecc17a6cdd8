"""What every op of a crawl works with."""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from engine.clock import Clock, Micros, rfc3339
from engine.hooks.binaries import Need, needs_of
from engine.hooks.config import Layers, Resolved, launched
from engine.hooks.graph import CrawlSpec
from engine.hooks.plugins import Plugins, discover, hook_directories
from engine.js.ports import SessionSpec
from engine.plugins.site import Site
from engine.projection.archive import Statement, Write
from engine.runners.base import RunContext
from engine.runners.hook_projection import Projector

#: Seconds for which found plugins are taken to be what they were; longer where finding them takes long.
_FRESH = 2.0
#: The part of a worker's time that may go into finding them again.
_SHARE = 0.02
_REMEMBERED = 1_000


@dataclass(frozen=True, slots=True)
class Prepared:
    """A plugin's configuration in one crawl, worked out once for all its hooks."""

    layers: Layers
    resolved: Resolved
    needs: tuple[Need, ...]


@dataclass(slots=True)
class Hands:
    """Shared by all ops of a worker."""

    projector: Projector
    clock: Clock
    #: Seconds from SIGTERM to SIGKILL.
    grace: float
    #: The part of the worker's environment that hooks see.
    environment: Mapping[str, str]
    #: That part of it which counts as configuration.
    configured: Mapping[str, str]
    #: This process, as the pid records name it.
    owner: str
    #: The address this machine speaks from.
    iface: str = ""
    #: Children that hooks left to this worker and that were dead when it last looked.
    dead: frozenset[tuple[int, str]] = frozenset()
    _prepared: dict[tuple[str, str, str], tuple[Plugins, Mapping[str, Any], Prepared]] = field(default_factory=dict)
    #: With the instant at which they are looked for again.
    _plugins: dict[tuple[Path, ...], tuple[float, Plugins]] = field(default_factory=dict)

    def now(self) -> str:
        """The present instant as the site DB writes it."""
        return rfc3339(self.clock.now())

    def plugins(self, site: Site, spec: CrawlSpec) -> Plugins:
        """The plugins of a crawl. Raises SiteError."""
        directories = hook_directories(site, spec.hook_dirs)
        found = self._plugins.get(directories)
        began = time.monotonic()
        if found is None or began > found[0]:
            fresh = discover(directories)
            # the same object as long as nothing has changed: what was worked out from it holds
            kept = found[1] if found is not None and found[1] == fresh else fresh
            ended = time.monotonic()
            found = self._plugins[directories] = (ended + max(_FRESH, (ended - began) / _SHARE), kept)
        return found[1]

    def layers(self, site: Site, spec: CrawlSpec, machine: Mapping[str, Any]) -> Layers:
        """The configuration of a crawl's hooks, on a machine that hooks have configured so."""
        return Layers(self.configured, site.hook_config, machine, spec.config)

    def chosen(self, site: Site, spec: CrawlSpec, machine: Mapping[str, Any]) -> frozenset[str]:
        """The plugins whose hooks run."""
        return launched(self.plugins(site, spec), self.layers(site, spec, machine), spec.plugins)

    def prepare(self, ctx: RunContext, spec: CrawlSpec, name: str, machine: Mapping[str, Any]) -> Prepared:
        """What a plugin's hooks are configured with in a crawl. Raises SiteError."""
        plugins = self.plugins(ctx.site, spec)
        key = (ctx.site.name, ctx.op.workflow.id, name)
        found = self._prepared.get(key)
        if found is not None and found[0] is plugins and found[1] == machine:
            return found[2]
        layers, plugin = self.layers(ctx.site, spec, machine), plugins.by_name.get(name)
        if plugin is None:
            prepared = Prepared(layers, Resolved(), ())
        else:
            prepared = Prepared(layers, layers.resolve(plugins, plugin), tuple(needs_of(plugins, plugin, layers)))
        if len(self._prepared) > _REMEMBERED:
            self._prepared.clear()
        self._prepared[key] = (plugins, machine, prepared)
        return prepared

    async def write(
        self, ctx: RunContext, statements: Sequence[Statement], *, line: int = 0, outcome: bytes | None = None
    ) -> None:
        """Apply statements on behalf of a claim. Raises LeaseLost."""
        await self.projector.write(
            ctx.site,
            Write(
                spec=session_spec(ctx),
                claim=ctx.lease.earlier_claims,
                statements=statements,
                line=line,
                outcome=outcome,
            ),
        )


def session_spec(ctx: RunContext, generation: int | None = None) -> SessionSpec:
    """The key of the op's inbox row."""
    return SessionSpec(
        engine_uuid=ctx.engine_uuid,
        op_key=str(ctx.op.pk),
        generation=ctx.op.generation if generation is None else generation,
        claimed_at=ctx.lease.acquired_at,
        workflow_id=ctx.op.workflow.id,
        op_id=ctx.op.id,
    )


def mark_of_crawl(engine_uuid: str, workflow_id: str) -> str:
    """How the marks of all processes of a crawl begin."""
    return f"{engine_uuid}:{quote(workflow_id, safe='')}:"


def mark_of_scope(engine_uuid: str, workflow_id: str, scope_id: str) -> str:
    """How the marks of all processes of a snapshot begin."""
    return f"{mark_of_crawl(engine_uuid, workflow_id)}{quote(scope_id, safe='')}:"


def mark_of(ctx: RunContext, scope_id: str) -> str:
    """The mark of the processes of one hook."""
    return f"{mark_of_scope(ctx.engine_uuid, ctx.op.workflow.id, scope_id)}{ctx.op.pk};"


def paths_of(spec: CrawlSpec) -> dict[str, str]:
    """Directories that plugins expect to be told."""
    data = spec.data
    library = data / "lib"
    modules = library / "node_modules"
    return {
        "DATA_DIR": str(data),
        "PERSONAS_DIR": str(data / "personas"),
        "LIB_DIR": str(library),
        "ABXPKG_LIB_DIR": str(library),
        "NODE_MODULES_DIR": str(modules),
        "NODE_PATH": str(modules),
        "ABX_RUNTIME": "archivebox",
    }


def day_of(instant: Micros) -> float:
    """The instant as Unix time."""
    return instant / 1_000_000


def own_address() -> str:
    """The address this machine would speak to others from; "" without a network. Nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
            return str(probe.getsockname()[0])
        except OSError:
            return ""
