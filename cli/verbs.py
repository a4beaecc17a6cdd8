"""One command per verb, built from what the verb declares about itself."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

import typer
from typer.core import TyperCommand

from cli.invocation import Invocation, invocation_of
from cli.options import EngineDb, RunOutput, SitesDir, Wait, WorkflowId
from engine.errors import SiteError, UsageError
from engine.fields import LIST_TYPES, default_value, flag_name, read_value
from engine.verbs import DEFAULT_SECTION, VerbField, VerbSection, VerbSpec

#: The options every verb takes besides its own; a field of the same name hides one here, and it goes before the verb.
_COMMON: Mapping[str, Any] = {
    "engine-db": EngineDb,
    "sites-dir": SitesDir,
    "workflow-id": WorkflowId,
    "wait": Wait,
    "output": RunOutput,
}
_METAVARS = {"int": "INT", "intList": "INT,…", "float": "NUM", "floatList": "NUM,…", "date": "DATE", "file": "FILE"}

Values = dict[str, dict[str, Any]]
Submit = Callable[[Invocation, VerbSpec, Values], None]


@dataclass(frozen=True, slots=True)
class Flag:
    """A field of a verb on the command line. ``parameter`` is its name inside the command function."""

    section: VerbSection
    field: VerbField
    parameter: str
    #: Without dashes.
    name: str
    short: str = ""

    @property
    def shown(self) -> str:
        """How messages name it."""
        return self.name.upper() if self.field.argument else f"--{self.name}"


@dataclass(frozen=True, slots=True)
class Plan:
    """How a verb's fields became flags."""

    verb: VerbSpec
    flags: tuple[Flag, ...]
    common: frozenset[str] = field(default_factory=frozenset)


def plan(verb: VerbSpec) -> Plan:
    """Name the flags of a verb: fields first come first served, shared options give way to fields."""
    flags: list[Flag] = []
    taken: set[str] = set()
    shorts: set[str] = {"h"}
    for section in verb.sections:
        for one in section.fields:
            name = flag_name(one)
            if name in taken:
                name = f"{section.slug}-{name}"
            short = one.short.lstrip("-")
            usable = len(short) == 1 and short not in shorts and not one.argument
            flags.append(Flag(section, one, f"field_{len(flags)}", name, short if usable else ""))
            taken.add(name)
            shorts.add(short)
    return Plan(verb, tuple(flags), frozenset(_COMMON) - taken)


def read_values(plan: Plan, given: Mapping[str, Any]) -> Values:
    """The verb's values by section: what was given, else the default, else nothing at all.

    Raises UsageError for a bad or missing value, SiteError for a default that does not fit its own field.
    """
    values: Values = {section.slug: {} for section in plan.verb.sections}
    faults: list[str] = []
    for flag in plan.flags:
        raw = given.get(flag.parameter)
        try:
            value = _default(plan.verb, flag) if raw is None or raw == [] else read_value(flag.field, raw)
        except ValueError as error:
            faults.append(f"{flag.shown}: {error}")
            continue
        if value is not None:
            values[flag.section.slug][flag.field.name] = value
        elif flag.field.required:
            faults.append(f"{flag.shown} is required")
    if faults:
        raise UsageError("; ".join(faults))
    return values


def _default(verb: VerbSpec, flag: Flag) -> Any:
    try:
        return default_value(flag.field)
    except ValueError as error:
        raise SiteError(f'{verb.source_file}: the default of field "{flag.field.name}": {error}') from error


def verb_command(verb: VerbSpec, submit: Submit) -> Any:
    """The command of a verb; ``submit`` gets the values as the verb's ``ctx`` will hold them."""
    planned = plan(verb)

    def run(ctx: typer.Context, **given: Any) -> None:
        invocation = invocation_of(ctx)
        invocation.flag("engineDB", "--engine-db", given.get("engine_db"))
        invocation.flag("sitesDir", "--sites-dir", given.get("sites_dir"))
        invocation.run_options(given.get("workflow_id"), given.get("wait"), given.get("output"))
        submit(invocation, verb, read_values(planned, given))

    run.__signature__ = inspect.Signature(list(_parameters(planned)))  # type: ignore[attr-defined]
    run.__annotations__ = {}
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.command(verb.name, help=verb.long or verb.short or " ", short_help=verb.short, cls=_command_class(planned))(run)
    return typer.main.get_command(app)


