"""What the hooks of this site share: their arguments, their records, and the page itself."""

from __future__ import annotations

import json
import os
import sys
import urllib.error
import urllib.request
from email.message import Message
from pathlib import Path

#: More of a page than this is not read.
LARGEST = 20_000_000


def argument(name: str) -> str:
    """The value of ``--name=value``; unknown flags are none of our business."""
    for word in sys.argv[1:]:
        if word.startswith(f"--{name}="):
            return word.partition("=")[2]
    return ""


def say(kind: str, **members: object) -> None:
    """Print one record."""
    print(json.dumps({"type": kind, **members}, ensure_ascii=False), flush=True)


def done(status: str, output: str) -> None:
    """Print the result of this hook and end."""
    say("ArchiveResult", status=status, output_str=output)
    sys.exit(0)


def fetch(url: str) -> tuple[int, Message, bytes]:
    """Status, headers and body. A server that says no is an answer; one that cannot be reached ends the hook."""
    timeout = float(os.environ.get("TIMEOUT", "60"))
    agent = os.environ.get("USER_AGENT", "scraper-archive/1.0")
    request = urllib.request.Request(url, headers={"User-Agent": agent})
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            return answer.status, answer.headers, answer.read(LARGEST)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers, error.read(LARGEST)
    except (OSError, ValueError) as error:
        print(f"{url}: {error}", file=sys.stderr)
        sys.exit(1)


def page() -> str:
    """The page that the hook ``headers`` saved; fetched where it did not."""
    saved = Path("../headers/page.html")
    body = saved.read_bytes() if saved.is_file() else fetch(argument("url"))[2]
    return body.decode("utf-8", "replace")
