"""``scraper site NAME binary``: the programs that hooks need."""

from __future__ import annotations

import typer

app = typer.Typer(add_completion=False, rich_markup_mode=None, no_args_is_help=True)


@app.callback()
def binary() -> None:
    """List the programs that hooks need, and install them.

    Example: scraper site archive binary list
    """
