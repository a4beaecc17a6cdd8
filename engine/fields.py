"""Values of verb fields: from what a person typed to what the verb's ``ctx.values`` holds."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from pathlib import Path
from typing import Any

from engine.errors import UsageError
from engine.faults import did_you_mean
from engine.verbs import VerbField, VerbSpec

#: Field types whose value is a list: their flag may be repeated, and commas separate.
LIST_TYPES = frozenset({"stringList", "choiceList", "intList", "floatList"})

_SAFE_INTEGER = 2**53


def flag_name(field: VerbField) -> str:
    """The long flag of a field, without dashes.

    >>> flag_name(VerbField(name="base_url"))
    'base-url'
    """
    return field.name.replace("_", "-")


def read_value(field: VerbField, raw: str | bool | Sequence[str]) -> Any:
    """The value of ``field`` that ``raw`` says. Raises ValueError with a sentence that does not name the field."""
    if isinstance(raw, bool):
        return raw
    if field.type not in LIST_TYPES:
        return _one(field, raw if isinstance(raw, str) else " ".join(raw))
    texts = [raw] if isinstance(raw, str) else raw
    items = (item.strip() for text in texts for item in text.split(","))
    return [_one(field, item) for item in items if item]


def default_value(field: VerbField) -> Any:
    """The value of a field nobody gave, None where it then is absent. Raises ValueError for an unfit default."""
    default = field.default
    if isinstance(default, str) and field.type != "file":
        return _boolean(default) if field.type == "bool" else read_value(field, default)
    if isinstance(default, float) and field.type == "int" and default.is_integer():
        return int(default)
    return default


def read_fields(verb: VerbSpec, given: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The values of a verb by section, from plain values by field name: what is not given has its default.

    Raises UsageError with every fault.
    """
    values: dict[str, dict[str, Any]] = {section.slug: {} for section in verb.sections}
    left = dict(given)
    faults: list[str] = []
    for slug, field in ((section.slug, field) for section in verb.sections for field in section.fields):
        name = next((name for name in (field.name, flag_name(field)) if name in left), field.name)
        raw = left.pop(name, None)
        try:
            value = default_value(field) if raw is None else _plain(field, raw)
        except ValueError as error:
            faults.append(f"{field.name}: {error}")
            continue
        if value is not None:
            values[slug][field.name] = value
        elif field.required:
            faults.append(f"{field.name} is required")
    names = [field.name for section in verb.sections for field in section.fields]
    for name in left:
        hint = did_you_mean(name, names) or f"its fields: {', '.join(names) or 'none'}"
        faults.append(f'verb "{verb.name}" has no field "{name}"; {hint}')
    if faults:
        raise UsageError("; ".join(faults))
    return values


def _plain(field: VerbField, raw: Any) -> Any:
    if isinstance(raw, list) and field.type in LIST_TYPES:
        return read_value(field, [_text(item) for item in raw])
    if isinstance(raw, bool) and field.type == "bool":
        return raw
    return read_value(field, _text(raw))


def _text(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"{value!r} is neither a text nor a number")  # noqa: TRY004 - one error for the caller
    return str(value)


def _one(field: VerbField, text: str) -> Any:
    reader = _READERS.get(field.type)
    if reader is not None:
        return reader(text)
    if field.type in ("choice", "choiceList") and field.choices and text not in field.choices:
        hint = did_you_mean(text, field.choices)
        raise ValueError(f'"{text}" is not one of {", ".join(field.choices)}' + (f"; {hint}" if hint else ""))
    return text


def _integer(text: str) -> int:
    if not re.fullmatch(r"[+-]?[0-9]+", text.strip(), re.ASCII):
        raise ValueError(f'"{text}" is not a whole number')
    number = int(text)
    if abs(number) > _SAFE_INTEGER:
        raise ValueError(f"{text} is larger than a script can count (2^53)")
    return number


def _number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise ValueError(f'"{text}" is not a number') from None
    if not math.isfinite(number):
        raise ValueError(f'"{text}" is not a finite number')
    return number


def _boolean(text: str) -> bool:
    if text.lower() in ("true", "1", "t", "yes", "on"):
        return True
    if text.lower() in ("false", "0", "f", "no", "off"):
        return False
    raise ValueError(f'"{text}" is neither true nor false')


def _date(text: str) -> str:
    """A day or an instant in ISO form, handed on as it was typed."""
    for read in (date.fromisoformat, datetime.fromisoformat):
        try:
            read(text)
        except ValueError:
            continue
        return text
    raise ValueError(f'"{text}" is not a date: write 2026-01-31 or 2026-01-31T12:00:00Z')


def _file(text: str) -> str:
    """The text of a file: scripts cannot read files themselves."""
    try:
        return Path(text).expanduser().read_text(encoding="utf-8")
    except OSError as error:
        raise ValueError(f"{text}: {error.strerror or error}") from error
    except UnicodeDecodeError:
        raise ValueError(f"{text}: is not UTF-8 text") from None


_READERS: Mapping[str, Callable[[str], Any]] = {
    "int": _integer,
    "intList": _integer,
    "float": _number,
    "floatList": _number,
    "bool": _boolean,
    "date": _date,
    "file": _file,
}
