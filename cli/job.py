"""``scraper site NAME job``: the lifecycle jobs of a site."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.archiving import opened, site_of
from cli.invocation import invocation_of
from cli.options import EngineDb, Output, SitesDir, Wait
from cli.output import Format, fields, note, print_json, say, table

if TYPE_CHECKING:
    from cli.invocation import Invocation
    from engine.jobs import Line
    from engine.lifecycle.catalog import Found
    from engine.lifecycle.job import Job

JobName = Annotated[str, typer.Argument(metavar="JOB", help="Folder, id or name of the job.")]
Limit = Annotated[int, typer.Option("--limit", metavar="N", min=1, max=100_000, help="At most that many.")]

app = typer.Typer(add_completion=False, rich_markup_mode=None, no_args_is_help=True)


@app.callback()
def job() -> None:
    """Watch pages: run, start and stop the jobs of the site, see what they found and what they announced.

    Example: scraper site watch-demo job run prices --wait
    """


def _found(invocation: Invocation, name: str) -> tuple[Found, Job]:
    from engine.lifecycle.catalog import find

    found = find(site_of(invocation), name)
    assert found.job is not None
    return found, found.job


@app.command()
def check(
    ctx: typer.Context,
    names: Annotated[list[str] | None, typer.Argument(metavar="[JOB]...", help="Jobs to check; all if none.")] = None,
    output: Output = Format.TABLE,
) -> None:
    """Read, judge and load jobs without calling a hook; exit 1 if anything is wrong with one.

    Example: scraper site watch-demo job check
    """
    from engine.authoring.jobs import check_job
    from engine.lifecycle.catalog import discover, look_up

    invocation = invocation_of(ctx)
    site = site_of(invocation)
    chosen = [look_up(site, name) for name in names] if names else discover(site)
    checked = [(found, check_job(invocation.settings, site, found)) for found in chosen]
    if output is Format.JSON:
        print_json(
            [
                {
                    "job": found.folder.name,
                    "ok": not one.faults,
                    "hooks": list(one.hooks),
                    "faults": [
                        {"file": str(f.file), "line": f.line, "message": f.message, "hint": f.hint} for f in one.faults
                    ],
                }
                for found, one in checked
            ]
        )
    for found, one in checked if output is Format.TABLE else ():
        hooks = f" (hooks: {', '.join(one.hooks)})" if one.hooks else ""
        say(
            f"{found.folder.name}: "
            + (f"{len(one.faults)} fault{'s' * (len(one.faults) > 1)}" if one.faults else f"ok{hooks}")
        )
        for fault in one.faults:
            say(f"  {fault}")
    if not checked:
        note(f'site "{site.name}" has no jobs')
    if any(one.faults for _, one in checked):
        raise typer.Exit(1)


@app.command("list")
def list_(
    ctx: typer.Context, engine_db: EngineDb = None, sites_dir: SitesDir = None, output: Output = Format.TABLE
) -> None:
    """List the jobs, whether they are started, and how their last iterations ended.

    Example: scraper site watch-demo job list
    """
    from engine.jobs import list_jobs
    from engine.lifecycle.catalog import discover

    with opened(ctx, engine_db, sites_dir) as (invocation, store):
        lines = list_jobs(invocation.settings, store, site_of(invocation), discover(site_of(invocation)))
    rows = [_row(line) for line in lines]
    if output is Format.JSON:
        print_json(rows)
        return
    table(
        ("JOB", "STATE", "NEXT", "ITERATION", "LAST", "RECORDS"),
        [
            (
                row["job"],
                row["state"],
                row["due"] or "",
                (row["last"] or {}).get("number", ""),
                _ended(row["last"]),
                row["records"],
            )
            for row in rows
        ],
    )


def _row(line: Line) -> dict[str, Any]:
    from cli.output import instant

    schedule, job = line.schedule, line.found.job
    if job is None:
        state = "broken"
    elif schedule is None:
        state = "stopped" if job.enabled else "disabled"
    else:
        state = "paused" if schedule.paused else "running" if schedule.running else "waiting"
    return {
        "job": line.found.folder.name,
        "name": line.found.name if job is None else job.name,
        "id": None if job is None else job.id,
        "state": state,
        "due": None if schedule is None else instant(schedule.due_at),
        "last": line.last,
        "records": line.records,
        "faults": [str(fault) for fault in line.found.faults],
    }


def _ended(last: dict[str, Any] | None) -> str:
    if last is None:
        return ""
    return ", ".join(f"{count} {name}" for name, count in sorted(last["cycles"].items())) or str(last["status"])


@app.command()
def run(
    ctx: typer.Context,
    name: JobName,
    wait: Wait = None,
    engine_db: EngineDb = None,
    sites_dir: SitesDir = None,
    output: Output = Format.TABLE,
) -> None:
    """Submit one iteration; with --wait, work in this process until it has ended and print what was new.

    Example: scraper site watch-demo job run prices --wait
    """
    from engine.jobs import iteration_of, records, run_job

    with opened(ctx, engine_db, sites_dir) as (invocation, store):
        site = site_of(invocation)
        _, job = _found(invocation, name)
        workflow = run_job(invocation.settings, store, site, job)
    if not wait:
        _print_run(output, {"site": site.name, "job": job.id, "workflow": workflow})
        return
    status = _work(invocation, job, workflow)
    with opened(ctx, engine_db, sites_dir) as (_, store):
        iteration = iteration_of(invocation.settings, store, site, workflow)
        cycle = iteration or workflow
        new = records(invocation.settings, store.clock, site, job, 100_000, cycle)[::-1]
    told = {"site": site.name, "job": job.id, "workflow": workflow, "iteration": iteration, "status": status}
    if output is Format.JSON:
        print_json({**told, "new": new})
    else:
        fields((key.capitalize(), value) for key, value in told.items())
        say(f"New items: {len(new)}")
        _items(new)
    if status != "succeeded":
        note(f"what became of it: scraper workflow show {workflow}")
        raise typer.Exit(1)


def _print_run(output: Format, told: dict[str, Any]) -> None:
    if output is Format.JSON:
        print_json(told)
    else:
        fields((key.capitalize(), value) for key, value in told.items())


def _work(invocation: Invocation, job: Job, workflow: str) -> str:
    from cli.run import work_until_ended

    with demo_pages(invocation, job):
        return work_until_ended(invocation, workflow)


@contextmanager
def demo_pages(invocation: Invocation, job: Job) -> Iterator[None]:
    """The demo's pages, for the jobs of the site that watches them, where nobody serves them yet."""
    from engine.demo import serve_books

    shop = re.match(r"http://127\.0\.0\.1:([0-9]+)/shop/", job.pages[0])
    with ExitStack() as stack:
        if shop is not None and site_of(invocation).name == "watch-demo":
            try:
                served = stack.enter_context(serve_books(port=int(shop[1])))
                note(f"serving the demo's pages at {served} meanwhile")
            except OSError:
                note(f"the port {shop[1]} is taken: whoever has it is taken for scraper demo serve")
        yield


