#!/usr/bin/env python3
"""Every address the page links to, one a line."""

import html
import re
import sys
from pathlib import Path
from urllib.parse import urljoin

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from fetching import argument, done, page

base = argument("url")
found = re.findall(r"""<a\s[^>]*?href\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s>]+))""", page(), re.IGNORECASE)
links = dict.fromkeys(urljoin(base, html.unescape(a or b or c).strip()) for a, b, c in found)
if not links:
    done("noresults", "no links")
Path("outlinks.txt").write_text("".join(f"{link}\n" for link in links))
done("succeeded", "outlinks/outlinks.txt")
