"""Plain words as answers."""

from __future__ import annotations

from typing import Any

import pytest

from engines.inbox.answers import InvalidAnswer, parse_answer
from engines.inbox.spoken import spoken_value
from engines.inbox.words import InputType

PAYLOAD = {"options": ["Graz", "Linz"], "items": ["a", "b"]}


@pytest.mark.parametrize(
    ("kind", "words", "value"),
    [
        ("APPROVAL", " Yes ", {"approved": True}),
        ("APPROVAL", "rejected", {"approved": False}),
        ("DECISION", "linz", {"chosen": "Linz"}),
        ("DECISION", "Lin", {"freeText": "Lin"}),
        ("FEEDBACK", "yes", {"text": "yes"}),
        ("ORDERING", "b, a,", {"orderedIds": ["b", "a"]}),
        ("STRUCTURE_EDIT", '{"a": [1]}', {"value": {"a": [1]}}),
        ("OUTPUT_TEXT", "ok", {"approved": True}),
        ("OUTPUT_DOCUMENT", "a typo on page 2", {"text": "a typo on page 2"}),
    ],
)
def test_words_are_read_by_the_questions_type(kind: str, words: str, value: dict[str, Any]) -> None:
    assert spoken_value(InputType(kind), PAYLOAD, words) == value
    assert parse_answer(InputType(kind), PAYLOAD, value).value == value


@pytest.mark.parametrize(
    ("kind", "words", "says"), [("APPROVAL", "perhaps", "yes or no"), ("STRUCTURE_EDIT", "{", "is no JSON")]
)
def test_words_that_cannot_be_read(kind: str, words: str, says: str) -> None:
    with pytest.raises(InvalidAnswer, match=says):
        spoken_value(InputType(kind), PAYLOAD, words)
