"""The text of a fetched body, as ``artifact.bodyText`` shows it (HTTP-32)."""

from __future__ import annotations

import codecs

import pytest

from engine.js.charset import decode_body

JAPANESE = "日本語のページです。これはテストのための文章です。" * 4


@pytest.mark.parametrize(
    ("body", "content_type", "text"),
    [
        (b"", "text/html", ""),
        ("é".encode(), "text/html", "é"),
        ("é".encode(), "", "é"),
        (b"\xe9", "text/html; charset=ISO-8859-1", "é"),
        (b"\x93quoted\x94", "text/html; charset=iso-8859-1", "“quoted”"),
        (b"\x93quoted\x94", "text/html; charset=us-ascii", "“quoted”"),
        (b"\xa4", "text/plain; charset=iso-8859-15", "€"),
        (JAPANESE.encode("shift_jis"), "text/html; charset=Shift_JIS", JAPANESE),
        ("①".encode("cp932"), "text/html; charset=shift_jis", "①"),
        ("镕".encode("gbk"), "text/html; charset=gb2312", "镕"),
        (JAPANESE.encode("euc_jp"), "text/html; charset=euc-jp", JAPANESE),
        (codecs.BOM_UTF8 + "é".encode(), "text/html; charset=latin1", "é"),
        (codecs.BOM_UTF16_LE + "é".encode("utf-16-le"), "text/html; charset=utf-8", "é"),
        (b'<meta charset="windows-1251">\xcf', "text/html", '<meta charset="windows-1251">П'),
        (b"<meta http-equiv=x content='text/html; charset=latin1'>\xe9", "text/html", None),
        (b'<?xml version="1.0" encoding="ISO-8859-2"?><a>\xb1</a>', "text/xml", None),
        ('<meta charset="utf-16"><p>é'.encode(), "text/html", '<meta charset="utf-16"><p>é'),
        ('<meta charset="latin1">é'.encode(), "text/html; charset=utf-8", '<meta charset="latin1">é'),
        (b"caf\xe9", "text/html; charset=utf-8", "caf\N{REPLACEMENT CHARACTER}"),
    ],
)
def test_text_by_mark_declaration_or_own_word(body: bytes, content_type: str, text: str | None) -> None:
    """HTTP-32: charset names mean what browsers take them for."""
    decoded = decode_body(body, content_type)
    if text is None:
        assert decoded.endswith(("é", "ą</a>"))
    else:
        assert decoded == text


def test_text_without_any_declaration_is_detected() -> None:
    """HTTP-32."""
    assert decode_body(JAPANESE.encode("shift_jis"), "text/html") == JAPANESE


@pytest.mark.parametrize("charset", ["no-such", "undefined", "hex", "idna", "punycode", "a\0b", '"', "rot13"])
def test_a_charset_that_is_none_is_as_if_it_were_not_declared(charset: str) -> None:
    """HTTP-32."""
    assert decode_body("plain é".encode(), f"text/html; charset={charset}") == "plain é"


def test_bytes_that_are_no_text_do_not_stop_anybody() -> None:
    """HTTP-32."""
    assert isinstance(decode_body(bytes(range(256)) * 20, "image/png"), str)
