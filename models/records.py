"""The words of the domain: states, reasons and the frozen views of rows. Imports nothing of ours.

How a row leaves each state is written at the state. ``docs`` of the turn protocol: README, "How a turn works".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from models.spec_records import StoredModel


class ProcessStatus(StrEnum):
    """Life of a think process."""

    INIT = "INIT"
    """Accepted and stored; leaves when the first turn is claimed, or by a stop."""
    RUNNING = "RUNNING"
    """At least one turn was claimed. Leaves by the closing commit, a stop, suspension, or when only people are left."""
    BLOCKED = "BLOCKED"
    """Only people are waited for. The next claim makes it RUNNING again."""
    SUSPENDED = "SUSPENDED"
    """No new turn is claimed; a call already running may still commit. Leaves by resume or stop."""
    CLOSED = "CLOSED"
    """Final: exactly one row in ``results`` exists."""


class CloseReason(StrEnum):
    """Why a process is CLOSED."""

    DONE = "DONE"
    FAILED = "FAILED"
    STOPPED = "STOPPED"


class NodeStatus(StrEnum):
    """Life of a node. One that fanned out is DONE *and* awaiting its children: not settled (see :func:`is_settled`)."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    WAITING = "WAITING"
    DONE = "DONE"
    FAILED = "FAILED"
    SKIPPED = "SKIPPED"


TERMINAL = frozenset({NodeStatus.DONE, NodeStatus.FAILED, NodeStatus.SKIPPED})
OPEN_PROCESS = frozenset({ProcessStatus.INIT, ProcessStatus.RUNNING, ProcessStatus.BLOCKED, ProcessStatus.SUSPENDED})


def is_settled(status: NodeStatus, awaiting_post_children: bool) -> bool:
    """The one definition of "this node is finished": terminal and not waiting for its subtree."""
    return status in TERMINAL and not awaiting_post_children


class Reason(StrEnum):
    """Why a transition happened. Two reasons may share a status; the phase record keeps the reason."""

    ADVANCED = "ADVANCED"
    CORRECTED = "CORRECTED"
    RETRY_LATER = "RETRY_LATER"
    STEPPED_DOWN = "STEPPED_DOWN"
    FANNED_OUT = "FANNED_OUT"
    CALLED = "CALLED"
    ASKED = "ASKED"
    CONCLUDED = "CONCLUDED"
    FAILED = "FAILED"
    FORCED = "FORCED"
    STOPPED = "STOPPED"
    POISONED = "POISONED"
    CRASHED = "CRASHED"


class ChildMode(StrEnum):
    """How children of one node run: one after the other in sibling order, or all at once."""

    SEQUENTIAL = "SEQUENTIAL"
    PARALLEL = "PARALLEL"


class ItemStatus(StrEnum):
    """Life of a question in the inbox. It leaves PENDING once, and with that its node becomes due."""

    PENDING = "PENDING"
    ANSWERED = "ANSWERED"
    DISMISSED = "DISMISSED"
    """Nobody will answer: a person said so, or the process was closed."""
    EXPIRED = "EXPIRED"
    """Nobody answered in time."""


class Priority(StrEnum):
    """Priority of a process at its queue. On Redis the *lowest* number is served first: see :data:`BROKER_PRIORITY`."""

    HIGH = "high"
    NORMAL = "normal"
    LOW = "low"


