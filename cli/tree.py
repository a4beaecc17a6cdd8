"""The command tree: subcommands are imported when they are asked for, so that ``--help`` costs nothing."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, ClassVar

import typer
from typer.core import TyperGroup


class LazyGroup(TyperGroup):
    """A group that knows its members by module and by their one line of help."""

    #: name -> (module whose ``app`` is the command, one line of help)
    members: ClassVar[Mapping[str, tuple[str, str]]] = {}

    def list_commands(self, ctx: Any) -> list[str]:
        """The names of the members."""
        return list(self.members)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The member, imported now. Raises UsageError where there is none."""
        if cmd_name in self.members:
            command = typer.main.get_command(import_module(self.members[cmd_name][0]).app)
            command.name = cmd_name
            return command
        return unknown_command(ctx, cmd_name, self.members)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """List the members without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in self.members.items()])


def unknown_command(ctx: Any, name: str, known: Any) -> None:
    """Raise UsageError with the nearest known name, unless the shell is only completing."""
    if ctx.resilient_parsing or name.startswith("-"):
        return
    from engine.errors import UsageError
    from engine.faults import did_you_mean

    hint = did_you_mean(name, known)
    raise UsageError(f'no such command "{ctx.command_path} {name}"' + (f"; {hint}" if hint else ""))
