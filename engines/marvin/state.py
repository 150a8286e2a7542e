"""The cursor of a worker node between two turns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from engines.marvin.caps import Caps
from engines.marvin.outputs import PostAction
from engines.marvin.words import Phase

_COUNTERS: Final = {
    "reflect_iter": "reflectIter",
    "validate_iter": "validateIter",
    "conclude_retries": "concludeRetries",
    "need_more_data_iter": "needMoreDataIter",
    "post_children_rounds": "postChildrenRounds",
    "asked": "asked",
    "corrections": "corrections",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    """An answer that was not accepted, as far as the next attempt needs it."""

    excerpt: str
    correction: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MarvinState:
    """Phase and counters of one node. No counter ever goes down, ``corrections`` apart."""

    phase: Phase = Phase.SCOPE
    reflect_iter: int = 0
    """Entries into REFLECT: recipe calls (refused ones too) and returns for more data."""
    validate_iter: int = 0
    """Entries into VALIDATE that made (or are about to make) a call."""
    conclude_retries: int = 0
    need_more_data_iter: int = 0
    post_children_rounds: int = 0
    """Entries into POST_CHILDREN."""
    asked: int = 0
    """Those among them that waited for a person only."""
    corrections: int = 0
    """Unreadable answers in a row, within this phase call."""
    rejected: Rejected | None = None
    output_limit: int | None = None
    """Output tokens to ask for, after an answer that was cut off."""
    short: bool = False
    """A prompt of this node did not fit its model: from then on all are short ones, since material only grows."""
    candidate: str | None = None
    post_actions: tuple[PostAction, ...] = ()
    """Of the last CONCLUDE."""
    hints: tuple[str, ...] = ()
    """What the next phases must know: the reviewer's issues, what a limit has decided. Gone with the next review."""
    audit_warning: str | None = None

    def iteration(self) -> int:
        """The number of the current phase's call within the node, from 1."""
        return {
            Phase.SCOPE: 1,
            Phase.REFLECT: self.reflect_iter,
            Phase.POST_CHILDREN: self.post_children_rounds,
            # Each conclusion but the last is followed by a review.
            Phase.CONCLUDE: self.validate_iter + 1,
            Phase.VALIDATE: self.validate_iter,
        }[self.phase]

    def iteration_cap(self, caps: Caps) -> int | None:
        """The highest :meth:`iteration` of the current phase; ``None`` where it depends on the tree."""
        return {
            Phase.SCOPE: 1,
            Phase.REFLECT: caps.reflect,
            Phase.POST_CHILDREN: None,
            Phase.CONCLUDE: caps.validate + 1,
            Phase.VALIDATE: caps.validate,
        }[self.phase]

    def level(self, depth: int) -> int:
        """The node's depth as the depth limit counts it: each round of children after the first is a level more."""
        return depth + max(0, self.post_children_rounds - self.asked - 1)

    def to_cursor(self) -> dict[str, Any]:
        """As stored on the node: plain JSON, without what is empty."""
        cursor: dict[str, Any] = {"phase": self.phase.value}
        cursor |= {key: value for name, key in _COUNTERS.items() if (value := getattr(self, name))}
        if self.rejected is not None:
            cursor["rejected"] = {"excerpt": self.rejected.excerpt, "correction": self.rejected.correction}
        if self.output_limit is not None:
            cursor["outputLimit"] = self.output_limit
        if self.short:
            cursor["short"] = True
        if self.candidate is not None:
            cursor["candidate"] = self.candidate
        if self.post_actions:
            cursor["postActions"] = [action.model_dump(mode="json") for action in self.post_actions]
        if self.hints:
            cursor["hints"] = list(self.hints)
        if self.audit_warning is not None:
            cursor["auditWarning"] = self.audit_warning
        return cursor

    @classmethod
    def from_cursor(cls, cursor: dict[str, Any]) -> MarvinState:
        """The state a node was left in; the initial one for an empty cursor."""
        rejected = cursor.get("rejected")
        return cls(
            phase=Phase(cursor.get("phase", Phase.SCOPE)),
            rejected=Rejected(**rejected) if rejected else None,
            output_limit=cursor.get("outputLimit"),
            short=cursor.get("short", False),
            candidate=cursor.get("candidate"),
            post_actions=tuple(PostAction.model_validate(action) for action in cursor.get("postActions", ())),
            hints=tuple(cursor.get("hints", ())),
            audit_warning=cursor.get("auditWarning"),
            **{name: cursor.get(key, 0) for name, key in _COUNTERS.items()},
        )
