#!/usr/bin/env python3
"""Fetches the page once: its headers, and its body for the hooks that follow."""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from fetching import argument, done, fetch

status, headers, body = fetch(argument("url"))
Path("headers.json").write_text(json.dumps({"status": status, **dict(headers.items())}, indent=2))
if status >= 400:
    done("failed", f"HTTP status {status}")
if headers.get_content_type() in ("text/html", "application/xhtml+xml"):
    Path("page.html").write_bytes(body)
else:
    Path("page.bin").write_bytes(body)
done("succeeded", "headers/headers.json")
