#!/usr/bin/env python3
"""Saves /favicon.ico of the page's site."""

import sys
from pathlib import Path
from urllib.parse import urljoin

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from fetching import argument, done, fetch

status, _, body = fetch(urljoin(argument("url"), "/favicon.ico"))
if status != 200 or not body:
    done("noresults", "no favicon")
Path("favicon.ico").write_bytes(body)
done("succeeded", "favicon/favicon.ico")
