"""The errors of the engine.

::

    ScraperError                what a user can act on; the CLI prints its message and exits 1
    ├── UsageError              the request itself is wrong (exit 2)
    ├── ConfigError             a configuration file, variable or flag is wrong
    ├── SiteError               a site folder is wrong (manifest, verb, script, migration)
    ├── DatabaseRefused         a database is newer than the code, corrupt, read-only or not ours
    ├── DatabaseUnavailable     a database is locked, full or gone for now: trying again later may help
    └── SubmissionRefused       a workflow was not stored (taken id, cycle, duplicate op id, verb failure)
    OpError                     how a runner says that an op failed
    LeaseLost                   a write came after the lease had passed to somebody else
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from engine.clock import Micros


class ScraperError(Exception):
    """A failure with a message a user can act on."""


class UsageError(ScraperError):
    """The request itself is wrong."""


class ConfigError(ScraperError):
    """A configuration file, environment variable or flag is wrong."""


class SiteError(ScraperError):
    """A site folder is wrong: its manifest, a verb, a script or a migration."""


class DatabaseRefused(ScraperError):
    """A database is newer than this code, corrupt, read-only or not ours."""


class DatabaseUnavailable(ScraperError):
    """A database is locked, full or unreachable for now; nothing was written."""


class SubmissionRefused(ScraperError):
    """A workflow was not stored; nothing of it remains."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class LeaseLost(Exception):
    """A write after the claim found that the lease is no longer current."""


@dataclass(eq=False)
class OpError(Exception):
    """A classified failure of one op.

    ``code`` is stable and machine-readable (``runner_error``, ``http_status_503``, ``js_timeout``, …),
    ``retryable`` says whether the op's retry policy applies, ``retry_after`` is a delay the other side asked
    for, ``details`` is any JSON value.
    """

    code: str
    message: str
    retryable: bool = False
    retry_after: Micros | None = None
    details: Any = None

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"

    @property
    def summary(self) -> str:
        """One line, with the place in the author's script where there is one."""
        place = self.details if isinstance(self.details, dict) else {}
        known = place.keys() >= {"script", "line", "column"}
        where = f" ({place['script']}:{place['line']}:{place['column']})" if known else ""
        return f"{self}{where}"
