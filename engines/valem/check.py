"""What an answer is worth: mended, read, validated, run and tested. A pure function of the answer, given an evaluator.

Nothing here raises for what an answer holds. Expressions are the model's, so the evaluator is one for strangers; its
time is bounded for each expression and for the whole check.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from engines.structured.text import quote, shorten
from engines.valem.cursor import Candidate, Problem, Task
from engines.valem.evolution.apply import apply_evolution, check_expected_version
from engines.valem.evolution.errors import EvolutionError, VersionConflict
from engines.valem.evolution.parse import parse_evolution
from engines.valem.findings import Finding
from engines.valem.initial import initial_state
from engines.valem.jsonata.budget import BudgetedEvaluator
from engines.valem.jsonata.evaluation import Evaluation, Evaluator
from engines.valem.machine import Judged, Verdict, unreadable
from engines.valem.repair.jsontext import brace_depth
from engines.valem.repair.pipeline import is_truncated, repair
from engines.valem.repair.readonly import mark_derived_read_only, mark_read_only
from engines.valem.spec.parse import SpecParseError, dump_spec, parse_spec
from engines.valem.spec.records import ModelSpec
from engines.valem.spec.validate import lint_findings, validate_spec
from engines.valem.testing import TestFailure, TestResult, run_tests, verifiable

_WARNINGS: Final = 40
_WARNING_CHARS: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What is checked. cut: it was cut off at its limit. model_id: the id a new spec is to have, if one was asked for.

    base, base_version: the spec an evolution is of, and the number it is stored under. seconds: for all expressions
    together; expression_seconds: for each of them.
    """

    text: str
    task: Task
    cut: bool = False
    model_id: str | None = None
    base: Mapping[str, Any] | None = None
    base_version: int | None = None
    seconds: float = 60.0
    expression_seconds: float = 2.0


@dataclass(frozen=True, slots=True)
class Surroundings:
    """now: what the clock says to expressions, in milliseconds since the epoch. clock: seconds that pass."""

    evaluator: Evaluator
    now: int
    clock: Callable[[], float]


def check(answer: Answer, around: Surroundings) -> Judged:
    """The verdict."""
    run = replace(around, evaluator=_bounded(answer, around))
    try:
        data = _object(answer)
    except _NoObject as reason:
        return unreadable(str(reason), truncated=answer.cut or _stays_open(answer.text))
    if answer.task is Task.EVOLVE:
        return _evolution(answer, data, run)
    return _spec(answer, data, run)


def _bounded(answer: Answer, around: Surroundings) -> Evaluator:
    budgeted = BudgetedEvaluator(around.evaluator, answer.seconds, around.clock)

    def evaluate(evaluation: Evaluation, /) -> str | None:
        seconds = min(evaluation.limits.seconds, answer.expression_seconds)
        return budgeted(replace(evaluation, limits=replace(evaluation.limits, seconds=seconds)))

    return evaluate


# --- a new spec -------------------------------------------------------------------------------------------------------


def _spec(answer: Answer, data: dict[str, Any], run: Surroundings) -> Judged:
    if answer.model_id is not None:
        data = {"id": answer.model_id, **data} | {"id": answer.model_id}
    text = _compact(data)
    try:
        spec = parse_spec(data)
    except SpecParseError as error:
        return unreadable(error.message, previous=text)
    findings = validate_spec(spec, evaluator=run.evaluator)
    errors = [finding for finding in findings if finding.is_error]
    if errors:
        return Judged(verdict=Verdict.INVALID, count=len(errors), problems=_problems(errors), previous=text)
    start = initial_state(spec, now=run.now, evaluator=run.evaluator)
    if start.findings:
        problems = _problems(start.findings)
        return Judged(verdict=Verdict.UNSTABLE, count=len(problems), problems=problems, previous=text)
    lint = lint_findings(spec)
    shown = {str(finding) for finding in lint}
    warnings = [finding for finding in (*findings, *start.remarks) if str(finding) not in shown]
    made = Candidate(
        spec=_compact(mark_derived_read_only(data)),
        model_id=spec.id,
        spec_version=spec.version,
        findings=_lines(lint),
        warnings=_lines(warnings),
    )
    return _tested(made, spec, text, lint, run)


def _tested(made: Candidate, spec: ModelSpec, text: str, lint: Sequence[Finding], run: Surroundings) -> Judged:
    """Failing tests first; what is found in the view counts beside them, and is told when nothing else is left."""
    results = run_tests(spec, now=run.now, evaluator=run.evaluator)
    judged = verifiable(spec, results)
    failing = [result for result in judged if not result.passed]
    remarks = list(dict.fromkeys(finding for result in results for finding in result.remarks))
    left_out = [
        f"test {_named(at, result)}: not judged, because its expectation cannot be worked out by hand"
        for at, (result, kept) in enumerate(zip(results, judged, strict=True))
        if kept.passed and not result.passed
    ]
    flaws = len(failing) + len(lint)
    passed = sum(result.passed for result in results)
    made = replace(
        made,
        flaws=flaws,
        failing=tuple(_failing(at, result) for at, result in enumerate(judged) if not result.passed),
        warnings=(*made.warnings, *_lines(remarks), *left_out)[:_WARNINGS],
        colour="amber" if flaws else "green" if passed else "neutral",
    )
    if not flaws:
        return Judged(verdict=Verdict.GOOD, count=0, previous=text, candidate=made)
    problems = _test_problems(judged) if failing else _problems(lint)
    return Judged(verdict=Verdict.FLAWED, count=flaws, problems=problems, previous=text, candidate=made)


