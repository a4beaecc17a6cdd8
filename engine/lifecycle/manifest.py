"""``job.yaml``: read, judged whole, and turned into a :class:`~engine.lifecycle.job.Job`.

The shape is the JSON Schema ``sites/job.schema.json``, which editors use too; what a schema cannot say is said here.
The rules are numbered in ``docs/reference/jobs.md``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from engine.clock import MILLISECOND, SECOND, Micros
from engine.documents import Document, Place, Unreadable, check_shape, load_schema, parse_document, read_document
from engine.durations import parse_duration
from engine.errors import SiteError
from engine.faults import Fault, report
from engine.lifecycle.job import FieldRule, Job, Notification, Proxies, Tries, Webhook, job_id
from engine.resources import resource

FILE = "job.yaml"
SCHEMA = resource("sites") / "job.schema.json"

_WEB = ("http", "https")
_PROXY = ("http", "https", "socks5", "socks5h")
_TEXT = "text"


class InvalidJob(SiteError):
    """A ``job.yaml`` with faults. ``name`` is what it calls its job, None where that cannot be told."""

    def __init__(self, faults: tuple[Fault, ...], name: str | None = None) -> None:
        super().__init__(report(faults))
        self.faults = faults
        self.name = name


def load_job(file: Path) -> tuple[Job, Document]:
    """The job in ``file``, and the document that tells the lines of its values. Raises InvalidJob."""
    try:
        return _judged(read_document(file))
    except Unreadable as unreadable:
        raise InvalidJob((unreadable.fault,)) from unreadable


def parse_job(file: Path, text: str) -> Job:
    """The job in ``text``, reported as ``file``. Raises InvalidJob."""
    try:
        return _judged(parse_document(file, text))[0]
    except Unreadable as unreadable:
        raise InvalidJob((unreadable.fault,)) from unreadable


def _judged(document: Document) -> tuple[Job, Document]:
    value, faults = check_shape(document, load_schema(SCHEMA), "job")
    faults.extend(_meaning(document, value))
    if faults:
        name = value.get("name") if isinstance(value, dict) else None
        raise InvalidJob(tuple(faults), name if isinstance(name, str) and name else None)
    return _job(value), document


def _meaning(document: Document, value: Any) -> Iterator[Fault]:
    """What the schema cannot say. Values of a wrong type are the schema's affair and are passed over here."""
    if not isinstance(value, dict):
        return
    yield from _name(document, value.get("name"))
    selector = value.get("selector")
    if isinstance(selector, str) and selector and not selector.strip():
        yield document.fault(("selector",), "job.selector must not be blank")
    yield from _addresses(document, value)
    declared: list[str] = []
    for number, rule in enumerate(_list(value, "fields")):
        yield from _field(document, number, rule, declared)
    for key in ("search_fields", "hash_fields"):
        for number, name in enumerate(_list(value, key)):
            if isinstance(name, str) and name.strip() and name.strip() not in declared:
                yield document.fault(
                    (key, number),
                    f'job.{key} names "{name.strip()}", which is no field',
                    f"there are: {', '.join(declared)}" if declared else "",
                )
    yield from _proxies(document, _inner(value, "proxy"), given="proxy" in value)
    yield from _webhook(document, _inner(value, "webhook"), given="webhook" in value)
    timeout = _inner(value, "engine").get("hook_timeout")
    if isinstance(timeout, int | float | str) and not isinstance(timeout, bool):
        try:
            if _seconds(timeout) <= 0:
                yield document.fault(("engine", "hook_timeout"), "job.engine.hook_timeout must be > 0")
        except ValueError as error:
            yield document.fault(("engine", "hook_timeout"), f"job.engine.hook_timeout: {error}")


