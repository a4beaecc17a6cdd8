"""``require("html")``: parsing and CSS selection at native speed, the tree staying on this side of the bridge."""

from __future__ import annotations

import html as entities
from typing import Any
from urllib.parse import urljoin

import ada_url
from selectolax.lexbor import LexborHTMLParser

from engine.js.hostcall import HostError

_SKIPPED = frozenset({"button", "submit", "reset", "image", "file"})

Shown = list[Any]


class Trees:
    """The documents one execution parsed, and the nodes it holds, by handle."""

    def __init__(self) -> None:
        self._documents: list[Any] = []
        self._nodes: list[Any] = []

    def call(self, name: str, argument: Any) -> Any:
        """Answer one ``html.*`` call."""
        match name:
            case "parse":
                return self._parse(argument)
            case "resolve":
                return resolve(*argument)
            case "unescape":
                return entities.unescape(argument)
            case "html":
                return self._nodes[argument].html
            case "parent" | "next":
                return self._maybe(getattr(self._nodes[argument], name))
            case "children":
                return [self._show(node) for node in self._nodes[argument].iter()]
        handle, *rest = argument
        node = self._nodes[handle]
        match name:
            case "css":
                return [self._show(found) for found in select(node, rest[0])]
            case "first":
                return self._maybe(first_match(node, rest[0]))
            case "text":
                return text_of(node, rest[0])
            case "extract":
                rules = _rules(rest[1])
                return [_fields(found, rules) for found in select(node, rest[0])]
            case "table":
                return _table(node if rest[0] is None else first_match(node, rest[0]))
            case "links":
                return _links(node, rest[0])
            case "form":
                return _form(node if rest[0] is None else first_match(node, rest[0]))
        raise HostError(f"html has no {name}")

    def _parse(self, text: str) -> Shown:
        root, document = parse(text)
        self._documents.append(document)
        return self._show(root)

    def _show(self, node: Any) -> Shown:
        self._nodes.append(node)
        attributes = {name: "" if value is None else value for name, value in node.attributes.items()}
        return [len(self._nodes) - 1, node.tag, attributes]

    def _maybe(self, node: Any) -> Shown | None:
        return None if node is None else self._show(node)


def parse(text: str) -> tuple[Any, Any]:
    """The root node of a document, and the document, which must live as long as its nodes."""
    parser = LexborHTMLParser(text)
    if parser.root is None:
        parser = LexborHTMLParser("<html></html>")
    return parser.root, parser


def select(node: Any, selector: Any) -> list[Any]:
    """The node itself and its descendants that match, in document order. Raises HostError."""
    _require_selector(selector)
    try:
        return list(node.css(selector))
    except Exception as error:
        raise _bad(selector, error) from error


def _require_selector(selector: Any) -> None:
    if not isinstance(selector, str) or not selector.strip():
        raise HostError("the CSS selector must be a non-empty string")


def _bad(selector: str, error: Exception) -> HostError:
    return HostError(f'bad CSS selector "{selector}": {error}')


def first_match(node: Any, selector: Any) -> Any:
    """The first of :func:`select`, or None."""
    _require_selector(selector)
    try:
        return node.css_first(selector)
    except Exception as error:
        raise _bad(selector, error) from error


def text_of(node: Any, options: dict[str, Any]) -> str:
    """The text below a node, white space collapsed unless ``raw``."""
    text = str(node.text(deep=options.get("deep", True), separator=str(options.get("separator", ""))))
    return text if options.get("raw") else " ".join(text.split())


#: A field's name, the selector of its node (blank: the node itself) and the attribute (blank: the text) it takes.
_Rule = tuple[str, str, str]


def _rules(fields: dict[str, str]) -> list[_Rule]:
    """``{title: ".t", url: "a@href"}`` taken apart."""
    parts = ((name, *str(rule).partition("@")) for name, rule in fields.items())
    return [(name, selector if selector.strip() else "", attribute) for name, selector, _, attribute in parts]


def _fields(node: Any, rules: list[_Rule]) -> dict[str, str | None]:
    """What the rules find below a node: text of the first match, or an attribute."""
    shown: dict[str, str | None] = {}
    for name, selector, attribute in rules:
        found = first_match(node, selector) if selector else node
        if found is None:
            shown[name] = None
        elif attribute:
            shown[name] = found.attributes.get(attribute.strip())
        else:
            shown[name] = text_of(found, {})
    return shown


def _table(node: Any) -> list[dict[str, str]] | None:
    """Rows of a table as objects keyed by its header cells (or column numbers)."""
    if node is None:
        return None
    rows = node.css("tr")
    if not rows:
        return []
    header = [text_of(cell, {}) for cell in rows[0].css("th")]
    body = rows[1:] if header else rows
    return [
        {
            (header[place] if place < len(header) and header[place] else str(place)): text_of(cell, {})
            for place, cell in enumerate(row.css("td,th"))
        }
        for row in body
    ]


def _links(node: Any, base: str | None) -> list[dict[str, str]]:
    return [
        {"href": resolve(base, link.attributes["href"]) if base else link.attributes["href"], "text": text_of(link, {})}
        for link in node.css("a[href]")
        if link.attributes.get("href")
    ]


def _form(node: Any) -> dict[str, Any] | None:
    """A form as a browser would send it: action, method and the values of its successful controls."""
    if node is None:
        return None
    form = node if node.tag == "form" else first_match(node, "form")
    if form is None:
        return None
    values: dict[str, str] = {}
    for control in form.css("input[name],select[name],textarea[name]"):
        attributes = control.attributes
        kind = (attributes.get("type") or "text").lower()
        name = attributes["name"]
        if control.tag == "textarea":
            values[name] = control.text()
        elif control.tag == "select":
            chosen = first_match(control, "option[selected]") or first_match(control, "option")
            if chosen is not None:
                values[name] = chosen.attributes.get("value") or text_of(chosen, {})
        elif kind in _SKIPPED or (kind in ("checkbox", "radio") and "checked" not in attributes):
            continue
        else:
            values[name] = attributes.get("value") or ""
    return {
        "action": form.attributes.get("action") or "",
        "method": (form.attributes.get("method") or "get").upper(),
        "values": values,
    }


def resolve(base: str, href: str) -> str:
    """``href`` relative to ``base`` after the WHATWG rules; text that is no URL is joined plainly."""
    try:
        return str(ada_url.join_url(base, href))
    except ValueError:
        return urljoin(base, href)
