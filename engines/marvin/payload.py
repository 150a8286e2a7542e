"""The form of a plan on the progress channel."""

from __future__ import annotations

from typing import Any, TypedDict


class PlanNodePayload(TypedDict):
    """One node of a :class:`PlanPayload`. Kind and status are in lower case."""

    id: str
    kind: str
    title: str
    status: str
    children: list[PlanNodePayload] | None
    meta: dict[str, Any]


class PlanPayload(TypedDict):
    """The plan on the progress channel; ``rootNode`` is ``None`` for an empty plan."""

    rootNode: PlanNodePayload | None
