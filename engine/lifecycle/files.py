"""What hooks may read: their job's scripts as pinned, and files of the job's and the shared folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from engine.js.hostcall import HostError
from engine.js.modules import Module, ModuleRoots

#: Files that hold text, and nothing that runs or configures.
_TEXTS = frozenset(
    {".csv", ".css", ".htm", ".html", ".js", ".json", ".jsonl", ".log", ".md", ".tsv", ".txt", ".xml", ".yaml", ".yml"}
)
_LARGEST = 10 << 20
_SUFFIXES = ("", ".js", ".json")
_FOLDERS = ("", "lib/", "site/", "site/lib/")


class PinnedModules(ModuleRoots):
    """``require`` over the files of one version: the job's own first, then the site's (``site/lib/…``)."""

    def __init__(self, files: Mapping[str, str]) -> None:
        super().__init__([])
        self._files = files

    def require(self, name: str, importer: str) -> Module:
        """The module that ``importer`` asks for; a name without slashes may use dots. Raises HostError."""
        found = self._pinned(name, importer)
        if found is None:
            message = f'Cannot find module "{name}" (required by {importer}): not in lib/ of the job or the site'
            raise HostError(message, code="MODULE_NOT_FOUND")
        return Module(found, self._files[found])

    def _pinned(self, name: str, importer: str) -> str | None:
        if name.startswith(("./", "../")):
            candidates = [str(PurePosixPath(importer).parent / name)]
        else:
            path = name if "/" in name or name.endswith((".js", ".json")) else name.replace(".", "/")
            candidates = [folder + path for folder in _FOLDERS]
        for candidate in candidates:
            inside = _normal(candidate, name)
            for suffix in _SUFFIXES:
                if inside + suffix in self._files:
                    return inside + suffix
        return None


def _normal(path: str, asked: str) -> str:
    parts: list[str] = []
    for part in PurePosixPath(path).parts:
        if part == "/" or (part == ".." and not parts):
            raise HostError(f'"{asked}" leads out of the job\'s folder', code="MODULE_NOT_FOUND")
        parts = parts[:-1] if part == ".." else [*parts, part]
    return "/".join(parts)


def read_text(path: str, folder: Path | None, shared: Path | None) -> str | None:
    """The text of a file of the job's folder, or else of the shared one; None where neither has it. Raises HostError.

    ``shared/…`` is only looked for in the shared folder.
    """
    pure = PurePosixPath(path)
    if pure.is_absolute() or ".." in pure.parts or "\0" in path or "\\" in path or not pure.parts:
        raise HostError(f'fs_read("{path}"): a path is relative and stays in the job\'s folder')
    if pure.suffix.lower() not in _TEXTS:
        raise HostError(f'fs_read("{path}"): files of that kind are not read ({", ".join(sorted(_TEXTS))} are)')
    if pure.parts[0] == "shared":
        places = [(shared, PurePosixPath(*pure.parts[1:]))]
    else:
        places = [(folder, pure), (shared, pure)]
    for root, relative in places:
        if root is None or not (file := root / relative).is_file():
            continue
        if not file.resolve().is_relative_to(root.resolve()):
            raise HostError(f'fs_read("{path}"): it leads out of its folder')
        return _text(file, path)
    return None


def _text(file: Path, shown: str) -> str:
    try:
        if file.stat().st_size > _LARGEST:
            raise HostError(f'fs_read("{shown}"): the file is larger than 10 MB')
        return file.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise HostError(f'fs_read("{shown}"): not UTF-8 text') from error
    except OSError as error:
        raise HostError(f'fs_read("{shown}"): {error.strerror}') from error
