"""``scraper``: reads the command line, runs one command, and turns every failure into one clear message.

Exit codes: 0 done, 1 failed, 2 the request itself was wrong; 130 after Ctrl-C.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer

from cli.invocation import Invocation, invocation_of
from cli.output import note
from cli.tree import LazyGroup
from engine.errors import ScraperError, UsageError

MANIFEST_FLAG = "--sites-manifest-dir"

#: Commands that work even where the configuration does not.
_UNCONFIGURED = ("version", "help", "completion")


class Root(LazyGroup):
    """The commands of ``scraper``."""

    members = {  # noqa: RUF012 - a constant, declared by the base class
        "demo": ("cli.demo", "Crawl a catalogue of 1,000 books over loopback HTTP and show the rows."),
        "site": ("cli.site", "List, make, check, test and migrate sites; run their verbs."),
        "worker": ("cli.worker", "Lease ops and run them; see who does."),
        "workflow": ("cli.workflow", "Look at workflows; watch, cancel, retry, fork and delete them."),
        "op": ("cli.op", "Look at single ops; retry and replay them."),
        "schedule": ("cli.schedule", "Run verbs on schedules: list, add, pause, resume, run, delete."),
        "queue": ("cli.queue", "Look at queues; pause and resume them."),
        "artifact": ("cli.artifact", "List, print and save what ops produced."),
        "records": ("cli.records", "List and export the records of a site."),
        "shell": ("cli.shell", "Try selectors and JavaScript on a page."),
        "engine": ("cli.engine", "Look after the engine database: status, migrate, gc, doctor."),
        "config": ("cli.config", "Show what is configured, and where it came from."),
        "help": ("cli.help", "Show the documentation."),
        "completion": ("cli.completion", "Print a shell's completion script."),
        "version": ("cli.version", "Print the version."),
    }


app = typer.Typer(
    cls=Root,
    add_completion=False,
    rich_markup_mode=None,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)


@app.callback()
def scraper(
    ctx: typer.Context,
    config: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="Configuration file to read.", show_default=False)
    ] = None,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.", show_default=False)] = False,
    sites_manifest_dir: Annotated[
        list[str] | None,
        typer.Option(
            MANIFEST_FLAG,
            metavar="DIR",
            help="Directory of sites. Repeatable; may stand anywhere on the command line.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """A durable workflow engine with a site-plugin CLI: kill it at any instant, start it again, nothing is lost."""
    invocation = invocation_of(ctx)
    invocation.config = config
    if debug:
        os.environ["SCRAPER_DEBUG"] = "1"
    if ctx.invoked_subcommand not in _UNCONFIGURED and not invocation.wants_help:
        invocation.require_directories()


def main() -> None:
    """The console script."""
    _prepare_streams()
    sys.exit(run(sys.argv[1:], os.environ))


def _prepare_streams() -> None:
    """Neither a stream that was closed from the start nor a locale that lacks a character may end a command."""
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - for as long as the process lives
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def run(arguments: Sequence[str], env: Mapping[str, str]) -> int:
    """Run one command line; its exit code."""
    try:
        code = _invoke(arguments, env)
        sys.stdout.flush()
    except BrokenPipeError:
        _discard(sys.stdout)
        return 1
    except KeyboardInterrupt:
        return 130
    return code


def _invoke(arguments: Sequence[str], env: Mapping[str, str]) -> int:
    try:
        rest, directories = split_manifest_dirs(arguments)
        if "_SCRAPER_COMPLETE" in env:
            _prepare_completion()
        command = typer.main.get_command(app)
        invocation = Invocation(env, directories, wants_help=not {"--help", "-h"}.isdisjoint(rest))
        code = command.main(args=rest, prog_name="scraper", standalone_mode=False, obj=invocation)
    except (BrokenPipeError, KeyboardInterrupt, SystemExit):
        raise
    except UsageError as error:
        return _failed(error, str(error), 2)
    except ScraperError as error:
        return _failed(error, str(error), 1)
    except typer.Abort:
        return 1
    except Exception as error:
        if hasattr(error, "format_message"):  # the parser's own: an unknown flag, a bad value
            return _misread(error)
        message = f"internal error: {type(error).__name__}: {error} (--debug shows the traceback)"
        return _failed(error, message, 1)
    return code if isinstance(code, int) else 0


def _prepare_completion() -> None:
    from typer.completion import completion_init  # type: ignore[attr-defined]

    completion_init()


def split_manifest_dirs(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """The arguments without ``--sites-manifest-dir``, and its values: the sites must be known before the commands.

    Raises UsageError where the last one lacks its value.
    """
    rest: list[str] = []
    directories: list[str] = []
    remaining = iter(arguments)
    for argument in remaining:
        if argument == "--":
            rest.extend((argument, *remaining))
        elif argument == MANIFEST_FLAG:
            value = next(remaining, None)
            if value is None:
                raise UsageError(f"{MANIFEST_FLAG} needs a value")
            directories.append(value)
        elif argument.startswith(f"{MANIFEST_FLAG}="):
            directories.append(argument.partition("=")[2])
        else:
            rest.append(argument)
    return rest, directories


def _misread(error: Any) -> int:
    if type(error).__name__ == "NoArgsIsHelpError":
        note(error.format_message())
        return int(error.exit_code)
    message = error.format_message()
    message = message[:1].lower() + message[1:]
    ctx = getattr(error, "ctx", None)
    if ctx is not None:
        message = f"{message.rstrip('.')} (see {ctx.command_path} --help)"
    return _failed(error, message, int(error.exit_code))


def _failed(error: Exception, message: str, code: int) -> int:
    if os.environ.get("SCRAPER_DEBUG"):
        import traceback

        note("".join(traceback.format_exception(error)).rstrip())
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.flush()
    note(f"error: {message}")
    return code


def _discard(stream: TextIO) -> None:
    """Point a stream whose reader has gone at nothing, so that the interpreter can flush it in peace."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())


if __name__ == "__main__":
    main()
