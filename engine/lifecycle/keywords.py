"""The keyword filter, and which keywords an item is tagged with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def matches(fields: Mapping[str, str], keywords: Sequence[str], search_fields: Sequence[str]) -> list[str]:
    """The keywords (lower-cased, trimmed) that one of the field values contains, in their own order.

    A hit lies within one value: it does not span two fields.

    >>> matches({"title": "Rust in Linux", "link": "go"}, ["linux", "rust", "go"], ["title"])
    ['linux', 'rust']
    """
    values = [fields.get(name, "") for name in search_fields] if search_fields else list(fields.values())
    lowered = [value.lower() for value in values]
    return [keyword for keyword in keywords if any(keyword in value for value in lowered)]


def keeps(found: Sequence[str], keywords: Sequence[str]) -> bool:
    """Whether the built-in filter keeps an item with these matches; no keywords keep all."""
    return bool(found) or not keywords
