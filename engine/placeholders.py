"""Placeholders: SQLite's ``?`` is what site scripts write, whatever their database."""

from __future__ import annotations

import re


def qmark_to_format(sql: str) -> str:
    """``?`` placeholders as psycopg's ``%s``; quoted text and comments stay as they are, ``%`` is doubled."""
    parts = re.split(r"('(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|--[^\n]*|/\*.*?\*/)", sql, flags=re.DOTALL)
    return "".join(
        part.replace("%", "%%") if index % 2 else part.replace("%", "%%").replace("?", "%s")
        for index, part in enumerate(parts)
    )