def _parameters(plan: Plan) -> Iterator[inspect.Parameter]:
    keyword = inspect.Parameter.KEYWORD_ONLY
    yield inspect.Parameter("ctx", keyword, annotation=typer.Context)
    for flag in plan.flags:
        yield inspect.Parameter(flag.parameter, keyword, default=None, annotation=_annotation(flag))
    for name in _COMMON:
        if name in plan.common:
            yield inspect.Parameter(name.replace("-", "_"), keyword, default=None, annotation=_COMMON[name])


def _annotation(flag: Flag) -> Any:
    several = flag.field.type in LIST_TYPES
    kind: Any = list[str] | None if several else str | None
    text = _help(flag.field)
    if flag.field.argument:
        name = flag.name.upper() + ("..." if several else "")
        metavar = name if flag.field.required else f"[{name}]"
        return Annotated[kind, typer.Argument(help=text, metavar=metavar, show_default=False)]
    short = [f"-{flag.short}"] if flag.short else []
    if flag.field.type == "bool":
        names = (f"--{flag.name}/--no-{flag.name}", *short)
        return Annotated[bool | None, typer.Option(*names, help=text, show_default=False)]
    metavar = "|".join(flag.field.choices) or _METAVARS.get(flag.field.type, "TEXT,…" if several else "TEXT")
    return Annotated[kind, typer.Option(f"--{flag.name}", *short, help=text, metavar=metavar, show_default=False)]


def _help(one: VerbField) -> str:
    remarks = []
    if one.required and one.default is None:
        remarks.append("required")
    if one.default is not None:
        shown = ",".join(map(str, one.default)) if isinstance(one.default, list) else str(one.default)
        remarks.append(f"default: {shown}")
    return f"{one.help}  [{'; '.join(remarks)}]" if remarks else one.help


class VerbCommand(TyperCommand):
    """A verb's command: its options by section in the help, ``--flag=true|false`` understood for switches."""

    plan: ClassVar[Plan]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Rewrite ``--flag=false``, which other command lines allow, as ``--no-flag``."""
        switches = {f"--{flag.name}" for flag in self.plan.flags if flag.field.type == "bool"}
        switches |= {"--wait"} & {f"--{name}" for name in self.plan.common}
        return list(super().parse_args(ctx, list(_plain_switches(args, switches))))

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Arguments and options of the verb, then of each section, then those of every verb."""
        records = {param.name: param.get_help_record(ctx) for param in self.get_params(ctx)}
        for section in self.plan.verb.sections:
            own = [flag for flag in self.plan.flags if flag.section is section]
            title = section.title or section.slug if section.slug != DEFAULT_SECTION else "Options"
            for heading, flags in (
                ("Arguments", [flag for flag in own if flag.field.argument]),
                (title, [flag for flag in own if not flag.field.argument]),
            ):
                rows = [records.pop(flag.parameter) for flag in flags]
                _write(formatter, heading, section.description if heading == title else "", rows)
        _write(formatter, "Options of every verb", "", list(records.values()))


def _command_class(plan: Plan) -> type[VerbCommand]:
    return type("PlannedVerbCommand", (VerbCommand,), {"plan": plan})


def _plain_switches(args: list[str], switches: set[str]) -> Iterator[str]:
    for position, argument in enumerate(args):
        if argument == "--":
            yield from args[position:]
            return
        name, equals, value = argument.partition("=")
        if equals and name in switches and value.lower() in ("true", "false", "1", "0"):
            yield name if value.lower() in ("true", "1") else f"--no-{name[2:]}"
        else:
            yield argument


def _write(formatter: Any, heading: str, description: str, records: list[Any]) -> None:
    rows = [record for record in records if record is not None]
    if not rows:
        return
    with formatter.section(heading):
        if description:
            formatter.write_text(description)
        formatter.write_dl(rows)
