"""What can be wrong with a document or its path.

::

    EngineError
    ├── BadPath         a path that no document may have, or that this writer may not touch
    └── DocumentError   a document that cannot be read or fanned out; ``problem`` says which way
"""

from __future__ import annotations

from enum import StrEnum

from engines.errors import EngineError


class BadPath(EngineError):
    """A document path is refused. ``reason`` is a sentence for the person or model that chose it."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Problem(StrEnum):
    """Why a document is of no use here."""

    UNSUPPORTED_MIME = "unsupported_mime"
    MALFORMED = "malformed"
    TOO_LARGE = "too_large"
    TOO_DEEP = "too_deep"
    EMPTY = "empty"
    NO_KIND = "no_kind"
    UNKNOWN_KIND = "unknown_kind"
    GRAPH = "graph"
    NOT_EXPANDABLE = "not_expandable"
    NO_SCHEMA = "no_schema"
    TOO_MANY = "too_many"


class DocumentError(EngineError):
    """A document cannot be used. The message is the failure reason that people read."""

    def __init__(self, problem: Problem, message: str) -> None:
        super().__init__(message)
        self.problem = problem
