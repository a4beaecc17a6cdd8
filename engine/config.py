"""Settings: what is configured, and where each value came from.

In rising order of precedence: defaults, one configuration file, ``SCRAPER_*`` variables, flags. Directories of sites
are merged over the three sources instead (CFG-6). The keys are those of ``sites/config.schema.json``, which the file is
checked against.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

from engine.clock import SECOND, Micros
from engine.documents import Document, Unreadable, check_shape, load_schema, read_document
from engine.durations import parse_age, parse_duration
from engine.errors import ConfigError, UsageError
from engine.faults import Fault, did_you_mean, report
from engine.model import QueuePolicy
from engine.resources import resource

SCHEMA = resource("sites") / "config.schema.json"
MANIFEST_DIRS = "sitesManifestDirs"
MANIFEST_DIRS_VARIABLE = "SCRAPER_SITES_MANIFEST_DIRS"

#: Variables that are no settings of their own.
OTHER_VARIABLES = frozenset(
    {"SCRAPER_CHILD", "SCRAPER_CONFIG", "SCRAPER_DEBUG", "SCRAPER_MACHINE_ID", MANIFEST_DIRS_VARIABLE}
)


@dataclass(frozen=True, slots=True)
class ManifestDirectory:
    """A directory of sites, and who named it."""

    path: Path
    source: Literal["config", "environment", "flag"]


@dataclass(frozen=True, slots=True)
class LeaseSettings:
    """How long a claim lasts without a heartbeat, and how many lost ones an op survives."""

    duration: Micros = 30 * SECOND
    max_lost: int = 5


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """How a worker works unless its flags say otherwise."""

    max_workers: int = 4
    poll_interval: Micros = SECOND // 4
    #: 0 = one per processor.
    js_processes: int = 0
    drain_timeout: Micros = 30 * SECOND


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """What bounds an ``http/fetch``, unless its site or request says otherwise. ``proxy`` "" = the environment's."""

    timeout: Micros = 15 * SECOND
    proxy: str = ""
    max_bytes: int = 64 * 1024 * 1024
    max_redirects: int = 10
    #: ``obey`` or ``ignore``.
    robots: str = "ignore"


@dataclass(frozen=True, slots=True)
class JsLimits:
    """What bounds a script; ``resident_mb`` is its process's memory."""

    timeout: Micros = 60 * SECOND
    heap_mb: int = 256
    resident_mb: int = 512


@dataclass(frozen=True, slots=True)
class HookSettings:
    """How hooks run."""

    #: Where they work; None = ``archive`` beside the site databases.
    data_dir: Path | None = None
    #: From SIGTERM to SIGKILL.
    grace: Micros = 60 * SECOND
    #: Variables of the worker that hooks see besides the usual ones.
    environment: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class JobSettings:
    """What the hooks of lifecycle jobs may do."""

    #: Variables that ``env_get`` gives out: names that begin with ``SCRAPER_``.
    environment: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BrowserLimits:
    """The Chromium of this machine, and what bounds a ``browser/fetch``."""

    #: A program or its path; "" = the first usual one on PATH.
    executable: str = ""
    #: Chromium's own; auto = unless the worker is root.
    sandbox: Literal["auto", "always", "never"] = "auto"
    timeout: Micros = 30 * SECOND
    #: At once in one worker; 0 = one per processor.
    most: int = 0


