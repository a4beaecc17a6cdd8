"""``scraper worker``: lease ops and run them."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.invocation import Invocation, invocation_of
from cli.log import LogFormat
from cli.options import EngineDb, Output, SitesDir
from cli.output import Format, fields, instant, note, print_json, table
from engine.errors import UsageError

if TYPE_CHECKING:
    from engine.app import WorkerOptions, WorkerReport
    from engine.config import Settings
    from engine.views.progress import Progress

app = typer.Typer(add_completion=False, rich_markup_mode=None, no_args_is_help=True)

Text = str | None


@app.callback()
def worker() -> None:
    """Lease ops and run them.

    Example: scraper worker run --until-idle
    """


def _option(flag: str, metavar: str, text: str) -> Any:
    return typer.Option(flag, metavar=metavar, help=text, show_default=False)


@app.command()
def run(
    ctx: typer.Context,
    engine_db: EngineDb = None,
    sites_dir: SitesDir = None,
    worker_id: Annotated[str, typer.Option("--worker-id", help="Name of this worker in leases and attempts.")] = (
        "scraper-worker"
    ),
    machine_id: Annotated[
        Text, _option("--machine-id", "ID", "Name of the machine that holds the SQLite site databases.")
    ] = None,
    max_workers: Annotated[Text, _option("--max-workers", "N", "Ops run at once.  [default: 4]")] = None,
    js_processes: Annotated[
        Text, _option("--js-processes", "N", "Child processes that run scripts; 0 = one per processor.  [default: 0]")
    ] = None,
    sites: Annotated[list[str] | None, _option("--sites", "SITE,…", "Run ops of these sites only. Repeatable.")] = None,
    poll_interval: Annotated[
        Text, _option("--poll-interval", "DURATION", "Longest pause between two looks for work.  [default: 250ms]")
    ] = None,
    lease_duration: Annotated[
        Text, _option("--lease-duration", "DURATION", "How long a claim outlives its worker.  [default: 30s]")
    ] = None,
    drain_timeout: Annotated[
        Text, _option("--drain-timeout", "DURATION", "How long a stopping worker lets ops finish.  [default: 30s]")
    ] = None,
    http_timeout: Annotated[
        Text, _option("--http-timeout", "DURATION", "Time limit of a request.  [default: 15s]")
    ] = None,
    http_proxy: Annotated[
        Text, _option("--http-proxy", "URL", "Proxy of all requests.  [default: the environment's]")
    ] = None,
    max_cycles: Annotated[
        int, typer.Option("--max-cycles", metavar="N", min=0, help="End after N claim rounds; 0 = never.")
    ] = 0,
    until_idle: Annotated[
        bool, typer.Option("--until-idle", help="End when nothing is runnable, delayed or leased.", show_default=False)
    ] = False,
    fail_on_error: Annotated[
        bool, typer.Option("--fail-on-error", help="Exit 1 if an op failed for good meanwhile.", show_default=False)
    ] = False,
    log_format: LogFormat = None,
    output: Output = Format.TABLE,
) -> None:
    """Lease ops and run them until stopped.

    The first SIGINT or SIGTERM lets running ops finish and gives the others back; the second stops at once.

    Example: scraper worker run --until-idle --fail-on-error
    """
    invocation = invocation_of(ctx)
    for key, flag, value in (
        ("engineDB", "--engine-db", engine_db),
        ("sitesDir", "--sites-dir", sites_dir),
        ("worker.maxWorkers", "--max-workers", max_workers),
        ("worker.jsProcesses", "--js-processes", js_processes),
        ("worker.pollInterval", "--poll-interval", poll_interval),
        ("worker.drainTimeout", "--drain-timeout", drain_timeout),
        ("leases.duration", "--lease-duration", lease_duration),
        ("http.timeout", "--http-timeout", http_timeout),
        ("http.proxy", "--http-proxy", http_proxy),
    ):
        invocation.flag(key, flag, value)
    if not worker_id.strip():
        raise UsageError("--worker-id must not be empty")
    settings = invocation.settings
    options = worker_options(
        settings,
        worker_id=worker_id,
        machine_id=machine_id or "",
        sites=_chosen(invocation, sites),
        max_cycles=max_cycles,
        until_idle=until_idle,
        fail_on_error=fail_on_error,
    )
    invocation.log_lines = log_format
    report = _work(invocation, settings, options)
    _advise(report, settings)
    _print(report, output)
    if fail_on_error and report.failed:
        raise typer.Exit(1)


@app.command("list")
def list_(ctx: typer.Context, engine_db: EngineDb = None, output: Output = Format.TABLE) -> None:
    """List the workers that have not said goodbye, and how many ops each holds.

    Example: scraper worker list
    """
    from cli.opening import reading
    from engine.views.lists import workers

    with reading(ctx, engine_db) as connection:
        lines = workers(connection)
    if output is Format.JSON:
        print_json({"workers": lines})
        return
    table(
        ("WORKER", "MACHINE", "HOST", "RUNNING", "STARTED", "SEEN"),
        [
            (one.id, one.machine, one.hostname, one.running, instant(one.started_at), instant(one.seen_at))
            for one in lines
        ],
    )


def _advise(report: WorkerReport, settings: Settings) -> None:
    """What an operator would look at next."""
    from engine.clock import SystemClock
    from engine.views.lists import queues
    from engine.views.reader import Views

    if report.failed:
        note("what failed, and why: scraper workflow list --status failed, scraper workflow show WORKFLOW")
    with closing(Views(settings.engine_db)) as views, views.connection() as connection:
        held = [one for one in queues(connection, SystemClock().now(), None) if one.paused and one.ops["ready"]]
    for one in held:
        note(f'{one.ops["ready"]} ops wait in a paused queue: scraper queue resume {one.site} "{one.queue}"')


def worker_options(settings: Settings, **chosen: Any) -> WorkerOptions:
    """A worker's options: what is configured, and what this command chose."""
    from engine.app import WorkerOptions

    return WorkerOptions(
        max_workers=settings.worker.max_workers,
        poll_interval=settings.worker.poll_interval,
        lease_duration=settings.leases.duration,
        js_processes=settings.worker.js_processes,
        drain_timeout=settings.worker.drain_timeout,
        **chosen,
    )


