"""``scraper shell``: a page, and a prompt on which selectors and scripts can be tried."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.invocation import invocation_of
from cli.options import Output
from cli.output import Format, note, say

if TYPE_CHECKING:
    from engine.authoring.page import Evaluated, LoadedPage, PageSession

_HISTORY_LINES = 2000

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def shell(
    ctx: typer.Context,
    target: Annotated[str, typer.Argument(metavar="URL|FILE", help="The page: fetched, or read from a file.")],
    expressions: Annotated[
        list[str] | None,
        typer.Option("-c", "--command", metavar="EXPR", help="Evaluate this and end. Repeatable.", show_default=False),
    ] = None,
    output: Output = Format.TABLE,
) -> None:
    """Try selectors on a page: a prompt that evaluates JavaScript as scripts see it.

    There are html (the text), url, page (the parsed document), $("css") for the first match and $$("css") for all of
    them, and require("html"). What one line declares, the next one knows. Without a terminal every line of the input
    is evaluated.

    Example: scraper shell https://example.org -c '$$("a").map((link) => link.attr("href"))'
    """
    from engine.authoring.page import PageSession, load_page

    page = load_page(target, invocation_of(ctx).settings)
    if page.remark:
        note(f"{page.url}: {page.remark}")
    with closing(PageSession(page)) as session:
        if expressions:
            failed = _evaluate(session, iter(expressions), output)
        elif sys.stdin.isatty():
            failed = _prompt(session, page, output)
        else:
            failed = _evaluate(session, (line.rstrip("\r\n") for line in sys.stdin), output)
    if failed:
        raise typer.Exit(1)


def _evaluate(session: PageSession, lines: Iterator[str], output: Format) -> bool:
    """Evaluate line by line, joining those that belong together; whether any failed."""
    failed, begun = False, ""
    for line in lines:
        source = f"{begun}\n{line}" if begun else line
        if not source.strip():
            continue
        answer = session.evaluate(source, as_json=output is Format.JSON)
        begun = source if answer.is_incomplete else ""
        if not begun:
            failed |= _show(answer)
    if begun:
        failed |= _show(session.evaluate(begun, as_json=False))
    return failed


def _show(answer: Evaluated) -> bool:
    """Print an answer; whether it is an error."""
    for line in answer.logs:
        note(line)
    if answer.error:
        note(f"error: {answer.error}")
    elif answer.text:
        say(answer.text)
    return bool(answer.error)


def _prompt(session: PageSession, page: LoadedPage, output: Format) -> bool:
    from engine.authoring.bench import ChildEnded

    note(f'{page.url}: {len(page.html)} characters. html, url, page, $(css), $$(css), require("html"); Ctrl-D ends.')
    history = _History()
    begun = ""
    while True:
        knew = session.is_open
        try:
            line = input("... " if begun else "> ")
            source, begun = (f"{begun}\n{line}" if begun else line), ""
            if not source.strip():
                continue
            answer = session.evaluate(source, as_json=output is Format.JSON)
            if answer.is_incomplete:
                begun = source
            else:
                _show(answer)
        except EOFError:
            say()
            break
        except KeyboardInterrupt:
            begun = ""
            note("interrupted; what was declared is gone" if knew and not session.is_open else "")
        except ChildEnded as ended:
            note(f"error: {ended}; what was declared is gone")
    history.save()
    return False


class _History:
    """Lines of earlier sessions, where the platform's readline offers them."""

    def __init__(self) -> None:
        base = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
        self._file = Path(base) / "scraper" / "shell_history"
        with suppress(ImportError, OSError):
            import readline

            readline.read_history_file(self._file)

    def save(self) -> None:
        """Keep the lines; a history that cannot be kept is no reason to complain."""
        with suppress(ImportError, OSError):
            import readline

            self._file.parent.mkdir(parents=True, exist_ok=True)
            readline.set_history_length(_HISTORY_LINES)
            readline.write_history_file(self._file)
