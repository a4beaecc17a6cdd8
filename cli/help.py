"""``scraper help``: the documentation that travels with the program."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from cli.invocation import invocation_of
from cli.options import Output
from cli.output import Format, print_json, say, table

app = typer.Typer(add_completion=False, rich_markup_mode=None)

#: Names under which users of the Go program know a page.
ALIASES = {
    "scraper-runtime-model": "concepts",
    "scraper-js-api-reference": "js-api",
    "scraper-architecture-overview": "architecture",
    "scraper-queue-policies-and-rate-limiting": "queues",
    "scraper-new-developer-onboarding": "contributing-start",
    "scraper-bootstrap-config-and-site-manifest-loading": "config",
}


@app.command("help")
def help_(
    ctx: typer.Context,
    topic: Annotated[
        str | None, typer.Argument(metavar="[TOPIC]", help="A page of the documentation.", show_default=False)
    ] = None,
    output: Output = Format.TABLE,
) -> None:
    """Show a page of the documentation, or list the pages. Pages of a site are called SITE/PAGE.

    Example: scraper help quickstart
    """
    from engine.errors import UsageError
    from engine.faults import did_you_mean

    pages = topics() | _site_topics(ctx)
    if topic is None:
        rows = [(name, title(file)) for name, file in pages.items()]
        if output is Format.JSON:
            print_json({"topics": [{"topic": name, "title": text} for name, text in rows], "aliases": ALIASES})
        else:
            table(("TOPIC", "ABOUT"), rows)
        return
    name = ALIASES.get(topic, topic).removesuffix(".md")
    if name not in pages:
        hint = did_you_mean(name, [*pages, *ALIASES]) or "scraper help lists them"
        raise UsageError(f'there is no help on "{topic}"; {hint}')
    text = pages[name].read_text(encoding="utf-8")
    if output is Format.JSON:
        print_json({"topic": name, "title": title(pages[name]), "text": text})
    elif sys.stdout.isatty():
        _render(text)
    else:
        say(text.rstrip("\n"))


def topics() -> dict[str, Path]:
    """Topic to file: the guides first, then the reference; a page whose name a guide has is ``NAME-reference``."""
    from engine.resources import resource

    docs = resource("docs")
    files = [*sorted(docs.glob("*.md")), *sorted((docs / "reference").glob("*.md"))]
    found: dict[str, Path] = {}
    for file in files:
        found[f"{file.stem}-reference" if file.stem in found else file.stem] = file
    return found


def title(file: Path) -> str:
    """The heading of a page."""
    lines = file.read_text(encoding="utf-8").splitlines()
    return next((line.lstrip("# ") for line in lines if line.startswith("#")), file.stem)


def _site_topics(ctx: typer.Context) -> dict[str, Path]:
    from engine.errors import ScraperError

    try:
        sites = invocation_of(ctx).quiet_registry.sites.values()
    except ScraperError:  # help is there even where the configuration is not
        return {}
    roots = [(site.name, site.help_root) for site in sites if site.help_root is not None]
    return {f"{name}/{file.stem}": file for name, root in roots for file in sorted(root.glob("*.md"))}


def _render(text: str) -> None:
    from rich.console import Console
    from rich.markdown import Markdown

    console = Console()
    if console.size.height < text.count("\n"):
        with console.pager(styles=True):
            console.print(Markdown(text))
    else:
        console.print(Markdown(text))