# --- a change ---------------------------------------------------------------------------------------------------------


def _evolution(answer: Answer, data: dict[str, Any], run: Surroundings) -> Judged:
    base = parse_spec(answer.base)
    text = _compact(data)
    try:
        evolution = parse_evolution(data)
    except SpecParseError as error:
        return unreadable(error.message, previous=text)
    try:
        check_expected_version(evolution, base.version, answer.base_version)
        if isinstance(schema := data.get("newSchema"), dict):
            # Once with what it derives: only then is it known which fields are computed.
            derived = [item.path for item in apply_evolution(base, evolution, _nothing).derivations]
            data = data | {"newSchema": mark_read_only(schema, derived)}
            evolution = parse_evolution(data)
        warnings: list[Finding] = []

        def validate(spec: ModelSpec) -> Sequence[Finding]:
            findings = validate_spec(spec, evaluator=run.evaluator)
            warnings.extend(finding for finding in findings if not finding.is_error)
            return findings

        evolved = apply_evolution(base, evolution, validate)
    except VersionConflict as conflict:
        hint = "leave expectedVersion out"
        problem = Problem(where="expectedVersion", message=conflict.message, hint=hint)
        return Judged(verdict=Verdict.INVALID, count=1, problems=(problem,), previous=text)
    except EvolutionError as error:
        problems = _problems(error.findings)
        return Judged(verdict=Verdict.INVALID, count=len(problems), problems=problems, previous=text)
    made = Candidate(
        spec=_compact(dump_spec(evolved)),
        evolution=_compact(data),
        model_id=evolved.id,
        spec_version=evolved.version,
        warnings=_lines(warnings),
    )
    return _tested(made, evolved, text, (), run)


def _nothing(spec: ModelSpec) -> Sequence[Finding]:
    return ()


# --- reading ----------------------------------------------------------------------------------------------------------


class _NoObject(ValueError):
    """The answer holds no JSON object; the text says why."""


def _object(answer: Answer) -> dict[str, Any]:
    """The object of the answer. One that was cut off is read as it is or not at all: a mended half is no answer."""
    text = answer.text if answer.cut else repair(answer.text).text
    try:
        found = json.loads(text, object_pairs_hook=_unique, parse_constant=_not_json, parse_float=_finite)
    except json.JSONDecodeError as error:
        if answer.cut:
            raise _NoObject("the answer was cut off at its limit") from None
        near = quote(text[max(0, error.pos - 40) : error.pos + 40], 80)
        raise _NoObject(f"is not JSON: {error.msg} at line {error.lineno}, column {error.colno}, near {near}") from None
    except RecursionError:
        raise _NoObject("is nested too deeply") from None
    except ValueError as error:
        raise _NoObject(f"is not JSON: {shorten(str(error), 200)}") from None
    if not isinstance(found, dict):
        raise _NoObject("must be one JSON object")
    return found


def _stays_open(text: str) -> bool:
    """Whether an answer ends inside its JSON. Prose, or a brace too many, is a wrong answer and not a cut one."""
    return is_truncated(text) and brace_depth(text[max(text.find("{"), 0) :]) > 0


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {quote(twice, 40)} stands twice in one object")
    return found


def _not_json(word: str) -> Any:
    raise ValueError(f"{word} is no JSON number")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"the number {shorten(text, 40)} is too large")
    return number


def _compact(data: Any) -> str:
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"))


# --- words ------------------------------------------------------------------------------------------------------------


def _problems(findings: Iterable[Finding]) -> tuple[Problem, ...]:
    return tuple(Problem(where=each.location, message=each.message, hint=each.hint) for each in findings)


def _lines(findings: Iterable[Finding]) -> tuple[str, ...]:
    return tuple(shorten(str(problem), _WARNING_CHARS) for problem in _problems(findings))[:_WARNINGS]


def _named(at: int, result: TestResult) -> str:
    return quote(result.description, 120) if result.description else f"number {at + 1}"


def _failing(at: int, result: TestResult) -> str:
    first, more = result.failures[0], len(result.failures) - 1
    said = f"{_named(at, result)}: {first.path}: {first.message}{f' (and {more} more)' if more else ''}"
    return shorten(said, _WARNING_CHARS)


def _test_problems(results: Iterable[TestResult]) -> tuple[Problem, ...]:
    return tuple(
        _test_problem(result.description or f"number {at + 1}", failure)
        for at, result in enumerate(results)
        for failure in result.failures
    )


def _test_problem(test: str, failure: TestFailure) -> Problem:
    derivation = f"{failure.path}: {failure.expression}" if failure.expression else None
    return Problem(where=test, message=f"{failure.path}: {failure.message}", hint=failure.hint, derivation=derivation)
