"""The tools of model specs: expressions tried out, advice by topic, and a check that no model is told of."""

from __future__ import annotations

import json
from typing import Any

import pytest
from valem_specs import GOOD, text

from engines.llm.base import ToolCall
from engines.llm.cancel import Cancellation
from engines.tools.base import ToolContext, ToolResult
from engines.tools.jsonata import EvalJsonata
from engines.tools.registry import Registry, bundled_tools, internal_tools
from engines.valem import verdicts
from engines.valem.jsonata.evaluation import Evaluation, evaluate_here
from engines.valem.machine import Verdict

CONTEXT = ToolContext(seconds=5, max_chars=4_000)
REGISTRY = Registry(bundled_tools(evaluator=evaluate_here), internal=internal_tools(evaluate_here))
EVERY = frozenset({"eval_jsonata", "get_domain_guidance", verdicts.CHECK})


def run(name: str, /, *, max_chars: int = 4_000, **arguments: Any) -> ToolResult:
    context = ToolContext(seconds=5, max_chars=max_chars)
    return REGISTRY.run(ToolCall(id="1", name=name, arguments=arguments), EVERY, context)


def test_internal_tools_run_and_are_not_told_of() -> None:
    names = [spec.name for spec in REGISTRY.specs()]
    assert "eval_jsonata" in names
    assert not {"get_domain_guidance", verdicts.CHECK} & set(names)
    assert "eval_jsonata" not in [spec.name for spec in Registry(bundled_tools()).specs()], "needs an evaluator"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"expression": "a + 1", "input": {"a": 2}}, "3"),
        ({"expression": "a + 1", "input": '{"a": 2}'}, "3"),
        ({"expression": "$ & '!'", "input": "plain"}, '"plain!"'),
        ({"expression": "$sum(items.(p*q))", "input": {"items": [{"p": 10, "q": 2}, {"p": 5, "q": 1}]}}, "25"),
        ({"expression": "$const.vat * 2", "constants": {"vat": 20}}, "40"),
        ({"expression": "$millis()"}, "1700000000000"),
        ({"expression": "null"}, "null"),
    ],
)
def test_an_expression_is_tried_on_a_sample(arguments: dict[str, Any], expected: str) -> None:
    found = EvalJsonata(evaluate_here, now=lambda: 1.7e9).run(arguments, CONTEXT)
    assert (found.text, found.ok) == (expected, True)


def test_no_value_and_an_error_are_told_apart_and_never_as_a_traceback() -> None:
    missing = run("eval_jsonata", expression="nowhere.at.all", input={"a": 1})
    assert (missing.ok, missing.text.startswith("[missing]")) == (True, True)
    syntax = run("eval_jsonata", expression="a +* 2")
    assert not syntax.ok
    assert syntax.text.startswith("[tool error] S0")
    assert "at character" in syntax.text
    assert "— FIX: " in run("eval_jsonata", expression="5 mod 2").text
    types = run("eval_jsonata", expression="'a' + 1")
    assert types.text.startswith("[tool error] T2001")
    endless = run("eval_jsonata", expression="($f := function($x){1+$f($x+1)}; $f(1))")
    assert endless.text.startswith("[tool error] ")
    for found in (syntax, types, endless):
        assert "Traceback" not in found.text


def test_bad_arguments_are_told_in_words() -> None:
    assert "expression" in run("eval_jsonata").text
    deep: Any = 1
    for _ in range(2_000):
        deep = [deep]
    assert run("eval_jsonata", expression="1", input=deep).ok is False
    assert "a sample of at most" in run("eval_jsonata", expression="1", input="x" * 300_000).text


def test_an_expression_has_no_more_time_than_its_batch() -> None:
    seen: list[Evaluation] = []

    def look(evaluation: Evaluation) -> str | None:
        seen.append(evaluation)
        return "1"

    EvalJsonata(look).run({"expression": "1"}, ToolContext(seconds=0.5, max_chars=100))
    EvalJsonata(look).run({"expression": "1"}, ToolContext(seconds=60, max_chars=100))
    assert [each.limits.seconds for each in seen] == [0.5, 2.0]


def test_long_values_are_cut_with_a_notice() -> None:
    found = run("eval_jsonata", max_chars=500, expression="[1..5000]")
    assert len(found.text) <= 500
    assert "[truncated: the value has" in found.text


def test_a_check_that_is_stopped_ends_before_its_next_expression() -> None:
    stop = Cancellation()
    seen: list[str] = []

    def evaluate(evaluation: Evaluation) -> str | None:
        seen.append(evaluation.text)
        stop.set()
        return evaluate_here(evaluation)

    context = ToolContext(seconds=20, max_chars=90_000, cancel=stop)
    given = {"text": text(GOOD), "cut": False, "task": "generate", "seconds": 20, "expressionSeconds": 2}
    registry = Registry([], internal=internal_tools(evaluate))
    found = registry.run(ToolCall(id="1", name=verdicts.CHECK, arguments=given), EVERY, context)
    assert (found.ok, len(seen)) == (False, 1)
    assert "stopped" in found.text


def test_advice_comes_by_topic_and_unknown_topics_are_refused_with_the_known_ones() -> None:
    found = run("get_domain_guidance", topics=["group_by", "date_math"])
    assert found.ok
    assert found.text.count("## ") == 2
    wrong = run("get_domain_guidance", topics=["astrology"])
    assert not wrong.ok
    assert "group_by" in wrong.text


def test_the_check_answers_with_a_verdict() -> None:
    given = {"text": text(GOOD), "cut": False, "task": "generate", "seconds": 20, "expressionSeconds": 2}
    judged = verdicts.read(run(verdicts.CHECK, max_chars=verdicts.MAX_REPORT_CHARS, **given).text)
    assert judged.verdict is Verdict.GOOD
    assert judged.candidate is not None
    assert json.loads(judged.candidate.spec)["id"] == "order-total"
    change = {"task": "evolve", "base": text(GOOD), "baseVersion": 3, "text": '{"expectedVersion": 3}'}
    judged = verdicts.read(run(verdicts.CHECK, max_chars=verdicts.MAX_REPORT_CHARS, **given | change).text)
    assert judged.verdict is Verdict.GOOD
    stale = change | {"text": '{"expectedVersion": 2}'}
    judged = verdicts.read(run(verdicts.CHECK, max_chars=verdicts.MAX_REPORT_CHARS, **given | stale).text)
    assert (judged.verdict, judged.problems[0].where) == (Verdict.INVALID, "expectedVersion")
