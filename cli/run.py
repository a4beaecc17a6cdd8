"""``scraper site NAME run VERB``: seed a workflow, and with ``--wait`` see it through."""

from __future__ import annotations

import json
from contextlib import closing
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperGroup

from cli import job
from cli.hook import add_hook_commands
from cli.invocation import Invocation, invocation_of
from cli.log import LogFormat
from cli.options import EngineDb, RunOutput, SitesDir, Wait, WorkflowId
from cli.output import Format, fields, note, print_json, say, warn
from cli.tree import unknown_command
from engine.errors import UsageError

if TYPE_CHECKING:
    from engine.app import SubmitReport
    from engine.plugins.site import Site
    from engine.verbs import VerbSpec


class VerbGroup(TyperGroup):
    """The verbs of the invocation's site, read from its JavaScript when asked for."""

    def list_commands(self, ctx: Any) -> list[str]:
        """The verbs' command names, sorted."""
        return sorted(_verbs(ctx))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of a verb. Raises UsageError where the site has none of that name."""
        verbs = _verbs(ctx)
        if cmd_name not in verbs:
            return unknown_command(ctx, cmd_name, verbs)
        from cli.verbs import verb_command

        return verb_command(verbs[cmd_name], submit)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """List the verbs."""
        with formatter.section("Verbs"):
            formatter.write_dl([(name, verb.short) for name, verb in sorted(_verbs(ctx).items())])


def _verbs(ctx: Any) -> dict[str, VerbSpec]:
    site = invocation_of(ctx).site
    assert site is not None
    if site.verbs_root is None:
        raise UsageError(f'site "{site.name}" has no verbs: its site.yaml sets no verbsRoot')
    cached: dict[str, VerbSpec] | None = ctx.meta.get("verbs")
    if cached is None:
        from engine.app import scan_verbs

        cached = ctx.meta["verbs"] = {verb.name: verb for verb in scan_verbs(site)}
    return cached


def site_command(site: Site) -> Any:
    """The command ``scraper site NAME``."""
    app = typer.Typer(
        help=f'The site "{site.name}" ({site.root}).',
        add_completion=False,
        rich_markup_mode=None,
        no_args_is_help=True,
    )
    verbs = typer.Typer(cls=VerbGroup, add_completion=False, rich_markup_mode=None, no_args_is_help=True)

    @app.callback()
    def site_options(ctx: typer.Context, sites_dir: SitesDir = None) -> None:
        invocation_of(ctx).flag("sitesDir", "--sites-dir", sites_dir)

    @verbs.callback()
    def run_options(
        ctx: typer.Context,
        engine_db: EngineDb = None,
        sites_dir: SitesDir = None,
        workflow_id: WorkflowId = None,
        wait: Wait = None,
        output: RunOutput = None,
        log_format: LogFormat = None,
    ) -> None:
        """Run a verb: it seeds a workflow of ops, which a worker then carries out.

        The options may stand before the verb or after it.
        """
        invocation = invocation_of(ctx)
        invocation.flag("engineDB", "--engine-db", engine_db)
        invocation.flag("sitesDir", "--sites-dir", sites_dir)
        invocation.run_options(workflow_id, wait, output)
        invocation.log_lines = log_format

    app.add_typer(verbs, name="run")
    add_hook_commands(app)
    app.add_typer(job.app, name="job")
    return typer.main.get_command(app)


def submit(invocation: Invocation, verb: VerbSpec, values: dict[str, dict[str, Any]]) -> None:
    """Submit a verb's workflow, say so, and with ``--wait`` work until it has ended."""
    from engine.app import submit_verb

    site = invocation.site
    assert site is not None
    report = submit_verb(
        invocation.settings, invocation.registry, site.name, verb, values, invocation.workflow_id or None
    )
    for line in report.logs:
        note(line)
    if report.warning:
        warn(report.warning)
    shown = _as_json(report)
    if invocation.output is Format.TABLE:
        _print(report)
    status = work_until_ended(invocation, report.workflow_id) if invocation.wait else None
    if invocation.output is Format.JSON:
        print_json(shown if status is None else {**shown, "status": status})
    elif status is not None:
        say(f"Status: {status}")
    if status not in (None, "succeeded"):
        note(f"what became of it: scraper workflow show {report.workflow_id}")
        raise typer.Exit(1)


def _print(report: SubmitReport) -> None:
    fields(
        (
            ("Site", report.site),
            ("Command", f"site {report.site} run {report.verb}"),
            ("Workflow", report.workflow_id),
            ("Engine DB", report.engine_db),
            ("Site DB", report.site_db),
            ("Submitted ops", report.submitted),
            *((("Target op", report.target_op),) if report.target_op else ()),
        )
    )
    say("Verb result:")
    say(json.dumps(_verb_data(report), indent=2, ensure_ascii=False))


def _verb_data(report: SubmitReport) -> Any:
    data = json.loads(report.verb_data_json)
    return {} if data is None else data


def _as_json(report: SubmitReport) -> dict[str, Any]:
    return {
        "site": report.site,
        "command": f"site {report.site} run {report.verb}",
        "verb": report.full_path,
        "workflowID": report.workflow_id,
        "engineDB": report.engine_db,
        "siteDB": report.site_db,
        "submittedOps": report.submitted,
        "targetOp": report.target_op,
        "verbResult": _verb_data(report),
    }


def work_until_ended(invocation: Invocation, workflow_id: str) -> str:
    """Work until the workflow has ended; its status. Ops of unknown sites are left to other workers."""
    from cli.progress import watching
    from cli.watch import looks
    from cli.worker import worker_options
    from engine.app import run_worker
    from engine.views.reader import Views

    settings = invocation.settings
    options = worker_options(settings, until_workflow=workflow_id, sites=frozenset(invocation.registry.sites))
    with (
        closing(Views(settings.engine_db)) as views,
        watching(looks(views, workflow_id), invocation.log_lines) as observer,
    ):
        report = run_worker(settings, invocation.registry, options, observer)
    status = report.workflow_status
    if status is None or status not in ("succeeded", "failed", "canceled"):
        note("the wait was cut short; any worker can go on: scraper worker run")
        return "interrupted"
    return status.value
