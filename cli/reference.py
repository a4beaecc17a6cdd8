"""The reference of commands, made from the commands: ``python -m cli.reference > docs/reference/commands.md``."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from typing import Any

import typer

from cli.main import app

_HEADING = """# Commands

Made from the commands themselves; `scraper COMMAND --help` says the same. What holds for all of them is in
`scraper help cli`.
"""


def commands() -> Iterator[tuple[str, Any]]:
    """Every command that does something, with its full name, in the order of the help."""
    yield from _below("scraper", typer.main.get_command(app))


def _below(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    if not hasattr(command, "commands") and not hasattr(command, "members"):
        yield name, command
        return
    if command.invoke_without_command:
        yield name, command
    names = command.members if getattr(command, "members", None) else command.commands
    with typer.Context(command, info_name=name.rpartition(" ")[2]) as ctx:
        for child in names:
            yield from _below(f"{name} {child}", command.get_command(ctx, child))


def page() -> str:
    """The page in Markdown."""
    return "\n".join([_HEADING, *(_section(name, command) for name, command in commands())])


def _section(name: str, command: Any) -> str:
    usage = " ".join([name, *(_argument(one) for one in command.params if one.param_type_name == "argument")])
    lines = [f"## {name}", "", "```text", f"{usage} [OPTIONS]", "```", "", inspect.cleandoc(command.help or ""), ""]
    options = [one for one in command.params if one.param_type_name == "option" and not getattr(one, "hidden", False)]
    if options:
        lines += ["| option | |", "|---|---|", *(_row(one) for one in options), ""]
    return "\n".join(lines)


def _argument(argument: Any) -> str:
    metavar = argument.metavar or argument.name.upper()
    return str(metavar)


def _row(option: Any) -> str:
    flags = ", ".join(f"`{flag}`" for flag in (*option.opts, *option.secondary_opts))
    metavar = "" if option.is_flag else f" {option.metavar or 'VALUE'}"
    text = (option.help or "").replace("|", "\\|").replace("\n", " ")
    return f"| {flags}{metavar} | {text} |"


if __name__ == "__main__":
    sys.stdout.write(page())
