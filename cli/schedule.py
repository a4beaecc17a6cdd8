"""``scraper schedule``: what is run when; added, paused, resumed, run at once and deleted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.invocation import Invocation, invocation_of
from cli.opening import SiteFilter, changing
from cli.options import EngineDb, Output
from cli.output import Format, fields, instant, print_json, table
from engine.errors import UsageError
from engine.schedules import Missed, Origin, Overlap

if TYPE_CHECKING:
    from engine.model import NewOp
    from engine.schedules import Rule, Schedule
    from engine.store.store import Store

app = typer.Typer(add_completion=False, rich_markup_mode=None, no_args_is_help=True)

Site = Annotated[str, typer.Argument(metavar="SITE", help="Name of the site.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the schedule.")]


@app.callback()
def schedule() -> None:
    """Look at schedules; add, pause, resume, run and delete them.

    Example: scraper schedule list
    """


@app.command("list")
def list_(
    ctx: typer.Context, site: SiteFilter = None, engine_db: EngineDb = None, output: Output = Format.TABLE
) -> None:
    """List schedules: what they run, when they are due, and what became of the last time.

    Example: scraper schedule list --site books
    """
    with _synchronized(ctx, engine_db) as store:
        known = store.schedules.all(site)
    if output is Format.JSON:
        print_json({"schedules": [_as_json(one) for one in known]})
        return
    table(
        ("SITE", "SCHEDULE", "RUNS", "WHEN", "STATE", "NEXT", "LAST WORKFLOW", "COUNT", "SKIPPED", "ERROR"),
        [
            (
                one.site,
                one.name,
                _target(one),
                one.rule,
                _state(one),
                _next(one),
                one.last_workflow,
                one.runs,
                one.skipped,
                one.error,
            )
            for one in known
        ],
    )


@app.command()
def add(
    ctx: typer.Context,
    site: Site,
    name: Name,
    verb: Annotated[str, typer.Option("--verb", metavar="VERB", help="The verb to run.", show_default=False)],
    cron: Annotated[
        str | None,
        typer.Option(
            "--cron", metavar="FIELDS", help='When: five cron fields such as "30 4 * * *".', show_default=False
        ),
    ] = None,
    timezone: Annotated[
        str | None,
        typer.Option(
            "--timezone",
            metavar="ZONE",
            help="Whose clock the cron fields mean, like Europe/Berlin.  [default: UTC]",
            show_default=False,
        ),
    ] = None,
    every: Annotated[
        str | None, typer.Option("--every", metavar="DURATION", help="When: at this fixed rate.", show_default=False)
    ] = None,
    after: Annotated[
        str | None,
        typer.Option("--after", metavar="DURATION", help="When: so long after the end of a run.", show_default=False),
    ] = None,
    value: Annotated[
        list[str] | None,
        typer.Option(
            "--value",
            metavar="FIELD=VALUE",
            help="A value of one of the verb's fields. Repeatable.",
            show_default=False,
        ),
    ] = None,
    overlap: Annotated[
        Overlap, typer.Option("--overlap", help="What becomes of a due time during a run.", case_sensitive=False)
    ] = Overlap.SKIP,
    missed: Annotated[
        Missed,
        typer.Option("--missed", help="What becomes of due times at which no worker was there.", case_sensitive=False),
    ] = Missed.ONCE,
    engine_db: EngineDb = None,
    output: Output = Format.TABLE,
) -> None:
    """Run a verb on a schedule. Any worker of the site then does so when it is due.

    Example: scraper schedule add books nightly --verb seed --cron "30 4 * * *" --timezone Europe/Berlin
    """
    from engine.app import open_store, scan_verbs
    from engine.fields import read_fields
    from engine.plugins.schedules import NAME
    from engine.scheduled import find_verb
    from engine.schedules import NewSchedule, VerbTarget

    invocation = invocation_of(ctx)
    invocation.flag("engineDB", "--engine-db", engine_db)
    if not NAME.fullmatch(name):
        raise UsageError(f'"{name}" cannot be the name of a schedule: use letters, digits, ".", "_" and "-"')
    rule = _rule({"cron": cron, "timezone": timezone, "every": every, "after": after})
    plugin = invocation.registry.site(site)
    values = _values(value or ())
    read_fields(find_verb(plugin, () if plugin.verbs_root is None else scan_verbs(plugin), verb), values)
    new = NewSchedule(site=site, name=name, rule=rule, target=VerbTarget(verb, values), overlap=overlap, missed=missed)
    with closing(open_store(invocation.settings)) as store:
        _synchronize(invocation, store)
        store.schedules.add(new)
        _show(store.schedules.get(site, name), output)


@app.command()
def pause(
    ctx: typer.Context, site: Site, name: Name, engine_db: EngineDb = None, output: Output = Format.TABLE
) -> None:
    """Let a schedule rest until it is resumed. A run that is under way goes on.

    Example: scraper schedule pause books nightly
    """
    with _synchronized(ctx, engine_db) as store:
        store.schedules.pause(site, name)
        _show(store.schedules.get(site, name), output)


@app.command()
def resume(
    ctx: typer.Context, site: Site, name: Name, engine_db: EngineDb = None, output: Output = Format.TABLE
) -> None:
    """Go on with a paused schedule from its next due time; what passed meanwhile is not made up for.

    Example: scraper schedule resume books nightly
    """
    with _synchronized(ctx, engine_db) as store:
        store.schedules.resume(site, name)
        _show(store.schedules.get(site, name), output)


@app.command()
def run(ctx: typer.Context, site: Site, name: Name, engine_db: EngineDb = None, output: Output = Format.TABLE) -> None:
    """Make a schedule due now, paused or not. A worker runs it, after the run that is under way.

    Example: scraper schedule run books nightly
    """
    with _synchronized(ctx, engine_db) as store:
        workflow_id = store.schedules.run(site, name, _placing(invocation_of(ctx), store))
    if output is Format.JSON:
        print_json({"site": site, "schedule": name, "workflowID": workflow_id})
        return
    fields((("Site", site), ("Schedule", name), ("Workflow", workflow_id)))


@app.command()
def delete(
    ctx: typer.Context, site: Site, name: Name, engine_db: EngineDb = None, output: Output = Format.TABLE
) -> None:
    """Forget a schedule that was added here. Its runs stay as they are.

    Example: scraper schedule delete books nightly
    """
    with _synchronized(ctx, engine_db) as store:
        # what the manifest of a site that is gone has left belongs to nobody else
        gone = site not in invocation_of(ctx).registry.sites
        origin = store.schedules.get(site, name).origin if gone else Origin.OPERATOR
        store.schedules.delete(site, name, origin)
    if output is Format.JSON:
        print_json({"site": site, "schedule": name, "state": "deleted"})
        return
    fields((("Site", site), ("Schedule", name), ("State", "deleted")))


@contextmanager
def _synchronized(ctx: typer.Context, engine_db: str | None) -> Iterator[Store]:
    """The engine DB, which knows the schedules of all manifests."""
    with changing(ctx, engine_db) as store:
        _synchronize(invocation_of(ctx), store)
        yield store


def _synchronize(invocation: Invocation, store: Store) -> None:
    for plugin in invocation.registry.sites.values():
        store.schedules.sync(plugin.name, plugin.schedules)


def _rule(said: dict[str, str | None]) -> Rule:
    from engine.timing import BadRule, read_rule

    try:
        return read_rule(said)
    except BadRule as bad:
        flags = "one of --cron, --every and --after is needed"
        raise UsageError(f"--{bad.key}: {bad}" if bad.key else f"a schedule {bad}: {flags}") from bad


def _values(given: Sequence[str]) -> dict[str, Any]:
    """``FIELD=VALUE`` by field; a field given several times is a list."""
    values: dict[str, Any] = {}
    for one in given:
        field, equals, text = one.partition("=")
        if not equals or not field:
            raise UsageError(f'--value: "{one}" is not FIELD=VALUE')
        known = values.get(field)
        values[field] = text if known is None else [*(known if isinstance(known, list) else [known]), text]
    return values


def _placing(invocation: Invocation, store: Store) -> Any:
    from engine.machine import machine_id

    here = machine_id(invocation.settings.sites_dir)
    sites = invocation.registry.sites

    def place(op: NewOp) -> NewOp:
        plugin = sites.get(op.site)
        if plugin is None or not plugin.machine_for(op.kind, here):
            return op
        return replace(op, machine=store.home_of(op.site, here))

    return place


def _show(known: Schedule, output: Format) -> None:
    if output is Format.JSON:
        print_json(_as_json(known))
        return
    fields(
        (
            ("Site", known.site),
            ("Schedule", known.name),
            ("Runs", _target(known)),
            ("When", known.rule),
            ("State", _state(known)),
            ("Next", _next(known)),
        )
    )


def _as_json(known: Schedule) -> dict[str, Any]:
    from engine.schedules import VerbTarget, rule_to_dict

    verb = known.target if isinstance(known.target, VerbTarget) else None
    return {
        "site": known.site,
        "name": known.name,
        "origin": known.origin.value,
        "verb": verb.verb if verb else None,
        "values": dict(verb.values) if verb else None,
        "rule": rule_to_dict(known.rule),
        "overlap": known.overlap.value,
        "missed": known.missed.value,
        "state": _state(known),
        "paused": known.paused,
        "dueAt": instant(known.due_at),
        "waiting": [instant(due) for due in known.queued],
        "running": known.running,
        "runs": known.runs,
        "skipped": known.skipped,
        "lastDueAt": instant(known.last_due_at),
        "lastWorkflowID": known.last_workflow,
        "error": known.error,
    }


def _target(known: Schedule) -> str:
    from engine.schedules import VerbTarget

    return f"verb {known.target.verb}" if isinstance(known.target, VerbTarget) else known.target.name


def _state(known: Schedule) -> str:
    if known.running is not None:
        return "running, paused" if known.paused else "running"
    if known.firing is not None:
        return "failing" if known.error else "firing"
    return "paused" if known.paused else "waiting"


def _next(known: Schedule) -> str:
    if known.due_at is None:
        return "after the run"
    return "none: paused" if known.paused else str(instant(known.due_at))
