"""Where the files that travel with the code are: migrations, default sites, docs, types."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def resource(name: str) -> Path:
    """The path of a shipped file or folder: inside the installed package, else in the source checkout."""
    shipped = _PACKAGE / "_shipped" / name
    return shipped if shipped.exists() else _PACKAGE.parent / name
