"""`vancetope valem`: specs in files, no backend."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tasks.cli import main

SPECS = Path(__file__).parent / "specs"


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def invoke(*arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(main, ["valem", *arguments], input=stdin)


def spec(**parts: Any) -> str:
    return json.dumps({"id": "m", "schema": {}, **parts})


FAILING = spec(
    derivations=[{"path": "$.b", "expr": "a + 1"}],
    tests=[
        {"description": "right", "given": {"$.a": 1}, "expect": {"$.b": 2}},
        {"description": "wrong", "given": {"$.a": 1}, "expect": {"$.b": 3, "$.list": [1]}},
    ],
)


def test_a_spec_that_passes_its_tests() -> None:
    result = invoke("test", str(SPECS / "greenhouse.json"))
    assert result.exit_code == 0
    assert "2 tests, all passed" in result.stdout
    assert "flag: constraint mould" in result.stdout


def test_a_failure_is_shown_with_expression_and_hint() -> None:
    result = invoke("test", "-", stdin=FAILING)
    assert result.exit_code == 1
    assert "$.b: expected 3, found 2" in result.stdout
    assert "a + 1" in result.stdout
    assert "check the formula" in result.stdout
    assert "$.list: expected [1], found nothing  [not counted]" in result.stdout
    assert "2 tests, 1 failed" in result.stdout


def test_results_for_other_programs() -> None:
    result = invoke("test", "-", "--json", stdin=FAILING)
    assert result.exit_code == 1
    found = json.loads(result.stdout)
    assert (found["passed"], found["failed"]) == (1, 1)
    assert found["tests"][1]["failures"][0] == {
        "path": "$.b", "message": "expected 3, found 2", "counted": True, "expected": 3, "actual": 2,
        "hint": "another number: check the formula, its brackets and which operator comes first", "expression": "a + 1",
    }  # fmt: skip
    assert found["tests"][1]["failures"][1]["counted"] is False


def test_a_model_that_cannot_be_created_is_a_failure_without_any_test() -> None:
    broken = spec(
        defaultValues=[{"path": "$", "expr": "{ 'x': 0 }"}],
        constraints=[{"id": "positive", "expr": "x > 0", "policy": "rollback", "message": "too small"}],
    )
    result = invoke("test", "-", stdin=broken)
    assert result.exit_code == 1
    assert "defaultValues: the initial state breaks constraint positive: too small" in result.stdout
    assert "no tests" in result.stderr
    found = json.loads(invoke("test", "-", "--json", stdin=broken).stdout)
    assert found["initialState"]["problems"][0]["location"] == "defaultValues"


@pytest.mark.parametrize(
    ("stdin", "words"),
    [
        ("{", "line 1, column 2"),
        ("[]", "must be an object"),
        ('{"derivations": [{"path": "$.a"}]}', "derivations[0].expr: is missing"),
    ],
)
def test_what_is_no_spec_is_wrong_usage(stdin: str, words: str) -> None:
    result = invoke("test", "-", stdin=stdin)
    assert result.exit_code == 2
    assert words in result.stderr
    assert "Traceback" not in result.stderr


def test_a_file_that_is_not_there_is_wrong_usage() -> None:
    result = invoke("test", "nowhere.json")
    assert result.exit_code == 2
    assert "nowhere.json: No such file" in result.stderr


def test_an_expression_is_evaluated_against_a_document(tmp_path: Path) -> None:
    (tmp_path / "in.json").write_text('{"a": [1, 2.5]}')
    assert invoke("eval", "$sum(a)", "--input", "in.json").stdout == "3.5\n"
    assert (
        invoke("eval", "a", "--input", "-", "--json", stdin='{"a": null}').stdout
        == '{"defined": true, "value": null}\n'
    )
    assert json.loads(invoke("eval", "{'x': [1]}").stdout) == {"x": [1]}


def test_undefined_is_not_null() -> None:
    result = invoke("eval", "missing", "--input", "-", stdin="{}")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "undefined\n")
    assert invoke("eval", "missing", "--json").stdout == '{"defined": false}\n'


def test_an_expression_that_fails_shows_where() -> None:
    result = invoke("eval", "a ** b")
    assert result.exit_code == 1
    assert result.stderr.splitlines()[1:] == ["a ** b", "  ^"]
    assert json.loads(invoke("eval", "a ** b", "--json").stdout)["error"] == {
        "code": "S0201", "message": 'Syntax error: "**"', "position": 2, "token": "**",
    }  # fmt: skip


def test_a_hostile_expression_ends_with_an_error() -> None:
    result = invoke("eval", "$replace($pad('', 1e6, 'a'), 'a', $pad('', 1e5, 'b'))")
    assert result.exit_code == 1
    assert "the evaluation was ended" in result.stderr


def test_a_misspelt_command_gets_the_nearest_one() -> None:
    result = invoke("tset")
    assert result.exit_code == 2
    assert "did you mean 'test'" in result.stderr
