"""Records of stored model specs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredModel:
    """A model spec of a project in one version. ``node_id``: the node that wrote it, ``None`` for a person."""

    model_id: str
    version: int
    spec_version: str
    spec: dict[str, Any]
    evolution: dict[str, Any] | None
    process_id: UUID | None
    node_id: int | None
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelWish:
    """A model spec an engine asks to see; ``version`` ``None`` means the newest."""

    model_id: str
    version: int | None = None
