"""Submit verbs as the command line sees them: declared in a site's JavaScript, run once to seed a workflow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

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
