"""The messages of one phase call: system prompt, one user message, and after an unreadable answer its correction.

Everything is put together anew for each call from what the caller knows now; no earlier plan, prompt or decision is
ever replayed. Text that did not come from the recipes stands between markers with the call's random token.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from engines.llm.base import Message
from engines.marvin.caps import RANGES
from engines.marvin.material import (
    ALL_CHILD_RESULTS_CHARS,
    ANSWER_CHARS,
    Material,
    answer_blocks,
    child_blocks,
    cut,
    reply_blocks,
)
from engines.marvin.schemas import schema_for
from engines.marvin.snapshot import LIMIT_CHARS
from engines.marvin.state import Rejected
from engines.marvin.words import Phase
from engines.recipes.fence import defuse, fence
from engines.recipes.model import Recipe
from engines.recipes.prompt import named_prompt, system_prompt


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """The most characters of each part of a prompt. ``children``: of all their results together."""

    goal: int = 20_000
    context: int = 15_000
    candidate: int = 100_000
    plan: int = LIMIT_CHARS
    reply: int = RANGES["recipe_reply_chars"].high
    children: int = ALL_CHILD_RESULTS_CHARS
    answer: int = ANSWER_CHARS


FULL: Final = Sizes()
SHORT: Final = Sizes(goal=8_000, context=2_000, candidate=12_000, plan=1_200, reply=2_000, children=8_000, answer=1_000)
"""For a model whose window the full prompt does not fit."""
RECIPE_LINE_CHARS: Final = 200
MAX_RECIPE_LINES: Final = 50

_TASKS: Final = {
    Phase.SCOPE: "Decide the first step towards the goal.",
    Phase.REFLECT: "Decide the next step in the light of what has been gathered.",
    Phase.POST_CHILDREN: "All subtasks are settled. Decide whether their results are enough.",
    Phase.CONCLUDE: "Write the complete answer to the goal from what has been gathered.",
    Phase.VALIDATE: "Judge the candidate against the goal.",
}
"""For a worker recipe that has no text of its own for a phase."""
_DECIDING: Final = frozenset({Phase.SCOPE, Phase.REFLECT, Phase.POST_CHILDREN})
_CALLING: Final = frozenset({Phase.SCOPE, Phase.REFLECT})


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipeLine:
    """A recipe that may be called; ``summary`` is the first line of its description."""

    name: str
    summary: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseView:
    """What one phase call is told. ``token`` is random for each call: letters and digits, at least eight."""

    phase: Phase
    token: str
    goal: str
    plan: str
    """As rendered by ``snapshot.render_plan`` just now."""
    iteration: int = 1
    iteration_cap: int | None = None
    task: str = ""
    """The worker recipe's text for this phase (:func:`phase_task`)."""
    steering: str = ""
    """The rendered prompt of the process's recipe; for the root node."""
    parent_context: str = ""
    recipes: tuple[RecipeLine, ...] = ()
    calls_left: int = 0
    """Recipe calls this node may still make."""
    level: int = 0
    """The node's depth as the depth limit counts it (``MarvinState.level``)."""
    max_depth: int = 5
    reply_chars: int = 8_000
    sizes: Sizes = FULL
    material: Material = field(default_factory=Material)
    candidate: str | None = None
    hints: tuple[str, ...] = ()


def worker_system(recipe: Recipe, variables: Mapping[str, Any]) -> str:
    """The system prompt of every phase call: the worker recipe's, the same for all nodes. Raises ``TemplateError``."""
    return system_prompt(recipe, "", variables)


def phase_task(recipe: Recipe, phase: Phase, variables: Mapping[str, Any]) -> str:
    """The worker recipe's text for ``phase``, or a plain one when it has none. Raises ``TemplateError``."""
    return named_prompt(recipe, phase.value, variables) or _TASKS[phase]


def phase_messages(system: str, view: PhaseView, rejected: Rejected | None = None) -> tuple[Message, ...]:
    """The whole conversation of one call. ``rejected``: the last answer to this very call, when it was unreadable."""
    messages = [Message(role="system", content=system), Message(role="user", content=user_message(view))]
    if rejected is not None:
        if rejected.excerpt:
            messages.append(Message(role="assistant", content=rejected.excerpt))
        messages.append(Message(role="user", content=rejected.correction))
    return tuple(messages)


def user_message(view: PhaseView) -> str:
    """Goal, plan, what was gathered, what is to be done now and the form of the answer, as far as the phase sees it."""
    return "\n\n".join((*_situation(view), *_material(view), *_order(view)))


