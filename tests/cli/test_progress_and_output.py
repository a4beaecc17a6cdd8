"""What a person sees while a worker works, and how results are laid out."""

from __future__ import annotations

import io
import json
import re
from dataclasses import dataclass

import pytest
from rich.console import Console

from cli.board import Board
from cli.log import LogLines
from cli.output import clean, jsonable, print_json, table
from cli.progress import Follower, Lines
from engine.clock import SECOND
from engine.model import NO_RETRY, Op, Workflow, WorkflowStatus


def op(op_id: str, queue: str = "q") -> Op:
    workflow = Workflow(id="w", site="shop", name="n", status=WorkflowStatus.RUNNING, input="{}", metadata={})
    return Op(
        pk=1,
        id=op_id,
        workflow=workflow,
        kind="js",
        site="shop",
        queue=queue,
        dedup_key="",
        parent_id=None,
        input="null",
        metadata={},
        retry=NO_RETRY,
        generation=0,
        created_at=0,
    )


def test_a_pipe_gets_a_line_per_trouble_and_totals(capsys: pytest.CaptureFixture[str]) -> None:
    """CLI-32."""
    lines = Lines(LogLines.TEXT)
    for op_id, ending, detail in (("a", "succeeded", ""), ("b", "failed", "boom\x1b[31m"), ("c", "retried", "later")):
        lines.op_started(op(op_id))
        lines.op_ended(op(op_id), ending, detail)
    lines.op_started(op("d"))
    lines.notice("the database is locked")
    lines.total()
    lines.total()
    printed = capsys.readouterr().err.splitlines()
    assert all(line.startswith("timestamp=") for line in printed)
    assert [line.partition(" ")[2] for line in printed] == [
        'level=error event="op failed" workflow=w op=b kind=js queue=q error=boom\\x1b[31m',
        'level=warning event="op retried" workflow=w op=c kind=js queue=q error=later',
        'level=info event="the database is locked"',
        "level=info event=progress running=1 succeeded=1 retried=1 failed=1",
    ]


def test_a_log_collector_gets_one_json_object_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    """CLI-32."""
    lines = Lines(LogLines.JSON)
    lines.op_started(op("b"))
    lines.op_ended(op("b"), "failed", "boom\x1b[31m\nand more")
    lines.total()
    printed = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [(line["level"], line["event"]) for line in printed] == [("error", "op failed"), ("info", "progress")]
    assert printed[0]["error"] == "boom\x1b[31m\nand more"
    assert printed[1]["failed"] == 1


@pytest.mark.parametrize("width", [40, 80])
def test_a_terminal_gets_a_board_that_fits(width: int) -> None:
    board = Board()
    follower = Follower(board)
    for number in range(5):
        running = op(f"a-long-workflow-id-1795244910281076329:submit:{number}", f"queue-with-a-long-name-{number}")
        follower.op_started(running)
        follower.op_ended(running, "failed" if number else "succeeded", "an error\nof two lines " * 5)
    follower.op_ended(op("resolved"), "canceled", "")
    screen = io.StringIO()
    Console(file=screen, width=width, force_terminal=False).print(board.render())
    lines = screen.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    assert len(lines) == 1 + 6 + 1 + 3
    assert re.search(r"0\s+1\s+0\s*$", lines[2])


@dataclass
class Sample:
    op_id: str
    emitted_ids: tuple[str, ...]
    created_at: int
    ended_at: int | None
    input: dict[str, int]


def test_json_members_are_camel_case_and_instants_are_rfc3339(capsys: pytest.CaptureFixture[str]) -> None:
    """CLI-6: keys of data are left alone."""
    print_json(Sample("a", ("b",), 1_700_000_000 * SECOND, None, {"snake_key": 1}))
    assert json.loads(capsys.readouterr().out) == {
        "opID": "a",
        "emittedIDs": ["b"],
        "createdAt": "2023-11-14T22:13:20.000000Z",
        "endedAt": None,
        "input": {"snake_key": 1},
    }
    assert jsonable([1, None, "x"]) == [1, None, "x"]


def test_a_table_in_a_pipe_is_aligned_text(capsys: pytest.CaptureFixture[str]) -> None:
    table(("NAME", "N"), [("a", 1), ("longer\x07", None)])
    assert capsys.readouterr().out == "NAME        N\na           1\nlonger\\x07\n"


def test_control_characters_are_spelled_out() -> None:
    """CLI-5."""
    assert clean("a\x1b[2J\x9b\r\tb\nc") == "a\\x1b[2J\\x9b\\x0d\tb\nc"
