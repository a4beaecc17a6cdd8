"""What the steps of jobs work with in one process: site DBs, results of other ops, versions, and the hooks of each."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from engine.clock import SECOND, Clock
from engine.errors import OpError
from engine.js.charset import decode_body
from engine.js.ports import Ask, EngineReads, SessionSpec
from engine.lifecycle.catalog import Version, shared_root
from engine.lifecycle.extensions import Extension
from engine.lifecycle.hooks import Hooks, find_hooks
from engine.lifecycle.job import Job
from engine.lifecycle.ledger import Ledger
from engine.lifecycle.scripts import JobScripts
from engine.plugins.site import Site
from engine.projection.session import Database

#: Versions whose jobs a process remembers.
_VERSIONS = 100


class Databases(Protocol):
    """The site DBs of this process."""

    def database(self, site: Site) -> Database:
        """The site's DB."""
        ...


class Means:
    """Of one child process."""

    def __init__(
        self, databases: Databases, reads: EngineReads | None, clock: Clock, settings: Mapping[str, Any]
    ) -> None:
        self._databases = databases
        self._reads = reads
        self._clock = clock
        #: ``env``: what hooks may read of the environment; ``version``: the engine's.
        self._jobs = settings.get("jobs", {})
        self._browser = settings.get("browser")
        #: Jobs by the hash of their files.
        self._versions: dict[str, tuple[Version, Job]] = {}

    def database(self, site: Site) -> Database:
        """The site's DB."""
        return self._databases.database(site)

    def scripts(self, site: Site, job: Job, version: Version, folder: Path) -> JobScripts:
        """The scripts of a version."""
        return JobScripts(
            site=site.name,
            job_id=job.id,
            job_name=job.name,
            files=version.files,
            folder=folder,
            shared=shared_root(site),
            hook_seconds=job.hook_timeout / SECOND,
            heap_bytes=site.js.heap_mb << 20,
            env=self._jobs.get("env", {}),
            user_agent=site.http.user_agent or "scraper",
            engine_version=self._jobs.get("version", ""),
        )

    @cached_property
    def extensions(self) -> tuple[Extension, ...]:
        """What hooks have besides the bindings of their own."""
        if self._browser is None:
            return ()
        from engine.browser.settings import BrowserSettings
        from engine.lifecycle.browser import browser_extension

        return (browser_extension(BrowserSettings(**self._browser)),)

    def found(self, scripts: JobScripts) -> frozenset[str]:
        """The hooks that scripts define. Raises OpError ``job_scripts_invalid``."""
        return find_hooks(scripts, self._clock, self.extensions)

    def pinned(self, ledger: Ledger, version: str) -> tuple[Version, Job]:
        """A version that an iteration used, and its job. Raises OpError where there is none any more."""
        known = self._versions.get(version)
        if known is None:
            files = ledger.version(version) or ledger.last_version()
            if files is None:
                raise OpError("unknown_version", f"the site database has no version {version} of the job any more")
            known = files, files.job(Path("jobs"))
            if len(self._versions) >= _VERSIONS:
                self._versions.clear()
            self._versions[files.hash] = known
        return known

    def opened(self, scripts: JobScripts, ask: Ask) -> Hooks:
        """The hooks of scripts; to be closed."""
        hooks = Hooks(scripts, self._clock, ask, self.extensions)
        hooks.alive = lambda: ask("alive", {})
        return hooks

    def body(self, sha256: str, content_type: str) -> str:
        """A stored body as text. Raises OpError."""
        if self._reads is None:
            return ""
        try:
            return decode_body(self._reads.blob(sha256), content_type)
        except KeyError:
            raise OpError("artifact_pruned", "the body of the fetch was pruned") from None

    def dependency(self, spec: SessionSpec, op_id: str) -> dict[str, Any]:
        """The result of an op of the workflow; empty where it has none."""
        found = None if self._reads is None else self._reads.dependency(spec.workflow_id, op_id)
        plain = {} if found is None else json.loads(found)
        return plain if isinstance(plain, dict) else {}

    @property
    def clock(self) -> Clock:
        """The engine's clock."""
        return self._clock