def damper(level: int, max_depth: int) -> str:
    """What a node is told about splitting further: nothing in the upper tree, more the closer it is to the limit."""
    if level >= max_depth:
        return "Depth: this node is at the limit. NEEDS_SUBTASKS is rejected here: do the work yourself."
    if level * 10 < max_depth * 4:
        return ""
    left = max_depth - level
    below = f"{left} level{'' if left == 1 else 's'} left"
    if level * 10 < max_depth * 7:
        return f"Depth: {below}. Split only what really falls into independent parts."
    return f"Depth: {below}. Do the work here unless that is impossible; subtasks are the last resort."


def recipe_lines(recipes: Sequence[RecipeLine]) -> str:
    """The list of recipes as the model sees it: one line each."""
    shown = [f"- {recipe.name}: {_one_line(recipe.summary)}" for recipe in recipes[:MAX_RECIPE_LINES]]
    if len(recipes) > MAX_RECIPE_LINES:
        shown.append(
            f"- and {len(recipes) - MAX_RECIPE_LINES} more: {', '.join(one.name for one in recipes[MAX_RECIPE_LINES:])}"
        )
    return "\n".join(shown)


# --- sections ---------------------------------------------------------------------------------------------------------


def _situation(view: PhaseView) -> Iterator[str]:
    if view.steering.strip() and view.phase is not Phase.VALIDATE:
        yield f"## About this plan\n{view.steering.strip()}"
    yield f"## Goal of this node\n{fence(cut(view.goal, view.sizes.goal, 'the node'), 'Goal', view.token)}"
    if view.parent_context.strip() and view.phase is not Phase.VALIDATE:
        context = cut(view.parent_context, view.sizes.context, "the parent's history")
        yield f"## Background from above\n{fence(context, 'Background', view.token)}"
    if view.phase in _CALLING:
        yield _recipe_section(view)
    yield f"## Plan\n{view.plan}"
    note = damper(view.level, view.max_depth) if view.phase in _DECIDING else ""
    if note:
        yield note


def _recipe_section(view: PhaseView) -> str:
    if not view.recipes:
        return "## Recipes\nNone can be called from this plan: CALL_RECIPE has no use here."
    left = f"{view.calls_left} call{'' if view.calls_left == 1 else 's'} left for this node"
    return f"## Recipes ({left})\n{recipe_lines(view.recipes)}"


def _material(view: PhaseView) -> Iterator[str]:
    """A reviewer judges the candidate as its reader will: without the material it was made from."""
    if view.phase is not Phase.VALIDATE:
        material, sizes = view.material, view.sizes
        for title, blocks in (
            ("Replies of recipes", reply_blocks(material.replies, min(view.reply_chars, sizes.reply), view.token)),
            ("Results of the subtasks", child_blocks(material.children, view.token, sizes.children)),
            ("Answers of people", answer_blocks(material.answers, view.token, sizes.answer)),
        ):
            if blocks:
                yield "\n\n".join((f"## {title}", *blocks))
    if view.candidate is not None and view.phase in (Phase.REFLECT, Phase.CONCLUDE, Phase.VALIDATE):
        title = "Candidate" if view.phase is Phase.VALIDATE else "The last candidate, not accepted"
        text = cut(view.candidate, view.sizes.candidate, "the node")
        yield f"## {title}\n{fence(text, 'Candidate', view.token)}"
    if view.hints and view.phase is not Phase.VALIDATE:
        notes = "\n".join(f"- {' '.join(hint.split())}" for hint in view.hints)
        yield f"## To be heeded now\n{fence(notes, 'Notes', view.token)}"


def _order(view: PhaseView) -> Iterator[str]:
    count = f"iteration {view.iteration}" + (f" of {view.iteration_cap}" if view.iteration_cap is not None else "")
    yield f"## Now: {view.phase.value} ({count})\n{(view.task or _TASKS[view.phase]).strip()}"
    # On one line: indented it would be twice as long, and it is sent with every call.
    yield (
        "## Form of the answer\nOne JSON object of this schema and nothing else; leave out optional properties that do "
        f"not apply.\n{json.dumps(schema_for(view.phase), ensure_ascii=False)}"
    )


def _one_line(text: str) -> str:
    line = defuse(" ".join(text[: RECIPE_LINE_CHARS * 10].split()))
    return line if len(line) <= RECIPE_LINE_CHARS else f"{line[: RECIPE_LINE_CHARS - 1]}…"
