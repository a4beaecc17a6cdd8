"""``site.yaml``: read, judged whole, and turned into a :class:`~engine.plugins.site.Site`.

The shape (keys, types, ranges) is the JSON Schema ``sites/site.schema.json``, which editors use too; what a schema
cannot say is said here. All faults are reported at once. The rules are numbered in ``docs/reference/site-yaml.md``.
"""

from __future__ import annotations

import math
import posixpath
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from engine.documents import Document, Place, Unreadable, check_shape, load_schema, read_document, spell
from engine.durations import parse_duration
from engine.errors import SiteError
from engine.faults import Fault, report
from engine.model import QueuePolicy
from engine.plugins.schedules import read_schedules, schedule_faults
from engine.plugins.site import HttpSettings, JsSettings, Proxies, Site, is_proxy
from engine.resources import resource

MANIFEST = "site.yaml"
SCHEMA = resource("sites") / "site.schema.json"

#: Subcommands of ``scraper site``, which no site can be called: the command line could not tell them apart.
RESERVED_NAMES = frozenset({"check", "help", "list", "migrate", "new", "rehome", "show", "test"})

_ROOTS = ("scriptsRoot", "verbsRoot", "sqlMigrationsRoot", "jsMigrationsRoot", "helpRoot", "jobsRoot")


class InvalidManifest(SiteError):
    """A manifest with faults. ``name`` is what it calls its site, None where that cannot be told."""

    def __init__(self, faults: tuple[Fault, ...], name: str | None) -> None:
        super().__init__(report(faults))
        self.faults = faults
        self.name = name


def load_site(directory: Path, js: JsSettings | None = None) -> Site:
    """The site in ``directory``. ``js`` holds the limits that apply where the manifest sets none.

    Raises InvalidManifest with every fault of the manifest.
    """
    file = directory / MANIFEST
    try:
        document = read_document(file)
    except Unreadable as unreadable:
        raise InvalidManifest((unreadable.fault,), None) from unreadable
    value, faults = check_shape(document, load_schema(SCHEMA), "site")
    faults.extend(_meaning(document, value))
    if faults:
        name = value.get("name") if isinstance(value, dict) else None
        raise InvalidManifest(tuple(faults), name if isinstance(name, str) and name else None)
    return _site(directory, file, value, js or JsSettings())


def _meaning(document: Document, value: Any) -> Iterator[Fault]:
    """What the schema cannot say. Values of a wrong type are the schema's affair and are passed over here."""
    if not isinstance(value, dict):
        return
    yield from _name(document, _text(value, "name"))
    yield from _database_file(document, _text(value, "databaseFileName"))
    for key in _ROOTS:
        yield from _root(document, key, _text(value, key))
    yield from _modules(document, value.get("modules"))
    yield from _queues(document, value.get("queuePolicies"))
    default = _inner(_inner(value, "defaults"), "queue")
    yield from _rate_limit(document, ("defaults", "queue", "rateLimit"), default.get("rateLimit"))
    for section, key in (("js", "timeout"), ("http", "timeout")):
        yield from _duration(document, (section, key), _inner(value, section).get(key))
    yield from _proxies(document, _inner(value, "http"))
    yield from schedule_faults(document, value.get("schedules"))


