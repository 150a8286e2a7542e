"""The texts and tables beside this module, read once per process."""

from __future__ import annotations

import functools
import json
from importlib import resources
from typing import Any

import yaml

_PACKAGE = "engines.valem.prompts"


@functools.cache
def text(name: str) -> str:
    """The Markdown file ``name``, without the line end at its end."""
    return resources.files(_PACKAGE).joinpath(name).read_text(encoding="utf-8").strip()


@functools.cache
def table(name: str) -> dict[str, Any]:
    """The YAML file ``name``. Shared between callers: treat as read-only."""
    data: dict[str, Any] = yaml.safe_load(text(name))
    return data


@functools.cache
def one_line_json(name: str) -> str:
    """The JSON file ``name`` on one line, in its own order: indentation would only cost tokens."""
    return json.dumps(json.loads(text(name)), ensure_ascii=False, separators=(",", ":"))