def _chosen(invocation: Invocation, sites: list[str] | None) -> frozenset[str] | None:
    names = {name.strip() for text in sites or () for name in text.split(",")} - {""}
    if not names:
        return None
    return frozenset(invocation.registry.site(name).name for name in sorted(names))


def _work(invocation: Invocation, settings: Settings, options: WorkerOptions) -> WorkerReport:
    from cli.progress import watching
    from engine.app import run_worker
    from engine.clock import SystemClock
    from engine.dialect import database_url, shown
    from engine.views.progress import of_everything
    from engine.views.reader import Views

    registry = invocation.registry
    with closing(Views(settings.engine_db)) as views:

        def look() -> Progress:
            with views.connection() as connection:
                return of_everything(connection, SystemClock().now())

        with watching(look, invocation.log_lines) as observer:
            observer.notice(f"engine DB {shown(database_url(settings.engine_db))}, sites dir {settings.sites_dir}")
            return run_worker(settings, registry, options, observer)


def _print(report: WorkerReport, output: Format) -> None:
    if output is Format.JSON:
        print_json(report)
        return
    fields(
        (
            ("Worker ID", report.worker_id),
            ("Engine DB", report.engine_db),
            ("Sites dir", report.sites_dir),
            ("Cycles", report.cycles),
            ("Refreshed", report.refreshed),
            ("Processed", report.processed),
            ("Succeeded", report.succeeded),
            ("Retried", report.retried),
            ("Failed", report.failed),
        )
    )
