"""From a page to items: CSS extraction, keywords and identity, as pure functions."""

from __future__ import annotations

import pytest

from engine.errors import OpError
from engine.lifecycle.extract import extract
from engine.lifecycle.identity import identity
from engine.lifecycle.job import FieldRule
from engine.lifecycle.keywords import keeps, matches

PAGE = """<ul><li class="i first" data-n=" a
 b "><h2>One
   <b>more</b></h2><a href="/x?q=1">x</a><a href="/y">y</a></li>
<li class=i><h2>Two</h2></li></ul><p class=i><h2>Outside</h2>"""
BASE = "https://site.example/shop/list.html"


def fields(page: str, *rules: FieldRule, selector: str = ".i") -> list[dict[str, str]]:
    return extract(page, selector, rules, BASE)


def test_each_container_is_one_item_in_document_order() -> None:
    """JOB-501"""
    assert [item["t"] for item in fields(PAGE, FieldRule("t", "h2"))] == ["One more", "Two", ""]


def test_the_first_match_counts_and_a_container_that_matches_is_it() -> None:
    """JOB-505"""
    first = fields(PAGE, FieldRule("a", "a"), FieldRule("own", ".i", "class"))[0]
    assert first == {"a": "x", "own": "i first"}


def test_texts_and_attributes_have_their_blanks_collapsed() -> None:
    """JOB-506"""
    assert fields(PAGE, FieldRule("t", "h2"), FieldRule("n", "", "data-n"))[0] == {"t": "One more", "n": "a b"}


def test_a_field_without_match_or_attribute_is_there_and_empty() -> None:
    """JOB-507, JOB-509"""
    assert fields(PAGE, FieldRule("t", ".nope"), FieldRule("a", "a", "title"))[0] == {"t": "", "a": ""}


@pytest.mark.parametrize(
    ("href", "expected"),
    [
        ("/x?q=1", "https://site.example/x?q=1"),
        ("y.html", "https://site.example/shop/y.html"),
        ("//other.example/z", "https://other.example/z"),
        ("#top", "#top"),
        ("JavaScript:void(0)", "JavaScript:void(0)"),
        ("mailto:a@b", "mailto:a@b"),
        ("tel:1", "tel:1"),
        ("data:,x", "data:,x"),
        ("", ""),
    ],
)
def test_an_href_becomes_absolute_unless_it_leads_to_no_page(href: str, expected: str) -> None:
    """JOB-508"""
    page = f'<div class=i><a href="{href}" data-href="rel">x</a></div>'
    assert fields(page, FieldRule("l", "a", "href"), FieldRule("d", "a", "data-href")) == [{"l": expected, "d": "rel"}]


@pytest.mark.parametrize("bad", ["li[", "::", " "])
def test_a_bad_selector_is_a_fatal_error_that_names_it(bad: str) -> None:
    """JOB-307"""
    with pytest.raises(OpError, match="selector") as caught:
        fields(PAGE, FieldRule("t", "h2"), selector=bad)
    assert caught.value.code == "invalid_selector"


def test_keywords_hit_whatever_the_case_in_config_order() -> None:
    """JOB-601, JOB-603"""
    assert matches({"a": "Linux and RUST"}, ["rust", "go", "linux"], []) == ["rust", "linux"]
    assert keeps(["rust"], ["rust"])
    assert not keeps([], ["rust"])
    assert keeps([], [])


def test_search_fields_restrict_where_keywords_are_looked_for() -> None:
    """JOB-602"""
    item = {"title": "go", "link": "rust"}
    assert matches(item, ["rust"], ["title"]) == []
    assert matches(item, ["rust"], []) == ["rust"]


def test_a_keyword_never_spans_two_fields() -> None:
    """JOB-601"""
    assert matches({"a": "open", "b": "source"}, ["open source", "opensource", "open\nsource"], []) == []


def test_an_items_identity_does_not_depend_on_the_order_of_its_fields() -> None:
    """JOB-701"""
    assert identity({"a": "1", "b": "2"}) == identity({"b": "2", "a": "1"})
    assert identity({"a": "1", "b": "2"}).hash != identity({"a": "1", "b": "2", "extra": "x"}).hash
    assert identity({"a": "1,b", "c": ""}).hash != identity({"a": "1", "b,c": ""}).hash


def test_hash_fields_alone_decide_and_a_missing_one_counts_as_empty() -> None:
    """JOB-702, JOB-707"""
    cheap, dear = {"link": "x", "price": "1"}, {"link": "x", "price": "2"}
    assert identity(cheap, ["link"]).hash == identity(dear, ["link"]).hash
    assert identity(cheap).hash != identity(dear).hash
    assert identity({"link": "x"}, ["link", "sku"]).hash == identity({"link": "x", "sku": ""}, ["link", "sku"]).hash


def test_blank_hash_fields_fall_back_to_all_fields_only_if_all_are_blank() -> None:
    """JOB-703"""
    blank = identity({"link": " ", "price": "1"}, ["link"])
    assert blank.hash == identity({"link": " ", "price": "1"}).hash
    assert "link" in blank.warning
    some = identity({"link": "", "sku": "7", "price": "1"}, ["link", "sku"])
    assert some.hash == identity({"link": "", "sku": "7", "price": "2"}, ["link", "sku"]).hash
    assert "link" in some.warning
    assert identity({"link": "x"}, ["link"]).warning == ""
