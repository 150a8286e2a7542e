"""The spec that an evolution begins with, and what is impossible from the start."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engines.errors import EngineError
from engines.valem.cursor import Task
from engines.valem.params import Params
from models.records import View


class Impossible(EngineError):
    """What was asked for cannot be done with what is stored. ``code``: the result's ``error``."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def base_spec(view: View, params: Params) -> Mapping[str, Any] | None:
    """The spec to evolve; ``None`` when a new one is made. Raises :class:`Impossible`, at the first turn or never."""
    stored = view.model
    if params.task is Task.GENERATE:
        if stored is not None:
            raise Impossible(
                "model_exists",
                f"there is a model {stored.model_id!r} already, at version {stored.version} (spec version"
                f" {stored.spec_version}); the recipe valem-evolve changes it, or choose another id",
            )
        return None
    if params.spec is not None:
        found = params.spec.get("version", "1.0.0")
        if params.expected is not None and params.expected != found:
            raise Impossible("version_conflict", f"the spec given is at version {found}, not {params.expected}")
        return params.spec
    if stored is None:
        raise Impossible("unknown_model", f"there is no model {params.model_id!r} in this project")
    at = stored.version if isinstance(params.expected, int) else stored.spec_version
    # Later turns see the version of the first one, whatever has been written since.
    if params.expected is not None and params.expected != at:
        raise Impossible(
            "version_conflict",
            f"the model {stored.model_id!r} is at version {stored.version} (spec version {stored.spec_version}),"
            f" not {params.expected}",
        )
    return stored.spec
