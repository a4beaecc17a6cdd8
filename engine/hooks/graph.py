"""A crawl as a graph of ops.

::

    crawl ─▶ crawl hooks, one after another ─▶ snapshot (each URL) ─▶ its hooks ─▶ close ─▶ end hooks ─▶ seal
                                                                                                           │
    crawl-seal ◀─ crawl end hooks ◀─ check (no new snapshots; else a further check) ◀──────────────────────┘

The hooks of a scope form one chain: a foreground hook holds up the next one until its first attempt is over, a
background one only until it has begun. That chain is the barrier between steps; steps need no rows of their own.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from engine.clock import SECOND, Micros
from engine.hooks.binaries import Need
from engine.hooks.naming import Ground
from engine.hooks.plugins import Hook, Plugins
from engine.hooks.urls import UrlFilter
from engine.model import BackoffKind, Dependency, EdgeKind, NewOp, RetryPolicy

KIND = "hook"
FOREGROUND, BACKGROUND, CONTROL = "hooks:fg", "hooks:bg", "hooks:control"
BgPolicy = Literal["own", "daemon-at-end", "all-at-end"]
BG_POLICIES: tuple[BgPolicy, ...] = ("own", "daemon-at-end", "all-at-end")

#: Hooks that run when a crawl begins and when it ends.
CRAWL_EVENTS = ("CrawlSetup", "Crawl")
CRAWL_END_EVENTS = ("CrawlEnd", "CrawlCleanup")

_LONGEST_DELAY = 3600 * SECOND
_CONTROL_RETRY = RetryPolicy(max_attempts=10, backoff=BackoffKind.EXPONENTIAL, initial=SECOND, maximum=60 * SECOND)


@dataclass(frozen=True, slots=True, kw_only=True)
class CrawlSpec:
    """What a crawl was asked to do: the input of its workflow."""

    urls: tuple[str, ...]
    max_depth: int = 0
    #: Only these plugins, with what they require; none = all.
    plugins: tuple[str, ...] = ()
    config: Mapping[str, Any] = field(default_factory=dict)
    #: Further flags of every hook.
    arguments: Mapping[str, Any] = field(default_factory=dict)
    #: The operator's hook directories, absolute.
    hook_dirs: tuple[str, ...] = ()
    data_dir: str = ""
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    user: str = "system"
    label: str = ""
    created: Micros = 0
    bg_policy: BgPolicy = "daemon-at-end"
    #: Programs that are missing may be installed.
    install: bool = False
    attempts: int = 5
    retry_delay: Micros = 10 * SECOND
    #: Seconds that the next hook waits at most for a daemon to say something.
    ready_max: float = 30.0

    def dump(self) -> str:
        """As the workflow's input."""
        return json.dumps(asdict(self), ensure_ascii=False)

    @classmethod
    def load(cls, text: str) -> CrawlSpec:
        """The inverse of :meth:`dump`."""
        values = json.loads(text)
        for name in ("urls", "plugins", "hook_dirs", "allow", "deny"):
            values[name] = tuple(values[name])
        return cls(**values)

    @property
    def filter(self) -> UrlFilter:
        """Which URLs it wants."""
        return UrlFilter(self.allow, self.deny)

    @property
    def data(self) -> Path:
        """The root of all output."""
        return Path(self.data_dir)

    @property
    def retry(self) -> RetryPolicy:
        """When a hook that failed hard runs again."""
        return RetryPolicy(
            max_attempts=self.attempts,
            backoff=BackoffKind.EXPONENTIAL,
            initial=self.retry_delay,
            maximum=_LONGEST_DELAY,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """What hooks belong to: a crawl, or one snapshot of it."""

    kind: Literal["crawl", "snapshot"]
    id: str
    crawl_id: str
    url: str = ""
    depth: int = 0
    parent: str | None = None
    #: Its directory.
    root: str = ""
    #: How often it was begun: again where its directory is gone with its machine.
    round: int = 1

    @property
    def suffix(self) -> str:
        """What tells the ops of a later round from those of the first."""
        return "" if self.round == 1 else f"#{self.round}"

    @property
    def snapshot_id(self) -> str | None:
        """The id, if it is a snapshot's."""
        return self.id if self.kind == "snapshot" else None


@dataclass(frozen=True, slots=True, kw_only=True)
class HookInput:
    """The input of an op that runs one hook."""

    scope: Scope
    plugin: str
    file: str
    path: str
    event: str
    ground: Ground
    position: int
    #: A daemon that was dismissed and is started again for a hook that runs again.
    revived: bool = False

    def dump(self) -> str:
        """As the op's input."""
        return json.dumps(asdict(self), ensure_ascii=False)

    @classmethod
    def load(cls, text: str) -> HookInput:
        """The inverse of :meth:`dump`."""
        values = json.loads(text)
        return cls(**{**values, "scope": Scope(**values["scope"]), "ground": Ground(values["ground"])})


@dataclass(frozen=True, slots=True)
class Chain:
    """The ops of a scope's hooks, and what comes after them."""

    ops: tuple[NewOp, ...]
    #: What the next foreground op waits for.
    last: tuple[Dependency, ...]
    #: What the end of the scope waits for.
    finite: tuple[Dependency, ...]
    #: Ops that end only because the scope does.
    lasting: tuple[Dependency, ...]


def result_id(scope: Scope, hook: Hook) -> str:
    """The id of the row that says what became of a hook, and of the op that runs it in the first round."""
    return f"{scope.id}/{hook.label}"


def chain(
    site: str, spec: CrawlSpec, scope: Scope, hooks: Sequence[Hook], after: tuple[Dependency, ...] = (), first: int = 0
) -> Chain:
    """The hooks of a scope in their order, behind ``after``."""
    ops: list[NewOp] = []
    finite: list[Dependency] = []
    lasting: list[Dependency] = []
    last = after
    for position, hook in enumerate(hooks, first):
        name = f"{result_id(scope, hook)}{scope.suffix}"
        ground = hook.name.ground
        op_input = HookInput(
            scope=scope,
            plugin=hook.plugin,
            file=hook.name.file,
            path=str(hook.path),
            event=hook.name.event,
            ground=ground,
            position=position,
        )
        ops.append(
            NewOp(
                id=name,
                kind=KIND,
                site=site,
                queue=BACKGROUND if hook.name.background else FOREGROUND,
                input=op_input.dump(),
                metadata={"task": "hook", "plugin": hook.plugin, "hook": hook.name.file},
                retry=spec.retry,
                depends_on=last,
            )
        )
        last = (Dependency(name, EdgeKind.BEGUN if hook.name.background else EdgeKind.SETTLED),)
        over = Dependency(name, EdgeKind.SETTLED)
        (lasting if dismissed_at_end(spec.bg_policy, ground) else finite).append(over)
    return Chain(tuple(ops), last, tuple(finite), tuple(lasting))


def revived_daemon(site: str, scope: Scope, hook: Hook, emitter: str, process: str) -> NewOp:
    """The op that starts a daemon again after ``process``; of several only the first is kept."""
    row = result_id(scope, hook)
    op_input = HookInput(
        scope=scope,
        plugin=hook.plugin,
        file=hook.name.file,
        path=str(hook.path),
        event=hook.name.event,
        ground=hook.name.ground,
        position=0,
        revived=True,
    )
    return NewOp(
        id=f"{row}{scope.suffix}@{emitter}",
        kind=KIND,
        site=site,
        queue=BACKGROUND,
        dedup_key=f"{row}@{process}",
        input=op_input.dump(),
        metadata={"task": "hook", "plugin": hook.plugin, "hook": hook.name.file},
    )


def dismissed_at_end(policy: BgPolicy, ground: Ground) -> bool:
    """Whether a hook is told to end once the others of its scope are over."""
    if ground is Ground.DAEMON:
        return policy != "own"
    return ground is not Ground.FOREGROUND and policy == "all-at-end"


def control(
    site: str, name: str, task: str, value: Any, after: Iterable[Dependency] = (), dedup_key: str = ""
) -> NewOp:
    """An op that moves a crawl or a snapshot on."""
    return NewOp(
        id=name,
        kind=KIND,
        site=site,
        queue=CONTROL,
        dedup_key=dedup_key,
        input=json.dumps(value, ensure_ascii=False),
        metadata={"task": task},
        retry=_CONTROL_RETRY,
        depends_on=tuple(after),
    )


def snapshot_op(site: str, scope: Scope, after: Iterable[Dependency] = (), emitter: str = "") -> NewOp:
    """The op that begins a snapshot; of several for one URL only the first is kept."""
    name = f"snapshot:{scope.id}{scope.suffix}{emitter and f'@{emitter}'}"
    return control(site, name, "snapshot", asdict(scope), after, dedup_key=f"{scope.id}{scope.suffix}")


def binary_op(site: str, spec: CrawlSpec, need: Need, crawl_id: str = "") -> NewOp:
    """The op that looks for a program, and installs it if that is allowed; in a crawl its hooks have rows, too."""
    given = {"need": need.dump(), "install": spec.install, "crawl": crawl_id}
    op = control(site, f"binary:{need.name}", "binary", given)
    return replace(op, retry=spec.retry) if spec.install else op


def seal_of(snapshot_id: str) -> Dependency:
    """What waits for a snapshot to be sealed; ``snapshot_id`` with the suffix of its round."""
    return Dependency(f"seal:{snapshot_id}", EdgeKind.TERMINAL)


def wanted_hooks(plugins: Plugins, chosen: frozenset[str], events: Iterable[str]) -> list[Hook]:
    """The hooks of several events, event by event."""
    return [hook for event in events for hook in plugins.hooks(event, chosen)]
