"""Everything a node keeps between two turns: the machine's state, and what the engine remembers beside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from engines.documents.drafts import ROOT_POSITION
from engines.marvin.state import MarvinState


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A recipe call the node made. ``marker`` is the text in place of a reply when the call was refused."""

    recipe: str
    marker: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCursor:
    """The cursor of a Marvin node of any kind."""

    state: MarvinState = field(default_factory=MarvinState)
    task_spec: Mapping[str, Any] = field(default_factory=dict)
    position: str = ROOT_POSITION
    """The node's position path, for its draft; settled when it is created."""
    planned: tuple[Mapping[str, Any], ...] = ()
    """Children to create before anything else (``expansion``)."""
    asked: tuple[Asked, ...] = ()
    """Recipe calls in their order; a call's place is the key of its sub-process."""
    mirrored: int = 0
    """How many of their replies stand in the chat history."""
    spawned: int = 0
    """Children created so far; the next one's order key."""

    def to_json(self) -> dict[str, Any]:
        """As stored: plain JSON, without what is empty."""
        extra: dict[str, Any] = {
            "taskSpec": dict(self.task_spec),
            "position": self.position if self.position != ROOT_POSITION else "",
            "planned": [dict(plan) for plan in self.planned],
            "asked": [
                {"recipe": call.recipe} | ({} if call.marker is None else {"marker": call.marker})
                for call in self.asked
            ],
            "mirrored": self.mirrored,
            "spawned": self.spawned,
        }
        # The state has a counter of its own called asked.
        renamed = {"calls" if key == "asked" else key: value for key, value in extra.items() if value}
        return {**self.state.to_cursor(), **renamed}

    @classmethod
    def from_json(cls, cursor: Mapping[str, Any]) -> NodeCursor:
        """The cursor a node was left with; the initial one for an empty object."""
        return cls(
            state=MarvinState.from_cursor(dict(cursor)),
            task_spec=cursor.get("taskSpec", {}),
            position=cursor.get("position", ROOT_POSITION),
            planned=tuple(cursor.get("planned", ())),
            asked=tuple(Asked(recipe=call["recipe"], marker=call.get("marker")) for call in cursor.get("calls", ())),
            mirrored=cursor.get("mirrored", 0),
            spawned=cursor.get("spawned", 0),
        )
