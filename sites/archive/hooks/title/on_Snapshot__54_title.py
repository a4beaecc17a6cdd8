#!/usr/bin/env python3
"""The page's title, as the snapshot's."""

import html
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from fetching import done, page

found = re.search(r"<title[^>]*>(.*?)</title>", page(), re.IGNORECASE | re.DOTALL)
title = " ".join(html.unescape(found[1]).split()) if found else ""
if not title:
    done("noresults", "no title")
Path("title.txt").write_text(title)
done("succeeded", title)
