"""Which command runs a hook."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

#: Interpreters by extension, where neither the site nor the file says otherwise.
INTERPRETERS: Mapping[str, str] = {"py": sys.executable, "js": "node", "sh": "bash"}
_SHEBANG_BYTES = 256


class CannotLaunch(Exception):
    """The hook cannot be started; ``code`` is the exit code a shell would give."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def command(hook: Path, extension: str, interpreters: Mapping[str, str], root: Path, path: str) -> list[str]:
    """The words that start ``hook``, to which its flags are appended. Raises CannotLaunch.

    The site's interpreter for the extension beats the file's own shebang, which beats the usual interpreter.
    """
    if not hook.is_file():
        raise CannotLaunch(127, f"{hook} does not exist")
    told = interpreters.get(extension)
    if told is not None:
        return [_program(str(root / told) if "/" in told and not os.path.isabs(told) else told, path), str(hook)]
    own = shebang(hook)
    if os.access(hook, os.X_OK) and own and _resolves(own, path):
        return [str(hook)]
    usual = INTERPRETERS.get(extension)
    if usual is not None:
        return [_program(usual, path), str(hook)]
    if own:
        if not os.access(hook, os.X_OK):
            raise CannotLaunch(126, f"{hook} is not executable")
        raise CannotLaunch(127, f"{hook}: its interpreter {own[0]} does not exist")
    raise CannotLaunch(126, f'{hook} has no shebang, and there is no interpreter for ".{extension}"')


def shebang(hook: Path) -> list[str]:
    """The words after ``#!``; none where the file has no such line."""
    try:
        with hook.open("rb") as file:
            head = file.read(_SHEBANG_BYTES)
    except OSError:
        return []
    if not head.startswith(b"#!"):
        return []
    return head[2:].split(b"\n", 1)[0].decode("utf-8", "replace").split()


def _resolves(words: list[str], path: str) -> bool:
    if shutil.which(words[0], path=path) is None:
        return False
    if Path(words[0]).name != "env":
        return True
    programs = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
    return bool(programs) and shutil.which(programs[0], path=path) is not None


def _program(name: str, path: str) -> str:
    found = shutil.which(name, path=path)
    if found is None:
        raise CannotLaunch(127, f"the interpreter {name} does not exist")
    return found
