"""Conditional requests: what a page is recognised by, so that the server need not send again what has not changed."""

from __future__ import annotations

import hashlib
import json

from engine.model import Validators
from engine.runners.http_fetch import Answer
from engine.runners.http_request import FetchRequest

#: Longer ones are not worth a place in the database.
_LONGEST = 1024
_CONDITIONS = frozenset({"if-match", "if-modified-since", "if-none-match", "if-range", "if-unmodified-since", "range"})


def variant_of(request: FetchRequest) -> str | None:
    """What the answer may depend on, hashed; None where the request cannot be made conditional.

    That is any but a plain GET or HEAD, and one that the op made conditional itself.
    """
    headers = sorted((name.lower(), value) for name, value in request.headers.items())
    if request.method not in ("GET", "HEAD") or request.body_text or not _CONDITIONS.isdisjoint(dict(headers)):
        return None
    seen = json.dumps([request.method, str(request.url.copy_with(fragment=None)), headers])
    return hashlib.sha256(seen.encode()).hexdigest()


def learned(scope: str, variant: str, answer: Answer, known: Validators | None) -> Validators | None:
    """What to remember after ``answer``; None = leave as it is what is remembered."""
    headers = answer.head.headers
    etag, modified = _told(headers.get("etag", "")), _told(headers.get("last-modified", ""))
    if answer.not_modified:
        if known is None:
            return None
        etag, modified = etag or known.etag, modified or known.last_modified
    elif answer.head.status_code != 200 or (known is None and not (etag or modified)):
        return None
    return Validators(
        scope=scope,
        variant=variant,
        url=str(answer.head.request.url.copy_with(fragment=None)),
        etag=etag,
        last_modified=modified,
    )


def _told(value: str) -> str:
    """A header's value where it can be sent back as it came."""
    return value if value.isascii() and value.isprintable() and len(value) <= _LONGEST else ""
