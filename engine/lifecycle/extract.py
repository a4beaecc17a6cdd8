"""The built-in extraction: containers by CSS, one item each, on the ``html`` module that scripts use."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from engine.errors import OpError
from engine.js.hostcall import HostError
from engine.js.html import first_match, parse, resolve, select, text_of
from engine.lifecycle.job import FieldRule

_SPACE = re.compile(r"\s+")
#: What an href may begin with and stays as it is: it leads to no page.
_NO_PAGE = ("#", "javascript:", "mailto:", "tel:", "data:")


def extract(body: str, selector: str, rules: Sequence[FieldRule], base: str) -> list[dict[str, str]]:
    """The fields of every container in document order. Raises OpError ``invalid_selector``.

    ``base`` is the address that links are relative to.
    """
    try:
        root, document = parse(body)
        found = [{rule.name: _field(node, rule, base) for rule in rules} for node in select(root, selector)]
        del document
    except HostError as error:
        raise OpError("invalid_selector", str(error)) from error
    return found


def selector_fault(selector: str) -> str | None:
    """What is wrong with a CSS selector, None where nothing is."""
    try:
        select(parse("")[0], selector)
    except HostError as error:
        return str(error)
    return None


def _field(container: Any, rule: FieldRule, base: str) -> str:
    node = first_match(container, rule.selector) if rule.selector else container
    if node is None:
        return ""
    if not rule.attribute:
        return text_of(node, {})
    value = _SPACE.sub(" ", node.attributes.get(rule.attribute.lower()) or "").strip()
    return _absolute(value, base) if rule.attribute.lower() == "href" else value


def _absolute(href: str, base: str) -> str:
    if not href or href.lower().startswith(_NO_PAGE):
        return href
    return resolve(base, href)
