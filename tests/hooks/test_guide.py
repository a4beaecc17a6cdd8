"""The hooks of the guide (docs/hooks.md), as it gives them, in a crawl."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

from engine.hooks.lint import check
from engine.resources import resource
from tests.hooks.lab import Lab

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.DOTALL | re.MULTILINE)
LANGUAGES = {"sh": "#!/bin/sh", "python": "#!/usr/bin/env python3", "js": "#!/usr/bin/env node"}


def page() -> str:
    return (resource("docs") / "hooks.md").read_text("utf-8")


def hooks() -> dict[str, str]:
    """By language, the first block that begins with its shebang."""
    found: dict[str, str] = {}
    for language, text in _BLOCK.findall(page()):
        if language in LANGUAGES and text.startswith(LANGUAGES[language]):
            found.setdefault(language, text)
    return found


def test_the_same_hook_in_three_languages_counts_the_words(tmp_path: Path) -> None:
    lab, given = Lab(tmp_path), hooks()
    assert given.keys() == LANGUAGES.keys()
    if shutil.which("node") is None:
        del given["js"]
    lab.hook("text/on_Snapshot__57_text.sh", "echo some words of a page > page.txt")
    (schema,) = (text for language, text in _BLOCK.findall(page()) if '"properties"' in text)
    for language, script in given.items():
        extension = {"python": "py"}.get(language, language)
        lab.hook(f"wordcount{extension}/on_Snapshot__60_wordcount.{extension}", script)
        (lab.hooks / f"wordcount{extension}/config.json").write_text(
            schema.replace("WORDCOUNT", f"WORDCOUNT{extension.upper()}")
        )
    assert check([lab.hooks], {}, tmp_path, os.environ["PATH"]) == ()
    lab.crawl(attempts=1)
    rows = lab.results("status, output_str, error, output_files")
    counted = {name: row for name, row in rows.items() if name.startswith("wordcount")}
    assert len(counted) == len(given)
    for row in counted.values():
        assert (row["status"], row["output_str"]) == ("succeeded", "5 words"), row["error"]
        assert list(json.loads(row["output_files"])) == ["words.txt"]
