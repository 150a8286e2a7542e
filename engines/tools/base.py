"""What a tool is: a name, a schema for its arguments, and one function from arguments to a text.

Tools do I/O. They run in the runner's act step, never in an engine: no transaction is open, the turn's lease is held.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from engines.base import ToolResult as ToolResult
from engines.errors import EngineError
from engines.llm.base import CancelToken
from engines.recipes.cascade import RecipeSource
from models.records import StoredDocument


class ToolFailed(EngineError):
    """The tool cannot do what was asked. The message is for the model: what went wrong and what it can do instead."""


class Documents(Protocol):
    """The documents of the process's project, to read."""

    def get(self, path: str) -> StoredDocument | None:
        """The newest version at the normalised ``path``."""
        ...

    def paths(self, prefix: str, limit: int) -> Sequence[tuple[str, str, int]]:
        """``(path, kind, characters)`` of documents whose path begins with ``prefix``, by path, at most ``limit``."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolContext:
    """What a tool may know of the call. ``seconds`` is the longest it may take; ``cancel`` ends it earlier."""

    seconds: float
    max_chars: int
    """The longest text of a result. What is longer is cut anyway; a tool that cuts can say what is missing."""
    cancel: CancelToken | None = None
    documents: Documents | None = None
    recipes: Sequence[RecipeSource] = ()
    tenant: str = "default"
    project: str = "default"
    extras: dict[str, Any] = field(default_factory=dict)
    """What an installation's own runner hands to its own tools."""


@runtime_checkable
class Tool(Protocol):
    """One tool. Instances are stateless and shared between threads.

    With a true attribute ``by_name_only`` it is offered only to recipes that allow it by its name.
    """

    @property
    def name(self) -> str:
        """Letters, digits, ``_`` and ``-``, at most 64: what the model calls it by."""
        ...

    @property
    def description(self) -> str:
        """What it does, when to use it and what it gives back, for the model."""
        ...

    @property
    def parameters(self) -> dict[str, Any]:
        """A JSON Schema object for the arguments; checked before :meth:`run`."""
        ...

    def run(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        """Do it. Blocks. Any exception becomes a result the model can read; :class:`ToolFailed` by its message."""
        ...


def cut(text: str, limit: int, what: str = "the result") -> str:
    """The beginning of ``text``, with a notice inside ``limit`` when something is left out."""
    if len(text) <= limit:
        return text
    notice = f"\n[truncated: {what} has {len(text):,} characters, these are the first]"
    return text[: max(0, limit - len(notice))] + notice
