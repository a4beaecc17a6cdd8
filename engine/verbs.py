"""Submit verbs as the command line sees them: declared in a site's JavaScript, run once to seed a workflow."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engine.errors import SiteError

#: Slug of the section that holds a verb's own fields.
DEFAULT_SECTION = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class VerbField:
    """One value a verb takes: a flag, or an argument."""

    name: str
    type: str = "string"
    help: str = ""
    default: Any = None
    short: str = ""
    choices: tuple[str, ...] = ()
    required: bool = False
    argument: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class VerbSection:
    """A named group of fields; a verb's own fields are section ``default``."""

    slug: str
    title: str = ""
    description: str = ""
    fields: tuple[VerbField, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class VerbSpec:
    """A verb: its command name, the function that implements it, and what it takes."""

    name: str
    function: str
    short: str = ""
    long: str = ""
    #: Relative to the site's verbs root, with ``/``.
    source_file: str
    #: Parents and name, as it is stored in the workflow's metadata.
    full_path: str
    sections: tuple[VerbSection, ...]


FIELD_TYPES = frozenset(
    {"string", "int", "bool", "float", "stringList", "choice", "choiceList", "date", "intList", "floatList", "file"}
)


def read_declarations(files: list[dict[str, Any]], root: str) -> tuple[VerbSpec, ...]:
    """The verbs that scanned files declare, in order of file and declaration. Raises SiteError naming the file."""
    verbs: list[VerbSpec] = []
    for scanned in files:
        if scanned["error"] is not None:
            raise SiteError(f"{root}/{scanned['file']}: {scanned['error']['message']}")
        verbs.extend(_verbs_of(scanned["file"], scanned["said"], root))
    return tuple(verbs)


def _verbs_of(file: str, said: list[Any], root: str) -> list[VerbSpec]:
    where = f"{root}/{file}"
    sections = {
        str(values[0]): _section(str(values[0]), _object(values, 1, where, "__section__"), where)
        for kind, values in said
        if kind == "__section__" and values
    }
    packages = [_object(values, 0, where, "__package__") for kind, values in said if kind == "__package__"]
    package = packages[0] if packages else {}
    long_help = "\n\n".join(str(values[0]).strip() for kind, values in said if kind == "doc" and values)
    verbs = []
    for kind, values in said:
        if kind != "__verb__":
            continue
        if not values or not isinstance(values[0], str):
            raise SiteError(f"{where}: __verb__ needs the function's name first")
        verbs.append(_verb(values[0], _object(values, 1, where, "__verb__"), file, where, sections, package, long_help))
    return verbs


def _verb(
    function: str,
    told: Mapping[str, Any],
    file: str,
    where: str,
    sections: Mapping[str, VerbSection],
    package: Mapping[str, Any],
    long_help: str,
) -> VerbSpec:
    name = str(told.get("command") or told.get("name") or _kebab(function))
    wanted = [str(slug) for slug in told.get("sections") or ()]
    unknown = [slug for slug in wanted if slug not in sections]
    if unknown:
        raise SiteError(f'{where}: verb "{name}" uses section "{unknown[0]}", which the file does not declare')
    parents = [str(parent) for parent in told.get("parents") or ()] or [
        part for part in (str(package.get("name") or ""),) if part
    ]
    own = VerbSection(slug=DEFAULT_SECTION, fields=_fields(told.get("fields") or {}, where))
    return VerbSpec(
        name=name,
        function=function,
        short=str(told.get("short") or ""),
        long=str(told.get("long") or long_help),
        source_file=file,
        full_path=" ".join([*parents, name]),
        sections=(own, *(sections[slug] for slug in wanted)),
    )


def _section(slug: str, told: Mapping[str, Any], where: str) -> VerbSection:
    return VerbSection(
        slug=slug,
        title=str(told.get("title") or slug),
        description=str(told.get("description") or ""),
        fields=_fields(told.get("fields") or {}, where),
    )


def _fields(told: Mapping[str, Any], where: str) -> tuple[VerbField, ...]:
    return tuple(_field(str(name), rules if isinstance(rules, dict) else {}, where) for name, rules in told.items())


def _field(name: str, rules: Mapping[str, Any], where: str) -> VerbField:
    kind = str(rules.get("type") or "string")
    if kind not in FIELD_TYPES:
        raise SiteError(
            f'{where}: field "{name}" has the unknown type "{kind}" (known: {", ".join(sorted(FIELD_TYPES))})'
        )
    return VerbField(
        name=name,
        type=kind,
        help=str(rules.get("help") or ""),
        default=rules.get("default"),
        short=str(rules.get("short") or ""),
        choices=tuple(str(choice) for choice in rules.get("choices") or ()),
        required=rules.get("required") is True,
        argument=rules.get("argument") is True,
    )


def _object(values: list[Any], place: int, where: str, what: str) -> Mapping[str, Any]:
    value = values[place] if len(values) > place else {}
    if not isinstance(value, dict):
        raise SiteError(f"{where}: {what} expects an object")
    return value


def _kebab(function: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", function).replace("_", "-").lower()
