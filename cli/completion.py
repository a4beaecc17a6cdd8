"""``scraper completion``: what a shell needs to complete commands, sites and flags."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from cli.output import say

app = typer.Typer(add_completion=False, rich_markup_mode=None)

#: The variable by which a shell asks for completions.
VARIABLE = "_SCRAPER_COMPLETE"


class Shell(StrEnum):
    """The shells that are served."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"
    POWERSHELL = "powershell"


@app.command()
def completion(shell: Annotated[Shell, typer.Argument(help="The shell to complete in.")]) -> None:
    """Print the completion script of a shell, to be evaluated at its start.

    Example: scraper completion bash >> ~/.bashrc
    """
    from typer.completion import get_completion_script  # type: ignore[attr-defined]

    say(get_completion_script(prog_name="scraper", complete_var=VARIABLE, shell=shell.value))
