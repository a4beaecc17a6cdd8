"""What one run of the command line is about: its configuration, its sites, and the options given so far."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cli.output import Format, warn

if TYPE_CHECKING:
    from cli.log import LogLines
    from engine.config import Settings
    from engine.plugins.registry import Registry
    from engine.plugins.site import Site


@dataclass(eq=False)
class Invocation:
    """The typer context's ``obj``: filled as the command line is read from left to right."""

    env: Mapping[str, str]
    #: Values of ``--sites-manifest-dir``, wherever they stood.
    manifest_dirs: Sequence[str] = ()
    #: Help is shown even where the configuration is unusable.
    wants_help: bool = False
    config: Path | None = None
    #: The site of ``site NAME …``.
    site: Site | None = None
    workflow_id: str | None = None
    wait: bool = False
    output: Format = Format.TABLE
    #: Progress as lines of this kind; None = a live table where there is a terminal.
    log_lines: LogLines | None = None
    flags: dict[str, tuple[str, Any]] = field(default_factory=dict)

    def flag(self, key: str, name: str, value: object) -> None:
        """A flag that overrules the setting ``key``; None = not given here."""
        if value is not None:
            self.flags[key] = (name, value)

    def run_options(self, workflow_id: str | None, wait: bool | None, output: Format | None) -> None:
        """Options of ``run``, which may stand before the verb and after it."""
        self.workflow_id = workflow_id if workflow_id is not None else self.workflow_id
        self.wait = wait if wait is not None else self.wait
        self.output = output or self.output

    @property
    def settings(self) -> Settings:
        """The settings under the flags given so far. Raises ConfigError."""
        return self._configured.with_flags(self.flags)

    @cached_property
    def _configured(self) -> Settings:
        from engine.config import load_settings

        settings, warnings = load_settings(self.env, config=self.config, manifest_dirs=self.manifest_dirs)
        for warning in warnings:
            warn(warning)
        return settings

    @cached_property
    def registry(self) -> Registry:
        """The sites; the broken ones are reported once on stderr. Raises ConfigError."""
        registry = self.quiet_registry
        for warning in registry.warnings:
            warn(warning)
        for broken in registry.broken.values():
            first, *others = broken.faults
            more = f" (and {len(others)} more)" if others else ""
            warn(f'site "{broken.name}" is broken and unavailable: {first}{more}')
        return registry

    @cached_property
    def quiet_registry(self) -> Registry:
        """The sites, reported by whoever asks. Raises ConfigError."""
        from engine.plugins.registry import discover

        return discover(self._configured)

    def require_directories(self) -> None:
        """Raise ConfigError where a flag or variable names a manifest directory that does not exist."""
        if self._configured.manifest_dirs:
            from engine.plugins.registry import manifest_directories

            manifest_directories(self._configured)


def invocation_of(ctx: Any) -> Invocation:
    """The invocation a typer context belongs to."""
    found = ctx.find_root().obj
    assert isinstance(found, Invocation)
    return found
