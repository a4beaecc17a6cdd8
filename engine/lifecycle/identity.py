"""Which items are the same: the hash that a job remembers of everything it has stored."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Identity:
    """An item's hash, and what its author should be told about it."""

    hash: str
    warning: str = ""


def identity(fields: Mapping[str, str], hash_fields: Sequence[str] = ()) -> Identity:
    """The identity of an item: all its fields, or ``hash_fields``, a missing one counting as empty.

    Where every one of those is blank all fields count, or all such items would be the same.
    """
    if not hash_fields:
        return Identity(_digest(fields))
    chosen = {name: fields.get(name, "") for name in hash_fields}
    blank = [name for name, value in chosen.items() if not value.strip()]
    if len(blank) == len(chosen):
        return Identity(
            _digest(fields), f"all hash_fields ({', '.join(blank)}) are blank: all fields were hashed instead"
        )
    return Identity(_digest(chosen), f"the hash field {', '.join(blank)} is blank" if blank else "")


def _digest(fields: Mapping[str, str]) -> str:
    """Of the pairs sorted by name, told apart so that no two lists of pairs look alike."""
    text = json.dumps(sorted(fields.items()), ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
