"""Payloads of webhooks and texts of notifications, as pure functions."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.lifecycle.job import Job
from engine.lifecycle.manifest import parse_job
from engine.lifecycle.messages import Message, notification, payload, render
from engine.lifecycle.telemetry import STAGES, Telemetry
from engine.lifecycle.verdicts import Item


def job(more: str = "") -> Job:
    base = 'name: Shop\nurl: http://s/\nselector: .i\nfields: ["title:h2", "sale_price:.p", "link:a@href"]\n'
    return parse_job(Path("job.yaml"), base + more)


def item(title: str, price: str = "", *found: str) -> Item:
    return {"fields": {"title": title, "sale_price": price, "link": ""}, "matches": list(found)}


def told(items: list[Item], more: str = "") -> Message:
    shop = job(more)
    assert shop.notification is not None
    return notification(shop, shop.notification, items, "2024-05-01T00:00:00Z")


def test_the_payload_has_flat_items_that_always_carry_keywords_and_no_item_is_cut_off() -> None:
    """JOB-802, JOB-804, JOB-805"""
    sent = payload(job(), [item(str(n)) for n in range(50)] + [item("x", "3", "rust")])
    assert (sent["job_name"], sent["item_count"], len(sent["items"])) == ("Shop", 51, 51)
    assert sent["items"][0] == {"title": "0", "sale_price": "", "link": "", "keywords": []}
    assert sent["items"][-1] == {"title": "x", "sale_price": "3", "link": "", "keywords": ["rust"]}


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{a}-{b}", "1-2"),
        ("{nope}!", "!"),
        ("{ a }", "1"),
        ("open { brace", "open { brace"),
        ("close } {a}", "close } 1"),
        ("{{a}}", "{1}"),
    ],
)
def test_tags_are_filled_in_unknown_ones_vanish_and_odd_braces_stay(template: str, expected: str) -> None:
    """JOB-808"""
    assert render(template, {"a": "1", "b": "2"}) == expected


def test_tags_of_a_title_know_the_cycle_and_no_fields() -> None:
    """JOB-808, JOB-809, JOB-811"""
    title = "title: '{item_count} {job_name} {url} {timestamp} {matches} {match_count} [{title}]'"
    found = told([item("a", "", "rust", "go"), item("b", "", "go")], f"notification: {{{title}}}")
    assert found["title"] == "2 Shop http://s/ 2024-05-01T00:00:00Z rust, go 2 []"


def test_a_body_is_rendered_per_item_for_at_most_three() -> None:
    """JOB-809"""
    body = told([item(str(n)) for n in range(5)], "notification: {body: '{title}/{item_count}'}")["body"]
    assert body == "0/5\n---\n1/5\n---\n2/5\n+ 2 more"
    assert told([item("a"), item("b")], "notification: {body: '{title}'}")["body"] == "a\n---\nb"


def test_the_default_texts_name_the_job_and_label_the_fields_that_are_not_empty() -> None:
    """JOB-810, JOB-807"""
    assert told([item("a")])["title"] == "New match from Shop"
    two = told([item("a", "3", "rust"), item("b")], "notification: {timeout: 0}")
    assert two["title"] == "2 new matches from Shop"
    assert two["body"] == "Title: a\nSale price: 3\nKeywords: rust\n---\nTitle: b"
    assert two["timeout"] == 0


def test_stages_are_listed_in_pipeline_order_inactive_until_they_run() -> None:
    """JOB-1106, JOB-1107, JOB-1108"""
    shown = Telemetry("Shop", 1.5).shown()
    assert [stage["name"] for stage in shown["stages"]] == list(STAGES)
    assert {stage["status"] for stage in shown["stages"]} == {"inactive"}
    assert (shown["map"]["fetch"]["type"], shown["map"]["after_fetch"]["type"]) == ("internal", "hook")
    assert shown["map"]["fetch"] is shown["stages"][2]
    assert {"name", "status", "type", "duration_ms", "heap_bytes", "lua_mem_bytes", "mem_delta_bytes", "browsers"} == (
        shown["stages"][0].keys()
    )


def test_a_hook_that_threw_stays_an_error_and_runs_of_a_stage_add_up() -> None:
    """JOB-1109, JOB-1111"""
    telemetry = Telemetry("Shop", 1.5)
    telemetry.record("filter", "success", 2.0)
    telemetry.record("filter", "error", 3.0, "TypeError: x")
    telemetry.record("filter", "success", 1.0, heap_bytes=7)
    again = Telemetry.load(telemetry.dump()).shown()["map"]["filter"]
    assert (again["status"], again["duration_ms"], again["error"]) == ("error", 6.0, "TypeError: x")
    assert again["heap_bytes"] == again["lua_mem_bytes"] == 7
