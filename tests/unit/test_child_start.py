"""What a JS child loads: its start is paid for every script that was killed, and by every command that runs one."""

from __future__ import annotations

import subprocess
import sys


def test_a_child_starts_without_what_only_the_worker_needs() -> None:
    script = (
        "import sys, engine.jschild; print(*sorted({'sqlalchemy', 'httpx', 'yaml', 'psycopg'} & sys.modules.keys()))"
    )
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert shown.split() == []
