"""``scraper site test``: run the tests of a site and report on each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.invocation import invocation_of
from cli.options import Output
from cli.output import Format, print_json, say

if TYPE_CHECKING:
    from engine.authoring.testing import TestResult


def run(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="SITE", help="The site to test.")],
    chosen: Annotated[str, typer.Argument(metavar="[FILTER]", help="Only tests whose FILE::NAME contains this.")] = "",
    record: Annotated[
        bool,
        typer.Option(
            "--record", help="Fetch pages that are not recorded yet, once, and keep them.", show_default=False
        ),
    ] = False,
    timeout: Annotated[float, typer.Option("--timeout", metavar="SECONDS", min=0.1, help="Time limit of a test.")] = 60,
    output: Output = Format.TABLE,
) -> None:
    """Run tests/*.js of a site: each test_… function on fresh databases, with recorded pages; exit 1 if one fails.

    A test gets t: t.run(verb, flags), t.query(sql), t.exec(sql), t.records(collection), t.fixture(file),
    t.equal(actual, expected), t.ok(value), t.throws(call), t.log(...). Fetches are answered from fixtures/pages.json.

    Example: scraper site test hackernews --record
    """
    invocation = invocation_of(ctx)
    site = invocation.registry.site(name)
    from engine.authoring.testing import Choice, run_tests

    results = []
    for result in run_tests(site, invocation.settings, Choice(chosen, record, timeout)):
        results.append(result)
        if output is Format.TABLE:
            _print(result)
    failed = sum(not result.ok for result in results)
    if output is Format.JSON:
        print_json({"site": site.name, "ok": not failed, "tests": [_as_json(result) for result in results]})
    else:
        say(f"{len(results) - failed} passed, {failed} failed" if failed else f"{len(results)} passed")
    if failed:
        raise typer.Exit(1)


def _print(result: TestResult) -> None:
    place = f"{result.file}:{result.line}" if result.line else result.file
    if result.ok:
        say(f"ok      {result.name}  ({result.seconds:.1f} s)")
        return
    say(f"FAILED  {result.name or result.file}")
    say(f"  {place}: {result.message}")
    for line in result.stack.splitlines()[1:]:
        say(f"  {line}")
    for line in result.logs:
        say(f"  log: {line}")


def _as_json(result: TestResult) -> dict[str, Any]:
    return {
        "file": result.file,
        "name": result.name,
        "ok": result.ok,
        "seconds": round(result.seconds, 3),
        "message": result.message or None,
        "line": result.line or None,
        "logs": list(result.logs),
    }
