"""A body's text: by its byte order mark, its declared charset, its own word, or detection."""

from __future__ import annotations

import codecs
import re
from email.message import Message

_MARKS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
_META = re.compile(rb"""<meta[^>]+charset\s*=\s*["']?\s*([a-zA-Z0-9_:.-]+)""", re.IGNORECASE)
_XML = re.compile(rb"""^\s*<\?xml[^>]+encoding\s*=\s*["']([a-zA-Z0-9_:.-]+)""")
_LOOKED_AT = 200_000

#: What browsers read under these names: the charsets pages are really written in.
_MEANT = {
    "ascii": "cp1252",
    "iso8859-1": "cp1252",
    "iso8859-9": "cp1254",
    "iso8859-11": "cp874",
    "tis-620": "cp874",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "shift_jis": "cp932",
    "euc_kr": "cp949",
    "big5": "big5hkscs",
}


def decode_body(body: bytes, content_type: str) -> str:
    """``body`` as text; what cannot be decoded becomes the replacement character."""
    for mark, encoding in _MARKS:
        if body.startswith(mark):
            return body.decode(encoding, "replace")
    return _decoded(body, _declared(content_type)) or _decoded(body, own_word(body)) or _detected(body)


def _declared(content_type: str) -> str | None:
    header = Message()
    header["content-type"] = content_type or "application/octet-stream"
    charset = header.get_content_charset()
    return charset if isinstance(charset, str) else None


def own_word(body: bytes) -> str | None:
    """The charset a document names itself."""
    found = _XML.search(body[:1024]) or _META.search(body[:4096])
    if found is None:
        return None
    charset = found.group(1).decode("ascii").lower()
    # a document whose declaration can be read byte by byte is not UTF-16, whatever it says
    return "utf-8" if charset.startswith("utf-16") else charset


def _decoded(body: bytes, charset: str | None) -> str | None:
    if charset is None:
        return None
    try:
        name = codecs.lookup(charset).name
        return body.decode(_MEANT.get(name, name), "replace")
    except (LookupError, ValueError):
        return None


def _detected(body: bytes) -> str:
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError:
        from charset_normalizer import from_bytes  # only where nothing is declared: children start often

        best = from_bytes(body[:_LOOKED_AT]).best()
        return body.decode(best.encoding if best is not None else "cp1252", "replace")
