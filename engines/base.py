"""What an engine is: two pure functions around one model call, or one batch of tool calls.

::

    prepare(view) -> Need                  what the turn needs now: a model call, tools, or nothing: decided
    decide(view, outcome) -> Transition    what the turn changes, given what came back

The turn runner (``tasks.runner``) does everything between and after them: budget, rate limits, the call itself, retries
of transport failures, the commit. An engine has no clock, no randomness, no environment and no I/O.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from engines.llm.base import LlmError, LlmReply, LlmRequest, ToolCall
from models.records import DocumentWish, View
from models.spec_records import ModelWish
from models.transition import Transition, WriteDocument


@dataclass(frozen=True, slots=True, kw_only=True)
class AskModel:
    """The turn needs one model call. ``attempt`` numbers it in the ledger, from 1."""

    request: LlmRequest
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """The turn needs nothing from outside: this is its transition."""

    transition: Transition


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTools:
    """The turn needs these tool calls, all at once. Only tools in ``allowed`` are run; others are answered with a text.

    seconds: the longest the batch may take. max_chars: the longest text of one result.
    """

    calls: tuple[ToolCall, ...]
    allowed: frozenset[str]
    seconds: float = 60.0
    max_chars: int = 12_000


Need = AskModel | RunTools | Decided


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelReplied:
    """The call ended with a reply (which may still be cut, empty of sense or invalid)."""

    reply: LlmReply


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFailed:
    """The call failed and the retry policy has given up."""

    error: LlmError


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """What the model reads of one tool call; never longer than asked for, free of control characters.

    ok: whether the tool did what was asked; a failure is a text as well. documents: to be written with the turn's
    commit, so exactly once.
    """

    text: str
    ok: bool = True
    documents: tuple[WriteDocument, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolsRan:
    """The tools have answered: one result for each call of :class:`RunTools`, in its order."""

    results: tuple[ToolResult, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetSpent:
    """No call was made, or none to its end: a limit of the root process is reached. ``limit`` says which, in words."""

    limit: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Abandoned:
    """No call was made: this very turn killed its workers or crashed its engine too often. ``why`` says it in words."""

    why: str


Outcome = ModelReplied | ModelFailed | ToolsRan | BudgetSpent | Abandoned


class Engine(Protocol):
    """One kind of think engine. Instances are stateless and shared between threads."""

    @property
    def name(self) -> str:
        """The engine's name in recipes, queues and task names."""
        ...

    @property
    def first_phase(self) -> str:
        """The phase a new process's root node starts in."""
        ...

    @property
    def history(self) -> int:
        """How many of the process's last messages a view carries; 0 when the cursor is enough."""
        ...

    def prepare(self, view: View) -> Need:
        """What the turn needs now."""
        ...

    def decide(self, view: View, outcome: Outcome) -> Transition:
        """What the turn changes. Called with the same view as :meth:`prepare`."""
        ...

    def wrapper(self, cursor: dict[str, Any], *, error: str, message: str) -> dict[str, Any]:
        """The result of a process that is closed from outside (stop, or as a last resort after crashes)."""
        ...


@runtime_checkable
class CarefulEngine(Engine, Protocol):
    """An engine that looks at what is asked for before a process is made of it."""

    def objection(self, goal: str, params: Mapping[str, Any]) -> str | None:
        """Why no process is made of this goal and these parameters; ``None`` when one can be."""
        ...


@runtime_checkable
class NamesParams(Protocol):
    """An engine that says which parameters it reads, so that a misspelt one can be refused."""

    @property
    def param_names(self) -> frozenset[str]:
        """Every parameter the engine reads by itself; recipes' templates may read others."""
        ...


@runtime_checkable
class PlanningEngine(CarefulEngine, Protocol):
    """An engine whose processes are trees and call other recipes. Its views carry ``plan``, and ``document`` if wished.

    The recipes it may call are resolved when a process is submitted and stored with it (``engines.recipes.snapshots``):
    what runs is what was there then, and the engine needs no source of recipes.
    """

    @property
    def root_kind(self) -> str:
        """The kind of a new process's root node."""
        ...

    @property
    def own_recipes(self) -> tuple[str, ...]:
        """Recipes it cannot work without: a submission fails when one of them is missing."""
        ...

    def called_recipes(self, params: Mapping[str, Any]) -> tuple[str, ...]:
        """Recipes a process with these parameters may call. One that does not exist is left out."""
        ...

    def wished_document(self, view: View) -> DocumentWish | None:
        """The stored document that the turn of ``view`` works on."""
        ...


@runtime_checkable
class ModelingEngine(Engine, Protocol):
    """An engine that works on the project's stored model specs. Its views carry ``model``, if one is wished for."""

    def wished_model(self, view: View) -> ModelWish | None:
        """The stored model spec that the turn of ``view`` works on."""
        ...
