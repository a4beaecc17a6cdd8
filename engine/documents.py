"""YAML files written by people: read strictly, checked against a JSON Schema, every fault with its line.

Strict means: one document, no key twice, no recursive alias. A key without value counts as absent. A plain scalar
where the schema asks for a string is its own text, so that ``cookies: off`` and ``name: 2048`` mean what they say.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias

import yaml

from engine.faults import Fault, did_you_mean

Place: TypeAlias = tuple[str | int, ...]

#: More nodes than any honest file has: aliases can blow a small file up to billions.
_MOST_NODES = 100_000
_MOST_BYTES = 4_000_000
_DEEPEST = 100
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Unreadable(Exception):
    """The file cannot be read as one YAML document."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(str(fault))
        self.fault = fault


@dataclass(frozen=True, slots=True)
class Document:
    """A YAML file as plain values, with the line of each."""

    file: Path
    value: Any
    lines: Mapping[Place, int] = field(default_factory=dict)
    #: The source text of scalars, for places where a string is wanted.
    texts: Mapping[Place, str] = field(default_factory=dict)

    def line(self, place: Place) -> int:
        """The line of ``place``, or of the nearest enclosing value that has one."""
        while place and place not in self.lines:
            place = place[:-1]
        return self.lines.get(place, 1)

    def fault(self, place: Place, message: str, hint: str = "") -> Fault:
        """A fault at ``place``."""
        return Fault(self.file, self.line(place), message, hint)


def read_document(file: Path) -> Document:
    """The document in ``file``; an empty file is an empty mapping. Raises Unreadable."""
    try:
        raw = file.read_bytes()
    except OSError as error:
        raise Unreadable(Fault(file, 0, f"cannot be read: {error.strerror or error}")) from error
    if len(raw) > _MOST_BYTES:
        raise Unreadable(Fault(file, 0, f"is larger than {_MOST_BYTES} bytes"))
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise Unreadable(Fault(file, line, "is not UTF-8 text", "save the file as UTF-8")) from error
    return parse_document(file, text)


def parse_document(file: Path, text: str) -> Document:
    """The document in ``text``, reported as ``file``. Raises Unreadable."""
    try:
        _refuse_depths(file, text)
        loader = _Loader(text)
        try:
            node = loader.get_single_node()
            reader = _Reader(file, loader)
            value = {} if node is None else reader.value(node, ())
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        raise Unreadable(_yaml_fault(file, error)) from error
    return Document(file, {} if value is None else value, reader.lines, reader.texts)


