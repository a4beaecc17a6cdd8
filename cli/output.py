"""How commands speak: results on stdout as a table or as JSON, everything else on stderr.

A terminal gets rich tables; a pipe gets aligned text without any control character.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any


class Format(StrEnum):
    """What ``--output`` takes."""

    TABLE = "table"
    JSON = "json"


def say(text: str = "") -> None:
    """A line of the result."""
    sys.stdout.write(clean(text) + "\n")


def fields(pairs: Iterable[tuple[str, object]]) -> None:
    """Lines ``Name: value``."""
    for name, value in pairs:
        say(f"{name}: {value}")


def note(text: str) -> None:
    """A line for the person watching; never part of the result."""
    try:
        sys.stderr.write(clean(text) + "\n")
        sys.stderr.flush()
    except (OSError, ValueError):  # nobody is watching
        return


def warn(text: str) -> None:
    """Something that is wrong but does not end the command."""
    note(f"warning: {text}")


def print_json(value: Any) -> None:
    """``value`` as JSON: dataclass members in camelCase, instants (``*_at``) as RFC3339."""
    sys.stdout.write(json.dumps(jsonable(value), indent=2, ensure_ascii=False) + "\n")


def jsonable(value: Any) -> Any:
    """``value`` made of dicts, lists and scalars. Keys of mappings are data and stay as they are."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {_camel(field.name): _member(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): jsonable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [jsonable(item) for item in value]
    return str(value) if isinstance(value, Path) else value


def _member(value: Any, name: str) -> Any:
    member = getattr(value, name)
    return instant(member) if name.endswith("_at") and isinstance(member, int) else jsonable(member)


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join({"id": "ID", "ids": "IDs"}.get(word, word.capitalize()) for word in others)


def instant(micros: int | None) -> str | None:
    """An instant as RFC3339, None where there is none."""
    from engine.clock import rfc3339

    return None if micros is None else rfc3339(micros)


def table(headers: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Rows under headers."""
    texts = [[clean(str("" if cell is None else cell)) for cell in row] for row in rows]
    if sys.stdout.isatty():
        _rich_table(headers, texts)
        return
    widths = [max(map(len, column)) for column in zip(headers, *texts, strict=True)]
    for line in (list(headers), *texts):
        say("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def _rich_table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    grid = Table(box=None, pad_edge=False, header_style="bold")
    for header in headers:
        grid.add_column(header, overflow="fold")
    for row in rows:
        grid.add_row(*(Text(cell) for cell in row))
    Console().print(grid)


_CONTROL = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if code not in (9, 10)}


def clean(text: str) -> str:
    """``text`` with control characters spelled out: what was scraped must not drive the terminal."""
    return text.translate(_CONTROL)