def _inner(value: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    inner = value.get(key)
    return inner if isinstance(inner, dict) else {}


def _text(value: Mapping[str, Any], key: str) -> str:
    text = value.get(key)
    return text if isinstance(text, str) else ""


def _blanks(document: Document, key: str, text: str) -> Iterator[Fault]:
    if text != text.strip():
        yield document.fault((key,), f"site.{key} must not have leading or trailing blanks")
    if any(ord(character) < 32 or ord(character) == 127 for character in text):
        yield document.fault((key,), f"site.{key} must not contain control characters")


def _name(document: Document, name: str) -> Iterator[Fault]:
    yield from _blanks(document, "name", name)
    if name in RESERVED_NAMES:
        message = f'site.name must not be "{name}": that is a subcommand of "scraper site"'
        yield document.fault(("name",), message, "choose another name")


def _database_file(document: Document, name: str) -> Iterator[Fault]:
    place = ("databaseFileName",)
    yield from _blanks(document, *place, name)
    if "/" in name or "\\" in name:
        yield document.fault(place, "site.databaseFileName must be a file name without path separators")
    if ".." in name or name == ".":
        yield document.fault(place, 'site.databaseFileName must not contain ".." or be "."')


def _root(document: Document, key: str, root: str) -> Iterator[Fault]:
    if not root:
        return
    place = (key,)
    yield from _blanks(document, key, root)
    if root.startswith(("/", "\\")):
        yield document.fault(place, f"site.{key} must be relative to the site")
        return
    clean = posixpath.normpath(root)
    if clean == ".." or clean.startswith("../"):
        yield document.fault(place, f"site.{key} must not escape the site filesystem")
    elif clean == ".":
        yield document.fault(place, f'site.{key} must not be "."')
    elif clean != root:
        yield document.fault(place, f'site.{key} must be normalized: "{clean}"')


def _modules(document: Document, modules: Any) -> Iterator[Fault]:
    seen: set[str] = set()
    for number, module in enumerate(modules if isinstance(modules, list) else ()):
        if isinstance(module, str) and module in seen:
            yield document.fault(("modules", number), f'site.modules contains duplicate module "{module}"')
        seen.add(str(module))


def _queues(document: Document, policies: Any) -> Iterator[Fault]:
    seen: set[str] = set()
    for number, policy in enumerate(policies if isinstance(policies, list) else ()):
        queue = policy.get("queue") if isinstance(policy, dict) else None
        if not isinstance(queue, str):
            continue
        place = ("queuePolicies", number, "queue")
        if queue in seen:
            yield document.fault(place, f'site.queuePolicies contains duplicate queue "{queue}"')
        elif queue and not queue.strip():
            yield document.fault(place, f"{spell('site', document.value, place)} must not be blank")
        seen.add(queue)
        yield from _rate_limit(document, ("queuePolicies", number, "rateLimit"), policy.get("rateLimit"))


def _rate_limit(document: Document, place: Place, limit: Any) -> Iterator[Fault]:
    for key in ("ratePerSecond", "burst"):
        number = limit.get(key) if isinstance(limit, dict) else None
        if isinstance(number, bool) or not isinstance(number, int | float):
            continue
        where = spell("site", document.value, (*place, key))
        if not math.isfinite(number):
            yield document.fault((*place, key), f"{where} must be a finite number")
        elif key == "burst" and 0 < number < 1:
            yield document.fault((*place, key), f"{where} must be >= 1: an op costs one token")


def _duration(document: Document, place: Place, duration: Any) -> Iterator[Fault]:
    if isinstance(duration, bool) or not isinstance(duration, str | int | float):
        return
    where = spell("site", document.value, place)
    try:
        if parse_duration(duration) == 0:
            yield document.fault(place, f"{where} must be > 0")
    except ValueError as error:
        yield document.fault(place, f"{where}: {error}")


def _proxies(document: Document, http: Mapping[str, Any]) -> Iterator[Fault]:
    listed = _inner(http, "proxies").get("urls")
    places: list[tuple[Place, Any]] = [(("http", "proxy"), http.get("proxy"))]
    places += [
        (("http", "proxies", "urls", n), url) for n, url in enumerate(listed if isinstance(listed, list) else ())
    ]
    for place, proxy in places:
        if isinstance(proxy, str) and proxy and not is_proxy(proxy):
            where = spell("site", document.value, place)
            yield document.fault(place, f"{where} must be a URL such as http://127.0.0.1:3128 or socks5://host:1080")
    if listed and http.get("proxy"):
        message = "site.http.proxies and site.http.proxy exclude each other"
        yield document.fault(("http", "proxies"), message, "keep one of them")


def _site(directory: Path, file: Path, value: Mapping[str, Any], js: JsSettings) -> Site:
    def root(key: str) -> Path | None:
        return directory / value[key] if value.get(key) else None

    scripts, http = _inner(value, "js"), _inner(value, "http")
    rotation = _inner(http, "proxies")
    if "timeout" in scripts:
        js = replace(js, timeout=parse_duration(scripts["timeout"]))
    if "heapMB" in scripts:
        js = replace(js, heap_mb=int(scripts["heapMB"]))
    if "isolation" in scripts:
        js = replace(js, isolation=scripts["isolation"])
    default = _inner(value, "defaults").get("queue")
    return Site(
        name=value["name"],
        root=directory,
        manifest=file,
        database_file=value["databaseFileName"],
        dialect=_inner(value, "database").get("dialect", "sqlite"),
        scripts_root=root("scriptsRoot"),
        verbs_root=root("verbsRoot"),
        sql_migrations_root=root("sqlMigrationsRoot"),
        js_migrations_root=root("jsMigrationsRoot"),
        help_root=root("helpRoot"),
        queue_policies={policy["queue"]: _policy(policy) for policy in value.get("queuePolicies", ())},
        default_policy=None if default is None else _policy(default),
        js=js,
        http=HttpSettings(
            cookies=http.get("cookies", "off"),
            user_agent=http.get("userAgent"),
            timeout=parse_duration(http["timeout"]) if "timeout" in http else None,
            max_bytes=int(http["maxBytes"]) if "maxBytes" in http else None,
            proxy=http.get("proxy") or None,
            proxies=Proxies(tuple(rotation.get("urls", ())), rotation.get("rotate", "RoundRobin")),
            robots=http.get("robots"),
            conditional=http.get("conditional", False),
        ),
        hook_dirs=tuple(value.get("hookDirs", ())),
        interpreters=dict(value.get("interpreters", {})),
        hook_config=dict(value.get("hookConfig", {})),
        jobs_root=root("jobsRoot"),
        schedules=read_schedules(value["name"], value.get("schedules") or ()),
    )


def _policy(policy: Mapping[str, Any]) -> QueuePolicy:
    """A policy that leaves ``maxInFlight`` out, or sets it to 0, allows one op at a time."""
    limit = policy.get("rateLimit")
    return QueuePolicy(
        max_in_flight=int(policy.get("maxInFlight", 0)) or 1,
        rate=None if limit is None else float(limit["ratePerSecond"]),
        burst=1.0 if limit is None else float(limit["burst"]),
    )
