"""The report as tables for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table


def show(report: Mapping[str, Any]) -> None:
    """Print every benchmark: medians, then what was to be reached."""
    console = Console(width=120, highlight=False)
    machine, versions = report["machine"], report["versions"]
    console.print(
        f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_gb']} GB, {machine['system']}, "
        f"load {machine['load']} at the start"
    )
    console.print(", ".join(f"{name} {version}" for name, version in versions.items()))
    for name, benchmark in report["benchmarks"].items():
        disk = benchmark["disk"]
        console.print(
            f"\n[bold]{name}[/bold]: {benchmark['title']}  "
            f"(fdatasync p50 {disk['p50_ms']} ms, p90 {disk['p90_ms']} ms; {benchmark['seconds']} s)"
        )
        console.print(_contestants(benchmark))
        for goal in benchmark["goals"]:
            console.print("  " + _goal(goal))


def _contestants(benchmark: Mapping[str, Any]) -> Table:
    names = dict.fromkeys(name for told in benchmark["contestants"].values() for name in told["medians"])
    names.pop(benchmark["figure"], None)
    table = Table(box=None, pad_edge=True)
    table.add_column("")
    for name in (f"{benchmark['figure']} ({benchmark['unit']})", *names):
        table.add_column(name, justify="right")
    for contestant, told in benchmark["contestants"].items():
        if told["problem"]:
            table.add_row(contestant, told["problem"])
        else:
            figures = (benchmark["figure"], *names)
            table.add_row(contestant, *(_number(told["medians"].get(name)) for name in figures))
    return table


def _goal(goal: Mapping[str, Any]) -> str:
    what = goal["ours"] if goal["other"] is None else f"{goal['ours']} / {goal['other']}"
    figure = f" {goal['figure']}" if goal["other"] is None or goal["figure"] not in ("rate", "seconds") else ""
    wanted = f"wanted {'≥' if goal['sense'] == '>=' else '≤'} {goal['bound']:g}"
    if goal["reached"] is None:
        return f"{what}{figure}: not measured, {wanted}"
    verdict = "[green]reached[/green]" if goal["enough"] else "[red]missed[/red]"
    note = f"  ({goal['note']})" if goal["note"] else ""
    return f"{what}{figure}: {_number(goal['reached'])}, {wanted}: {verdict}{note}"


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:,.3g}"
