"""URLs of a crawl: one spelling each, and which of them it wants."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from urllib.parse import urlsplit

import ada_url

from engine.errors import UsageError

SCHEMES = frozenset({"http", "https", "file"})
LONGEST = 16_384
_HOST = re.compile(r"^(\*\.)?[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*(:\d+)?$")
_NAMESPACE = uuid.UUID("6f0dd6a5-7b0c-4a44-9a0e-5f1f6f2d9a11")


def normalised(url: str) -> str | None:
    """The URL as the URL standard writes it, without its fragment; None for what no crawl can fetch.

    >>> normalised(" HTTP://Example.COM:80/a/../b?x#y "), normalised("javascript:alert(1)")
    ('http://example.com/b?x', None)
    """
    text = url.strip().replace("\0", "")
    if not text or len(text) > LONGEST:
        return None
    try:
        parsed = ada_url.URL(text)
    except ValueError:
        return None
    parsed.hash = ""
    if parsed.protocol.rstrip(":") not in SCHEMES:
        return None
    return str(parsed.href)


def identifier(*parts: str) -> str:
    """The id that always belongs to these parts together.

    >>> identifier("crawl", "http://a/") == identifier("crawl", "http://a/")
    True
    """
    return str(uuid.uuid5(_NAMESPACE, "\0".join(parts)))


def domain(url: str) -> str:
    """The host of a URL as the name of a directory."""
    host = urlsplit(url).hostname or "localhost"
    return re.sub(r"[^A-Za-z0-9.-]", "_", host).strip(".")[:100] or "localhost"


@dataclass(frozen=True)
class UrlFilter:
    """Deny beats allow; an empty allow list allows everything."""

    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()

    def admits(self, url: str) -> bool:
        """Whether the crawl wants ``url``."""
        if any(pattern.search(url) for pattern in self._denied):
            return False
        return not self.allow or any(pattern.search(url) for pattern in self._allowed)

    @cached_property
    def _allowed(self) -> tuple[re.Pattern[str], ...]:
        return tuple(_pattern(text) for text in self.allow)

    @cached_property
    def _denied(self) -> tuple[re.Pattern[str], ...]:
        return tuple(_pattern(text) for text in self.deny)

    def check(self) -> UrlFilter:
        """This filter. Raises UsageError for a pattern that is no regular expression."""
        self.admits("http://localhost/")
        _ = self._allowed
        return self


def patterns(values: str | Sequence[str] | None) -> tuple[str, ...]:
    """Patterns as people list them: one a line, or separated by commas.

    >>> patterns("*.example.com, foo.org")
    ('*.example.com', 'foo.org')
    """
    given: Iterable[str] = () if values is None else (values,) if isinstance(values, str) else values
    return tuple(part.strip() for value in given for part in re.split(r"[\n,]", value) if part.strip())


def _pattern(text: str) -> re.Pattern[str]:
    """A bare host (``example.com``, ``*.example.com``) matches the URL's host, anything else is searched for."""
    if _HOST.match(text) and ("." in text or text == "localhost"):
        host = re.escape(text.removeprefix("*.").partition(":")[0])
        _, colon, number = text.partition(":")
        port = f":{number}" if colon else r"(:\d+)?"
        below = r"([^/@]+\.)?" if text.startswith("*.") else ""
        return re.compile(rf"^\w+://([^/@]*@)?{below}{host}{port}([/?#]|$)", re.IGNORECASE)
    try:
        return re.compile(text)
    except re.error as error:
        raise UsageError(f'the URL pattern "{text}" is not a regular expression: {error}') from error
