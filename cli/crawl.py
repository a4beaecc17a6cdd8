"""``scraper site NAME crawl``: archive URLs with the site's hooks."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.archiving import Config, CrawlId, DataDir, HookDir, Plugins, listed, opened, pairs, reader_of, site_of
from cli.invocation import Invocation, invocation_of
from cli.opening import Limit, Offset, StatusFilter, show_list
from cli.options import EngineDb, Output, SitesDir, Wait
from cli.output import Format, fields, note, print_json, say, warn

if TYPE_CHECKING:
    pass

app = typer.Typer(add_completion=False, rich_markup_mode=None, no_args_is_help=True)


@app.callback()
def crawl() -> None:
    """Archive URLs with the site's hooks.

    Example: scraper site archive crawl add https://example.com/ --depth 1 --wait
    """


@app.command()
def add(
    ctx: typer.Context,
    urls: Annotated[list[str], typer.Argument(metavar="URL...", help="What to archive; - reads lines from stdin.")],
    depth: Annotated[int, typer.Option("--depth", min=0, metavar="N", help="How many links to follow.")] = 0,
    plugins: Plugins = None,
    config: Config = None,
    arg: Annotated[
        list[str] | None,
        typer.Option("--arg", metavar="KEY=VALUE", help="Further flag of every hook. Repeatable.", show_default=False),
    ] = None,
    allow: Annotated[
        list[str] | None,
        typer.Option("--allow", metavar="PATTERN", help="Only URLs of this host, or that match.", show_default=False),
    ] = None,
    deny: Annotated[
        list[str] | None,
        typer.Option("--deny", metavar="PATTERN", help="No URLs of this host, or that match.", show_default=False),
    ] = None,
    hook_dir: HookDir = None,
    label: Annotated[str, typer.Option("--label", metavar="TEXT", help="What to call it.", show_default=False)] = "",
    crawl_id: Annotated[
        str | None,
        typer.Option("--crawl-id", metavar="ID", help="Id.  [default: SITE-crawl-NANOSECONDS]", show_default=False),
    ] = None,
    timeout: Annotated[
        float | None, typer.Option("--timeout", metavar="SECONDS", help="TIMEOUT of the hooks.", show_default=False)
    ] = None,
    attempts: Annotated[int, typer.Option("--attempts", min=1, metavar="N", help="Tries of a hook.")] = 5,
    retry_delay: Annotated[
        str, typer.Option("--retry-delay", metavar="DURATION", help="Before the second try; doubled each time.")
    ] = "10s",
    bg_policy: Annotated[
        str,
        typer.Option(
            "--bg-policy", metavar="POLICY", help="Who is ended with its snapshot: own, daemon-at-end, all-at-end."
        ),
    ] = "daemon-at-end",
    install: Annotated[
        bool, typer.Option("--install", help="Let hooks install programs that are missing.", show_default=False)
    ] = False,
    data_dir: DataDir = None,
    wait: Wait = None,
    engine_db: EngineDb = None,
    sites_dir: SitesDir = None,
    output: Output = Format.TABLE,
) -> None:
    """Store a crawl; with --wait, work in this process until it is sealed.

    Example: scraper site archive crawl add https://example.com/ --depth 1 --plugins title,headers --wait
    """
    from engine.crawls import add_crawl
    from engine.durations import parse_duration
    from engine.errors import UsageError
    from engine.hooks.graph import BG_POLICIES, CrawlSpec
    from engine.hooks.urls import patterns

    if bg_policy not in BG_POLICIES:
        raise UsageError(f'--bg-policy: "{bg_policy}" is none of {", ".join(BG_POLICIES)}')
    try:
        delay = parse_duration(retry_delay)
    except ValueError as error:
        raise UsageError(f"--retry-delay: {error}") from error
    chosen = pairs(config, "--config")
    if timeout is not None:
        chosen["TIMEOUT"] = timeout
    with opened(ctx, engine_db, sites_dir) as (invocation, store):
        invocation.flag("hooks.dataDir", "--data-dir", data_dir)
        settings = invocation.settings
        spec = CrawlSpec(
            urls=tuple(_urls(urls)),
            max_depth=depth,
            plugins=listed(plugins),
            config=chosen,
            arguments=pairs(arg, "--arg"),
            hook_dirs=tuple(_absolute(hook_dir)),
            data_dir=str(settings.data_dir),
            allow=patterns(allow),
            deny=patterns(deny),
            label=label,
            bg_policy=next(one for one in BG_POLICIES if one == bg_policy),
            install=install,
            attempts=attempts,
            retry_delay=delay,
        )
        added = add_crawl(settings, store, site_of(invocation), spec, crawl_id)
    for warning in added.warnings:
        warn(warning)
    if added.unwanted:
        note(f"{added.unwanted} of the URLs are kept out by --allow or --deny")
    _show_after(invocation, added.crawl_id, output, wait=bool(wait))


def _urls(given: list[str]) -> Iterator[str]:
    from engine.errors import UsageError

    found = [line.strip() for url in given for line in (sys.stdin if url == "-" else (url,))]
    found = [url for url in found if url]
    if not found:
        raise UsageError("no URL was given")
    yield from found


def _absolute(directories: list[str] | None) -> Iterator[str]:
    from pathlib import Path

    for directory in directories or ():
        yield str(Path(directory).expanduser().absolute())


def _show_after(invocation: Invocation, crawl_id: str, output: Format, *, wait: bool) -> None:
    """Wait for a crawl if asked to, then say where it stands."""
    sealed = _work(invocation, crawl_id) if wait else True
    reader = reader_of(invocation)
    view, counts = reader.crawl(crawl_id), reader.counts(crawl_id)
    if output is Format.JSON:
        print_json({"crawl": view, **counts})
    else:
        _print(view, counts)
    if wait and (waiting := reader.waiting(crawl_id)):
        note(f"{waiting} hooks wait for a retry: scraper worker run, or crawl update --wait")
    if not sealed:
        note("the wait was cut short; any worker can go on: scraper worker run")
        raise typer.Exit(1)


def _work(invocation: Invocation, crawl_id: str) -> bool:
    from cli.progress import watching
    from cli.watch import looks
    from cli.worker import worker_options
    from engine.app import run_worker
    from engine.views.reader import Views

    settings, reader = invocation.settings, reader_of(invocation)
    ended = ("sealed", "canceled")
    options = worker_options(
        settings,
        sites=frozenset(invocation.registry.sites),
        until=lambda: reader.status(crawl_id) in ended,
        until_idle=True,
    )
    with (
        closing(Views(settings.engine_db)) as views,
        watching(looks(views, crawl_id), invocation.log_lines) as observer,
    ):
        run_worker(settings, invocation.registry, options, observer)
    return reader.status(crawl_id) in ended


def _print(view: Any, counts: dict[str, dict[str, int]]) -> None:
    fields(
        (
            ("Crawl", view.id),
            *((("Label", view.label),) if view.label else ()),
            ("Status", view.status),
            ("URLs", ", ".join(view.urls[:5]) + (f" and {len(view.urls) - 5} more" if len(view.urls) > 5 else "")),
            ("Depth", view.max_depth),
            ("Directory", view.output_dir or "none yet"),
        )
    )
    for name, states in counts.items():
        say(f"{name.capitalize()}: " + (", ".join(f"{number} {state}" for state, number in states.items()) or "none"))


@app.command("list")
def list_(
    ctx: typer.Context,
    status: StatusFilter = None,
    limit: Limit = 50,
    offset: Offset = 0,
    sites_dir: SitesDir = None,
    output: Output = Format.TABLE,
) -> None:
    """List the crawls of the site, the youngest first.

    Example: scraper site archive crawl list --status started
    """
    invocation = invocation_of(ctx)
    invocation.flag("sitesDir", "--sites-dir", sites_dir)
    found = reader_of(invocation).crawls(status, limit + 1, offset)
    cells = [(one.id, one.status, len(one.urls), one.max_depth, one.created, one.label) for one in found]
    headers = ("CRAWL", "STATUS", "URLS", "DEPTH", "CREATED", "LABEL")
    show_list("crawls", found, headers, cells, output=output, limit=limit)


@app.command()
def show(ctx: typer.Context, crawl: CrawlId, sites_dir: SitesDir = None, output: Output = Format.TABLE) -> None:
    """Show where a crawl stands.

    Example: scraper site archive crawl show CRAWL --output json
    """
    invocation = invocation_of(ctx)
    invocation.flag("sitesDir", "--sites-dir", sites_dir)
    _show_after(invocation, crawl, output, wait=False)


@app.command()
def update(
    ctx: typer.Context,
    crawl: CrawlId,
    wait: Wait = None,
    engine_db: EngineDb = None,
    sites_dir: SitesDir = None,
    output: Output = Format.TABLE,
) -> None:
    """Let the hooks that wait for their retry run now.

    Example: scraper site archive crawl update CRAWL --wait
    """
    from engine.crawls import require_crawl

    with opened(ctx, engine_db, sites_dir) as (invocation, store):
        require_crawl(store, site_of(invocation), crawl)
        number = store.hurry(crawl)
    note(f"{number} hooks run again now")
    if wait and number:
        _work_until_idle(invocation)
    _show_after(invocation, crawl, output, wait=False)


def _work_until_idle(invocation: Invocation) -> None:
    from cli.worker import worker_options
    from engine.app import run_worker
    from engine.worker.options import Silent

    settings = invocation.settings
    options = worker_options(settings, until_idle=True, sites=frozenset({site_of(invocation).name}))
    run_worker(settings, invocation.registry, options, Silent())


@app.command()
def retry(
    ctx: typer.Context,
    crawl: CrawlId,
    wait: Wait = None,
    engine_db: EngineDb = None,
    sites_dir: SitesDir = None,
    output: Output = Format.TABLE,
) -> None:
    """Run the hooks again that failed for good.

    Example: scraper site archive crawl retry CRAWL --wait
    """
    from engine.crawls import require_crawl

    with opened(ctx, engine_db, sites_dir) as (invocation, store):
        require_crawl(store, site_of(invocation), crawl)
        number = store.retry_workflow(crawl)
    note(f"{number} hooks run again")
    if wait:
        _work_until_idle(invocation)
    _show_after(invocation, crawl, output, wait=False)


@app.command()
def cancel(
    ctx: typer.Context,
    crawl: CrawlId,
    engine_db: EngineDb = None,
    sites_dir: SitesDir = None,
    output: Output = Format.TABLE,
) -> None:
    """End a crawl: its hooks are told to stop, nothing of it starts any more.

    Example: scraper site archive crawl cancel CRAWL
    """
    from engine.crawls import cancel_crawl

    with opened(ctx, engine_db, sites_dir) as (invocation, store):
        number = cancel_crawl(invocation.settings, store, site_of(invocation), crawl)
    note(f"{number} ops canceled")
    _show_after(invocation, crawl, output, wait=False)


@app.command()
def seal(
    ctx: typer.Context,
    crawl: CrawlId,
    engine_db: EngineDb = None,
    sites_dir: SitesDir = None,
    output: Output = Format.TABLE,
) -> None:
    """Seal a crawl as it stands: what still runs is ended, retries are given up.

    Example: scraper site archive crawl seal CRAWL
    """
    from engine.crawls import seal_crawl

    with opened(ctx, engine_db, sites_dir) as (invocation, store):
        number = seal_crawl(invocation.settings, store, site_of(invocation), crawl)
    note(f"{number} ops given up")
    _show_after(invocation, crawl, output, wait=False)
