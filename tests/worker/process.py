"""``python -m tests.worker.process ENGINE_DB FOLDER OPTIONS_JSON``: a lab's worker as a process of its own."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.worker.lab import Lab

if __name__ == "__main__":
    lab = Lab(sys.argv[1], Path(sys.argv[2]))
    report = lab.work(**json.loads(sys.argv[3]))
    print(json.dumps({"succeeded": report.succeeded, "interrupted": report.interrupted, "processed": report.processed}))