def _items(items: Sequence[dict[str, Any]]) -> None:
    names = list(dict.fromkeys(name for item in items for name in item["fields"]))
    if not items:
        return
    keywords = any(item["matches"] for item in items)
    table(
        [name.upper() for name in names] + ["KEYWORDS"] * keywords,
        [[item["fields"].get(name, "") for name in names] + [", ".join(item["matches"])] * keywords for item in items],
    )


@app.command()
def start(ctx: typer.Context, name: JobName, engine_db: EngineDb = None, sites_dir: SitesDir = None) -> None:
    """Let the job run at once and then again and again, each time its interval after the end of the last.

    It is carried out by whatever workers run: scraper worker run.

    Example: scraper site watch-demo job start prices
    """
    from engine.authoring.jobs import check_job
    from engine.errors import SiteError
    from engine.jobs import start_job

    with opened(ctx, engine_db, sites_dir) as (invocation, store):
        found, job = _found(invocation, name)
        faults = check_job(invocation.settings, site_of(invocation), found).faults
        if faults:
            raise SiteError("\n".join(map(str, faults)))
        changed = start_job(invocation.settings, store, site_of(invocation), job)
    say(f"{job.id}: {'started' if changed else 'is started already'}")


@app.command()
def stop(ctx: typer.Context, name: JobName, engine_db: EngineDb = None, sites_dir: SitesDir = None) -> None:
    """Let no further iteration of the job begin; one that is under way goes on to its end.

    Example: scraper site watch-demo job stop prices
    """
    from engine.jobs import stop_job

    with opened(ctx, engine_db, sites_dir) as (invocation, store):
        _, job = _found(invocation, name)
        stop_job(store, site_of(invocation), job)
    say(f"{job.id}: stopped")


