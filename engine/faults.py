"""What is wrong with a file a person wrote, and where: the form in which every validator reports."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing to mend. ``line`` and ``column`` count from 1; 0 means the file as a whole."""

    file: Path
    line: int
    message: str
    hint: str = ""
    column: int = 0

    def __str__(self) -> str:
        place = str(self.file) + "".join(f":{number}" for number in (self.line, self.column) if number)
        return f"{place}: {self.message}" + (f" ({self.hint})" if self.hint else "")


def report(faults: Iterable[Fault]) -> str:
    """All faults, one a line, in the order of the file."""
    return "\n".join(str(fault) for fault in sorted(faults, key=lambda fault: (str(fault.file), fault.line)))


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A hint that names the nearest known word, or "" where none is near.

    >>> did_you_mean("scriptRoot", ["scriptsRoot", "verbsRoot"])
    'did you mean "scriptsRoot"?'
    """
    by_lower = {name.lower(): name for name in known}
    near = get_close_matches(word.lower(), by_lower, n=1, cutoff=0.6)
    return f'did you mean "{by_lower[near[0]]}"?' if near else ""
