"""What an execution may ask of its host, and what it leaves behind."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from engine.clock import Clock, Micros
from engine.js import web
from engine.js.charset import decode_body
from engine.js.hostcall import HostError
from engine.js.html import Trees
from engine.js.modules import Module, ModuleRoots
from engine.js.ports import DatabaseBusy, EngineReads, Rows, SiteSession, SqlRefused, SqlValue
from engine.js.spec import new_artifact, new_op, strings
from engine.model import NULL, Artifact, LogLine, NewOp, Record

#: Integers beyond this lose digits as JavaScript numbers.
_SAFE = 2**53 - 1


@dataclass(slots=True)
class Effects:
    """What one execution asked for, in order."""

    logs: list[LogLine] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)
    artifacts: list[Artifact] = field(default_factory=list)
    emitted: list[NewOp] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Identity:
    """On whose behalf an execution emits."""

    workflow_id: str
    site: str
    #: None for a verb: its ops have no parent.
    op_id: str | None
    now: Micros

    def default_id(self, what: str, count: int) -> str:
        """The id of the ``count``-th thing emitted without one."""
        if self.op_id is None:
            return f"{self.workflow_id}:submit:{count:03d}"
        return f"{self.op_id}:{what}:{count:03d}"


class Host:
    """The host side of one execution. Calls come on V8's thread."""

    def __init__(
        self,
        modules: ModuleRoots,
        clock: Clock,
        *,
        identity: Identity | None = None,
        session: SiteSession | None = None,
        reads: EngineReads | None = None,
    ) -> None:
        self._modules = modules
        self._clock = clock
        self._identity = identity
        self._session = session
        self._reads = reads
        self._trees = Trees()
        self._exact = False
        self._statements: dict[int, str] = {}
        self._texts: dict[tuple[str, str], str] = {}
        self.effects = Effects()
        #: Modules read so far: name and text, for the positions of syntax errors.
        self.loaded: list[tuple[str, str]] = []
        self._sources: dict[str, str] = {}
        #: Numbers of the modules whose text the isolate has already.
        self.kept: set[int] = set()
        #: The execution set a timer.
        self.timed = False
        #: The execution wrote, or tried to, against a database that was busy: run it again.
        self.busy = False
        self._calls: Mapping[str, Callable[[Any], Any]] = {
            "log": self._log,
            "timed": self._set_timer,
            "entry": self._entry,
            "require": self._require,
            "emit": self._emit,
            "dep": self._dependency,
            "record": self._record,
            "artifact": self._artifact,
            "set": self._set,
            "site.query": self._site_query,
            "site.exec": self._site_exec,
            "site.last": lambda _: self._site().last_insert_id(),
            "site.options": self._site_options,
            "site.hasTable": lambda name: self._site().has_table(name),
            "site.hasColumn": lambda names: self._site().has_column(*names),
            "engine.query": self._engine_query,
        }

    @property
    def waited(self) -> float:
        """Seconds spent waiting for the site DB's lock: not the script's time."""
        return self._session.waited if self._session is not None else 0.0

    def kill(self) -> None:
        """Nothing of this execution may be written any more."""
        if self._session is not None:
            self._session.kill()

    def call(self, name: str, payload: str) -> str:
        """Answer one call of the bridge. Raises HostError."""
        method = self._calls.get(name)
        if method is None:
            return self._other(name, payload)
        try:
            return _dumps(method(json.loads(payload)))
        except SqlRefused as error:
            raise HostError(str(error), name="SqlError") from error
        except DatabaseBusy as error:
            self.busy = True
            raise HostError(str(error), name="DatabaseBusy") from error

    def _other(self, name: str, payload: str) -> str:
        """What needs no JSON, one way or both."""
        match name:
            case "source":
                return self._sources[payload]
            case "text":
                return self._text(json.loads(payload))
            case "blob":
                return self._blob(payload).decode("latin-1")
            case "html.given":
                return _dumps(self._trees.call("parse", self._text(json.loads(payload))))
        if name.startswith("html."):
            return _dumps(self._trees.call(name[5:], json.loads(payload)))
        answer = web.call(name, payload)
        if answer is None:
            raise HostError(f"the host has no {name}")
        return answer

    def _set_timer(self, _: None) -> None:
        self.timed = True

    def _log(self, line: list[str]) -> None:
        message = line[1].replace("\0", "\ufffd")  # PostgreSQL's texts cannot hold it
        self.effects.logs.append(LogLine(at=self._clock.now(), level=line[0], message=message))

    def _entry(self, path: str) -> dict[str, Any]:
        return self._found(self._modules.entry(path))

    def _require(self, names: list[str]) -> dict[str, Any]:
        return self._found(self._modules.require(*names))

    def _found(self, module: Module) -> dict[str, Any]:
        if not module.is_json:
            self.loaded.append((module.name, module.source))
        shown = {"name": module.name, "json": module.is_json, "number": module.number}
        self._sources[str(module.number)] = module.source
        if module.number in self.kept:
            return shown
        self.kept.add(module.number)
        return {**shown, "source": module.source}

    def _known(self) -> Identity:
        if self._identity is None:
            raise HostError("ops cannot be emitted here")
        return self._identity

    def _emit(self, spec: Any) -> str:
        who = self._known()
        if not isinstance(spec, dict):
            raise HostError("emit expects an object", name="TypeError")
        op = new_op(
            spec,
            default_id=who.default_id("submit" if who.op_id is None else "emit", len(self.effects.emitted) + 1),
            site=who.site,
            parent_id=who.op_id,
            workflow_id=who.workflow_id,
            now=self._clock.now(),
        )
        self.effects.emitted.append(op)
        return self._standing(op, who) or op.id

    def _standing(self, op: NewOp, who: Identity) -> str | None:
        """The id an author should go on with: that of the op which holds the dedup key."""
        if not op.dedup_key or op.workflow_id:
            return None
        stored = None if self._reads is None else self._reads.standing(who.workflow_id, op.kind, op.dedup_key)
        same = (
            earlier.id
            for earlier in self.effects.emitted[:-1]
            if (earlier.kind, earlier.dedup_key, earlier.workflow_id) == (op.kind, op.dedup_key, "")
        )
        return stored or next(same, None)

    def _dependency(self, op_id: str) -> Any:
        if self._reads is None:
            return None
        found = self._reads.dependency(self._known().workflow_id, op_id)
        return None if found is None else _Verbatim(found)

    def _blob(self, sha256: str) -> bytes:
        if self._reads is None:
            raise HostError("no artifacts here")
        try:
            return self._reads.blob(sha256)
        except KeyError:
            raise HostError("the artifact's body was pruned") from None

    def _text(self, where: list[str]) -> str:
        key = (where[0], where[1])
        if key not in self._texts:
            self._texts[key] = decode_body(self._blob(where[0]), where[1])
        return self._texts[key]

    def _record(self, fields: list[str]) -> None:
        record = Record(collection=fields[0], key=fields[1], data=fields[2])
        self.effects.records.append(record)
        self._site().write_record(record)

    def _artifact(self, fields: list[Any]) -> str:
        number = len(self.effects.artifacts) + 1
        artifact = new_artifact(fields[0], fields[1], self._known().default_id("artifact", number))
        self.effects.artifacts.append(artifact)
        return artifact.id

    def _set(self, fields: list[Any]) -> None:
        name, value = fields
        if name == "workflowMetadata":
            value = strings(value, "workflow metadata") if isinstance(value, dict) else None
        self.effects.settings[name] = value

    def _site(self) -> SiteSession:
        if self._session is None:
            raise HostError("there is no site database here")
        return self._session

    def _site_options(self, wanted: Any) -> None:
        self._exact = isinstance(wanted, dict) and wanted.get("bigint") == "string"

    def _site_query(self, call: list[Any]) -> dict[str, Any]:
        return self._shown(self._site().query(self._statement(call), parameters(call[1])))

    def _site_exec(self, call: list[Any]) -> int:
        return self._site().execute(self._statement(call), parameters(call[1]))

    def _statement(self, call: list[Any]) -> str:
        """The text of a statement, which a script sends once and then names by its number."""
        text, _, number = call
        if text is not None:
            self._statements[number] = text
        return self._statements[number]

    def _engine_query(self, call: list[Any]) -> dict[str, Any]:
        if self._reads is None:
            raise HostError("there is no engine database here")
        return self._shown(self._reads.query(self._statement(call), parameters(call[1])))

    def _shown(self, rows: Rows) -> dict[str, Any]:
        return {"c": rows.columns, "r": [[self._value(value) for value in row] for row in rows.rows]}

    def _value(self, value: SqlValue) -> Any:
        if isinstance(value, bytes):
            return {"$bytes": value.decode("latin-1")}
        if self._exact and isinstance(value, int) and not -_SAFE <= value <= _SAFE:
            return str(value)
        return value


class _Verbatim:
    """JSON text that goes to the script as it is."""

    def __init__(self, text: str) -> None:
        self.text = text


def _dumps(value: Any) -> str:
    if value is None:
        return NULL
    if isinstance(value, _Verbatim):
        return value.text
    return _encode(value)


_encode = json.JSONEncoder(separators=(",", ":")).encode


def parameters(values: list[Any]) -> list[SqlValue]:
    """What a script passed to a statement, as a driver takes it."""
    out: list[SqlValue] = []
    for value in values:
        if isinstance(value, dict):
            out.append(int(value["$int"]) if "$int" in value else value["$bytes"].encode("latin-1"))
        elif isinstance(value, float) and value.is_integer() and abs(value) <= _SAFE:
            out.append(int(value))
        else:
            out.append(value)
    return out