@app.command()
def debug(ctx: typer.Context, name: JobName, sites_dir: SitesDir = None, output: Output = Format.TABLE) -> None:
    """Run one cycle up to before_store, enabled or not: print its items and stages, store and send nothing.

    The page and the fields are left beside the job, in ID-response.html and ID-fields.json.

    Example: scraper site watch-demo job debug deals
    """
    from engine.authoring.jobs import rehearse_job

    invocation = invocation_of(ctx)
    invocation.flag("sitesDir", "--sites-dir", sites_dir)
    _, job = _found(invocation, name)
    with demo_pages(invocation, job):
        done = rehearse_job(invocation.settings, invocation.registry, site_of(invocation), job)
    if output is Format.JSON:
        print_json(
            {"status": done.status, "error": done.error, "items": done.items, "stages": done.stages, "logs": done.logs}
        )
    else:
        _items(done.items)
        say(f"Items: {len(done.items)}")
        say()
        table(
            ("STAGE", "STATUS", "MS", "ERROR"),
            [
                (stage["name"], stage["status"], f"{stage['duration_ms']:.1f}", stage.get("error", ""))
                for stage in done.stages
            ],
        )
        for line in done.logs:
            note(line)
        say(f"Status: {done.status}" + (f" ({done.error})" if done.error else ""))
    if done.status == "error":
        raise typer.Exit(1)


@app.command("test")
def run_tests(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="[JOB]", help="The job; all if none.")] = "",
    pattern: Annotated[str, typer.Argument(metavar="[PATTERN]", help="Only tests whose name contains it.")] = "",
    output: Output = Format.TABLE,
) -> None:
    """Run the functions test_… of the scripts, each in an isolate and a database of its own; exit 1 if one fails.

    Example: scraper site watch-demo job test deals
    """
    from engine.authoring.jobs import run_job_tests
    from engine.lifecycle.catalog import discover, find

    invocation = invocation_of(ctx)
    site = site_of(invocation)
    chosen = [find(site, name)] if name else [found for found in discover(site) if found.job is not None]
    done = [
        {"job": found.folder.name, **one}
        for found in chosen
        for one in run_job_tests(invocation.settings, site, found, pattern)
    ]
    if output is Format.JSON:
        print_json(done)
    for one in done if output is Format.TABLE else ():
        say(f"{'ok  ' if one['ok'] else 'FAIL'} {one['job']} {one['name']} ({one['duration_ms']:.0f} ms)")
        if not one["ok"]:
            say(f"     {one['error']}")
            for line in one["logs"]:
                note(f"     {line}")
    if output is Format.TABLE:
        failed = sum(not one["ok"] for one in done)
        say(f"{len(done)} tests, {failed} failed" if done else "no tests")
    if any(not one["ok"] for one in done):
        raise typer.Exit(1)


@app.command("records")
def records_(
    ctx: typer.Context,
    name: JobName,
    limit: Limit = 50,
    engine_db: EngineDb = None,
    sites_dir: SitesDir = None,
    output: Output = Format.TABLE,
) -> None:
    """Print what the job has stored, newest first.

    Example: scraper site watch-demo job records prices --limit 10
    """
    from engine.jobs import records

    with opened(ctx, engine_db, sites_dir) as (invocation, store):
        _, job = _found(invocation, name)
        found = records(invocation.settings, store.clock, site_of(invocation), job, limit)
    if output is Format.JSON:
        print_json(found)
    else:
        _items(found)


@app.command("deliveries")
def deliveries_(
    ctx: typer.Context,
    name: JobName,
    again: Annotated[
        str, typer.Option("--redeliver", metavar="ID", help="Send this one again, byte for byte.", show_default=False)
    ] = "",
    wait: Wait = None,
    limit: Limit = 50,
    engine_db: EngineDb = None,
    sites_dir: SitesDir = None,
    output: Output = Format.TABLE,
) -> None:
    """List the webhooks and notifications of the job, newest first; or send one of them again.

    Example: scraper site watch-demo job deliveries prices
    """
    from engine.jobs import deliveries, redeliver

    with opened(ctx, engine_db, sites_dir) as (invocation, store):
        _, job = _found(invocation, name)
        site, settings = site_of(invocation), invocation.settings
        workflow = redeliver(settings, store, site, job, again) if again else ""
    status = _work(invocation, job, workflow) if workflow and wait else ""
    if workflow and output is Format.TABLE:
        note(f"{again} is sent again by workflow {workflow}" + (f": {status}" if status else ""))
    with opened(ctx, engine_db, sites_dir) as (_, store):
        found = deliveries(settings, store.clock, site, job, limit)
    if output is Format.JSON:
        print_json(found)
    else:
        table(
            ("ID", "CHANNEL", "STATUS", "TRIES", "CREATED", "ERROR"),
            [
                (row["id"], row["channel"], row["status"], row["attempts"], row["createdAt"], row["error"])
                for row in found
            ],
        )
    if status not in ("", "succeeded"):
        raise typer.Exit(1)
