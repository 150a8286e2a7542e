"""Embedded tests: each on a fresh model, each expectation on its own."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from engines.errors import EngineError
from engines.structured.text import describe, show_literal
from engines.valem.compiled import CompiledSpec, CompileError, compile_spec
from engines.valem.cycle import Violation
from engines.valem.effective import RELEVANT_KEYWORD, fragment
from engines.valem.findings import Finding, Severity
from engines.valem.hints import hint_for
from engines.valem.jsonata.evaluation import Evaluator, evaluate_here
from engines.valem.jsonata.expression import UNDEFINED
from engines.valem.model import Model
from engines.valem.spec.addresses import Address, parse_address
from engines.valem.spec.records import Derivation, Json, ModelSpec, TestCase

AT_INITIALIZE: Final = "initialize"
AT_GIVEN: Final = "given"
AT_SPEC: Final = "spec"
META_KEY: Final = "$meta"
_CLOCK = re.compile(r"\$(?:now|millis)\s*\(")


@dataclass(frozen=True, slots=True, kw_only=True)
class TestFailure:
    """One expectation that is not met, or the step before all of them that failed.

    path: an address, or ``spec`` (it cannot be run), ``initialize`` (seeding), ``given`` (writing).
    expected, actual: JSON values; ``UNDEFINED`` for an actual value that is not there and where there is none to name.
    keyword: for an expectation of the effective schema.
    expression: that of the derivation at the path.
    """

    path: str
    message: str
    expected: Any = UNDEFINED
    actual: Any = UNDEFINED
    keyword: str | None = None
    hint: str | None = None
    expression: str | None = None

    __test__ = False  # for pytest


@dataclass(frozen=True, slots=True, kw_only=True)
class TestResult:
    """What became of one test.

    flags: constraints that do not hold and let the write stand.
    remarks: what does not decide the test but looks wrong, such as a single value where an array is declared.
    """

    description: str
    failures: tuple[TestFailure, ...] = ()
    flags: tuple[Violation, ...] = ()
    remarks: tuple[Finding, ...] = ()

    __test__ = False  # for pytest

    @property
    def passed(self) -> bool:
        return not self.failures


def run_tests(spec: ModelSpec, *, now: int, evaluator: Evaluator = evaluate_here) -> tuple[TestResult, ...]:
    """The result of every embedded test, in order. Never raises for what a spec holds.

    ``now``: what the clock says to expressions, in milliseconds since the epoch.
    """
    try:
        compiled = compile_spec(spec, now=now, evaluator=evaluator)
    except CompileError as error:
        failure = TestFailure(path=AT_SPEC, message=error.message)
        return tuple(TestResult(description=test.description, failures=(failure,)) for test in spec.tests)
    return tuple(_run(compiled, test, now, evaluator) for test in spec.tests)


def verifiable(spec: ModelSpec, results: Iterable[TestResult]) -> tuple[TestResult, ...]:
    """``results`` without the failures that prove nothing about the spec.

    Nobody computes a whole array or object by hand without a slip, and what the clock decides cannot be expected.
    """
    by_clock = [parse_address(item.path) for item in spec.derivations if _CLOCK.search(item.expr)]
    return tuple(
        replace(result, failures=tuple(each for each in result.failures if _proves_something(each, by_clock)))
        for result in results
    )


def _proves_something(failure: TestFailure, by_clock: list[Address]) -> bool:
    if isinstance(failure.expected, list | dict):
        return False
    if not failure.path.startswith("$") or failure.keyword is not None:
        return True
    try:
        address = parse_address(failure.path)
    except EngineError:
        return True
    return not any(address.is_within(path) for path in by_clock)


def _run(compiled: CompiledSpec, test: TestCase, now: int, evaluator: Evaluator) -> TestResult:
    model = Model(compiled, now=now, evaluator=evaluator)
    seeded = model.initialise()
    remarks = list(model.state.remarks)
    if not seeded.committed:
        failures = tuple(TestFailure(path=AT_INITIALIZE, message=str(each)) for each in seeded.rollbacks)
        return TestResult(description=test.description, failures=failures, flags=seeded.flags, remarks=tuple(remarks))
    outcome = model.write(test.given)
    remarks += model.state.remarks
    if outcome.committed:
        failures = tuple(failure for path, value in test.expect.items() for failure in _compare(model, path, value))
        remarks += _singletons(model)
    else:
        reasons = (*outcome.refusals, *outcome.rollbacks)
        failures = tuple(TestFailure(path=AT_GIVEN, message=str(reason)) for reason in reasons)
    return TestResult(
        description=test.description,
        failures=failures,
        flags=outcome.flags,
        remarks=tuple(dict.fromkeys(remarks)),
    )


def _compare(model: Model, path: str, expected: Json) -> Iterator[TestFailure]:
    try:
        address = parse_address(path)
    except EngineError as error:
        yield TestFailure(path=path, message=error.message, expected=expected)
        return
    if address.has_wildcard:
        message = "an address with [*] names no single value: write an index"
        yield TestFailure(path=path, message=message, expected=expected)
    elif isinstance(expected, dict) and META_KEY in expected:
        yield from _compare_schema(model, address, expected[META_KEY])
    else:
        yield from _compare_value(model, address, expected)


def _compare_value(model: Model, address: Address, expected: Json) -> Iterator[TestFailure]:
    actual = model.read(address)
    if equal(expected, actual):
        return
    message = f"expected {show_literal(expected)}, found {_show(actual)}"
    derivation = _derivation_at(model, address)
    expression = derivation.expr if derivation else None
    error = model.state.errors.get(address)
    if error is not None:
        message += f"; the expression failed: {error.message}"
    yield TestFailure(
        path=str(address),
        message=message,
        expected=expected,
        actual=actual,
        hint=hint_for(expected, actual, expression, error),
        expression=expression,
    )


def _compare_schema(model: Model, address: Address, expected: Json) -> Iterator[TestFailure]:
    if not isinstance(expected, Mapping):
        message = f"{META_KEY} must be an object of schema keywords, not {describe(expected)}"
        yield TestFailure(path=str(address), message=message, expected=None)
        return
    schema = model.schema_at(address)
    for keyword, value in expected.items():
        # Written as the meta property is called, too.
        name = RELEVANT_KEYWORD if keyword == "relevant" else keyword
        actual = schema.get(name, UNDEFINED)
        if not equal(value, actual):
            message = f"expected the schema to have {name} {show_literal(value)}, found {_show(actual)}"
            yield TestFailure(
                path=str(address), message=message, expected=value, actual=actual, keyword=name
            )  # fmt: skip


def equal(expected: Json, actual: Any) -> bool:
    """``null`` is the same as nothing, numbers are the same double; whatever is inside an array or object is exact."""
    if expected is None or actual is None or actual is UNDEFINED:
        return expected is None and (actual is None or actual is UNDEFINED)
    one, other = _double(expected), _double(actual)
    if one is not None and other is not None:
        return one == other and math.copysign(1, one) == math.copysign(1, other)
    return _identical(expected, actual)


def _identical(one: Json, other: Json) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_identical(value, other[key]) for key, value in one.items())
    if isinstance(one, list):
        return len(one) == len(other) and all(map(_identical, one, other))
    return bool(one == other)


def _double(value: Json) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _show(value: Any) -> str:
    return "nothing" if value is UNDEFINED else show_literal(value)


def _derivation_at(model: Model, address: Address) -> Derivation | None:
    """The derivation that gives the value at ``address``, or the value that it is part of."""
    rules = zip(model.compiled.spec.derivations, model.compiled.derivations, strict=True)
    return next((item for item, rule in rules if address.is_within(rule.address)), None)


def _singletons(model: Model) -> Iterator[Finding]:
    """Derivations that give a single value where the schema declares an array: one match is not a list to JSONata."""
    for at, (item, rule) in enumerate(
        zip(model.compiled.spec.derivations, model.compiled.derivations, strict=True)
    ):  # fmt: skip
        if fragment(model.compiled.spec.schema, rule.address).get("type") != "array":
            continue
        single = [
            value
            for address, value in model.state.derived.items()
            if address.matches(rule.address) and value is not None and not isinstance(value, list)
        ]
        if single:
            message = f"gives {describe(single[0])} where the schema declares an array at {item.path}"
            hint = "a single match is not an array: append [] to the path, or put the expression into [ ]"
            yield Finding(f"derivations[{at}]", message, Severity.WARNING, hint)
