"""`valem test`: the embedded tests of a spec, and whether a model of it can be created at all."""

from __future__ import annotations

from typing import Any

import click

from engines.valem.findings import Finding
from engines.valem.initial import InitialState, initial_state
from engines.valem.jsonata.expression import UNDEFINED
from engines.valem.testing import TestFailure, TestResult, run_tests, verifiable
from tasks.cli.failures import FAILED
from tasks.cli.output import err, json_option, out, plain, print_json
from tasks.cli.valem.files import evaluator, now, read_spec


@click.command("test")
@click.argument("file", metavar="FILE|-")
@json_option
@click.pass_context
def test(ctx: click.Context, /, file: str, as_json: bool) -> None:
    """Create a model of the spec in FILE and run its tests. Exit code 1 when something fails.

    A failure marked "not counted" is one that generation does not act on: a whole array or object was expected, or the
    value depends on the clock.
    """
    spec = read_spec(file)
    clock, run = now(), evaluator()
    created = initial_state(spec, now=clock, evaluator=run)
    results = run_tests(spec, now=clock, evaluator=run)
    counted = [result.failures for result in verifiable(spec, results)]
    failed = bool(created.findings) or not all(result.passed for result in results)
    if as_json:
        print_json(_as_json(created, results, counted))
    else:
        _print(created, results, counted)
    ctx.exit(FAILED if failed else 0)


Counted = list[tuple[TestFailure, ...]]


def _as_json(created: InitialState, results: tuple[TestResult, ...], counted: Counted) -> dict[str, Any]:
    return {
        "passed": sum(result.passed for result in results),
        "failed": sum(not result.passed for result in results),
        "initialState": {
            "problems": [_finding(each) for each in created.findings],
            "flags": [str(each) for each in created.flags],
            "remarks": [_finding(each) for each in created.remarks],
        },
        "tests": [
            {
                "description": result.description,
                "passed": result.passed,
                "failures": [_failure(each, each in really) for each in result.failures],
                "flags": [str(each) for each in result.flags],
                "remarks": [_finding(each) for each in result.remarks],
            }
            for result, really in zip(results, counted, strict=True)
        ],
    }


def _finding(each: Finding) -> dict[str, Any]:
    found = {"location": each.location, "message": each.message, "severity": each.severity.value, "hint": each.hint}
    return {key: value for key, value in found.items() if value is not None}


def _failure(each: TestFailure, is_counted: bool) -> dict[str, Any]:
    found: dict[str, Any] = {"path": each.path, "message": each.message, "counted": is_counted}
    found |= {name: value for name, value in (("expected", each.expected), ("actual", each.actual))
              if value is not UNDEFINED}  # fmt: skip
    more = {"keyword": each.keyword, "hint": each.hint, "expression": each.expression}
    return found | {key: value for key, value in more.items() if value is not None}


def _print(created: InitialState, results: tuple[TestResult, ...], counted: Counted) -> None:
    console = out()
    for finding in created.findings:
        console.print("problem", style="red", end="  ")
        console.print(plain(f"{finding.location}: {finding.message}"), markup=False)
        _more([finding.hint])
    for result, really in zip(results, counted, strict=True):
        console.print("ok     " if result.passed else "failed ", style="green" if result.passed else "red", end="  ")
        console.print(plain(result.description or "(no description)"), markup=False)
        for failure in result.failures:
            note = "" if failure in really else "  [not counted]"
            _more([f"{failure.path}: {failure.message}{note}", failure.hint and f"  {failure.hint}"])
            _more([failure.expression and f"  {failure.expression}"])
        _more([f"flag: {each}" for each in result.flags])
        _more([f"remark: {each.location} {each.message}" for each in result.remarks])
    if not results:
        err().print("the spec has no tests")
    else:
        bad = sum(not result.passed for result in results)
        console.print(f"{len(results)} tests, {bad} failed" if bad else f"{len(results)} tests, all passed")


def _more(lines: list[str | None]) -> None:
    for line in lines:
        if line:
            out().print(plain(f"         {line}"), markup=False)
