"""A result as bytes: for the pipe between processes, and for the inbox of a site DB."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import zstandard

from engine.model import (
    Artifact,
    BackoffKind,
    Dependency,
    EdgeKind,
    LogLine,
    NewOp,
    Record,
    Result,
    RetryPolicy,
    Validators,
)


def result_to_dict(result: Result) -> dict[str, Any]:
    """Plain values, artifacts without their bodies."""
    return {
        "data": result.data,
        "records": [[item.collection, item.key, item.data] for item in result.records],
        "artifacts": [_artifact_to_dict(item) for item in result.artifacts],
        "emitted": [asdict(item) for item in result.emitted],
        "logs": [[item.at, item.level, item.message] for item in result.logs],
        "cookies": result.cookies,
        "validators": None if result.validators is None else asdict(result.validators),
        "reschedule": result.reschedule,
    }


def result_from_dict(plain: Mapping[str, Any], bodies: Mapping[str, bytes] | None = None) -> Result:
    """The inverse of :func:`result_to_dict`; ``bodies`` by SHA-256."""
    known = bodies or {}
    # absent from inbox rows of older versions
    validators = plain.get("validators")
    return Result(
        data=plain["data"],
        records=tuple(Record(collection=item[0], key=item[1], data=item[2]) for item in plain["records"]),
        artifacts=tuple(Artifact(**item, body=known.get(item["sha256"])) for item in plain["artifacts"]),
        emitted=tuple(op_from_dict(item) for item in plain["emitted"]),
        logs=tuple(LogLine(at=item[0], level=item[1], message=item[2]) for item in plain["logs"]),
        cookies=plain["cookies"],
        validators=None if validators is None else Validators(**validators),
        reschedule=plain.get("reschedule"),
    )


def encode_result(result: Result) -> bytes:
    """What an inbox row holds. Bodies are not in it: they are in the engine DB, by hash, before the row is."""
    text = json.dumps(result_to_dict(result), ensure_ascii=False, separators=(",", ":"))
    return zstandard.ZstdCompressor(level=3).compress(text.encode("utf-8", "surrogatepass"))


def decode_result(stored: bytes) -> Result:
    """The inverse of :func:`encode_result`."""
    text = zstandard.ZstdDecompressor().decompress(stored).decode("utf-8", "surrogatepass")
    return result_from_dict(json.loads(text))


def _artifact_to_dict(item: Artifact) -> dict[str, Any]:
    return {
        "id": item.id,
        "name": item.name,
        "kind": item.kind,
        "content_type": item.content_type,
        "metadata": dict(item.metadata),
        "sha256": item.sha256,
        "size": item.size,
    }


def op_from_dict(plain: Mapping[str, Any]) -> NewOp:
    """The inverse of ``asdict`` of an op."""
    retry = dict(plain["retry"])
    retry["backoff"] = BackoffKind(retry["backoff"])
    edges = tuple(Dependency(item["op_id"], EdgeKind(item["kind"])) for item in plain["depends_on"])
    return NewOp(**{**plain, "retry": RetryPolicy(**retry), "depends_on": edges})
