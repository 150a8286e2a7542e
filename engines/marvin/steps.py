"""What can happen to a worker node, and what follows from it: the frozen values around ``machine.decide``."""

from __future__ import annotations

from dataclasses import dataclass

from engines.marvin.outputs import NewTask, PhaseParseError, PostAction, RecipeCall, UserInput
from engines.marvin.state import MarvinState
from engines.marvin.words import Phase
from engines.structured.correction import excerpt


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What a decision must know of the tree around the node."""

    depth: int = 0
    node_count: int = 1
    """Nodes of the process so far, of any status. The commit checks again: others may insert meanwhile."""
    goals: tuple[str, ...] = ()
    """The node's own goal and its ancestors': a subtask that repeats one of them leads nowhere."""
    spec_actions: tuple[PostAction, ...] = ()
    """Post-actions that came with the task; they run after the conclusion's own."""

    @property
    def is_root(self) -> bool:
        return self.depth == 0


# --- what comes in, besides the phase outputs ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreadable:
    """The call was answered, and the answer cannot be used (see ``outputs.PhaseParseError``)."""

    message: str
    correction: str
    excerpt: str = ""
    """The answer, shortened, to be quoted; empty when it was cut off and quoting would only eat room."""
    next_limit: int | None = None
    """For an answer that was cut off: the output tokens to ask for next."""

    @classmethod
    def of(
        cls, error: PhaseParseError, text: str, *, truncated: bool = False, next_limit: int | None = None
    ) -> Unreadable:
        """The event for the answer ``text``, which raised ``error``."""
        shown = "" if truncated else excerpt(text)
        return cls(message=error.message, correction=error.correction, excerpt=shown, next_limit=next_limit)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFailed:
    """The call failed and the retry policy has given up. ``message`` starts with the kind of failure.

    too_long: the prompt does not fit the model; a shorter one might.
    """

    message: str
    too_long: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NoCallAllowed:
    """No call was made: a budget is spent, or the turn was abandoned. ``material`` is what the node has so far."""

    why: str
    material: str = ""


# --- what follows ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class GoTo:
    """The next turn runs ``phase``. ``forced``: a limit decided, not the model."""

    phase: Phase
    state: MarvinState
    forced: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRecipe:
    """The node is parked until the recipe's reply is there; then it continues with ``state`` in REFLECT.

    A refused call (see ``calls.refusal``) is not parked: its marker is the reply, and the slot is used up all the same.
    """

    call: RecipeCall
    state: MarvinState


@dataclass(frozen=True, slots=True, kw_only=True)
class Spawn:
    """``tasks`` become children; with all of them settled the node continues with ``state`` in POST_CHILDREN.

    refused: how many tasks were left out, for want of room or because they repeat something. ``state`` tells the node.
    """

    tasks: tuple[NewTask, ...]
    refused: int
    state: MarvinState


@dataclass(frozen=True, slots=True, kw_only=True)
class AskUser:
    """A USER_INPUT node for ``question``: a child of the root (``as_child``), else the sibling right after the asker.

    With ``as_child`` the node continues with ``state`` in POST_CHILDREN; otherwise it is done, without a result.
    """

    question: UserInput
    as_child: bool
    state: MarvinState

    @property
    def task(self) -> NewTask:
        """The node to be created."""
        question = self.question
        spec = question.model_dump(mode="json")
        goal = question.title or " ".join(question.body.split())[:200] or "A question to the user"
        return NewTask.model_validate({"goal": goal, "taskKind": "USER_INPUT", "taskSpec": spec})


@dataclass(frozen=True, slots=True, kw_only=True)
class Accept:
    """The node is DONE with ``result``. ``forced``: accepted by a limit, then ``warning`` says which."""

    result: str
    post_actions: tuple[PostAction, ...]
    state: MarvinState
    forced: bool = False
    warning: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fail:
    """The node is FAILED; ``reason`` is what its parent and people read."""

    reason: str
    state: MarvinState


@dataclass(frozen=True, slots=True, kw_only=True)
class Correct:
    """The same phase again: the answer was unreadable, or the prompt too long. ``state`` says what is to be different;
    no phase counter moved."""

    message: str
    state: MarvinState


Event = Unreadable | CallFailed | NoCallAllowed
Step = GoTo | CallRecipe | Spawn | AskUser | Accept | Fail | Correct
