"""What an op's input may look like (docs/reference/http-fetch.md), and the templates in it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import OpError
from engine.runners.http_request import read_request
from engine.runners.template import render, text_of
from tests.runners.ops import fetch_op

VALUES: dict[str, Any] = {
    "input": {
        "page": 2,
        "big": 1_000_000,
        "huge": 12345678901234567890,
        "whole": 3.0,
        "half": 2.5,
        "yes": True,
        "none": None,
        "empty": "",
        "list": [1, "a"],
        "town": "Zürich",
        "deep": {"er": {"x": "found"}},
        "größe": "L",
    }
}


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("", ""),
        ("plain", "plain"),
        ("{{.input.town}}", "Zürich"),
        ("{{ .input.town }}", "Zürich"),
        ("{{\n.input.town\t}}", "Zürich"),
        ("p={{ .input.page }}&q={{ .input.page }}", "p=2&q=2"),
        ("{{ .input.deep.er.x }}", "found"),
        ("{{ .input.größe }}", "L"),
        ("{{ .input.empty }}", ""),
        ("{{ .input.yes }}", "true"),
        ("{{ .input.list }}", '[1,"a"]'),
        ("{{ .input.deep }}", '{"er":{"x":"found"}}'),
        ("a {{- .input.page -}} b", "a2b"),
        ("a\n {{- .input.page }} b", "a2 b"),
        ("a {{ .input.page -}} \n b", "a 2b"),
        ("a {{- /* note */ -}} b", "ab"),
        ("{{/* note */}}x", "x"),
        ("{{ 3 }}{{ -4 }}{{-5}}", "3-4-5"),
        ("{{ 1.50 }}", "1.5"),
        ('{{ "a \\"b\\" \\u00e9 }}" }}', 'a "b" é }}'),
        ("{{ `raw\\n` }}", "raw\\n"),
        ("{{ true }}", "true"),
        ("}} stays }", "}} stays }"),
        ("{ {x} }", "{ {x} }"),
    ],
)
def test_what_a_template_may_say(template: str, text: str) -> None:
    """HTTP-17."""
    assert render(template, VALUES, "here") == text


@pytest.mark.parametrize(
    ("name", "text"),
    [("page", "2"), ("big", "1000000"), ("huge", "12345678901234567890"), ("whole", "3"), ("half", "2.5")],
)
def test_whole_numbers_print_as_integers(name: str, text: str) -> None:
    """HTTP-18."""
    assert render(f"{{{{ .input.{name} }}}}", VALUES, "here") == text


@pytest.mark.parametrize(
    ("template", "complaint"),
    [
        ("{{ .input.nothing }}", ".input.nothing does not exist"),
        ("{{ .inputs.page }}", ".inputs.page does not exist: there is no .inputs"),
        ("{{ .input.page.x }}", ".input.page.x does not exist: .input.page is not an object"),
        ("{{ .input.none }}", ".input.none is null"),
        ("{{ .input.page | urlquery }}", "{{ .input.page | urlquery }} is not supported"),
        ("{{ if .input.page }}a{{ end }}", "{{ if .input.page }} is not supported"),
        ('{{ printf "%d" .input.page }}', "is not supported"),
        ("{{ .input.page .input.town }}", "is not supported"),
        ("{{ $x := 1 }}", "is not supported"),
        ("{{ .input.a-b }}", "is not supported"),
        ("{{ . }}", "is not supported"),
        ("{{ }}", "is not supported"),
        ("{{ 1x }}", "is not supported"),
        ("{{ /* a */ .input.page }}", "is not supported"),
        ('{{ "\\q" }}', "is not a string literal"),
        ("x {{ .input.page", '"{{ .input.page" is not closed'),
        ("x {{ .input.page }", "is not closed"),
    ],
)
def test_what_a_template_may_not_say(template: str, complaint: str) -> None:
    """HTTP-17, HTTP-19."""
    with pytest.raises(OpError) as caught:
        render(template, VALUES, "request.url")
    assert (caught.value.code, caught.value.retryable) == ("template_error", False)
    assert caught.value.message.startswith("request.url: ")
    assert complaint in caught.value.message


@given(st.text(alphabet='{} -."`/*ainput0\n', max_size=40))
@settings(max_examples=300)
def test_any_text_renders_or_is_a_template_error(template: str) -> None:
    """HTTP-19."""
    outcome: str | OpError
    try:
        outcome = render(template, VALUES, "here")
    except OpError as error:
        outcome = error
    if isinstance(outcome, OpError):
        assert outcome.code == "template_error"
    else:
        assert "{{" in template or outcome == template


@given(st.integers() | st.text() | st.floats(allow_nan=False, allow_infinity=False) | st.booleans())
def test_values_print_without_exponents_as_long_as_they_are_whole(value: Any) -> None:
    """HTTP-18."""
    text = text_of(value)
    if isinstance(value, int) and not isinstance(value, bool):
        assert int(text) == value
    if isinstance(value, float):
        assert float(text) == value


def test_everything_a_template_can_name() -> None:
    """HTTP-16."""
    names = ("op.id", "op.site", "op.kind", "op.queue", "op.dedupKey", "op.metadata.town", "workflow.input.n")
    template = "|".join(f"{{{{ .{name} }}}}" for name in names)
    op = fetch_op(
        {"request": {"url": "http://h/", "body": template}}, {"n": 4}, dedup_key="d", metadata={"town": "Bern"}
    )
    assert read_request(op).body_text == "fetch-1|shop|http/fetch|site:shop:http|d|Bern|4"


def test_templates_of_headers_forms_and_urls() -> None:
    """HTTP-16: names, method and artifactName are no templates."""
    request = {
        "url": "{{ .input.base }}/x",
        "headers": {"X-{{n}}".replace("{{n}}", "N"): "{{ .input.n }}"},
        "form": {"{{ .input.n }}": "{{ .input.n }}"},
    }
    read = read_request(fetch_op({"request": request, "base": "http://h", "n": 5, "artifactName": "{{ .input.n }}"}))
    assert str(read.url) == "http://h/x"
    assert read.headers == {"X-N": "5"}
    assert read.body_text == "%7B%7B+.input.n+%7D%7D=5"
    assert read.artifact_name == "{{ .input.n }}"


URL = "http://h/"


@pytest.mark.parametrize(
    ("given_input", "complaint"),
    [
        (None, "the op's input must be an object, not null"),
        ([], "the op's input must be an object, not []"),
        ("x", 'the op\'s input must be an object, not "x"'),
        ({}, "input.request must be an object, not null"),
        ({"request": "http://h/"}, 'input.request must be an object, not "http://h/"'),
        ({"request": {}}, "input.request.url is blank"),
        ({"request": {"url": "  "}}, "input.request.url is blank"),
        ({"request": {"url": 7}}, "input.request.url must be a string, not 7"),
        ({"request": {"url": URL, "method": 1}}, "input.request.method must be a string, not 1"),
        ({"request": {"url": URL, "body": {}}}, "input.request.body must be a string, not {}"),
        ({"request": {"url": URL, "headers": []}}, "input.request.headers must be an object, not []"),
        ({"request": {"url": URL, "headers": {"X": 1}}}, "input.request.headers.X must be a string, not 1"),
        ({"request": {"url": URL, "headers": {"X": None}}}, "input.request.headers.X must be a string, not null"),
        ({"request": {"url": URL, "form": "a=1"}}, 'input.request.form must be an object, not "a=1"'),
        ({"request": {"url": URL, "form": {"a": True}}}, "input.request.form.a must be a string, not true"),
        ({"request": {"url": URL, "timeout": "soon"}}, 'input.request.timeout: "soon" is not a duration'),
        ({"request": {"url": URL, "timeout": 0}}, "input.request.timeout must be above 0"),
        ({"request": {"url": URL, "timeout": -1}}, "input.request.timeout: -1 is not a duration"),
        ({"request": {"url": URL, "timeout": []}}, "input.request.timeout: [] is not a duration"),
        ({"request": {"url": URL, "maxBytes": "1"}}, "input.request.maxBytes must be a whole number of at least 1"),
        ({"request": {"url": URL, "maxBytes": 0}}, "input.request.maxBytes must be a whole number of at least 1"),
        ({"request": {"url": URL, "maxBytes": 1.5}}, "input.request.maxBytes must be a whole number of at least 1"),
        ({"request": {"url": URL, "maxBytes": True}}, "input.request.maxBytes must be a whole number of at least 1"),
        ({"request": {"url": URL, "followRedirects": -1}}, "input.request.followRedirects must be a whole number"),
        ({"request": {"url": URL, "followRedirects": "no"}}, "input.request.followRedirects must be true, false or"),
        ({"request": {"url": URL}, "persistBody": "yes"}, 'input.persistBody must be true or false, not "yes"'),
        ({"request": {"url": URL}, "artifactName": 3}, "input.artifactName must be a string, not 3"),
        ({"request": {"url": URL}, "artifactName": "a\0b"}, "input.artifactName has a NUL character"),
        ({"request": {"url": URL, "body": ["x" * 999]}}, "…"),
    ],
)
def test_an_input_of_the_wrong_shape_is_named(given_input: Any, complaint: str) -> None:
    """HTTP-10."""
    with pytest.raises(OpError) as caught:
        read_request(fetch_op(given_input))
    assert (caught.value.code, caught.value.retryable) == ("invalid_input", False)
    assert complaint in caught.value.message
    assert len(caught.value.message) < 300


@pytest.mark.parametrize("text", ["{", "[" * 100_000])
def test_an_input_that_cannot_be_read_is_invalid(text: str) -> None:
    """HTTP-10."""
    with pytest.raises(OpError, match="invalid_input: the op's input is not readable JSON"):
        read_request(fetch_op(None, input=text))


@pytest.mark.parametrize(
    "url",
    [
        "shop.example/list",
        "//shop.example/",
        "ftp://shop.example/",
        "file:///etc/passwd",
        "mailto:a@b.example",
        "http://",
        "http:///path",
        "http://[::1/",
        "http://h:port/",
        "http://h:0/",
        "http://h:65536/",
        "http://a..b/",
        f"http://{'a' * 64}.example/",
        "http://h/\x01",
        f"http://h/{'a' * 70_000}",
    ],
)
def test_a_url_that_is_none_is_an_invalid_request(url: str) -> None:
    """HTTP-15."""
    with pytest.raises(OpError) as caught:
        read_request(fetch_op({"request": {"url": url}}))
    assert (caught.value.code, caught.value.retryable) == ("invalid_request", False)
    assert len(caught.value.message) < 600


@pytest.mark.parametrize(
    "request_part",
    [
        {"method": "GET IT"},
        {"method": "GÉT"},
        {"headers": {"": "x"}},
        {"headers": {"a b": "x"}},
        {"headers": {"a:": "x"}},
        {"headers": {"X": "a\nb"}},
        {"headers": {"X": "{{ .input.evil }}"}},
        {"headers": {"X": "a\0b"}},
    ],
)
def test_what_no_request_can_carry_is_an_invalid_request(request_part: dict[str, Any]) -> None:
    """HTTP-15: nothing from a template can add a header of its own."""
    with pytest.raises(OpError) as caught:
        read_request(fetch_op({"request": {"url": URL, **request_part}, "evil": "x\r\nX-Evil: 1"}))
    assert (caught.value.code, caught.value.retryable) == ("invalid_request", False)


def test_half_a_surrogate_pair_becomes_a_character_that_can_be_sent() -> None:
    """HTTP-14."""
    read = read_request(
        fetch_op({"request": {"url": "http://h/?q={{ .input.q }}", "form": {"\ud83d": "a\ude00"}}, "q": "\ud800"})
    )
    assert read.body_text == "%EF%BF%BD=a%EF%BF%BD"
    assert str(read.url) == "http://h/?q=%EF%BF%BD"


def test_the_url_keeps_the_spelling_of_the_op_for_people() -> None:
    """HTTP-30."""
    read = read_request(fetch_op({"request": {"url": " http://Shop.Example:80/a b "}}))
    assert read.url_text == "http://Shop.Example:80/a b"
    assert str(read.url) == "http://shop.example/a%20b"


def test_a_workflow_without_input_has_no_fields() -> None:
    """HTTP-19."""
    op = fetch_op({"request": {"url": "http://h/{{ .workflow.input.town }}"}})
    with pytest.raises(OpError, match=r"template_error: request.url: .workflow.input.town does not exist"):
        read_request(op)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
        lambda children: (
            st.lists(children, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "request",
                        "url",
                        "headers",
                        "form",
                        "method",
                        "body",
                        "timeout",
                        "maxBytes",
                        "followRedirects",
                        "X",
                    ]
                ),
                children,
                max_size=5,
            )
        ),
        max_leaves=12,
    )
)
@settings(max_examples=200)
def test_any_input_is_a_request_or_a_final_error(given_input: Any) -> None:
    """HTTP-10."""
    refusal: OpError | None = None
    try:
        read_request(fetch_op(given_input))
    except OpError as error:
        refusal = error
    if refusal is not None:
        assert refusal.code in ("invalid_input", "invalid_request", "template_error")
        assert not refusal.retryable
