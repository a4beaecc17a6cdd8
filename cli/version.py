"""``scraper version``."""

from __future__ import annotations

import typer

from cli.output import say

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def version() -> None:
    """Print the version.

    Example: scraper version
    """
    from importlib.metadata import version as installed

    say(installed("scraper"))
