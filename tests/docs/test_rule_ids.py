"""Rule ids: each is defined once, under docs/reference, and whatever a test or a guide cites is defined."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from engine.resources import resource

DOCS = resource("docs")
TESTS = Path(__file__).parents[1]
PREFIXES = ("JS", "DB", "STORE", "WRK", "SITE", "CLI", "CFG", "HTTP", "HOOK", "JOB", "JOBHOOK", "SCHED", "BRW")
RULE = re.compile(rf"\b({'|'.join(PREFIXES)})-(\d+)\b")
#: "JS-1 to JS-19", "STORE-1 to 30", "JS-30 to JS-49": the first id is read by RULE, the last one here.
RANGE = re.compile(rf"\b({'|'.join(PREFIXES)})-\d+ to (?:\1-)?(\d+)\b")


def definitions() -> list[tuple[str, str]]:
    """(rule, page) of every bold id that begins a list item."""
    return [
        (rule, page.name)
        for page in sorted((DOCS / "reference").glob("*.md"))
        for rule in re.findall(r"^- \*\*([A-Z]+-\d+)\*\*", page.read_text(encoding="utf-8"), re.MULTILINE)
    ]


def cited(path: Path) -> set[str]:
    text = path.read_text(encoding="utf-8")
    found = RULE.findall(text) + RANGE.findall(text)
    return {f"{prefix}-{number}" for prefix, number in found}


def undefined(paths: list[Path], known: set[str]) -> dict[str, set[str]]:
    missing = {str(path): cited(path) - known for path in paths}
    return {path: rules for path, rules in missing.items() if rules}


def test_no_rule_id_is_given_twice() -> None:
    counts = Counter(rule for rule, _ in definitions())
    assert [rule for rule, count in counts.items() if count > 1] == []


def test_every_rule_of_a_prefix_stands_on_one_page() -> None:
    pages: dict[str, set[str]] = {}
    for rule, page in definitions():
        pages.setdefault(rule.partition("-")[0], set()).add(page)
    assert pages.keys() >= set(PREFIXES)
    assert {prefix: found for prefix, found in pages.items() if len(found) > 1} == {}


def test_every_rule_that_a_test_cites_is_defined() -> None:
    known = {rule for rule, _ in definitions()}
    tests = [path for path in sorted(TESTS.rglob("*.py")) if path != Path(__file__)]
    assert any(cited(path) for path in tests)
    assert undefined(tests, known) == {}


def test_every_rule_that_a_page_cites_is_defined() -> None:
    known = {rule for rule, _ in definitions()}
    root = DOCS.parent
    pages = [
        *sorted(DOCS.rglob("*.md")),
        *(root / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")),
    ]
    assert undefined([page for page in pages if page.exists()], known) == {}
