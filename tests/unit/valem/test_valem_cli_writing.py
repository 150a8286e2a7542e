"""`vancetope valem generate|evolve|validate`: a scripted model, files, and nothing of the backend."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from valem_specs import GOOD, RAISE_VAT, failing_tests, text, wrong_paths

from tasks.cli import main


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """``model(answer, …)``: what the scripted model answers, one after the other."""

    def answers(*given: Any) -> None:
        replies = [each if isinstance(each, dict) and "error" in each else {"text": each} for each in given]
        file = tmp_path / "script.json"
        file.write_text(json.dumps({"rules": [{"replies": replies, "by": "count"}]}))
        monkeypatch.setenv("VANCETOPE_SCRIPTED_FILE", str(file))

    return answers


def invoke(*arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(main, ["valem", *arguments], input=stdin)


def test_a_spec_is_written_to_standard_output_and_its_progress_to_standard_error(model: Any) -> None:
    model(text(wrong_paths(1)), text(GOOD))
    result = invoke("generate", "Orders with lines and VAT.")
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["id"] == "order-total"
    for line in (" 1 CHECK    checking: validation failed → retrying: attempt 2 (repair)", "derivations[0].path",
                 " 2 CHECK    checking: all is well", " 2 STORE    storing", " 2 CONFIRM  stored"):  # fmt: skip
        assert line in result.stderr


def test_a_description_comes_from_a_file_and_the_spec_goes_into_one(model: Any, tmp_path: Path) -> None:
    model(text(GOOD))
    (tmp_path / "domain.txt").write_text("Orders.")
    result = invoke("generate", "@domain.txt", "--model-id", "acme/orders", "-o", "spec.json", "-q")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "")
    assert json.loads((tmp_path / "spec.json").read_text())["id"] == "acme/orders"


def test_a_spec_in_a_file_is_changed_and_stays_as_it_is(model: Any, tmp_path: Path) -> None:
    model(text(RAISE_VAT))
    (tmp_path / "spec.json").write_text(text(GOOD))
    result = invoke("evolve", "spec.json", "Raise VAT to 25 %.", "--json", "-q")
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    assert (found["evolution"], found["spec"]["constants"], found["version"]) == (RAISE_VAT, {"vatPct": 25}, None)
    assert (tmp_path / "spec.json").read_text() == text(GOOD)


def test_what_does_not_hold_in_the_end_is_a_failure_that_says_why(model: Any) -> None:
    model(*[text(wrong_paths(2))] * 3)
    result = invoke("generate", "Orders.", "--param", "maxRetries=2")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "no_valid_spec: no valid spec in 2 attempts" in result.stderr


def test_tests_that_still_fail_are_named(model: Any) -> None:
    model(*[text(failing_tests(1))] * 3)
    result = invoke("generate", "Orders.")
    assert result.exit_code == 0
    assert "storing order-total (best effort)" in result.stderr
    assert 'still failing: "case 0": $.total: expected 99' in result.stderr


def test_a_provider_that_is_overloaded_for_a_moment_is_asked_again(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr("tasks.cli.valem.session.time.sleep", waits.append)
    model({"error": "overloaded", "retry_after": 3.0}, text(GOOD))
    result = invoke("generate", "Orders.")
    assert result.exit_code == 0, result.stderr
    assert len(waits) == 1
    assert waits[0] >= 3.0


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("generate", "  "), 2, "domainDescription: is missing"),
        (("generate", "Orders.", "--param", "maxRetries=many"), 2, "maxRetries: must be a whole number"),
        (("evolve", "gone.json", "x"), 2, "gone.json"),
        (("evolve", "-", "x"), 2, "spec: "),
    ],
)
def test_what_is_asked_wrong_is_one_line(model: Any, arguments: tuple[str, ...], code: int, words: str) -> None:
    model("never asked")
    result = invoke(*arguments, stdin="[1]")
    assert result.exit_code == code
    assert words in result.stderr
    assert "Traceback" not in result.stderr


def test_errors_of_a_spec_are_listed_with_place_and_hint(tmp_path: Path) -> None:
    (tmp_path / "good.json").write_text(text(GOOD))
    result = invoke("validate", "good.json")
    assert (result.exit_code, result.stdout.strip()) == (0, "no problems")
    result = invoke("validate", "-", stdin=text(wrong_paths(2)))
    assert result.exit_code == 1
    assert 'error    derivations[0].path: "bad0" is not a canonical address' in result.stdout
    result = invoke("validate", "-", "--json", stdin=text(GOOD | {"derivations": [{"path": "$.x"}]}))
    assert result.exit_code == 1
    assert [each["severity"] for each in json.loads(result.stdout)] == ["error"]
