"""The request of a cycle as hooks see it: what they may change, and what a change means."""

from __future__ import annotations

from typing import Any

from engine.lifecycle.job import Job

#: Seconds, and megabytes.
TIMEOUT, MAX_BODY_SIZE = 30, 10
USER_AGENT = "Mozilla/5.0 (compatible; scraper/0.1)"
DEFAULT_HEADERS = {
    "User-Agent": USER_AGENT,
    "Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
    "Accept-Language": "en-US,en;q=0.9",
}


def first_request(job: Job, url: str, user_agent: str | None = None) -> dict[str, Any]:
    """The request for ``url`` before any hook: browser-like headers, those of the job over them by name."""
    headers = dict(DEFAULT_HEADERS)
    if user_agent:
        headers["User-Agent"] = user_agent
    for name, value in job.headers.items():
        standing = next((known for known in headers if known.lower() == name.lower()), name)
        headers.pop(standing, None)
        headers[name] = value
    return {
        "url": url,
        "method": "GET",
        "headers": headers,
        "timeout": TIMEOUT,
        "proxy": None,
        "max_body_size": MAX_BODY_SIZE,
    }
