"""How the children of a node run: one after the other, or all at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engines.marvin.words import TaskKind
from models.records import ChildMode


def execution_mode(kind: TaskKind, task_spec: Mapping[str, Any], params: Mapping[str, Any]) -> ChildMode:
    """The mode of a node: its own spec's, else the process's for its kind, else the process's for all, else the kind's.

    A value that is there but is not PARALLEL (in any capitals) means SEQUENTIAL, junk included.
    """
    per_kind = params.get("defaultExecutionModePerKind")
    # Keys are compared in capitals, as every other word of a recipe is.
    kinds = (
        {str(key).strip().upper(): value for key, value in per_kind.items()} if isinstance(per_kind, Mapping) else {}
    )
    for value in (task_spec.get("executionMode"), kinds.get(kind.value), params.get("defaultExecutionMode")):
        if value is not None and value != "":
            parallel = isinstance(value, str) and value.strip().upper() == ChildMode.PARALLEL
            return ChildMode.PARALLEL if parallel else ChildMode.SEQUENTIAL
    return ChildMode.PARALLEL if kind is TaskKind.EXPAND_FROM_DOC else ChildMode.SEQUENTIAL
