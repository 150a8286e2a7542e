"""What a node has gathered before it concludes: replies of recipes, results of its children, answers of people."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from engines.recipes.fence import fence
from engines.structured.correction import excerpt

CHILD_RESULT_CHARS: Final = 4_000
ALL_CHILD_RESULTS_CHARS: Final = 80_000
"""With many children each gets less than :data:`CHILD_RESULT_CHARS`."""
MIN_CHILD_RESULT_CHARS: Final = 300
ANSWER_CHARS: Final = 8_000
GOAL_CHARS: Final = 300
GATHERED_CHARS: Final = 50_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipeReply:
    """The reply to one recipe call, or the marker in its place (see :mod:`engines.marvin.calls`)."""

    recipe: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildResult:
    """What became of one child. ``text``: its result when DONE, else why not. Label and status are as in the plan.

    whole_chars: of the whole result, where ``text`` is only its beginning.
    """

    label: str
    goal: str
    status: str
    text: str
    whole_chars: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class UserAnswer:
    """A person's answer to a question of this node, or of one before it."""

    question: str
    answer: str
    answered_by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Material:
    """Everything gathered so far, in the order it came."""

    replies: tuple[RecipeReply, ...] = ()
    children: tuple[ChildResult, ...] = ()
    answers: tuple[UserAnswer, ...] = ()


def reply_blocks(replies: Sequence[RecipeReply], limit: int, token: str) -> list[str]:
    """Each reply between its own markers, cut at ``limit`` characters with a notice."""
    return [
        fence(
            cut(reply.text, limit, "the history of the called process"),
            f"Result of CALL_RECIPE('{reply.recipe}'):",
            token,
        )
        for reply in replies
    ]


def child_blocks(children: Sequence[ChildResult], token: str, all_chars: int = ALL_CHILD_RESULTS_CHARS) -> list[str]:
    """Each child's result between its own markers, cut at 4,000 characters, or less when there are very many.

    all_chars: what they may take together, as long as each has its least.
    """
    share = all_chars // max(1, len(children))
    limit = max(MIN_CHILD_RESULT_CHARS, min(CHILD_RESULT_CHARS, share))
    return [
        fence(_child_text(child, limit), f"Child {child.label.lstrip('#')} ({child.status})", token)
        for child in children
    ]


def _child_text(child: ChildResult, limit: int) -> str:
    goal = excerpt(" ".join(child.goal.split()), GOAL_CHARS)
    said = cut(child.text, limit, "the child node", child.whole_chars) or "(none)"
    return f"Goal: {goal}\n{'Result' if child.status == 'DONE' else 'Reason'}: {said}"


def answer_blocks(answers: Sequence[UserAnswer], token: str, chars: int = ANSWER_CHARS) -> list[str]:
    """Each question with its answer between its own markers, the answer cut at ``chars``."""
    return [
        fence(_answer_text(answer, chars), f"Answer of {answer.answered_by or 'the user'}", token) for answer in answers
    ]


def _answer_text(answer: UserAnswer, chars: int) -> str:
    question = excerpt(" ".join(answer.question.split()), GOAL_CHARS)
    return f"Question: {question}\nAnswer: {cut(answer.answer, chars, 'the inbox')}"


def gathered(material: Material, why: str) -> str:
    """A result made of the material alone, for a node that may not call a model any more; empty without material."""
    done = [child for child in material.children if child.status == "DONE"]
    parts = [(f"{child.label} {child.goal}", child.text, child.whole_chars) for child in done]
    parts += [(f"Reply of {reply.recipe}", reply.text, 0) for reply in material.replies]
    parts += [(answer.question, answer.answer, 0) for answer in material.answers]
    if not parts:
        return ""
    sections = [
        f"## {excerpt(' '.join(title.split()), GOAL_CHARS)}\n\n{cut(text, GATHERED_CHARS, 'the plan', whole)}"
        for title, text, whole in parts
    ]
    return "\n\n".join((f"_Not concluded: {why}. What had been gathered until then:_", *sections))


def cut(text: str, limit: int, kept_in: str, whole_chars: int = 0) -> str:
    """The beginning of ``text``, with a notice when something was left out, here or (``whole_chars``) before."""
    shown, whole = text[:limit], max(len(text), whole_chars)
    if len(shown) == whole:
        return text
    return f"{shown}\n[truncated at {len(shown):,} of {whole:,} characters; the full text is kept in {kept_in}]"
