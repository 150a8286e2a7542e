"""The shapes of answers: what fits, and what is said about what does not."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.inbox.answers import (
    MAX_ANSWER_CHARS,
    Answer,
    InvalidAnswer,
    answer_text,
    default_answer,
    option_ids,
    parse_answer,
    shape_of,
)
from engines.inbox.words import Criticality, Decision, InputType

OPTIONS = {"options": ["red", {"id": "blue", "label": "Blue"}, {"label": "green"}, 7, " "]}
ITEMS = {"items": [{"id": "a", "text": "Alpha"}, "b", {"id": "c"}]}


@dataclass(frozen=True)
class Fits:
    kind: str
    raw: dict[str, Any]
    text: str
    payload: dict[str, Any] = field(default_factory=dict)
    value: dict[str, Any] | None = None
    """Where it is not what was given."""


FITS = [
    Fits("APPROVAL", {"approved": True}, "approved"),
    Fits("APPROVAL", {"approved": False}, "not approved"),
    Fits("DECISION", {"chosen": "red"}, "red", OPTIONS),
    Fits("DECISION", {"chosen": "green", "freeText": " but pale "}, "green\nbut pale", OPTIONS,
         {"chosen": "green", "freeText": "but pale"}),
    Fits("DECISION", {"freeText": "none of them"}, "none of them", OPTIONS),
    Fits("DECISION", {"chosen": "anything"}, "anything"),
    Fits("FEEDBACK", {"text": "well done"}, "well done"),
    Fits("ORDERING", {"orderedIds": ["c", "a", "b"]}, "1. c\n2. a\n3. b", ITEMS),
    Fits("ORDERING", {"orderedIds": ["x"]}, "1. x"),
    Fits("STRUCTURE_EDIT", {"value": [1, {"a": None}]}, '[\n  1,\n  {\n    "a": null\n  }\n]'),
    Fits("OUTPUT_TEXT", {"approved": True}, "approved"),
    Fits("OUTPUT_IMAGE", {"text": "too dark"}, "too dark"),
    Fits("OUTPUT_DOCUMENT", {"approved": False, "text": "typo"}, "not approved\ntypo"),
]  # fmt: skip


@pytest.mark.parametrize("case", FITS, ids=lambda case: f"{case.kind}-{'-'.join(case.raw)}")
def test_an_answer_that_fits(case: Fits) -> None:
    kind = InputType(case.kind)
    answer = parse_answer(kind, case.payload, case.raw)
    assert answer == Answer(outcome=Decision.DECIDED, value=case.value or case.raw)
    assert parse_answer(kind, case.payload, {"outcome": "decided", "value": case.raw}) == answer
    assert parse_answer(kind, case.payload, answer.to_json()) == answer
    assert Answer.from_json(answer.to_json()) == answer
    assert answer_text(kind, answer) == case.text


@pytest.mark.parametrize("kind", InputType)
@pytest.mark.parametrize("outcome", [Decision.INSUFFICIENT_INFO, Decision.UNDECIDABLE])
def test_no_decision_needs_a_reason_whatever_was_asked(kind: InputType, outcome: Decision) -> None:
    answer = parse_answer(kind, {}, {"outcome": outcome.value, "reason": " who is it for? "})
    assert answer.to_json() == {"outcome": outcome.value, "reason": "who is it for?"}
    assert answer_text(kind, answer) == f"No decision ({outcome}): who is it for?"
    with pytest.raises(InvalidAnswer, match="answer/reason: found nothing; why not, as text"):
        parse_answer(kind, {}, {"outcome": outcome.value})
    with pytest.raises(InvalidAnswer, match="answer/value: found object"):
        parse_answer(kind, {}, {"outcome": outcome.value, "value": {"a": 1}, "reason": "r"})


def test_a_decision_may_have_a_reason_too() -> None:
    answer = parse_answer(InputType.APPROVAL, {}, {"outcome": "DECIDED", "value": {"approved": False}, "reason": "no"})
    assert answer_text(InputType.APPROVAL, answer) == "not approved\nReason: no"


@dataclass(frozen=True)
class Refused:
    kind: str
    raw: Any
    says: tuple[str, ...]
    payload: dict[str, Any] = field(default_factory=dict)


REFUSED = [
    Refused("APPROVAL", "yes", ("answer: found string", '{"approved": true or false}')),
    Refused("APPROVAL", None, ("answer: found nothing",)),
    Refused("APPROVAL", {}, ("answer/value/approved: found nothing", "true or false")),
    Refused("APPROVAL", {"approved": "yes"}, ("answer/value/approved", 'string "yes"', "true or false")),
    Refused("APPROVAL", {"approved": 1}, ("integer 1", "true or false")),
    Refused("APPROVAL", {"approved": True, "note": "x"}, ("answer/value", '"note"', 'only "approved"')),
    Refused("APPROVAL", {"outcome": "MAYBE"}, ("answer/outcome", '"MAYBE"', "DECIDED, INSUFFICIENT_INFO, UNDECIDABLE")),
    Refused("APPROVAL", {"outcome": 3}, ("answer/outcome", "integer 3")),
    Refused("APPROVAL", {"outcome": "DECIDED"}, ("answer/value: found nothing",)),
    Refused("APPROVAL", {"outcome": "DECIDED", "answer": 1}, ("answer:", '"answer"', '"outcome", "value", "reason"')),
    Refused("DECISION", {"chosen": "pink"}, ("/value/chosen", '"pink"', 'one of "red", "blue", "green"'), OPTIONS),
    Refused("DECISION", {"chosen": "  "}, ("answer/value", "chosen or freeText")),
    Refused("DECISION", {"chosen": ["red"]}, ("answer/value/chosen", "array of 1 item", "text would"), OPTIONS),
    Refused("FEEDBACK", {"text": " "}, ("answer/value/text", "text that says something")),
    Refused("FEEDBACK", {"outcome": "DECIDED", "value": "fine"}, ("answer/value", '"fine"', '{"text": "…"}')),
    Refused("ORDERING", {"orderedIds": ["a", "a", "b", "c"]}, ("answer/value/orderedIds", '"a" twice'), ITEMS),
    Refused("ORDERING", {"orderedIds": ["a", "z"]}, ('lacks "b", "c"', 'has "z"', 'each of "a", "b", "c"'), ITEMS),
    Refused("ORDERING", {"orderedIds": []}, ("answer/value/orderedIds", "at least one")),
    Refused("ORDERING", {"orderedIds": [1]}, ("an array of texts",)),
    Refused("STRUCTURE_EDIT", {"value": None}, ("answer/value/value: found nothing", "any JSON but null")),
    Refused("STRUCTURE_EDIT", {"value": float("nan")}, ("is no JSON",)),
    Refused("OUTPUT_TEXT", {}, ("answer/value", "approved (true or false), or a comment")),
    Refused("FEEDBACK", {"text": "x" * MAX_ANSWER_CHARS}, ("characters as JSON, at most 100,000",)),
]  # fmt: skip


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: f"{case.kind}-{str(case.raw)[:40]}")
def test_an_answer_that_does_not_fit_is_told_where_what_and_right(case: Refused) -> None:
    with pytest.raises(InvalidAnswer) as caught:
        parse_answer(InputType(case.kind), case.payload, case.raw)
    for part in case.says:
        assert part in caught.value.message
    assert "would be right" in caught.value.message


@pytest.mark.parametrize(
    ("kind", "payload", "value"),
    [
        ("APPROVAL", {"default": True}, {"approved": True}),
        ("APPROVAL", {"default": {"approved": False}}, {"approved": False}),
        ("APPROVAL", {"default": {"outcome": "DECIDED", "value": {"approved": False}}}, {"approved": False}),
        ("DECISION", {"default": "red", **OPTIONS}, {"chosen": "red"}),
        ("FEEDBACK", {"default": "fine"}, {"text": "fine"}),
        ("ORDERING", {"default": ["a", "b", "c"], **ITEMS}, {"orderedIds": ["a", "b", "c"]}),
        ("STRUCTURE_EDIT", {"default": {"a": 1}}, {"value": {"a": 1}}),
        ("OUTPUT_TEXT", {"default": True}, {"approved": True}),
        ("DECISION", {"default": "pink", **OPTIONS}, None),
        ("APPROVAL", {"default": "yes"}, None),
        ("APPROVAL", {"default": None}, None),
        ("APPROVAL", {}, None),
    ],
)
def test_a_low_question_answers_itself_by_a_default_that_fits(
    kind: str, payload: dict[str, Any], value: dict[str, Any] | None
) -> None:  # 105
    answer = default_answer(InputType(kind), Criticality.LOW, payload)
    assert (answer.value if answer else None) == value
    assert default_answer(InputType(kind), Criticality.NORMAL, payload) is None
    assert default_answer(InputType(kind), Criticality.CRITICAL, payload) is None


def test_options_are_listed_for_people() -> None:
    assert option_ids(InputType.DECISION, OPTIONS) == ["red", "blue", "green"]
    assert option_ids(InputType.ORDERING, ITEMS) == ["a", "b", "c"]
    assert option_ids(InputType.ORDERING, {"items": "abc"}) == []
    assert shape_of(InputType.FEEDBACK) == '{"text": "…"}'


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["outcome", "value", "reason", "approved", "chosen", "text", "id"]), inner)
    ),
    max_leaves=8,
)


@given(kind=st.sampled_from(InputType), payload=st.dictionaries(st.sampled_from(["options", "items", "default"]), JSON),
       raw=JSON)  # fmt: skip
def test_any_json_is_an_answer_or_a_named_problem(kind: InputType, payload: dict[str, Any], raw: Any) -> None:
    default_answer(kind, Criticality.LOW, payload)
    try:
        answer = parse_answer(kind, payload, raw)
    except InvalidAnswer:
        return
    assert parse_answer(kind, payload, answer.to_json()) == answer
    assert answer_text(kind, answer)
