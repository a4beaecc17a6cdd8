"""From what a verb declares to its flags, and from flags to the values its ``ctx`` holds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from cli.invocation import Invocation
from cli.output import Format
from cli.verbs import verb_command
from engine.errors import SiteError, UsageError
from engine.verbs import VerbField, VerbSection, VerbSpec

FIELDS = (
    VerbField(name="base_url", help="Where to start", default="http://x"),
    VerbField(name="max-pages", type="int", short="n"),
    VerbField(name="ratio", type="float"),
    VerbField(name="deep", type="bool"),
    VerbField(name="tags", type="stringList"),
    VerbField(name="mode", type="choice", choices=("fast", "slow")),
    VerbField(name="modes", type="choiceList", choices=("a", "b")),
    VerbField(name="since", type="date"),
    VerbField(name="ids", type="intList"),
    VerbField(name="weights", type="floatList"),
    VerbField(name="list", type="file"),
)


def verb(*fields: VerbField, sections: Sequence[VerbSection] = ()) -> VerbSpec:
    own = VerbSection(slug="default", fields=fields)
    return VerbSpec(
        name="seed",
        function="seed",
        short="Seed it",
        long="Seed it well.",
        source_file="a.js",
        full_path="seed",
        sections=(own, *sections),
    )


class Called:
    """What a verb's command handed over."""

    def __init__(self) -> None:
        self.values: dict[str, dict[str, Any]] = {}
        self.invocation = Invocation({})

    def __call__(self, invocation: Invocation, verb: VerbSpec, values: dict[str, dict[str, Any]]) -> None:
        self.invocation, self.values = invocation, values


def call(spec: VerbSpec, *arguments: str) -> Called:
    called = Called()
    command = verb_command(spec, called)
    command.main(args=list(arguments), prog_name="seed", standalone_mode=False, obj=Invocation({}))
    return called


def values(spec: VerbSpec, *arguments: str) -> dict[str, Any]:
    return call(spec, *arguments).values["default"]


def help_of(spec: VerbSpec, capsys: pytest.CaptureFixture[str]) -> str:
    call(spec, "--help")
    return capsys.readouterr().out


def test_fields_without_default_and_value_are_absent() -> None:
    assert values(verb(*FIELDS)) == {"base_url": "http://x"}


def test_each_type_gives_values_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text("a\nb\n")
    given = values(
        verb(*FIELDS),
        *("--base-url", "http://y", "-n", "3", "--ratio", "0.5", "--deep", "--tags", "a,b", "--tags", "c"),
        *("--mode", "slow", "--modes", "a,b", "--since", "2026-01-31", "--ids", "1,2", "--ids=3", "--weights", "1,2.5"),
        *("--list", str(tmp_path / "list.txt")),
    )
    assert given == {
        "base_url": "http://y",
        "max-pages": 3,
        "ratio": 0.5,
        "deep": True,
        "tags": ["a", "b", "c"],
        "mode": "slow",
        "modes": ["a", "b"],
        "since": "2026-01-31",
        "ids": [1, 2, 3],
        "weights": [1.0, 2.5],
        "list": "a\nb\n",
    }


