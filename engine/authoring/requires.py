"""What a script requires, read from its text: enough to say that a module does not exist, without running it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from engine.faults import Fault, did_you_mean
from engine.js.hostcall import HostError
from engine.js.modules import ModuleRoots

#: Modules that are built in.
NATIVES = ("crypto", "html", "scraper-db", "site-db")

#: Comments and strings are passed over, so that a require in them counts for nothing.
_TOKENS = re.compile(
    r"""//[^\n]*|/\*.*?\*/|`(?:\\.|[^`\\])*`
    |\brequire\(\s*(?P<quote>["'])(?P<module>[^"'\n]*)(?P=quote)\s*\)
    |"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'""",
    re.DOTALL | re.VERBOSE,
)


def required(source: str) -> Iterator[tuple[int, str]]:
    """The line and name of every module that is required by a literal name.

    >>> list(required('const a = require("html"); // require("no")'))
    [(1, 'html')]
    """
    for token in _TOKENS.finditer(source):
        if token["module"] is not None:
            yield source.count("\n", 0, token.start()) + 1, token["module"]


def missing_modules(file: Path, name: str, source: str, roots: ModuleRoots) -> Iterator[Fault]:
    """Modules of a file, called ``name`` by its ``roots``, that do not exist."""
    for line, module in required(source):
        if module in NATIVES:
            continue
        try:
            roots.require(module, name)
        except HostError as error:
            yield Fault(file, line, str(error), _hint(file, module))


def _hint(file: Path, module: str) -> str:
    near = did_you_mean(module, NATIVES)
    if not module.startswith("."):
        return near or f"modules are relative paths or one of {', '.join(NATIVES)}"
    folder = (file.parent / module).parent
    files = [path.name for path in folder.iterdir() if path.suffix in (".js", ".json")] if folder.is_dir() else []
    return did_you_mean(Path(module).name, files)