def _refuse_depths(file: Path, text: str) -> None:
    """The composer of the C library recurses without limit and takes the process down with it."""
    depth = 0
    event: Any
    for event in yaml.parse(text, Loader=_Loader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _DEEPEST:
            raise Unreadable(Fault(file, event.start_mark.line + 1, "is nested too deeply"))


def _yaml_fault(file: Path, error: yaml.YAMLError) -> Fault:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    problem = getattr(error, "problem", None) or str(error).splitlines()[0]
    context = getattr(error, "context", None)
    message = f"malformed YAML: {problem}" + (f" {context}" if context else "")
    if mark is None:
        return Fault(file, 0, message)
    hint = "YAML is indented with spaces, not tabs" if "\\t" in message or "'\t'" in message else ""
    return Fault(file, mark.line + 1, message, hint, column=mark.column + 1)


class _Reader:
    """Turns YAML nodes into plain values and remembers where each stood."""

    def __init__(self, file: Path, loader: Any) -> None:
        self.file = file
        self.loader = loader
        self.lines: dict[Place, int] = {}
        self.texts: dict[Place, str] = {}
        self._open: set[int] = set()
        self._flat: set[int] = set()
        self._nodes = 0

    def value(self, node: yaml.Node, place: Place) -> Any:
        self._nodes += 1
        if self._nodes > _MOST_NODES:
            raise self._refused(node, "aliases make the document too large")
        if id(node) in self._open:
            raise self._refused(node, "an alias contains itself")
        self.lines.setdefault(place, node.start_mark.line + 1)
        self._open.add(id(node))
        try:
            match node:
                case yaml.MappingNode():
                    return self._mapping(node, place)
                case yaml.SequenceNode():
                    return [self.value(item, (*place, index)) for index, item in enumerate(node.value)]
                case _:
                    return self._scalar(node, place)
        finally:
            self._open.discard(id(node))

    def _mapping(self, node: yaml.MappingNode, place: Place) -> dict[str, Any]:
        if id(node) not in self._flat:  # an alias brings the same node again, its merges already done
            self._no_key_twice(node)
            self.loader.flatten_mapping(node)
            self._flat.add(id(node))
        found: dict[str, Any] = {}
        for key, item in node.value:
            inner = (*place, str(key.value))
            self.lines[inner] = key.start_mark.line + 1
            value = self.value(item, inner)
            if value is not None:
                found[str(key.value)] = value
        return found

    def _no_key_twice(self, node: yaml.MappingNode) -> None:
        seen: dict[str, int] = {}
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise self._refused(key, "a key must be plain text")
            if key.value in seen:
                raise self._refused(key, f'key "{key.value}" is already given in line {seen[key.value]}')
            seen[key.value] = key.start_mark.line + 1

    def _scalar(self, node: yaml.Node, place: Place) -> Any:
        self.texts[place] = node.value
        try:
            return self.loader.construct_object(node, deep=True)
        except ValueError as error:  # a timestamp such as 2026-99-99
            raise self._refused(node, str(error)) from error

    def _refused(self, node: yaml.Node, message: str) -> Unreadable:
        mark = node.start_mark
        return Unreadable(Fault(self.file, mark.line + 1, message, column=mark.column + 1))


@lru_cache(maxsize=8)
def load_schema(file: Path) -> Any:
    """A JSON Schema that travels with the package."""
    return json.loads(file.read_text(encoding="utf-8"))


def spell(root: str, value: Any, place: Place) -> str:
    """``place`` as people write it: ``site.queuePolicies["fast"].rateLimit.burst``."""
    spelled = root
    for step in place:
        value = value[step] if _has(value, step) else None
        if isinstance(step, str):
            spelled += f".{step}" if spelled else step
        elif isinstance(value, dict) and isinstance(value.get("queue"), str):
            spelled += f'["{value["queue"]}"]'
        else:
            spelled += f"[{step}]"
    return spelled


def _has(value: Any, step: str | int) -> bool:
    if isinstance(step, str):
        return isinstance(value, dict) and step in value
    return isinstance(value, list) and 0 <= step < len(value)


def check_shape(document: Document, schema: Any, root: str) -> tuple[Any, list[Fault]]:
    """The document's value with texts where ``schema`` wants strings, and everything in it that ``schema`` forbids.

    ``root`` is how messages name the document itself.
    """
    import jsonschema  # a quarter of a second on a slow machine, so only where a file is really checked

    value = _texts_for_strings(document, document.value, schema, (), schema)
    validator = jsonschema.Draft202012Validator(schema)
    found: dict[Fault, None] = {}
    for error in validator.iter_errors(value):
        place: Place = tuple(error.absolute_path)
        for where, message, hint in _explain(error, lambda inner: spell(root, value, inner), place):
            found[document.fault(where, message, hint)] = None
    return value, list(found)


def _texts_for_strings(document: Document, value: Any, schema: Any, place: Place, whole: Any) -> Any:
    if "$ref" in schema:
        schema = whole["$defs"][schema["$ref"].rpartition("/")[2]]
    if isinstance(value, dict):
        inner, others = schema.get("properties", {}), schema.get("additionalProperties")
        fallback = others if isinstance(others, dict) else {}
        return {
            key: _texts_for_strings(document, item, inner.get(key, fallback), (*place, key), whole)
            for key, item in value.items()
        }
    if isinstance(value, list):
        items = schema.get("items", {})
        return [_texts_for_strings(document, item, items, (*place, n), whole) for n, item in enumerate(value)]
    if schema.get("type") == "string" and not isinstance(value, str):
        return document.texts.get(place, value)
    return value


_Explained: TypeAlias = tuple[Place, str, str]
_TYPES = {
    "string": "a string",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "a mapping",
}


def _explain(error: Any, spelled: Callable[[Place], str], place: Place) -> Iterator[_Explained]:
    """An error of the schema library in our words; one error may stand for several keys."""
    where, rule = spelled(place), error.validator_value
    match error.validator:
        case "additionalProperties":
            known = error.schema.get("properties", {})
            for key in error.instance:
                if key not in known:
                    text = f'{where} has an unknown key "{key}"' if where else f'unknown key "{key}"'
                    yield (*place, key), text, did_you_mean(key, known)
        case "required":
            for key in rule:
                if key not in error.instance:
                    least = error.schema["properties"].get(key, {}).get("exclusiveMinimum")
                    must = "is required" if least is None else f"must be > {least}"
                    yield place, f"{spelled((*place, key))} {must}", ""
        case "type":
            kinds = [rule] if isinstance(rule, str) else rule
            yield place, f"{where or 'the file'} must be {' or '.join(_TYPES[kind] for kind in kinds)}", ""
        case "enum":
            shown = json.dumps(error.instance, ensure_ascii=False, default=str)
            hint = did_you_mean(str(error.instance), [str(choice) for choice in rule])
            if "x-fault" in error.schema:
                yield place, error.schema["x-fault"].format(value=shown), hint
            else:
                yield place, f"{where} must be {' or '.join(map(json.dumps, rule))}, not {shown}", hint
        case "minimum" | "exclusiveMinimum" | "maximum":
            sign = {"minimum": ">=", "exclusiveMinimum": ">", "maximum": "<="}[error.validator]
            yield place, f"{where} must be {sign} {rule}", ""
        case "minLength":
            yield place, f"{where} must not be empty", ""
        case _:
            yield place, f"{where}: {error.message}", ""