@pytest.mark.parametrize(
    ("arguments", "value"),
    [(("--deep",), True), (("--no-deep",), False), (("--deep=false",), False), (("--deep=true",), True)],
)
def test_switches_can_be_turned_off_in_both_spellings(arguments: tuple[str, ...], value: bool) -> None:
    assert values(verb(VerbField(name="deep", type="bool", default=True)), *arguments) == {"deep": value}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--max-pages", "x"), '--max-pages: "x" is not a whole number'),
        (("--max-pages", "1.5"), '--max-pages: "1.5" is not a whole number'),
        (("--max-pages", "99999999999999999"), "--max-pages: 99999999999999999 is larger than a script can count"),
        (("--ratio", "nan"), '--ratio: "nan" is not a finite number'),
        (("--mode", "slo"), '--mode: "slo" is not one of fast, slow; did you mean "slow"?'),
        (("--modes", "a,z"), '--modes: "z" is not one of a, b'),
        (("--since", "yesterday"), '--since: "yesterday" is not a date'),
        (("--ids", "1,x"), '--ids: "x" is not a whole number'),
        (("--list", "/nope"), "--list: /nope: No such file"),
        (("--max-pages", "x", "--ratio", "y"), '--max-pages: "x" is not a whole number; --ratio: "y" is not a number'),
    ],
)
def test_a_bad_value_is_refused_by_its_flag(arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises(UsageError) as refused:
        values(verb(*FIELDS), *arguments)
    assert str(refused.value).startswith(message)


def test_an_unknown_flag_is_refused() -> None:
    with pytest.raises(Exception, match=r"No such option: --nope|no such option"):
        values(verb(*FIELDS), "--nope", "1")


def test_a_required_field_must_be_given_unless_it_has_a_default() -> None:
    spec = verb(VerbField(name="town", required=True), VerbField(name="page", required=True, default=1, type="int"))
    with pytest.raises(UsageError, match=r"^--town is required$"):
        values(spec)
    assert values(spec, "--town", "x") == {"town": "x", "page": 1}


def test_argument_fields_are_positional_in_order() -> None:
    spec = verb(
        VerbField(name="first", argument=True, required=True),
        VerbField(name="rest", argument=True, type="intList"),
        VerbField(name="flag"),
    )
    assert values(spec, "a", "1", "2", "--flag", "f") == {"first": "a", "rest": [1, 2], "flag": "f"}
    with pytest.raises(UsageError, match=r"^FIRST is required$"):
        values(spec)


def test_defaults_are_brought_to_the_type_of_their_field() -> None:
    spec = verb(
        VerbField(name="a", type="int", default="3"),
        VerbField(name="b", type="stringList", default="x,y"),
        VerbField(name="c", type="int", default=2.0),
        VerbField(name="d", type="bool", default="yes"),
        VerbField(name="e", type="intList", default=[1, 2]),
        VerbField(name="f", default=""),
    )
    assert values(spec) == {"a": 3, "b": ["x", "y"], "c": 2, "d": True, "e": [1, 2], "f": ""}
    with pytest.raises(SiteError, match=r'a\.js: the default of field "a": "x" is not a whole number'):
        values(verb(VerbField(name="a", type="int", default="x")))


def test_sections_keep_their_values_apart() -> None:
    paging = VerbSection(slug="paging", title="Paging", description="How far", fields=(VerbField(name="size"),))
    other = VerbSection(slug="other", fields=(VerbField(name="size"), VerbField(name="town")))
    called = call(
        verb(VerbField(name="town"), sections=(paging, other)),
        *("--town", "x", "--size", "1", "--other-size", "2", "--other-town", "y"),
    )
    assert called.values == {
        "default": {"town": "x"},
        "paging": {"size": "1"},
        "other": {"size": "2", "town": "y"},
    }


def test_the_options_of_every_verb_are_understood_after_it() -> None:
    called = call(
        verb(),
        *("--engine-db", "e.db", "--sites-dir", "s", "--workflow-id", "w", "--wait=true", "--output", "json"),
    )
    invocation = called.invocation
    assert (invocation.settings.engine_db, str(invocation.settings.sites_dir)) == ("e.db", "s")
    assert (invocation.workflow_id, invocation.wait, invocation.output) == ("w", True, Format.JSON)


def test_a_field_takes_precedence_over_an_option_of_every_verb() -> None:
    called = call(verb(VerbField(name="output"), VerbField(name="wait")), "--output", "mine", "--wait", "long")
    assert called.values["default"] == {"output": "mine", "wait": "long"}
    assert (called.invocation.output, called.invocation.wait) == (Format.TABLE, False)


def test_a_short_flag_is_given_once() -> None:
    spec = verb(VerbField(name="one", short="n"), VerbField(name="two", short="n"), VerbField(name="three", short="h"))
    assert values(spec, "-n", "x") == {"one": "x"}


def test_help_tells_types_defaults_choices_and_sections(capsys: pytest.CaptureFixture[str]) -> None:
    paging = VerbSection(slug="paging", title="Paging", description="How far to go.", fields=(VerbField(name="size"),))
    text = help_of(verb(*FIELDS, VerbField(name="town", required=True), sections=(paging,)), capsys)
    for wanted in (
        "Seed it well.",
        "--base-url TEXT",
        "Where to start  [default: http://x]",
        "-n, --max-pages INT",
        "--deep / --no-deep",
        "--mode fast|slow",
        "[required]",
        "Paging:\n  How far to go.",
        "Options of every verb:",
        "--workflow-id ID",
    ):
        assert wanted in text, text
