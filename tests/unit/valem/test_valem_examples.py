"""Whole specs with tests of their own: this project's, and examples of the public project where they are at hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engines.valem.initial import initial_state
from engines.valem.spec.parse import dump_spec, parse_spec
from engines.valem.spec.records import ModelSpec
from engines.valem.testing import run_tests

HERE = Path(__file__).resolve()
OWN = sorted((HERE.parent / "specs").glob("*.json"))
DATA = HERE.parents[4] / "shared" / "data"
EXAMPLES = sorted((DATA / "valem-examples").glob("*.json"))
NOW = 1_700_000_000_000


def load(path: Path) -> ModelSpec:
    return parse_spec(json.loads(path.read_text(encoding="utf-8")))


@pytest.mark.parametrize("path", OWN, ids=lambda path: path.stem)
def test_every_own_spec_passes_its_tests(path: Path) -> None:
    spec = load(path)
    assert spec.tests
    assert initial_state(spec, now=NOW).findings == ()
    for result in run_tests(spec, now=NOW):
        assert result.failures == ()
        assert result.remarks == ()


@pytest.mark.parametrize("path", OWN, ids=lambda path: path.stem)
def test_every_own_spec_survives_the_round_trip(path: Path) -> None:
    spec = load(path)
    assert parse_spec(json.loads(json.dumps(dump_spec(spec)))) == spec


@pytest.mark.skipif(not EXAMPLES, reason="the example specs are not at hand")
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_passes_its_tests(path: Path) -> None:
    spec = load(path)
    assert initial_state(spec, now=NOW).findings == ()
    for result in run_tests(spec, now=NOW):
        assert result.failures == ()


@pytest.mark.skipif(not EXAMPLES, reason="the example specs are not at hand")
def test_the_gate_names_the_constraint_that_zero_seeds_break() -> None:
    spec = load(DATA / "house-heating-zero-seed.json")
    (finding,) = initial_state(spec, now=NOW).findings
    assert finding.location == "defaultValues"
    assert "positive-floor-area" in finding.message
    assert {failure.path for result in run_tests(spec, now=NOW) for failure in result.failures} == {"initialize"}
