"""The value an engine returns: what one turn changes. Written as a whole by ``models.store.commit`` or not at all.

A transition is data: status, cursor, reason and effects. Every effect is a row to write, so no effect needs an
interpreter of its own; enqueueing the turns that became due is the only thing left outside the commit.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from models.records import ChildMode, CloseReason, NodeStatus, Reason, is_settled


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendMessage:
    """One row of chat history. ``role`` is user, assistant, system or tool."""

    role: str
    kind: str
    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteArtifact:
    """A big text of the node, upserted by ``(node, key)``."""

    key: str
    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteDocument:
    """A document of the process's project: created, or given its next version when ``path`` exists.

    ``path`` is normalised and allowed already. Of several for one path in one transition the last is written. time_at:
    where in ``content`` the time of the commit is inserted (ISO 8601, UTC); engines have no clock.
    """

    path: str
    kind: str
    content: str
    title: str | None = None
    mime: str = "text/markdown"
    time_at: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteModelSpec:
    """One version of a model of the process's project. At most one in a transition.

    Nothing is written when that version exists already: of several writers one wins, and each sees in its next turn
    which (``StoredModel.node_id``). ``evolution`` is the change that led here from the version before, if one did.
    """

    model_id: str
    version: int
    spec: dict[str, Any]
    spec_version: str
    evolution: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewChild:
    """A child node. ``order_key`` sorts among siblings; longer keys insert behind a sibling without moving rows."""

    order_key: tuple[int, ...]
    kind: str
    goal: str
    phase: str
    cursor: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpawnChildren:
    """Children below the node. ``SEQUENTIAL`` makes the first due, and each that settles the next one.

    ``PARALLEL`` makes all of them due, or with ``width`` as many as bring the nodes at work in the whole process to
    that number (the process keeps it). The others wait for a place: a node below the root that settles, parks or fans
    out hands its place on. One that is woken needs none: it goes on at once, and no new one is started until the number
    fits again. max_nodes: if the process would have more nodes with these children, nothing is written and the engine
    decides again (``models.store.commit.TreeFull``).
    """

    children: tuple[NewChild, ...]
    mode: ChildMode
    width: int | None = None
    max_nodes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SpawnProcess:
    """A sub-process called by the node, which must be parked by the same transition. ``key`` finds its result again.

    A node whose time limit ran out gives its open calls up by calling again or by settling: the sweeper stops them.
    """

    id: UUID
    key: str
    engine: str
    recipe_name: str
    recipe: dict[str, Any]
    params: dict[str, Any]
    goal: str
    first_phase: str
    cursor: dict[str, Any] = field(default_factory=dict)
    node_kind: str = "ROOT"


@dataclass(frozen=True, slots=True, kw_only=True)
class SpawnSibling:
    """A node right behind this one, due at once; this one is settled by the same transition and is not the root.

    max_nodes: as for :class:`SpawnChildren`.
    """

    child: NewChild
    max_nodes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AskUser:
    """A question for the inbox; the node is parked by the same transition, with ``delay_seconds`` 0 if ``answer`` is
    given: then it is answered already, by its own default. owner: whose it is; ``None`` for the project's pool.
    originator: who asks, ``engine:process id``. tags: words to find it by."""

    type: str
    criticality: str
    title: str
    body: str
    payload: dict[str, Any]
    ttl_seconds: float
    originator: str
    tags: tuple[str, ...] = ()
    owner: str | None = None
    answer: dict[str, Any] | None = None
    answered_by: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WithdrawQuestion:
    """The node's question, if it is still open, is closed as expired: the node does not wait any longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CloseProcess:
    """Closes the process with its one result. ``message`` is appended as the final assistant message."""

    reason: CloseReason
    result: dict[str, Any]
    message: str


Effect = (
    AppendMessage
    | WriteArtifact
    | WriteDocument
    | WriteModelSpec
    | SpawnChildren
    | SpawnSibling
    | SpawnProcess
    | AskUser
    | WithdrawQuestion
    | CloseProcess
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseNote:
    """What the audit trail says of this turn; phase and reason come from the transition's context."""

    phase: str
    iteration: int
    output: Any = None
    forced: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """What one turn decided. Build it with the named constructors.

    delay_seconds: when the node's next turn is due, from now on the database's clock; ``None`` parks the node until a
    child, a sub-process or an answer wakes it. Ignored once the node is settled.
    """

    status: NodeStatus
    phase: str
    cursor: dict[str, Any]
    reason: Reason
    note: PhaseNote
    effects: tuple[Effect, ...] = ()
    failure: str | None = None
    delay_seconds: float | None = 0.0
    awaiting_post_children: bool = False
    transport: dict[str, Any] = field(default_factory=dict)

    @property
    def settled(self) -> bool:
        return is_settled(self.status, self.awaiting_post_children)

    @property
    def label(self) -> str:
        """What the turn was, as its record says: ``PHASE.REASON``."""
        return f"{self.note.phase}.{self.reason}"

    def with_transport(self, transport: dict[str, Any]) -> Transition:
        """The same transition carrying the runner's own notes to the node's next turn."""
        return replace(self, transport=transport)


def advance(
    phase: str,
    cursor: dict[str, Any],
    *,
    note: PhaseNote,
    reason: Reason = Reason.ADVANCED,
    effects: tuple[Effect, ...] = (),
    delay_seconds: float = 0.0,
) -> Transition:
    """The node goes on; its next turn is due after ``delay_seconds``."""
    return Transition(
        status=NodeStatus.RUNNING,
        phase=phase,
        cursor=cursor,
        reason=reason,
        note=note,
        effects=effects,
        delay_seconds=delay_seconds,
    )


def park(
    phase: str,
    cursor: dict[str, Any],
    *,
    note: PhaseNote,
    reason: Reason,
    effects: tuple[Effect, ...],
    timeout_seconds: float | None = None,
) -> Transition:
    """The node waits for a sub-process or a person; ``timeout_seconds`` makes it due anyway."""
    return Transition(
        status=NodeStatus.WAITING,
        phase=phase,
        cursor=cursor,
        reason=reason,
        note=note,
        effects=effects,
        delay_seconds=timeout_seconds,
    )


def fan_out(
    phase: str, cursor: dict[str, Any], *, note: PhaseNote, children: SpawnChildren, effects: tuple[Effect, ...] = ()
) -> Transition:
    """The node is DONE for now and comes back in ``phase`` when its whole subtree is settled."""
    return Transition(
        status=NodeStatus.DONE,
        phase=phase,
        cursor=cursor,
        reason=Reason.FANNED_OUT,
        note=note,
        effects=(*effects, children),
        delay_seconds=None,
        awaiting_post_children=True,
    )


def finish(
    phase: str,
    cursor: dict[str, Any],
    *,
    note: PhaseNote,
    effects: tuple[Effect, ...],
    reason: Reason = Reason.CONCLUDED,
) -> Transition:
    """The node is settled with success."""
    return Transition(
        status=NodeStatus.DONE,
        phase=phase,
        cursor=cursor,
        reason=reason,
        note=note,
        effects=effects,
        delay_seconds=None,
    )


def fail(
    phase: str,
    cursor: dict[str, Any],
    *,
    note: PhaseNote,
    failure: str,
    effects: tuple[Effect, ...] = (),
    reason: Reason = Reason.FAILED,
) -> Transition:
    """The node is settled as FAILED; ``failure`` is what parents and people read."""
    return Transition(
        status=NodeStatus.FAILED,
        phase=phase,
        cursor=cursor,
        reason=reason,
        note=note,
        effects=effects,
        failure=failure,
        delay_seconds=None,
    )
