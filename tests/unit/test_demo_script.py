"""The demonstration's script: deterministic, whole, and in step with the recipe it plays."""

from __future__ import annotations

import json

import pytest

from engines.llm.base import LlmRequest, Message
from engines.llm.scripted import Script, ScriptedClient
from engines.marvin.outputs import parse_output
from engines.marvin.words import Phase
from engines.recipes.model import parse_recipe
from tasks.dev.demo import canned_answers
from tasks.dev.demo_script import READERS, RECIPE_FILE, plan_rules


def asked(phase: Phase, text: str) -> str:
    rules = json.loads(json.dumps(canned_answers()))
    for rule in rules["rules"]:
        for reply in (rule.get("reply"), *rule.get("replies", ())):
            (reply or {}).pop("delay", None)
    request = LlmRequest(
        model="default:analyze",
        messages=(Message(role="user", content=text),),
        schema={"type": "object"},
        schema_name=phase.value.lower(),
    )
    return ScriptedClient(Script.from_data(rules)).complete(request).text


def test_the_recipe_is_in_order() -> None:
    recipe = parse_recipe(RECIPE_FILE.stem, RECIPE_FILE.read_text(encoding="utf-8"), "briefing.yaml")
    assert (recipe.engine, recipe.warnings) == ("marvin", ())


def test_the_script_is_the_same_each_time() -> None:
    assert plan_rules() == plan_rules()


@pytest.mark.parametrize("phase", list(Phase))
def test_every_phase_has_a_usable_answer(phase: Phase) -> None:
    assert parse_output(phase, asked(phase, "<<< Goal [abcd1234]\nanything\n"))


@pytest.mark.parametrize("reader", READERS)
def test_the_report_opens_for_the_reader_that_was_named(reader: str) -> None:
    reports = {each: asked(Phase.CONCLUDE, f"Question: Who?\nAnswer: {each}") for each in READERS}
    assert len(set(reports.values())) == len(READERS)
