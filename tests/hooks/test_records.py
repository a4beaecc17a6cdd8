"""Stdout as a stream of records, and what the end of a hook means (HOOK-40 to HOOK-50)."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import pytest

from engine.hooks.outcome import End, judge
from engine.hooks.records import RecordStream, storable


def read(*chunks: bytes, longest: int = 1 << 20) -> tuple[list[dict[str, Any]], RecordStream]:
    stream = RecordStream(longest=longest)
    found = [record for chunk in chunks for record in stream.feed(chunk)]
    found.extend(stream.close())
    return [{**record.data, "at": record.line} for record in found], stream


@pytest.mark.parametrize("size", [1, 2, 7, 64, 10_000])
def test_records_are_found_whatever_the_chunks(size: int) -> None:
    text = (
        b'starting {not json}\n{"type": "Tag", "name": "a\\u2028b"}\n\n  {"type": "Snapshot", "url": "http://a/"}\r\n'
        + '{"type": "Tag", "name": "x\u2028y\u0085z"}\n'.encode()
        + b'[1, 2]\n{"no": "type"}\n{"type": 1}\nRESULT_JSON={"type": "Tag", "name": "no"}\nhttp://not.a.record/\n'
        + b'{"type": "ArchiveResult", "status": "succeeded"}'
    )
    found, stream = read(*(text[start : start + size] for start in range(0, len(text), size)))
    assert [(record["type"], record["at"]) for record in found] == [
        ("Tag", 2),
        ("Snapshot", 4),
        ("Tag", 5),
        ("ArchiveResult", 11),
    ]
    assert found[2]["name"] == "x\u2028y\u0085z"
    assert stream.warnings == []


def test_a_bad_line_spoils_no_other_and_is_told_once() -> None:
    lines = [b'{"type": "Tag", "name": "\xff"}', b'{"type": "Tag"', b"{" * 200_000, b'{"type": "Unheard", "x": 1}'] * 3
    found, stream = read(b"\n".join([*lines, b'{"type": "Tag", "name": "good"}']))
    assert [record["name"] for record in found] == ["good"]
    assert [warning.partition(": ")[0] for warning in stream.warnings] == [
        "line 1 is not UTF-8",
        "line 2 looks like JSON but is not",
        "line 4",
    ]


def test_a_line_that_is_too_long_is_dropped_without_being_held() -> None:
    chunk = b"x" * (1 << 20)
    stream = RecordStream(longest=1 << 20)
    tracemalloc.start()
    try:
        list(stream.feed(b'{"type": "Tag", "name": "'))
        for _ in range(50):
            list(stream.feed(chunk))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8 << 20
    (record,) = stream.feed(b'"}\n{"type": "Tag", "name": "next"}\n')
    assert (record.line, record.data["name"]) == (2, "next")
    assert len(stream.warnings) == 1


def test_much_plain_text_costs_nothing_per_line() -> None:
    stream = RecordStream()
    chunk = b"y\n" * (1 << 19)
    for _ in range(100):
        assert list(stream.feed(chunk)) == []
    assert stream.lines == 100 << 19


def test_text_for_a_database_has_no_null_characters_and_no_half_surrogates() -> None:
    assert storable(json.loads('"a\\u0000b\\ud800c"')) == "ab\ufffdc"


SAID = {status: {"status": status, "output_str": "why"} for status in ("succeeded", "failed", "skipped", "noresults")}


@pytest.mark.parametrize(
    ("end", "record", "produced", "status", "again"),
    [
        (End(code=0), SAID["succeeded"], False, "succeeded", False),
        (End(code=0), SAID["noresults"], True, "noresults", False),
        (End(code=0), SAID["skipped"], True, "skipped", False),
        (End(code=0), {"status": "noresult"}, True, "noresults", False),
        (End(code=0), SAID["failed"], True, "failed", False),
        (End(code=0), None, True, "succeeded", False),
        (End(code=0), None, False, "noresults", False),
        (End(code=0), {"status": "bogus"}, True, "succeeded", False),
        (End(code=1), None, True, "failed", True),
        (End(code=1), SAID["succeeded"], True, "failed", True),
        (End(code=1), SAID["failed"], True, "failed", True),
        (End(code=1), SAID["noresults"], False, "noresults", False),
        (End(code=1), SAID["skipped"], False, "skipped", False),
        (End(code=10), None, False, "skipped", False),
        (End(code=10), SAID["failed"], False, "failed", True),
        (End(signal=15, timed_out=5.0), None, True, "failed", True),
        (End(signal=9), None, True, "failed", True),
        (End(code=0, timed_out=5.0), SAID["succeeded"], True, "succeeded", False),
        (End(code=0, timed_out=5.0), None, True, "failed", True),
        (End(signal=15, dismissed=True), None, False, "succeeded", False),
        (End(code=0, dismissed=True), None, False, "succeeded", False),
        (End(signal=15, dismissed=True), SAID["succeeded"], False, "succeeded", False),
        (End(code=127, unlaunched="no such program"), None, False, "failed", True),
        (End(), None, True, "failed", True),
    ],
)
def test_the_exit_code_decides_about_a_retry_and_the_record_about_the_status(
    end: End, record: dict[str, Any] | None, produced: bool, status: str, again: bool
) -> None:
    verdict = judge(end, record, produced=produced)
    assert (verdict.status, verdict.again) == (status, again)
    assert bool(verdict.error) == (status == "failed")


def test_a_failure_says_why() -> None:
    assert judge(End(signal=15, timed_out=2.5), None, produced=False).error == "timed out after 2.5s"
    assert judge(End(code=3), SAID["failed"], produced=False).error == "exit code 3: why"
    assert judge(End(signal=9), None, produced=False).error == "ended by signal 9"
