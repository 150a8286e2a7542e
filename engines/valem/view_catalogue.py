"""The closed vocabulary of view components (``view_catalogue.yaml``): what prompts list and the validator accepts."""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files

import yaml


@lru_cache(maxsize=1)
def component_types() -> tuple[str, ...]:
    """Every component type, in the order of the catalogue."""
    groups = yaml.safe_load(files("engines.valem").joinpath("view_catalogue.yaml").read_text("utf-8"))["groups"]
    return tuple(name for group in groups.values() for name in group["types"])
