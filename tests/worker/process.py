"""A lab's worker as a process of its own; its arguments are ENGINE_DB FOLDER OPTIONS_JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.worker.lab import Lab


def main() -> None:
    """Work as the options say, then print a report."""
    lab = Lab(sys.argv[1], Path(sys.argv[2]))
    report = lab.work(**json.loads(sys.argv[3]))
    print(json.dumps({"succeeded": report.succeeded, "interrupted": report.interrupted, "processed": report.processed}))
