"""What a ``job.yaml`` may say, and how it is told what is wrong with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.clock import MILLISECOND, SECOND
from engine.errors import SiteError, UsageError
from engine.lifecycle.catalog import discover, find
from engine.lifecycle.job import FieldRule, Notification, Tries, job_id
from engine.lifecycle.manifest import InvalidJob, parse_job
from engine.plugins.site import Site

FILE = Path("jobs/prices/job.yaml")
BASE = """name: Prices
url: https://shop.example/list
selector: .item
fields: ["title:h2", "link:a@href"]
"""


def faults(text: str) -> list[str]:
    with pytest.raises(InvalidJob) as caught:
        parse_job(FILE, text)
    return [str(fault) for fault in caught.value.faults]


def fault(text: str) -> str:
    found = faults(text)
    assert len(found) == 1, found
    return found[0]


def test_a_job_without_more_than_name_url_selector_and_fields_gets_the_documented_defaults() -> None:
    """JOB-103, JOB-104"""
    job = parse_job(FILE, BASE)
    assert (job.id, job.enabled, job.interval, job.workers, job.debug) == ("prices", True, 600 * SECOND, 1, False)
    assert job.notification == Notification(timeout_ms=5000)
    assert (job.webhook, job.proxies) == (None, None)
    assert (job.hook_timeout, job.stagger) == (60 * SECOND, 200 * MILLISECOND)
    assert (job.fetch_retry, job.webhook_retry) == (Tries(1, SECOND), Tries(8, SECOND))
    proxied = parse_job(FILE, BASE + "proxy: {urls: ['http://p:1']}\nwebhook: {url: 'http://h/x'}\n")
    assert proxied.proxies is not None
    assert proxied.proxies.rotate == "RoundRobin"
    assert proxied.webhook is not None


@pytest.mark.parametrize("key", ["name", "url", "selector", "fields"])
def test_each_required_key_that_is_missing_or_blank_is_named_with_file_and_line(key: str) -> None:
    """JOB-103"""
    lines = BASE.splitlines()
    without = "\n".join(line for line in lines if not line.startswith(f"{key}:"))
    assert f"job.{key} is required" in fault(without)
    blank = "[]" if key == "fields" else '" "'
    number = next(n for n, line in enumerate(lines, 1) if line.startswith(f"{key}:"))
    text = "\n".join(f"{key}: {blank}" if line.startswith(f"{key}:") else line for line in lines)
    assert all(found.startswith(f"{FILE}:{number}: job.{key}") for found in faults(text)), faults(text)


def test_url_may_be_left_out_where_urls_is_set() -> None:
    """JOB-103"""
    job = parse_job(FILE, BASE.replace("url: https://shop.example/list", "urls: ['http://a/1', 'http://a/2']"))
    assert job.pages == ("http://a/1", "http://a/2")


@pytest.mark.parametrize("text", ["interval: 0", "workers: 0", "interval: -1"])
def test_an_interval_or_a_number_of_workers_of_nothing_is_refused(text: str) -> None:
    """JOB-105"""
    assert fault(BASE + text).startswith(f"{FILE}:5: job.{text.partition(':')[0]} must be >")


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("urls: ['/relative']", "job.urls[0]"),
        ("urls: ['http://']", "job.urls[0]"),
        ("webhook: {url: 'hooks.example/x'}", "job.webhook.url"),
        ("proxy: {urls: ['p:8080']}", "job.proxy.urls[0]"),
    ],
)
def test_every_address_must_be_absolute(text: str, where: str) -> None:
    """JOB-106"""
    assert fault(BASE + text).startswith(f"{FILE}:5: {where} must be an absolute URL")


def test_addresses_of_a_webhook_or_proxy_that_is_switched_off_are_not_looked_at() -> None:
    """JOB-106, JOB-107"""
    job = parse_job(FILE, BASE + "webhook: {enabled: false, url: nowhere}\nproxy: {enabled: false}\n")
    assert (job.webhook, job.proxies) == (None, None)


def test_lists_of_addresses_must_not_be_empty() -> None:
    """JOB-107"""
    assert "job.urls" in fault(BASE + "urls: []")
    assert "job.proxy.urls must not be empty" in fault(BASE + "proxy: {}")


def test_a_field_name_stands_once_blanks_around_it_do_not_tell_names_apart() -> None:
    """JOB-108"""
    assert 'there is a field "title" already' in fault(BASE.replace("link:a@href", " title :b"))


def test_search_and_hash_fields_name_declared_fields_and_blanks_in_them_count_for_nothing() -> None:
    """JOB-109"""
    assert 'job.search_fields names "price", which is no field (there are: title, link)' in fault(
        BASE + "search_fields: [price]"
    )
    job = parse_job(FILE, BASE + "hash_fields: [' link ', '']\nsearch_fields: [title]\n")
    assert (job.hash_fields, job.search_fields) == (("link",), ("title",))


@pytest.mark.parametrize(("name", "expected"), [("My Job!", "my_job"), ("Größe 2", "größe_2"), ("__A-b__", "a_b")])
def test_a_jobs_id_is_its_name_in_lower_case_with_everything_else_as_underscores(name: str, expected: str) -> None:
    """JOB-110"""
    assert job_id(name) == expected


def test_unknown_keys_are_faults_with_the_line_and_the_nearest_known_key() -> None:
    """JOB-116"""
    assert fault(BASE + "keyword: [a]") == f'{FILE}:5: job has an unknown key "keyword" (did you mean "keywords"?)'


def test_all_faults_are_reported_at_once() -> None:
    """JOB-111"""
    assert len(faults(BASE + "interval: 0\nworkers: 0\nurls: [x]\n")) == 3


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ('"title: li:nth-child(2) b "', FieldRule("title", "li:nth-child(2) b")),
        ('"link:a@href"', FieldRule("link", "a", "href")),
        ('"link: a @ href "', FieldRule("link", "a", "href")),
        ('"link:@href"', FieldRule("link", "", "href")),
        ('"title:h2@"', FieldRule("title", "h2")),
        ('"title:h2@text"', FieldRule("title", "h2")),
        ("{name: price, selector: .p}", FieldRule("price", ".p")),
        ("{name: price, selector: .p, att: data-x}", FieldRule("price", ".p", "data-x")),
        ("{name: a, selector: 'x:not(@y)', att: text}", FieldRule("a", "x:not(@y)")),
    ],
)
def test_a_field_is_split_at_the_first_colon_then_at_the_first_at(rule: str, expected: FieldRule) -> None:
    """JOB-502, JOB-503, JOB-504"""
    job = parse_job(FILE, BASE.replace('["title:h2", "link:a@href"]', f"[{rule}]"))
    assert job.fields == (expected,)


@pytest.mark.parametrize("rule", ['"name:"', '"name: "', '"name"', '":h2"'])
def test_a_field_without_selector_or_name_is_refused(rule: str) -> None:
    """JOB-504"""
    assert "job.fields[0]" in fault(BASE.replace('["title:h2", "link:a@href"]', f"[{rule}]"))


def test_jobs_are_found_by_folder_id_or_name_and_of_two_with_one_id_the_later_is_broken(tmp_path: Path) -> None:
    """JOB-110"""
    for folder, name in (("hn", "Front Page!"), ("other", "front page"), ("third", "Third")):
        (tmp_path / "jobs" / folder).mkdir(parents=True)
        (tmp_path / "jobs" / folder / "job.yaml").write_text(BASE.replace("Prices", name))
    site = Site(name="s", root=tmp_path, manifest=tmp_path / "site.yaml", database_file="s.db")
    assert {find(site, wanted).folder.name for wanted in ("hn", "front_page", "Front Page!")} == {"hn"}
    with pytest.raises(SiteError, match=r'the job id "front_page" .* is taken by jobs/hn'):
        find(site, "other")
    with pytest.raises(UsageError, match='did you mean "third"'):
        find(site, "thrid")
    assert [found.folder.name for found in discover(site)] == ["hn", "other", "third"]