@dataclass(frozen=True, slots=True)
class Retention:
    """How long what belongs to an ended workflow is kept; None = for ever."""

    workflows: Micros | None = None
    results: Micros | None = None
    artifacts: Micros | None = None
    logs: Micros | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything that can be configured."""

    manifest_dirs: tuple[ManifestDirectory, ...] = ()
    #: A path or a SQLAlchemy URL.
    engine_db: str = "state/engine.db"
    sites_dir: Path = Path("state/sites")
    #: URL template with ``{site}`` for sites whose database is PostgreSQL.
    site_database_url: str | None = None
    #: Policy of queues that have none; ``max_in_flight`` None = bounded by the workers only.
    default_max_in_flight: int | None = None
    leases: LeaseSettings = LeaseSettings()
    worker: WorkerSettings = WorkerSettings()
    http: HttpLimits = HttpLimits()
    js: JsLimits = JsLimits()
    hooks: HookSettings = HookSettings()
    jobs: JobSettings = JobSettings()
    browser: BrowserLimits = BrowserLimits()
    retention: Retention = Retention()
    #: Where each key's value came from, by key; keys that are missing have their default.
    origins: Mapping[str, str] = field(default_factory=dict)

    @property
    def data_dir(self) -> Path:
        """Where hooks work."""
        return (self.hooks.data_dir or self.sites_dir.parent / "archive").absolute()

    @property
    def default_policy(self) -> QueuePolicy:
        """The policy of queues that have none."""
        return QueuePolicy(max_in_flight=self.default_max_in_flight)

    def with_flags(self, flags: Mapping[str, tuple[str, Any]]) -> Settings:
        """These settings overruled by flags: key -> (flag, value); a value of None was not given.

        Raises UsageError naming the flag.
        """
        settings = self
        for key, (flag, raw) in flags.items():
            if raw is not None:
                try:
                    settings = _apply(settings, key, raw, f"flag {flag}", flag)
                except ConfigError as error:
                    raise UsageError(str(error)) from error
        return settings


_Read: TypeAlias = Callable[[Any], Any]


def _text(raw: Any) -> str:
    text = str(raw).strip()
    if not text:
        raise ValueError("must not be empty")
    return text


def _directory(raw: Any) -> Path:
    return Path(_text(raw)).expanduser()


def _database(raw: Any) -> str:
    text = _text(raw)
    return text if "://" in text else str(Path(text).expanduser())


def _template(raw: Any) -> str:
    text = _text(raw)
    if "{site}" not in text or "://" not in text:
        raise ValueError("must be a database URL that contains {site}")
    return text


def _proxy(raw: Any) -> str:
    text = str(raw).strip()
    if text and "://" not in text:
        raise ValueError('must be a URL such as "http://127.0.0.1:3128"')
    return text


def _robots(raw: Any) -> str:
    text = str(raw).strip()
    if text not in ("obey", "ignore"):
        raise ValueError(f'must be "obey" or "ignore", not "{text}"')
    return text


def _names(raw: Any) -> tuple[str, ...]:
    parts = raw if isinstance(raw, list) else str(raw).split(",")
    return tuple(str(part).strip() for part in parts if str(part).strip())


def _sandbox(raw: Any) -> str:
    text = str(raw).strip()
    if text not in ("auto", "always", "never"):
        raise ValueError(f'must be auto, always or never, not "{text}"')
    return text


def _positive_duration(raw: Any) -> Micros:
    duration = parse_duration(raw)
    if duration == 0:
        raise ValueError("must be > 0")
    return duration


def _at_least(least: int) -> _Read:
    def read(raw: Any) -> int:
        try:
            number = int(raw)
        except ValueError:
            raise ValueError(f'must be a whole number, not "{raw}"') from None
        if number < least:
            raise ValueError(f"must be >= {least}, not {number}")
        return number

    return read


@dataclass(frozen=True, slots=True)
class Key:
    """One setting: the attribute that holds it, and how a raw value (YAML, variable, flag) is read."""

    attribute: str
    read: _Read


KEYS: Mapping[str, Key] = {
    "engineDB": Key("engine_db", _database),
    "sitesDir": Key("sites_dir", _directory),
    "siteDatabaseURL": Key("site_database_url", _template),
    "defaults.queue.maxInFlight": Key("default_max_in_flight", _at_least(1)),
    "leases.duration": Key("leases.duration", _positive_duration),
    "leases.maxLost": Key("leases.max_lost", _at_least(1)),
    "worker.maxWorkers": Key("worker.max_workers", _at_least(1)),
    "worker.pollInterval": Key("worker.poll_interval", _positive_duration),
    "worker.jsProcesses": Key("worker.js_processes", _at_least(0)),
    "worker.drainTimeout": Key("worker.drain_timeout", parse_duration),
    "http.timeout": Key("http.timeout", _positive_duration),
    "http.proxy": Key("http.proxy", _proxy),
    "http.maxBytes": Key("http.max_bytes", _at_least(1)),
    "http.maxRedirects": Key("http.max_redirects", _at_least(0)),
    "http.robots": Key("http.robots", _robots),
    "js.timeout": Key("js.timeout", _positive_duration),
    "js.heapMB": Key("js.heap_mb", _at_least(16)),
    "js.residentMB": Key("js.resident_mb", _at_least(64)),
    "hooks.dataDir": Key("hooks.data_dir", _directory),
    "hooks.grace": Key("hooks.grace", parse_duration),
    "hooks.environment": Key("hooks.environment", _names),
    "jobs.environment": Key("jobs.environment", _names),
    "browser.executable": Key("browser.executable", _text),
    "browser.sandbox": Key("browser.sandbox", _sandbox),
    "browser.timeout": Key("browser.timeout", _positive_duration),
    "browser.maxBrowsers": Key("browser.most", _at_least(0)),
    "retention.workflows": Key("retention.workflows", parse_age),
    "retention.results": Key("retention.results", parse_age),
    "retention.artifacts": Key("retention.artifacts", parse_age),
    "retention.logs": Key("retention.logs", parse_age),
}


def variable(key: str) -> str:
    """The environment variable of a key.

    >>> variable("leases.maxLost"), variable("engineDB"), variable("js.heapMB")
    ('SCRAPER_LEASES_MAX_LOST', 'SCRAPER_ENGINE_DB', 'SCRAPER_JS_HEAP_MB')
    """
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", key).replace(".", "_")
    return f"SCRAPER_{words.upper()}"


def _apply(settings: Settings, key: str, raw: Any, origin: str, blame: str) -> Settings:
    try:
        value = KEYS[key].read(raw)
    except (ValueError, RuntimeError) as error:  # RuntimeError: "~" without a home directory
        raise ConfigError(f"{blame}: {error}") from error
    group, _, attribute = KEYS[key].attribute.rpartition(".")
    change = {group: replace(getattr(settings, group), **{attribute: value})} if group else {attribute: value}
    return replace(settings, origins={**settings.origins, key: origin}, **change)


def config_file(env: Mapping[str, str], flag: Path | None) -> Path | None:
    """The file to read: the one asked for, else the first of the usual places that exists."""
    asked = flag or (Path(env["SCRAPER_CONFIG"]) if env.get("SCRAPER_CONFIG") else None)
    if asked is not None:
        return asked
    home = Path(env["HOME"]) if env.get("HOME") else None
    base = Path(env["XDG_CONFIG_HOME"]) if env.get("XDG_CONFIG_HOME") else home and home / ".config"
    usual = (base and base / "scraper" / "config.yaml", home and home / ".scraper" / "config.yaml")
    return next((file for file in usual if file and _exists(file)), None)


def _exists(file: Path) -> bool:
    try:
        return file.is_file()
    except OSError:  # a home directory that may not be entered holds no configuration
        return False


def load_settings(
    env: Mapping[str, str], *, config: Path | None = None, manifest_dirs: Sequence[str] = ()
) -> tuple[Settings, tuple[str, ...]]:
    """The settings of ``env``, the configuration file and the ``--sites-manifest-dir`` flags, with warnings.

    Raises ConfigError naming every fault.
    """
    settings = Settings()
    configured: Sequence[str] = ()
    file = config_file(env, config)
    if file is not None:
        settings, configured = _from_file(settings, file)
    for key in KEYS:
        name = variable(key)
        if env.get(name):
            settings = _apply(settings, key, env[name], f"environment {name}", name)
    listed = env.get(MANIFEST_DIRS_VARIABLE, "").split(os.pathsep)
    directories = _merged(env, (("config", configured), ("environment", listed), ("flag", manifest_dirs)))
    return replace(settings, manifest_dirs=directories), _suspects(env)


def _from_file(settings: Settings, file: Path) -> tuple[Settings, Sequence[str]]:
    try:
        document = read_document(file)
    except Unreadable as unreadable:
        raise ConfigError(str(unreadable.fault)) from unreadable
    value, faults = check_shape(document, load_schema(SCHEMA), "")
    for key in KEYS:
        place = tuple(key.split("."))
        raw = _look_up(value, place)
        if raw is None or any(_concerns(fault, document, place) for fault in faults):
            continue
        try:
            settings = _apply(settings, key, raw, f"{file}:{document.line(place)}", key)
        except ConfigError as error:
            faults.append(document.fault(place, str(error)))
    if faults:
        raise ConfigError(report(faults))
    return settings, value.get(MANIFEST_DIRS, ())


def _concerns(fault: Fault, document: Document, place: tuple[str, ...]) -> bool:
    return fault.line == document.line(place)


def _look_up(value: Any, place: tuple[str, ...]) -> Any:
    for step in place:
        if not isinstance(value, dict):
            return None
        value = value.get(step)
    return value


_Source: TypeAlias = Literal["config", "environment", "flag"]
_VARIABLE = re.compile(r"\$(?:\{([^}]*)\}|(\w+))")


def _merged(env: Mapping[str, str], sources: Sequence[tuple[_Source, Sequence[str]]]) -> tuple[ManifestDirectory, ...]:
    """Each entry trimmed, expanded and made absolute; the first of equal ones stays."""
    merged: dict[Path, ManifestDirectory] = {}
    for source, entries in sources:
        for entry in entries:
            text = _VARIABLE.sub(lambda name: env.get(name[1] or name[2], ""), entry.strip()).strip()
            if text:
                path = Path(os.path.abspath(_home(text, env)))
                merged.setdefault(path, ManifestDirectory(path, source))
    return tuple(merged.values())


def _home(text: str, env: Mapping[str, str]) -> str:
    home = env.get("HOME", "")
    return home + text[1:] if home and (text == "~" or text.startswith("~/")) else text


def _suspects(env: Mapping[str, str]) -> tuple[str, ...]:
    """Warnings about variables that look like misspelt settings; others may belong to somebody else."""
    known = {variable(key) for key in KEYS} | OTHER_VARIABLES
    warnings = []
    for name in sorted(env):
        if name.startswith("SCRAPER_") and name not in known:
            hint = did_you_mean(name, known)
            if hint:
                warnings.append(f"the variable {name} is not a setting ({hint})")
    return tuple(warnings)
