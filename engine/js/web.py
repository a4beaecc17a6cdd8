"""The host's part of web globals: URL, encodings, hashes, random values."""

from __future__ import annotations

import base64
import binascii
import codecs
import hashlib
import json
import re
import secrets
import uuid
from urllib.parse import unquote

import ada_url

from engine.js.hostcall import HostError

_PARTS = (
    "href",
    "origin",
    "protocol",
    "username",
    "password",
    "host",
    "hostname",
    "port",
    "pathname",
    "search",
    "hash",
)


def call(name: str, payload: str) -> str | None:
    """Answer a call if it is one of these."""
    match name:
        case "url":
            return _shown_url(*json.loads(payload))
        case "urlset":
            return _set_part(*json.loads(payload))
        case "percent":
            return json.dumps(unquote(json.loads(payload), errors="replace"))
        case "utf8":
            return (
                payload.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode().decode("latin-1")
            )
        case "encoding":
            return json.dumps(_encoding(json.loads(payload)))
        case "decode":
            return json.dumps(_decode(*json.loads(payload)))
        case "atob":
            return _atob(payload)
        case "btoa":
            return _btoa(payload)
        case "hash":
            return json.dumps(_hash(*json.loads(payload)))
        case "uuid":
            return str(uuid.uuid4())
        case "random":
            return secrets.token_bytes(min(int(payload), 65_536)).decode("latin-1")
    return None


def _shown_url(url: str, base: str | None = None) -> str:
    try:
        parsed = ada_url.URL(url, base) if base is not None else ada_url.URL(url)
    except ValueError:
        return "null"
    return json.dumps({part: getattr(parsed, part) for part in _PARTS})


def _set_part(href: str, part: str, value: str) -> str:
    parsed = ada_url.URL(href)
    try:
        setattr(parsed, part, value)
    except ValueError:
        return "null"
    return json.dumps({name: getattr(parsed, name) for name in _PARTS})


def _encoding(label: str) -> str:
    try:
        return "utf-8" if label.lower() in ("utf8", "utf-8") else codecs.lookup(label.strip()).name
    except LookupError:
        raise HostError(f'unknown encoding "{label}"', name="RangeError") from None


def _decode(encoding: str, fatal: bool, keep_bom: bool, units: str) -> str:
    raw = units.encode("latin-1")
    if encoding == "utf-8" and not keep_bom:
        raw = raw.removeprefix(codecs.BOM_UTF8)
    try:
        return raw.decode(encoding, "strict" if fatal else "replace")
    except UnicodeDecodeError as error:
        raise HostError(f"the bytes are not {encoding}: {error.reason}", name="TypeError") from error


def _atob(text: str) -> str:
    compact = re.sub(r"[\t\n\f\r ]", "", text)
    compact = compact[:-2] if compact.endswith("==") else compact.removesuffix("=")
    try:
        return base64.b64decode(compact + "=" * (-len(compact) % 4), validate=True).decode("latin-1")
    except (binascii.Error, ValueError):
        raise HostError("the string to be decoded is not correctly encoded", name="InvalidCharacterError") from None


def _btoa(text: str) -> str:
    try:
        return base64.b64encode(text.encode("latin-1")).decode()
    except UnicodeEncodeError:
        raise HostError("the string contains characters outside of Latin1", name="InvalidCharacterError") from None


def _hash(algorithm: str, units: str | None, text: str | None) -> str:
    raw = units.encode("latin-1") if units is not None else str(text).encode("utf-8", "replace")
    name = str(algorithm).lower().replace("sha-", "sha")
    if name not in hashlib.algorithms_guaranteed or name.startswith("shake"):
        raise HostError(f'unknown hash "{algorithm}"')
    return hashlib.new(name, raw, usedforsecurity=False).hexdigest()
