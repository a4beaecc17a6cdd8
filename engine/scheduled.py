"""Verbs as the timer runs them: by name, with plain values, their declarations read from the site when it changed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from engine.errors import SiteError, UsageError
from engine.faults import did_you_mean
from engine.fields import read_fields
from engine.js.jobs import ChildBusy, VerbOutcome
from engine.js.pool import JsPool
from engine.model import NewWorkflow
from engine.plugins.site import Site
from engine.store.store import Store
from engine.submission import Place, seed
from engine.verbs import VerbSpec, read_declarations


@dataclass(slots=True)
class ScheduledVerbs:
    """Runs verbs of sites for one worker."""

    store: Store
    pool: JsPool
    machine: str
    #: A site's verbs, and the state of its files when they were read.
    _known: dict[str, tuple[object, tuple[VerbSpec, ...]]] = field(default_factory=dict)

    async def __call__(
        self,
        site: Site,
        verb: str,
        values: Mapping[str, Any],
        workflow_id: str,
        metadata: Mapping[str, str],
        accept: Callable[[NewWorkflow], Awaitable[None]],
    ) -> None:
        """Hand what the verb asks for to ``accept``. Raises SubmissionRefused, UsageError, SiteError."""
        try:
            spec = find_verb(site, await self._verbs(site), verb)
        except ChildBusy as busy:
            raise SiteError(f"the site database is busy: {busy}") from busy
        place = Place(engine_uuid=self.store.uuid, home=self.machine, now=self.store.clock.now())

        async def take(new: NewWorkflow, _: VerbOutcome) -> None:
            await accept(new)

        await seed(self.pool, site, spec, read_fields(spec, values), workflow_id, place, take, metadata)

    async def _verbs(self, site: Site) -> tuple[VerbSpec, ...]:
        state = _state(site)
        known = self._known.get(site.name)
        if known is None or known[0] != state:
            verbs = read_declarations(await self.pool.scan(site), str(site.verbs_root))
            known = self._known[site.name] = (state, verbs)
        return known[1]


def find_verb(site: Site, verbs: tuple[VerbSpec, ...], name: str) -> VerbSpec:
    """The verb of that name. Raises UsageError."""
    for verb in verbs:
        if verb.name == name:
            return verb
    names = [verb.name for verb in verbs]
    hint = did_you_mean(name, names) or f"its verbs: {', '.join(sorted(names)) or 'none'}"
    raise UsageError(f'site "{site.name}" has no verb "{name}"; {hint}')


def _state(site: Site) -> object:
    """What changes when a verb file changes."""
    if site.verbs_root is None or not site.verbs_root.is_dir():
        return ()
    files = ((path, path.stat()) for path in sorted(site.verbs_root.rglob("*.js")))
    return tuple((str(path), stat.st_mtime_ns, stat.st_size) for path, stat in files)
