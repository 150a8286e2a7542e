"""Guidance and shape exemplars: vetted, found by their words, and open to an operator's own."""

from __future__ import annotations

import json
from typing import Any

import jlens
import pytest

from engines.valem.prompts.evolve import evolution, repair_evolution
from engines.valem.prompts.generate import initial
from engines.valem.prompts.guidance import (
    GuidanceError,
    bundled_topics,
    guidance,
    matching_shapes,
    merged_topics,
    shape_exemplars,
)

TOPICS = bundled_topics()
SHAPES = [name for name, topic in TOPICS.items() if topic.keywords]
TOKEN = "0123456789abcdef"


@pytest.mark.parametrize("name", TOPICS)
def test_a_topics_example_gives_the_stated_result(name: str) -> None:
    example = TOPICS[name].example
    assert example is not None
    expression = jlens.Expression(example.expr)
    found = expression.evaluate_json(json.dumps(example.input), {"const": example.const}, timeout=2)
    assert found is not None
    assert json.loads(found) == example.result


def test_the_topics_are_the_ones_the_tool_promises() -> None:
    assert list(TOPICS) == [
        *("amortization_schedule", "group_by", "date_math", "classification", "currency_conversion", "status_field"),
        *("rank_percentile", "regulated_charge", "percentage", "unit_conversion", "compound_growth"),
        *("weighted_average", "eligibility", "proration"),
    ]
    assert list(TOPICS)[:7] == SHAPES


@pytest.mark.parametrize(
    ("request_text", "shapes"),
    [
        ("A mortgage with a repayment plan", ["amortization_schedule"]),
        ("AMORTISATION of a machine", ["amortization_schedule"]),
        ("expenses grouped\n  by cost centre", ["group_by"]),
        ("spending per category and its breakdowns", ["group_by"]),
        ("library fines: days between loan and return, overdue books", ["amortization_schedule", "date_math"]),
        ("the age of a patient from the date of birth", ["date_math"]),
        ("letter grades from a score", ["classification"]),
        ("classify tickets by severity", ["classification"]),
        ("offers in several currencies", ["currency_conversion"]),
        ("use the exchange rate of the day", ["currency_conversion"]),
        ("an order with a status and an approval workflow", ["status_field"]),
        ("rank the sellers; percentiles of turnover", ["rank_percentile"]),
        ("top 3 players", ["rank_percentile"]),
        ("a shopping basket with price, quantity and VAT", []),
        ("fuel consumption of a car", []),
        ("a ferry tariff by age group and length of the car", []),
        ("Our agents manage pageants, bandages and frankfurters in upstaged stagecoaches", []),
        ("", []),
    ],
)
def test_shapes_are_found_by_their_words(request_text: str, shapes: list[str]) -> None:
    assert list(matching_shapes(request_text)) == shapes


@pytest.mark.parametrize("name", SHAPES)
def test_every_keyword_finds_its_shape(name: str) -> None:
    for keyword in TOPICS[name].keywords:
        assert name in matching_shapes(f"I need {keyword.rstrip('*')} here.")


@pytest.mark.parametrize("name", SHAPES)
def test_a_found_shape_stands_in_every_prompt_with_free_text_and_outside_its_fence(name: str) -> None:
    topic = TOPICS[name]
    assert topic.example is not None
    said = f"something with {topic.keywords[0].rstrip('*')}"
    session = "The current spec"
    for parts in (
        initial(said, token=TOKEN),
        evolution(said, session=session, token=TOKEN),
        repair_evolution(said, "{}", [("spec", "bad", None)], session=session, token=TOKEN),
    ):
        after_fence = parts.user.rpartition(f"[{TOKEN}] end >>>")[2]
        assert " ".join(topic.example.expr.split()) in after_fence
        assert shape_exemplars(said) not in parts.system


def test_ordinary_requests_get_none() -> None:
    assert shape_exemplars("a shopping basket with price and quantity") == ""


def test_guidance_answers_each_topic_once_and_names_what_there_is() -> None:
    text = guidance(["percentage", " percentage", "proration"])
    assert text.count("## ") == 2
    assert TOPICS["percentage"].advice in text
    assert "[no such topic" not in text
    unknown = guidance(["taxes", "percentage"])
    assert unknown.startswith("## Shares")
    assert '[no such topic: "taxes"; there are: amortization_schedule,' in unknown
    assert guidance([]).startswith("[no topic was named; there are: ")


def test_an_operators_file_is_merged_by_topic() -> None:
    own = merged_topics(
        """
        topics:
          percentage: {advice: Ours is better.}
          proration: null
          house_rates: {title: House rates, advice: Ask the desk., keywords: [house rate]}
        """,
        "mine.yaml",
    )
    assert (own["percentage"].title, own["percentage"].advice) == (TOPICS["percentage"].title, "Ours is better.")
    assert own["percentage"].example == TOPICS["percentage"].example
    assert "proration" not in own
    assert "[no such topic" in guidance(["proration"], own)
    assert "Ask the desk." in guidance(["house_rates"], own)
    assert matching_shapes("our house rates", own) == ("house_rates",)
    assert "proration" in TOPICS


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("topics: [a]", "mine.yaml: must be a mapping with the one key topics"),
        ("percentage: {}", "mine.yaml: must be a mapping with the one key topics"),
        ("topics: {a: b", "mine.yaml: is no YAML"),
        ("topics: {a: 3}", "mine.yaml: topics.a: must be a mapping"),
        ("topics: {a: {title: t}}", "mine.yaml: topics.a.advice: field required"),
        ("topics: {percentage: {advise: x}}", "mine.yaml: topics.percentage.advise: .*a topic has title, advice"),
        ("topics: {percentage: {advice: [x]}}", "mine.yaml: topics.percentage.advice: "),
    ],
)
def test_a_bad_file_is_refused_with_its_place(text: str, message: str) -> None:
    with pytest.raises(GuidanceError, match=message):
        merged_topics(text, "mine.yaml")


def test_an_empty_file_of_topics_changes_nothing() -> None:
    own: Any = merged_topics("topics: {}", "mine.yaml")
    assert own == TOPICS
