"""Request templates: the part of Go's ``text/template`` that site plugins use.

Field access (``{{ .input.page }}``, ``{{.workflow.input.town}}``), string, number and boolean literals, comments, and
the trim markers ``{{-`` and ``-}}``. Pipelines, functions, variables and control structures are refused by name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from engine.errors import OpError

_BLANKS = " \t\r\n"
_TOKEN = re.compile(
    r"""
    (?P<blank>[ \t\r\n]+)
  | (?P<comment>/\*.*?\*/)
  | (?P<field>(?:\.[^\W\d]\w*)+)
  | (?P<number>[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(?![\w.]))
  | (?P<quoted>"(?:[^"\\\n]|\\.)*")
  | (?P<raw>`[^`]*`)
  | (?P<truth>(?:true|false)\b)
    """,
    re.VERBOSE | re.DOTALL,
)


def render(template: str, values: Mapping[str, Any], where: str) -> str:
    """``template`` with its actions replaced. Raises OpError ``template_error``, which begins with ``where``."""
    pieces: list[str] = []
    at, trims = 0, False
    while (opening := template.find("{{", at)) >= 0:
        text = template[at:opening]
        inside = opening + 2
        text = text.lstrip(_BLANKS) if trims else text
        if template[inside : inside + 1] == "-" and template[inside + 1 : inside + 2] in tuple(_BLANKS):
            text, inside = text.rstrip(_BLANKS), inside + 2
        pieces.append(text)
        value, at, trims = _action(template, opening, inside, values, where)
        pieces.append(value)
    rest = template[at:]
    pieces.append(rest.lstrip(_BLANKS) if trims else rest)
    return "".join(pieces)


def _action(template: str, opening: int, at: int, values: Mapping[str, Any], where: str) -> tuple[str, int, bool]:
    """The text of one action, where the template goes on, and whether the text there loses its leading blanks."""
    found: list[re.Match[str]] = []
    commented = False
    while True:
        if template.startswith("}}", at):
            end, trims = at + 2, False
            break
        if template.startswith("-}}", at) and template[at - 1] in _BLANKS:
            end, trims = at + 3, True
            break
        token = _TOKEN.match(template, at)
        if token is None:
            raise _unreadable(template, opening, where)
        commented = commented or token.lastgroup == "comment"
        if token.lastgroup not in ("blank", "comment"):
            found.append(token)
        at = token.end()
    if len(found) == 1 and not commented:
        return _value(found[0], values, where), end, trims
    if commented and not found:
        return "", end, trims
    raise _unreadable(template, opening, where)


def _value(token: re.Match[str], values: Mapping[str, Any], where: str) -> str:
    text = token.group()
    match token.lastgroup:
        case "field":
            return text_of(_field(text, values, where))
        case "number":
            return text_of(float(text) if set(text) & set(".eE") else int(text))
        case "quoted":
            try:
                return str(json.loads(text))
            except ValueError:
                raise _error(where, f"{text} is not a string literal that is understood here") from None
        case "raw":
            return text[1:-1]
        case _:
            return text


def _field(path: str, values: Mapping[str, Any], where: str) -> Any:
    found: Any = values
    walked = ""
    for name in path[1:].split("."):
        if not isinstance(found, Mapping):
            raise _error(where, f"{path} does not exist: {walked} is not an object")
        walked += f".{name}"
        if name not in found:
            raise _error(where, f"{path} does not exist" + ("" if walked == path else f": there is no {walked}"))
        found = found[name]
    if found is None:
        raise _error(where, f"{path} is null")
    return found


def text_of(value: Any) -> str:
    """A value as a template prints it: whole numbers as integers, objects and lists as JSON."""
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case float() if value.is_integer() and abs(value) < 1e21:
            return str(int(value))
        case int() | float():
            return str(value)
        case _:
            return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _unreadable(template: str, opening: int, where: str) -> OpError:
    closing = template.find("}}", opening)
    if closing < 0:
        return _error(where, f'"{template[opening : opening + 40]}" is not closed by }}}}')
    action = template[opening : closing + 2]
    return _error(where, f"{action} is not supported: an action is one field like {{{{ .input.page }}}}, or a literal")


def _error(where: str, message: str) -> OpError:
    return OpError("template_error", f"{where}: {message}")
