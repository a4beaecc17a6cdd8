#!/usr/bin/env python3
"""The links of the page as snapshots of the same crawl: its depth and its filters decide which of them are taken."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from fetching import argument, done, say

saved = Path("../outlinks/outlinks.txt")
links = saved.read_text().splitlines() if saved.is_file() else []
for link in links:
    if link.startswith(("http://", "https://")):
        say("Snapshot", url=link, depth=int(argument("depth") or 0) + 1)
done("succeeded" if links else "noresults", f"{len(links)} links")
