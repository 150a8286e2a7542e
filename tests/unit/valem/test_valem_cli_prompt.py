"""`vancetope valem prompt` and the scorecard: what would be sent, and what came of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from valem_specs import GOOD, RAISE_VAT, failing_tests, text

from bench.valem_score import DOMAINS, Score, card
from bench.valem_score import main as score_main
from tasks.cli import main
from tasks.cli.asked import payload


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["valem", "prompt", *arguments])


def shown(*arguments: str) -> dict[str, Any]:
    result = invoke(*arguments, "--json")
    assert result.exit_code == 0, result.stderr
    found: dict[str, Any] = json.loads(result.stdout)
    return found


@pytest.fixture
def spec(tmp_path: Path) -> str:
    file = tmp_path / "spec.json"
    file.write_text(text(GOOD))
    return str(file)


def test_the_first_prompt_of_a_generation(spec: str) -> None:
    found = shown("--domain", "orders with VAT", "--model-id", "orders")
    assert "orders with VAT" in found["user"]
    assert "Model id: orders" in found["user"]
    assert found["session"] == ""
    assert set(found["sha256"]) == {"system", "session_context", "user"}
    assert shown("--domain", "x", "--view")["system"] != found["system"]
    assert invoke("--domain", "x", "--tier", "system").stdout.strip() == found["system"].strip()


@pytest.mark.parametrize("kind", ["validation", "tests", "lint", "initial-state"])
def test_a_repair_shows_what_was_wrong_and_the_spec(kind: str, spec: str) -> None:
    found = shown("--type", kind, "--spec", spec, "--problem", "derivations[0].path: is not canonical")
    assert "is not canonical" in found["user"]
    assert "order-total" in found["user"]


def test_an_evolution_and_its_repair_share_their_stable_tiers(spec: str) -> None:
    first = shown("--type", "evolution", "--spec", spec, "--request", "raise VAT")
    again = shown("--type", "evolution-repair", "--spec", spec, "--request", "raise VAT", "--problem", "no JSON",
                  "--rejected", text(RAISE_VAT))  # fmt: skip
    assert "order-total" in first["session"]
    assert (first["system"], first["session"]) == (again["system"], again["session"])
    assert "no JSON" in again["user"]


@pytest.mark.parametrize(
    ("arguments", "missing"),
    [
        ((), "--domain"),
        (("--type", "tests"), "--spec"),
        (("--type", "evolution"), "--request"),
    ],
)
def test_what_a_prompt_is_made_of_must_be_given(arguments: tuple[str, ...], missing: str) -> None:
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert f"{missing} is missing" in result.stderr


def options(**given: Any) -> dict[str, Any]:
    names = (
        "prompt", "schema", "recipes", "domain", "request", "model_id", "max_attempts", "model", "priority",
        "max_calls", "max_tokens", "max_cost", "deadline", "tenant", "project", "owner", "lane", "batch_deadline",
    )  # fmt: skip
    asked = payload(**{name: None for name in names} | {"param": (), "goal": ""} | given)
    found: dict[str, Any] = asked["params"]
    return found


def test_a_spec_is_named_by_model_when_a_change_is_asked_for() -> None:
    assert options(request="raise VAT", model="loan") == {"evolutionRequest": "raise VAT", "modelId": "loan"}
    chosen = {"evolutionRequest": "r", "modelId": "loan", "model": "default:analyze"}
    assert options(request="r", model_id="loan", model="default:analyze") == chosen
    assert options(request="r", model="openai:gpt-4.1") == {"evolutionRequest": "r", "model": "openai:gpt-4.1"}
    assert options(domain="loans", model="gpt-4.1") == {"domainDescription": "loans", "model": "gpt-4.1"}


def test_a_score_says_what_became_of_each_domain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    replies = [{"text": answer} for answer in (text(GOOD), text(failing_tests(1)), text(failing_tests(1)), "no spec")]
    (tmp_path / "script.json").write_text(json.dumps({"rules": [{"replies": replies, "by": "count"}]}))
    monkeypatch.setenv("VANCETOPE_SCRIPTED_FILE", str(tmp_path / "script.json"))
    (tmp_path / "domains.yaml").write_text("first: Orders with VAT.\nsecond: More orders.\n")
    code = score_main(["--domains", "domains.yaml", "--output", "scores.json"])
    first, second = json.loads((tmp_path / "scores.json").read_text())
    assert (first["domain"], first["generated"], first["attempts"], first["tests_failing"]) == ("first", True, 1, 0)
    assert (second["domain"], second["generated"], second["tests_failing"]) == ("second", True, 1)
    assert code == 0
    assert "| first | yes | 1 | yes | yes" in capsys.readouterr().out


def test_a_card_counts_only_specs_that_test_themselves() -> None:
    common: dict[str, Any] = {"attempts": 1, "lint_clean": True, "calls": 1, "tokens": 10, "seconds": 1.0}
    scores = [
        Score(domain="a", generated=True, tests=2, tests_failing=0, cost_usd=0.5, **common),
        Score(domain="b", generated=True, tests=0, tests_failing=0, cost_usd=None, **common),
        Score(domain="c", generated=False, tests=0, tests_failing=0, cost_usd=0.0, error="e: m", **common),
    ]
    assert "| **all** | 2 of 3 | 3 | 3 of 3 | 1 of 3 | 3 | 30 | 0.5000 | 3 |" in card(scores)
    assert "c: e: m" in card(scores)


def test_the_domains_are_described_in_different_lengths() -> None:
    lines = DOMAINS.read_text(encoding="utf-8").splitlines()
    assert sum(line[:1].isalpha() for line in lines) == 12
