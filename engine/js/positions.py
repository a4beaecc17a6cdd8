"""Positions as the author wrote them: script, line, column."""

from __future__ import annotations

import re
from typing import Any

#: What stands before the first line of every module; see prelude/30_modules.js.
WRAPPER = "(function (exports, require, module, __filename, __dirname) {"

_FRAME = re.compile(r"(?P<script>[^\s()]+\.js):(?P<line>\d+):(?P<column>\d+)")
_PARSE = re.compile(r"<anonymous>:(?P<line>\d+): ")


def tidy_stack(stack: str) -> dict[str, Any]:
    """The stack without our own frames, the first author's position, wrapper columns taken off."""
    first: dict[str, Any] = {}

    def author(match: re.Match[str]) -> str:
        line, column = int(match["line"]), int(match["column"])
        if line == 1:
            column = max(1, column - len(WRAPPER))
        if not first:
            first.update(script=match["script"], line=line, column=column)
        return f"{match['script']}:{line}:{column}"

    kept = [
        line for line in stack.splitlines() if "scraper:prelude" not in line and line.strip() != "at eval (<anonymous>)"
    ]
    return {"stack": _FRAME.sub(author, "\n".join(kept)), **first}


def parse_error_position(message: str, script: str) -> dict[str, Any] | None:
    """Where V8 says a syntax error is, for a source that was compiled one line further down."""
    found = _PARSE.search(message)
    if found is None:
        return None
    lines = message.splitlines()
    caret = next((line for line in lines[1:4] if line.strip() and set(line.strip()) == {"^"}), "")
    return {"script": script, "line": int(found["line"]) - 1, "column": caret.find("^") + 1 if caret else 1}
