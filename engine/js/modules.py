"""Finding what ``require`` names: files below a site's roots, and nothing else."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import count
from pathlib import Path, PurePosixPath

from engine.js.hostcall import HostError

_SUFFIXES = ("", ".js", ".json")
#: A file changed this recently may change once more without a trace in its times.
_SETTLED_NS = 2_000_000_000
_numbers = count(1)


@dataclass(frozen=True, slots=True)
class Module:
    """An author's module: its name as positions show it, and its text."""

    name: str
    source: str
    #: Tells this text from every other that this process has read.
    number: int = field(default_factory=lambda: next(_numbers), compare=False)

    @property
    def is_json(self) -> bool:
        return self.name.endswith(".json")


class ModuleRoots:
    """The folders modules may come from; the first that has a file wins.

    ``roots`` are (prefix shown in names, folder): scripts have one root, verbs look into the site folder first and then
    into the verbs folder, both as ``/``.
    """

    def __init__(self, roots: Sequence[tuple[str, Path]], *, instead: str | None = None) -> None:
        self._roots = list(roots)
        self._instead = instead

    def entry(self, path: str) -> Module:
        """The module an execution starts with; another text may take its place. Raises HostError."""
        if self._instead is not None:
            return Module(self._name(path), self._instead)
        return self._find(path, f'no script "{path}"')

    def _name(self, path: str) -> str:
        try:
            return self._find(path, "").name
        except HostError:  # the script is gone: its name still tells where its modules are
            prefix = self._roots[0][0] if self._roots else ""
            path = str(PurePosixPath(path))
            return f"{prefix}/{path}" if prefix else str(path)

    def require(self, name: str, importer: str) -> Module:
        """The module ``importer`` (a name given out before) asks for. Raises HostError."""
        if not name.startswith(("./", "../")):
            raise HostError(
                f'Cannot find module "{name}" (required by {importer}): modules are relative paths or built in'
            )
        return self._find(
            str(PurePosixPath(self._inside(importer)).parent / name),
            f'Cannot find module "{name}" (required by {importer})',
        )

    def _inside(self, shown: str) -> str:
        for prefix, _ in self._roots:
            if prefix and shown.startswith(prefix + "/"):
                return shown[len(prefix) + 1 :]
        return shown

    def _find(self, path: str, complaint: str) -> Module:
        if not self._roots:
            raise HostError(f"{complaint}: the site has no root for it", code="MODULE_NOT_FOUND")
        inside = _inside_root(path, len(self._roots) > 1)
        if inside is None:
            raise HostError(f"{complaint}: it would leave the site's root", code="MODULE_NOT_FOUND")
        for prefix, root in self._roots:
            for suffix in _SUFFIXES:
                found = self._read(root, inside + suffix, prefix)
                if found is not None:
                    return found
        raise HostError(complaint, code="MODULE_NOT_FOUND")

    @staticmethod
    def _read(root: Path, relative: str, prefix: str) -> Module | None:
        path = f"{root}/{relative}"
        try:
            found = os.stat(path)
        except (OSError, ValueError):
            return None
        if not stat.S_ISREG(found.st_mode):
            return None
        state = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
        known = _read_before.get((path, prefix))
        if known is not None and known[0] == state:
            return known[1]
        module = _module(Path(path), root.resolve(), relative, prefix)
        if time.time_ns() - max(found.st_mtime_ns, found.st_ctime_ns) > _SETTLED_NS:
            _read_before[path, prefix] = (state, module)
        return module


@lru_cache(maxsize=1024)
def _inside_root(path: str, stays: bool) -> str | None:
    """A path from its root on, without dots. One that would leave the root is None, or stays in it."""
    parts: list[str] = []
    for part in PurePosixPath(path).parts:
        if part == "..":
            if not parts and not stays:
                return None
            parts = parts[:-1]
        elif part not in (".", "/"):
            parts.append(part)
    return "/".join(parts)


#: Modules of this process by path and prefix, and what the file was like when it was read.
_read_before: dict[tuple[str, str], tuple[tuple[int, ...], Module]] = {}


def _module(path: Path, root: Path, relative: str, prefix: str) -> Module:
    if not path.resolve().is_relative_to(root):
        raise HostError(f'"{relative}" leads out of the site\'s root', code="MODULE_NOT_FOUND")
    try:
        source = path.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise HostError(f"{relative} is not UTF-8 text: {error}") from error
    return Module(f"{prefix}/{relative}" if prefix else relative, source)