def _inner(value: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    inner = value.get(key)
    return inner if isinstance(inner, dict) else {}


def _list(value: Mapping[str, Any], key: str) -> list[Any]:
    items = value.get(key)
    return items if isinstance(items, list) else []


def _name(document: Document, name: Any) -> Iterator[Fault]:
    if not isinstance(name, str) or not name:
        return
    if not name.strip():
        yield document.fault(("name",), "job.name must not be blank")
    elif not job_id(name):
        yield document.fault(("name",), f'job.name "{name}" has no letter and no digit to make an id of')


def _addresses(document: Document, value: Mapping[str, Any]) -> Iterator[Fault]:
    if "url" not in value and "urls" not in value:
        yield document.fault((), "job.url is required where job.urls is not set")
    if isinstance(value.get("url"), str):
        yield from _address(document, ("url",), "job.url", value["url"], _WEB)
    for number, url in enumerate(_list(value, "urls")):
        yield from _address(document, ("urls", number), f"job.urls[{number}]", url, _WEB)


def _address(document: Document, place: Place, where: str, url: Any, schemes: tuple[str, ...]) -> Iterator[Fault]:
    if isinstance(url, str) and url and not is_absolute(url, schemes):
        yield document.fault(place, f'{where} must be an absolute URL ({" or ".join(schemes)}), not "{url}"')


def is_absolute(url: str, schemes: tuple[str, ...] = _WEB) -> bool:
    """Whether ``url`` has a scheme of ``schemes`` and a host."""
    try:
        parts = urlsplit(url.strip())
        parts.port  # noqa: B018 - a bad port raises here
    except ValueError:
        return False
    return parts.scheme.lower() in schemes and bool(parts.hostname)


def _field(document: Document, number: int, rule: Any, declared: list[str]) -> Iterator[Fault]:
    place: Place = ("fields", number)
    where = f"job.fields[{number}]"
    if isinstance(rule, str):
        if ":" not in rule:
            yield document.fault(place, f'{where} must be "name:selector", not "{rule}"')
            return
        if not rule.partition(":")[2].strip():
            yield document.fault(
                place, f'{where} "{rule}" has no selector', 'write "name:@attribute" for the container'
            )
    parsed = field_rule(rule)
    if parsed is None:
        return
    if not parsed.name:
        yield document.fault(place, f"{where} has no name")
    elif parsed.name in declared:
        yield document.fault(place, f'{where}: there is a field "{parsed.name}" already')
    if isinstance(rule, dict) and not parsed.selector and not parsed.attribute:
        yield document.fault(place, f"{where} has no selector")
    declared.append(parsed.name)


def field_rule(rule: Any) -> FieldRule | None:
    """The rule that a value of ``fields`` stands for; None where its shape is wrong.

    >>> field_rule("link: li:nth-child(2) a @ href")
    FieldRule(name='link', selector='li:nth-child(2) a', attribute='href')
    """
    if isinstance(rule, str):
        name, _, rest = rule.partition(":")
        selector, _, attribute = rest.partition("@")
    elif isinstance(rule, dict) and isinstance(rule.get("name"), str) and isinstance(rule.get("selector"), str):
        name, selector, attribute = rule["name"], rule["selector"], rule.get("att", _TEXT)
    else:
        return None
    if not isinstance(attribute, str):
        return None
    attribute = attribute.strip()
    return FieldRule(name.strip(), selector.strip(), "" if attribute == _TEXT else attribute)


def _proxies(document: Document, proxy: Mapping[str, Any], *, given: bool) -> Iterator[Fault]:
    if not given or proxy.get("enabled", True) is not True:
        return
    urls = _list(proxy, "urls")
    if not urls:
        yield document.fault(("proxy",), "job.proxy.urls must not be empty while the proxy is enabled")
    for number, url in enumerate(urls):
        yield from _address(document, ("proxy", "urls", number), f"job.proxy.urls[{number}]", url, _PROXY)


def _webhook(document: Document, webhook: Mapping[str, Any], *, given: bool) -> Iterator[Fault]:
    if not given or webhook.get("enabled", True) is not True:
        return
    if "url" not in webhook:
        yield document.fault(("webhook",), "job.webhook.url is required while the webhook is enabled")
    yield from _address(document, ("webhook", "url"), "job.webhook.url", webhook.get("url"), _WEB)


def _seconds(value: int | float | str) -> Micros:
    return parse_duration(value) if isinstance(value, str) else round(value * SECOND)


def _job(value: Mapping[str, Any]) -> Job:
    engine, told = _inner(value, "engine"), _inner(value, "notification")
    notification = Notification(
        timeout_ms=int(told.get("timeout", 5000)),
        title=told.get("title"),
        body=told.get("body"),
        command=tuple(told.get("command", ())),
    )
    proxy, webhook = value.get("proxy"), value.get("webhook")
    rules = [field_rule(rule) for rule in value["fields"]]
    urls = tuple(url.strip() for url in value.get("urls", ()))
    return Job(
        id=job_id(value["name"]),
        name=value["name"].strip(),
        url=value.get("url", urls[0] if urls else "").strip(),
        urls=urls,
        selector=value["selector"].strip(),
        fields=tuple(rule for rule in rules if rule is not None),
        interval=round(value.get("interval", 600) * SECOND),
        workers=int(value.get("workers", 1)),
        enabled=value.get("enabled", True),
        keywords=tuple(dict.fromkeys(word.lower() for word in _words(value, "keywords"))),
        search_fields=_words(value, "search_fields"),
        hash_fields=_words(value, "hash_fields"),
        headers=dict(value.get("headers", {})),
        proxies=_job_proxies(proxy),
        webhook=_job_webhook(webhook),
        notification=notification if told.get("enabled", True) else None,
        debug=value.get("debug", False),
        hook_timeout=_seconds(engine.get("hook_timeout", 60)),
        stagger=int(engine.get("stagger_ms", 200)) * MILLISECOND,
        fetch_retry=_tries(engine, "fetch_retry", 1),
        webhook_retry=_tries(engine, "webhook_retry", 8),
    )


def _words(value: Mapping[str, Any], key: str) -> tuple[str, ...]:
    """Trimmed, blanks and repetitions left out."""
    return tuple(dict.fromkeys(word.strip() for word in value.get(key, ()) if word.strip()))


def _job_proxies(proxy: Any) -> Proxies | None:
    if proxy is None or not proxy.get("enabled", True):
        return None
    return Proxies(proxy.get("rotate", "RoundRobin"), tuple(url.strip() for url in proxy["urls"]))


def _job_webhook(webhook: Any) -> Webhook | None:
    if webhook is None or not webhook.get("enabled", True):
        return None
    return Webhook(webhook["url"].strip(), dict(webhook.get("headers", {})), webhook.get("secret"))


def _tries(engine: Mapping[str, Any], key: str, most: int) -> Tries:
    told = _inner(engine, key)
    return Tries(int(told.get("max_attempts", most)), int(told.get("backoff_ms", 1000)) * MILLISECOND)
