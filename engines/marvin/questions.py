"""USER_INPUT nodes: the first turn puts the question in the inbox, a later one reads what became of it. No model call.

The node is parked meanwhile, and no worker waits. Whatever ends the question (an answer, a dismissal, its time being
up) makes the node due; the item in the view says which it was.
"""

from __future__ import annotations

import json
from typing import Any, Final

from engines.inbox.answers import AUTO_DEFAULT, Answer, default_answer
from engines.inbox.words import Decision
from engines.marvin.calls import ENGINE_NAME
from engines.marvin.outputs import user_input_of
from engines.marvin.surroundings import Surroundings, item_text
from engines.marvin.transitions import ASK, RESULT, failed
from models.records import InboxItem, ItemStatus, Reason
from models.transition import (
    AskUser,
    Effect,
    PhaseNote,
    Transition,
    WithdrawQuestion,
    WriteArtifact,
    finish,
    park,
)

TITLE_CHARS: Final = 300
BODY_CHARS: Final = 20_000
PAYLOAD_CHARS: Final = 50_000
_LATE: Final = "the deadline of the process has passed"


def questioned(at: Surroundings) -> Transition:
    """The turn of a USER_INPUT node."""
    item = at.plan.question
    if item is None:
        return _asked(at)
    match item.status:
        case ItemStatus.ANSWERED:
            return _answered(at, item)
        case ItemStatus.DISMISSED:
            return _unanswered(at, f"the question was dismissed by {item.answered_by or 'the process'}")
        case ItemStatus.EXPIRED:
            return _unanswered(at, f"nobody answered within {at.caps.inbox_ttl_seconds:,} seconds")
        case ItemStatus.PENDING if at.view.process.overdue:
            return _unanswered(at, _LATE)
        case _:
            note = _note({"waiting": item.id})
            return park(ASK, at.cursor.to_json(), note=note, reason=Reason.ASKED, effects=())


def withdrawal(at: Surroundings) -> tuple[Effect, ...]:
    """Closes the node's question if it is open: for a node that ends without it."""
    item = at.view.plan.question if at.view.plan else None
    return (WithdrawQuestion(),) if item is not None and item.status is ItemStatus.PENDING else ()


def _asked(at: Surroundings) -> Transition:
    if at.view.process.overdue:
        return _unanswered(at, f"{_LATE}, the question was not asked")
    question = user_input_of(at.goal, dict(at.cursor.task_spec))
    size = len(json.dumps(question.payload, ensure_ascii=False))
    if size > PAYLOAD_CHARS:
        why = f"the question was not asked: its payload has {size:,} characters, at most {PAYLOAD_CHARS:,} are possible"
        return failed(at, at.cursor, why, {"error": why}, "invalid_question")
    given = default_answer(question.type, question.criticality, question.payload)
    process = at.view.process
    named = process.params.get("owner")
    owner = named.strip() if isinstance(named, str) and named.strip() else process.owner
    effect = AskUser(
        type=question.type.value,
        criticality=question.criticality.value,
        title=question.title[:TITLE_CHARS],
        body=question.body[:BODY_CHARS],
        payload=question.payload,
        ttl_seconds=float(at.caps.inbox_ttl_seconds),
        originator=f"{ENGINE_NAME}:{process.id}",
        tags=(ENGINE_NAME,),
        owner=owner,
        answer=given.to_json() if given else None,
        answered_by=AUTO_DEFAULT if given else None,
    )
    return park(
        ASK,
        at.cursor.to_json(),
        note=_note({"asked": effect.title, "type": effect.type} | ({"default": True} if given else {})),
        reason=Reason.ASKED,
        effects=(effect,),
        timeout_seconds=0.0 if given else None,
    )


def _answered(at: Surroundings, item: InboxItem) -> Transition:
    answer = Answer.from_json(item.answer or {})
    said = item_text(item)
    who = item.answered_by or ""
    kept = (
        WriteArtifact(key="userAnswer", content=json.dumps(answer.to_json(), ensure_ascii=False)),
        WriteArtifact(key="answeredBy", content=who),
    )
    output: dict[str, Any] = {"answer": answer.to_json(), "answeredBy": who}
    if answer.outcome is not Decision.DECIDED:
        return failed(at, at.cursor, f"{answer.outcome}: {answer.reason}", output, "undecided", kept)
    effects = (*kept, WriteArtifact(key=RESULT, content=said))
    return finish(ASK, at.cursor.to_json(), note=_note(output), effects=effects)


def _unanswered(at: Surroundings, why: str) -> Transition:
    return failed(at, at.cursor, why, {"error": why}, "unanswered", withdrawal(at))


def _note(output: dict[str, Any]) -> PhaseNote:
    return PhaseNote(phase=ASK, iteration=1, output=output)
