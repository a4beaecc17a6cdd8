"""Which Chromium is driven, and what is missing where there is none."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from engine.errors import OpError

if TYPE_CHECKING:
    # children of the worker are told their settings: they do without the machinery of configuration
    from engine.config import BrowserLimits

#: The programs looked for on PATH, and where else they are.
PROGRAMS = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome", "chrome")
_ELSEWHERE = (
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
)

Sandbox: TypeAlias = Literal["auto", "always", "never"]

PLAYWRIGHT = "Playwright is not installed"
CHROMIUM = "no Chromium is found on PATH"
ADVICE = "install both: pip install 'scraper[browser]', and the system's package (apt-get install chromium)"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrowserSettings:
    """What a machine says about its browser."""

    #: "" = the first of :data:`PROGRAMS` that is found.
    executable: str = ""
    #: Chromium's own sandbox; "auto" = unless this is root, for whom it does not work.
    sandbox: Sandbox = "auto"

    @property
    def sandboxed(self) -> bool:
        """Whether pages are confined by Chromium's sandbox."""
        return self.sandbox == "always" or (self.sandbox == "auto" and os.geteuid() != 0)

    def to_dict(self) -> dict[str, Any]:
        """The settings as a child process is told them."""
        return asdict(self)


def browser_settings(limits: BrowserLimits) -> BrowserSettings:
    """The part of the configuration that a browser is started with."""
    return BrowserSettings(executable=limits.executable, sandbox=limits.sandbox)


def playwright_version() -> str | None:
    """The version of the installed Playwright; it is not imported."""
    from importlib.metadata import PackageNotFoundError, version  # children start often, and seldom a browser

    try:
        return version("playwright")
    except PackageNotFoundError:
        return None


def chromium(settings: BrowserSettings, environment: Mapping[str, str] = os.environ) -> str | None:
    """The program to start."""
    if settings.executable:
        return shutil.which(os.path.expanduser(settings.executable), path=environment.get("PATH"))
    found = (shutil.which(name, path=environment.get("PATH", os.defpath)) for name in PROGRAMS)
    return next((name for name in found if name), next((name for name in _ELSEWHERE if Path(name).exists()), None))


def missing(settings: BrowserSettings, environment: Mapping[str, str] = os.environ) -> str | None:
    """What keeps browsers from running here; None where nothing does."""
    if playwright_version() is None:
        return PLAYWRIGHT
    if chromium(settings, environment) is None:
        return f'browser.executable "{settings.executable}" is no program' if settings.executable else CHROMIUM
    return None


def require_browser(settings: BrowserSettings) -> str:
    """The program to start. Raises OpError ``browser_missing``."""
    lacking = missing(settings)
    program = chromium(settings)
    if lacking is not None or program is None:
        raise OpError("browser_missing", f"{lacking or CHROMIUM}; {ADVICE}")
    return program
