"""Request templates: the part of Go's ``text/template`` that site plugins use, which is field access.

``{{ .input.page }}``, ``{{.workflow.input.town}}``, ``{{- .op.id -}}``, and string and number literals.
"""

from __future__ import annotations

import json
import re
from typing import Any

from engine.errors import OpError

_ACTION = re.compile(r"\{\{(-\s)?\s*(.*?)\s*(\s-)?\}\}", re.DOTALL)
_FIELD = re.compile(r"(?:\.[A-Za-z_][A-Za-z0-9_]*)+")


def render(template: str, values: dict[str, Any], where: str) -> str:
    """``template`` with its actions replaced. Raises OpError ``template_error``."""
    out: list[str] = []
    at, trim = 0, False
    for action in _ACTION.finditer(template):
        text = template[at : action.start()]
        text = text.lstrip() if trim else text
        out.append(text.rstrip() if action[1] else text)
        out.append(_evaluate(action[2], values, where))
        at, trim = action.end(), bool(action[3])
    rest = template[at:]
    if "{{" in rest:
        raise _error(where, f'"{rest[rest.index("{{") :][:40]}" is not closed')
    out.append(rest.lstrip() if trim else rest)
    return "".join(out)


def _evaluate(expression: str, values: dict[str, Any], where: str) -> str:
    if expression.startswith("/*"):
        return ""
    if _FIELD.fullmatch(expression):
        return text_of(_field(expression, values, where))
    try:
        literal = json.loads(expression)
    except ValueError:
        raise _error(
            where, f'"{{{{ {expression} }}}}" is not supported: only field access like .input.page is'
        ) from None
    return text_of(literal)


def _field(path: str, values: Any, where: str) -> Any:
    found: Any = values
    for name in path[1:].split("."):
        if not isinstance(found, dict) or name not in found:
            raise _error(where, f'"{path}" does not exist: there is no "{name}"')
        found = found[name]
    return found


def text_of(value: Any) -> str:
    """A value as a template prints it: whole numbers as integers, objects as JSON."""
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case None:
            return ""
        case float() if value.is_integer() and abs(value) < 1e18:
            return str(int(value))
        case int() | float():
            return str(value)
        case _:
            return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _error(where: str, message: str) -> OpError:
    return OpError("template_error", f"{where}: {message}")
