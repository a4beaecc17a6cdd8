"""What is said about new items: the webhook's payload and the texts of a notification."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from engine.lifecycle.job import Job, Notification
from engine.lifecycle.verdicts import Item

#: Items a notification shows in full.
SHOWN_ITEMS = 3
#: Lines of a default notification about one item.
_DEFAULT_LINES = 5
_TAG = re.compile(r"\{([^{}]*)\}")


class Message(TypedDict):
    """A notification as it goes into the outbox."""

    title: str
    body: str
    timeout: int


def payload(job: Job, items: Sequence[Item]) -> dict[str, Any]:
    """The default payload of a webhook: flat items, each with its ``keywords``."""
    return {
        "job_name": job.name,
        "item_count": len(items),
        "items": [{**item["fields"], "keywords": list(item["matches"])} for item in items],
    }


def notification(job: Job, told: Notification, items: Sequence[Item], timestamp: str) -> Message:
    """The notification about ``items``."""
    found = list(dict.fromkeys(match for item in items for match in item["matches"]))
    common = {
        "job_name": job.name,
        "url": job.url,
        "item_count": str(len(items)),
        "timestamp": timestamp,
        "matches": ", ".join(found),
        "match_count": str(len(found)),
    }
    if told.title is None:
        title = f"New match from {job.name}" if len(items) == 1 else f"{len(items)} new matches from {job.name}"
    else:
        title = render(told.title, common)
    parts = [_body(job, told.body, common, item) for item in items[:SHOWN_ITEMS]]
    if len(items) > SHOWN_ITEMS:
        parts[-1] += f"\n+ {len(items) - SHOWN_ITEMS} more"
    return {"title": title, "body": "\n---\n".join(parts), "timeout": told.timeout_ms}


def render(template: str, values: Mapping[str, str]) -> str:
    """``template`` with its ``{tags}`` filled in; an unknown one becomes nothing, a brace without a partner stays.

    >>> render("{a} {b} {oops {} }", {"a": "1"})
    '1  {oops  }'
    """
    return _TAG.sub(lambda tag: values.get(tag[1].strip(), "") if tag[1].strip() else "", template)


def _body(job: Job, template: str | None, common: Mapping[str, str], item: Item) -> str:
    if template is not None:
        return render(template, {**item["fields"], **common})
    lines = [
        f"{_label(rule.name)}: {item['fields'][rule.name]}"
        for rule in job.fields
        if item["fields"].get(rule.name, "").strip()
    ][:_DEFAULT_LINES]
    if item["matches"]:
        lines.append(f"Keywords: {', '.join(item['matches'])}")
    return "\n".join(lines)


def _label(name: str) -> str:
    spaced = name.replace("_", " ").strip()
    return spaced[:1].upper() + spaced[1:]