BROKER_PRIORITY = {Priority.HIGH: 0, Priority.NORMAL: 3, Priority.LOW: 9}


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Hard limits of a root process, its sub-processes included. ``None`` means no limit. Money is US dollars."""

    max_calls: int | None = None
    max_tokens: int | None = None
    max_cost_usd: float | None = None
    deadline_seconds: float | None = None
    """Wall clock from submission."""

    @property
    def counted(self) -> bool:
        """Whether calls must be reserved against a stored counter (the deadline needs no counter)."""
        return self.max_calls is not None or self.max_tokens is not None or self.max_cost_usd is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """The whole content of a turn message, plus where to publish it. Carries no prompt and no secret."""

    node_id: int
    turn: int
    engine: str
    priority: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """Proof of a claim. Every write of the turn is guarded by ``turn`` and ``fence``."""

    node_id: int
    turn: int
    fence: int
    process_id: UUID
    root_id: UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessView:
    """What an engine may know of its process. Bodies (params, recipe) are as stored at submission."""

    id: UUID
    root_id: UUID
    parent_node_id: int | None
    tenant: str
    project: str
    owner: str | None
    """Who submitted it, if that was said."""
    engine: str
    recipe_name: str
    goal: str
    params: dict[str, Any]
    recipe: dict[str, Any]
    limits_counted: bool
    deadline_at: datetime | None
    overdue: bool
    priority: int
    trace_context: dict[str, str]
    callback: dict[str, Any] | None
    batch_until: datetime | None = None  # its calls go to the batch lane until then


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeView:
    """One node with its cursor, as the claim found it."""

    id: int
    parent_id: int | None
    depth: int
    order_key: tuple[int, ...]
    kind: str
    goal: str
    status: NodeStatus
    phase: str
    cursor: dict[str, Any]
    transport: dict[str, Any]
    """Owned by the turn runner: failures so far, learned refusals, crashes, the first claim of a turn given back."""
    turn: int
    losses: int
    """Workers lost in this very turn."""
    spawned_calls: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredMessage:
    """One row of the chat history. ``kind`` is the engine's word: ``prompt``, ``reply``, ``correction``, ``result``."""

    role: str
    kind: str
    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CallResult:
    """A sub-process a node called. ``result`` is ``None`` while it is open."""

    process_id: UUID
    recipe_name: str
    engine: str
    closed: bool
    close_reason: CloseReason | None
    result: dict[str, Any] | None
    cursor_key: str
    """The key the caller gave in its :class:`~models.transition.SpawnProcess`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredDocument:
    """A document of a project in one version."""

    id: int
    path: str
    version: int
    kind: str
    title: str | None
    mime: str
    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRow:
    """A node near the one at work. Texts are beginnings: of the goal, of the result (``summary``), of the failure."""

    id: int
    parent_id: int | None
    order_key: tuple[int, ...]
    kind: str
    goal: str
    status: NodeStatus
    awaiting: bool
    phase: str
    summary: str
    failure: str
    children: tuple[tuple[NodeStatus, int], ...] = ()
    """Its direct children by status; one that awaits its own counts as RUNNING."""
    item_id: int | None = None
    """The question it waits for, in the picture for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanPicture:
    """A process's tree for people, bounded, parents before children. Of two, the later ``taken_at`` is newer."""

    taken_at: datetime
    """On the database's clock, not after the rows were read."""
    status: ProcessStatus
    rows: tuple[PlanRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildRow:
    """A child of the node at work with what became of it. ``result`` may be cut for nodes with very many children."""

    id: int
    order_key: tuple[int, ...]
    kind: str
    goal: str
    status: NodeStatus
    failure: str
    result: str
    result_chars: int = 0
    """Of the whole result: more than ``result`` has when it was cut."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseRow:
    """An earlier turn of the node that called a model."""

    phase: str
    iteration: int
    model: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InboxItem:
    """A question to a person. ``answer``: ``{outcome, value?, reason?}``, as ``engines.inbox`` makes it.

    resolved_by: how it left PENDING: USER, AUTO_DEFAULT, EXPIRY or PROCESS (closed with its process).
    """

    id: int
    tenant: str
    project: str
    process_id: UUID
    node_id: int
    originator: str
    """Who asks: ``engine:process id``."""
    tags: tuple[str, ...]
    type: str
    criticality: str
    title: str
    body: str
    payload: dict[str, Any]
    status: ItemStatus
    owner: str | None
    answer: dict[str, Any] | None
    answered_by: str | None
    resolved_by: str | None
    created_at: datetime
    expires_at: datetime
    answered_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanView:
    """What a node may know of its tree: the path to the root, its neighbours, its children. Bounded, see the store."""

    node_count: int
    """Nodes of the process, of any status."""
    rows: tuple[PlanRow, ...] = ()
    path: tuple[int, ...] = ()
    """Ids from the root to the node; their rows have whole goals."""
    children: tuple[ChildRow, ...] = ()
    history: tuple[PhaseRow, ...] = ()
    question: InboxItem | None = None  # the one this node has asked
    answers: tuple[InboxItem, ...] = ()
    """The last questions of the process that were answered, oldest first, without ``payload``."""
    snapshot: str = ""  # the database's word for what was visible (pg_snapshot): what a replay shows the node again


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentWish:
    """A document an engine asks to see. ``by``: id, path or name."""

    by: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """Everything an engine decides from: bounded, never the whole tree."""

    node: NodeView
    process: ProcessView
    messages: tuple[StoredMessage, ...] = ()
    """The last messages of the process, oldest first, at most the number the engine asked for."""
    calls: tuple[CallResult, ...] = ()
    nonce: str = ""
    """A random token per claim, for fences around untrusted text."""
    claimed_in: int = 0  # the transaction of the claim; 0 when the commit before has made it
    plan: PlanView | None = None
    """Only for engines that ask for it (``engines.base.PlanningEngine``)."""
    document: StoredDocument | None = None
    """The document the engine wished for; ``None`` also when there is no such document."""
    model: StoredModel | None = None
    """The model spec the engine wished for (``engines.base.ModelingEngine``); ``None`` also when there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRecord:
    """One row of the usage ledger: a provider call, failed ones too. Money is US dollars, ``None`` when unpriced."""

    provider: str
    model: str
    attempt: int
    error_kind: str | None
    stop_reason: str
    structured_path: str | None
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    cost_usd: float | None
    latency_ms: int
    reached_inference: bool
    lane: str = "normal"
    lane_note: str | None = None  # why a call was not made in a batch: the turn's record keeps it, not the ledger

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens + self.cache_read_tokens + self.cache_write_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class NewProcess:
    """A process to be stored, validated by the edge. ``id`` comes from the client: submitted twice, one process."""

    id: UUID
    engine: str
    recipe_name: str
    recipe: dict[str, Any]
    params: dict[str, Any]
    goal: str
    tenant: str = "default"
    project: str = "default"
    owner: str | None = None
    priority: int = BROKER_PRIORITY[Priority.NORMAL]
    limits: Limits = field(default_factory=Limits)
    batch_seconds: float | None = None  # in the batch lane, for so long from submission; None: in the normal lane
    callback: dict[str, Any] | None = None
    trace_context: dict[str, str] = field(default_factory=dict)
    first_phase: str = "START"
    cursor: dict[str, Any] = field(default_factory=dict)
    node_kind: str = "ROOT"
