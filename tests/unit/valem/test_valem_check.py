"""What an answer is worth: mended and read, validated, created, tested; whatever it holds, there is a verdict."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import Any

import pytest
from valem_specs import GOOD, RAISE_VAT, UNSTABLE, changed, failing_tests, text, wrong_paths

from engines.valem import verdicts
from engines.valem.check import Answer, Surroundings, check
from engines.valem.cursor import MAX_REPLY_CHARS, Task
from engines.valem.jsonata.errors import ExpressionError
from engines.valem.jsonata.evaluation import Evaluation, evaluate_here
from engines.valem.machine import Judged, Verdict

NOW = 1_700_000_000_000
AROUND = Surroundings(evaluate_here, NOW, time.monotonic)


def made(spec: dict[str, Any] | str, **fields: Any) -> Judged:
    answer = Answer(text=spec if isinstance(spec, str) else text(spec), task=Task.GENERATE, **fields)
    judged = check(answer, AROUND)
    # What crosses the border to the engine is the same verdict.
    assert verdicts.read(verdicts.write(judged)) == judged
    return judged


def evolved(evolution: dict[str, Any] | str, base: dict[str, Any] = GOOD, **fields: Any) -> Judged:
    answer = Answer(
        text=evolution if isinstance(evolution, str) else text(evolution), task=Task.EVOLVE, base=base, **fields
    )
    return check(answer, AROUND)


def words(judged: Judged) -> str:
    return "\n".join(map(str, judged.problems))


def test_a_good_spec_comes_with_its_derived_fields_read_only() -> None:
    judged = made(f"Here it is:\n```json\n{text(GOOD)}\n```\nEnjoy.")
    assert (judged.verdict, judged.count) == (Verdict.GOOD, 0)
    assert judged.candidate is not None
    assert (judged.candidate.model_id, judged.candidate.colour) == ("order-total", "green")
    spec = json.loads(judged.candidate.spec)
    assert spec["schema"]["properties"]["total"] == {"type": "number", "readOnly": True}
    assert list(spec) == list(GOOD)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("no JSON at all", "is not JSON"),
        ("[1, 2]", "one JSON object"),
        ('{"id": "a", "id": "b"}', 'the key "id" stands twice'),
        ('{"id": "a", "schema": {"x": {"y": 1, "y": 2}}}', 'the key "y" stands twice'),
        ('{"id": "a", "x": [NaN]}', "NaN"),
        ('{"id": "a", "x": 1e400}', "too large"),
        ('{"id": "a", "x": ' + "9" * 5_000 + "}", "is not JSON"),
        ('{"derivations": ' + "[" * 100_000, "is"),
        ('{"id": "a", "schema": {}, "derivations": [{"path": "$.x"}]}', "derivations[0]"),
        ('{"id": "a", "schema": {}, "actions": [1]}', "no longer part of a spec"),
        ('{"id": "a", "schema": {}, "constraints": [{"id": "c", "expr": "true", "policy": "warn"}]}', "policy"),
    ],
)
def test_what_cannot_be_read_is_told_with_its_place(answer: str, expected: str) -> None:
    judged = made(answer)
    assert (judged.verdict, judged.count) == (Verdict.UNREADABLE, None)
    assert expected in words(judged)


def test_g15_a_cut_answer_is_read_whole_or_not_at_all() -> None:
    whole = text(GOOD)
    for share in (0.3, 0.6, 0.95):
        judged = made(whole[: int(len(whole) * share)], cut=True)
        assert (judged.verdict, judged.truncated, judged.previous) == (Verdict.UNREADABLE, True, "")
        assert made(whole[: int(len(whole) * share)]).truncated is True
    assert made(whole, cut=True).verdict is Verdict.GOOD
    # What a repair would make of it does not count.
    assert made(whole.replace('"total"', '"total', 1), cut=True).verdict is Verdict.UNREADABLE


@pytest.mark.parametrize("answer", ["Sorry, I cannot.", "Sorry, {I} cannot.", text(GOOD) + "}", "", "[1, 2]"])
def test_prose_or_a_brace_too_many_is_wrong_and_not_cut(answer: str) -> None:
    judged = made(answer)
    assert (judged.verdict, judged.truncated) == (Verdict.UNREADABLE, False)


def test_an_id_that_was_asked_for_is_the_specs() -> None:
    judged = made(GOOD, model_id="acme.eu/quote-1")
    assert judged.candidate is not None
    assert (judged.candidate.model_id, json.loads(judged.candidate.spec)["id"]) == ("acme.eu/quote-1",) * 2
    without = {key: value for key, value in GOOD.items() if key != "id"}
    assert made(without, model_id="loan").verdict is Verdict.GOOD
    assert made(without).verdict is Verdict.INVALID


def test_errors_are_counted_and_come_with_a_place_and_the_mended_answer() -> None:
    judged = made(wrong_paths(3))
    assert (judged.verdict, judged.count) == (Verdict.INVALID, 3)
    assert [problem.where for problem in judged.problems] == [f"derivations[{n}].path" for n in range(3)]
    assert json.loads(judged.previous) == wrong_paths(3)


def test_g4_habits_of_other_languages_are_mended_and_texts_are_not() -> None:
    constraint = {"id": "small", "expr": "discountPct == 0 or discountPct mod 5 = 0", "policy": "flag",
                  "message": "use == here; 5 mod 2"}  # fmt: skip
    judged = made(changed(constraints=[constraint]))
    assert judged.verdict is Verdict.GOOD
    assert judged.candidate is not None
    (mended,) = json.loads(judged.candidate.spec)["constraints"]
    assert mended["expr"] == "discountPct = 0 or discountPct % 5 = 0"
    assert mended["message"] == constraint["message"]


def test_a_state_that_breaks_its_own_rule_is_told_by_the_rules_name() -> None:
    judged = made(UNSTABLE)
    assert (judged.verdict, judged.count) == (Verdict.UNSTABLE, 1)
    assert "discount-range" in words(judged)
    assert judged.problems[0].hint


def test_failing_tests_are_counted_by_case_and_quote_the_expression() -> None:
    judged = made(failing_tests(2))
    assert (judged.verdict, judged.count) == (Verdict.FLAWED, 2)
    assert judged.candidate is not None
    assert (judged.candidate.flaws, len(judged.candidate.failing), judged.candidate.colour) == (2, 2, "amber")
    first = judged.problems[0]
    assert (first.where, first.derivation) == ("case 0", "$.total: $round(net * (1 + $const.vatPct / 100), 2)")
    assert first.message == "$.total: expected 99, found 12"
    assert first.hint


def test_without_tests_there_is_nothing_to_judge_by() -> None:
    judged = made(changed(tests=None))
    assert judged.candidate is not None
    assert (judged.verdict, judged.candidate.colour) == (Verdict.GOOD, "neutral")


VIEW: dict[str, Any] = {
    "defaultView": "main",
    "views": [{"id": "main", "label": "'Main'", "components": [
        {"id": "total", "type": "label", "bind": "$.nowhere"},
    ]}],
}  # fmt: skip


def test_a_dangling_bind_is_a_flaw_of_the_view_and_is_told_when_no_test_fails() -> None:
    judged = made(changed(viewDefinition=VIEW))
    assert judged.verdict is Verdict.FLAWED
    assert judged.candidate is not None
    assert (judged.candidate.failing, len(judged.candidate.findings)) == ((), judged.count)
    assert "$.nowhere" in words(judged)
    both = made(failing_tests(1) | {"viewDefinition": VIEW})
    assert both.candidate is not None
    assert both.candidate.flaws == 1 + len(both.candidate.findings)
    assert "$.nowhere" not in words(both)


def test_slow_and_hostile_expressions_have_a_bounded_time_altogether() -> None:
    started: list[str] = []
    ticks = iter(range(0, 10_000, 4))

    def slow(evaluation: Evaluation) -> str | None:
        started.append(evaluation.text)
        assert evaluation.limits.seconds == 0.5
        raise ExpressionError("D1012", "took too long")

    around = Surroundings(slow, NOW, lambda: float(next(ticks)))
    tests = [replace_given(n) for n in range(30)]
    answer = Answer(text=text(changed(tests=tests)), task=Task.GENERATE, seconds=20, expression_seconds=0.5)
    judged = check(answer, around)
    assert len(started) < 12
    assert judged.verdict in (Verdict.FLAWED, Verdict.UNSTABLE)


def replace_given(n: int) -> dict[str, Any]:
    return {"description": f"t{n}", "given": {"$.items": [{"price": n, "quantity": 1}]}, "expect": {"$.total": n}}


def test_a_verdict_is_bounded_whatever_the_answer_is() -> None:
    judged = check(Answer(text=text(wrong_paths(150)), task=Task.GENERATE), AROUND)
    assert judged.count == 150
    crossed = verdicts.read(verdicts.write(replace(judged, problems=judged.problems * 10)))
    assert len(crossed.problems) == verdicts.MAX_PROBLEMS
    big = changed(constants={"note": "é" * (MAX_REPLY_CHARS - 3_000)})
    assert len(text(big).encode()) > MAX_REPLY_CHARS
    assert len(verdicts.write(check(Answer(text=json.dumps(big, ensure_ascii=False), task=Task.GENERATE), AROUND))) < (
        verdicts.MAX_REPORT_CHARS
    )


def test_a_check_that_gives_no_verdict_is_no_verdict_on_the_answer() -> None:
    for broken in ("[tool error] the tool took longer than 80 seconds", "{}", '{"verdict": "fine"}', "null"):
        with pytest.raises(verdicts.CheckBroken):
            verdicts.read(broken)


# --- evolutions -------------------------------------------------------------------------------------------------------


def test_an_evolution_makes_the_spec_it_is_applied_to() -> None:
    judged = evolved(RAISE_VAT)
    assert judged.verdict is Verdict.GOOD
    assert judged.candidate is not None
    assert json.loads(judged.candidate.evolution or "") == RAISE_VAT
    spec = json.loads(judged.candidate.spec)
    assert (spec["version"], spec["constants"], judged.candidate.spec_version) == ("1.1.0", {"vatPct": 25}, "1.1.0")
    assert spec["schema"] == GOOD["schema"], "fields are marked only where the schema is new"


def test_a_new_schema_says_which_fields_are_derived() -> None:
    schema = {"type": "object", "properties": {"total": {"type": "number"}, "discountPct": {"type": "number"}}}
    change = {"newSchema": schema, "newTests": [], "removeDerivations": ["$.items[*].lineTotal", "$.net"],
              "upsertDerivations": [{"path": "$.total", "expr": "discountPct * 2"}]}  # fmt: skip
    judged = evolved(change)
    assert judged.verdict is Verdict.GOOD, words(judged)
    assert judged.candidate is not None
    spec, evolution = json.loads(judged.candidate.spec), json.loads(judged.candidate.evolution or "")
    assert spec["schema"] == evolution["newSchema"]
    assert spec["schema"]["properties"]["total"] == {"type": "number", "readOnly": True}


@pytest.mark.parametrize(
    ("change", "count", "expected"),
    [
        ({"newSchema": {"type": "object"}, "removeSchemaNodes": ["$.net"]}, 1, "newSchema"),
        ({"removeConstants": ["vatPct"]}, 1, "still referenced"),
        ({"upsertSchemaNodes": [{"path": "net", "schema": {}}]}, 1, "$.net"),
        ({"upsertDerivations": [{"path": "a", "expr": "1"}, {"path": "b", "expr": "1"}]}, 2, "$.b"),
        ({"upsertDerivations": [{"path": "$.net", "expr": "total"}]}, 1, "wait for each other"),
        ({"expectedVersion": "0.1.0"}, 1, "is at version 1.0.0"),
    ],
)
def test_g14_what_does_not_fit_is_refused_with_a_count_and_a_reason(
    change: dict[str, Any], count: int, expected: str
) -> None:
    judged = evolved(change)
    assert (judged.verdict, judged.count) == (Verdict.INVALID, count)
    assert expected in words(judged)
    assert json.loads(judged.previous) == change


def test_an_evolution_whose_tests_fail_is_flawed_and_one_that_cannot_be_read_is_not_counted() -> None:
    judged = evolved({"upsertConstants": {"vatPct": 25}})
    assert (judged.verdict, judged.count) == (Verdict.FLAWED, 2)
    assert "expected 30" in words(judged)
    assert evolved("I would raise it.").verdict is Verdict.UNREADABLE
    assert evolved({"upsertDerivations": [{"path": "$.x"}]}).count is None
    assert evolved("{}").verdict is Verdict.GOOD


@pytest.mark.parametrize("base", [GOOD, {"id": "x", "schema": None, "derivations": [{"path": "$.a", "expr": "("}]}])
def test_a_base_that_is_not_valid_itself_may_be_set_right(base: dict[str, Any]) -> None:
    change = {"newSchema": {"type": "object"}, "removeDerivations": [d["path"] for d in base["derivations"]],
              "newTests": [], "newConstants": {}}  # fmt: skip
    assert evolved(change, base=base).verdict is Verdict.GOOD
