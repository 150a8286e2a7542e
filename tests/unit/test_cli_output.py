"""What the command line lets through to a terminal, and how options become a payload."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import click
import pytest

from tasks.cli import asked
from tasks.cli.failures import CommandError, explained
from tasks.cli.output import json_text, money, plain, seconds

NOTHING: dict[str, Any] = dict.fromkeys(
    ("prompt", "schema", "recipes", "domain", "request", "model_id", "max_attempts", "model", "priority", "max_calls",
     "max_tokens", "max_cost", "deadline", "tenant", "project", "owner", "lane", "batch_deadline")
)  # fmt: skip


def payload(**given: Any) -> dict[str, Any]:
    return asked.payload(**{**NOTHING, "param": (), "goal": "", **given})


def test_control_characters_of_a_model_never_reach_the_terminal() -> None:
    hostile = "ok\x1b]0;pwned\x07\x1b[31m\u202egnp\x9b2J"
    assert not any(ord(char) < 32 or 127 <= ord(char) < 160 or char == "\u202e" for char in plain(hostile))
    assert plain("two\nlines\tkept") == "two\nlines\tkept"
    shown = json_text({"data": hostile})
    assert "\x1b" not in shown
    assert "\x9b" not in shown
    assert "\u202e" not in shown
    assert json.loads(shown) == {"data": hostile}


def test_json_holds_what_postgresql_gives() -> None:
    value = {"cost": Decimal("0.25"), "at": datetime(2026, 1, 2, tzinfo=UTC), "none": None}
    assert json.loads(json_text(value)) == {"cost": 0.25, "at": "2026-01-02T00:00:00+00:00", "none": None}


@pytest.mark.parametrize(
    ("value", "shown"), [(None, "unpriced"), (0, "$0"), (Decimal("0.000125"), "$0.000125"), (1.5, "$1.50")]
)
def test_small_sums_are_not_rounded_away(value: Any, shown: str) -> None:
    assert money(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"), [(0.04, "0.0 s"), (59.9, "59.9 s"), (61, "1 min 1 s"), (7_260, "2 h 1 min")]
)
def test_durations(value: float, shown: str) -> None:
    assert seconds(value) == shown


def test_options_become_a_payload_without_what_was_not_given(tmp_path: Path) -> None:
    text = tmp_path / "note.txt"
    text.write_text("\ufeffhello\n", encoding="utf-8")
    found = payload(prompt=f"@{text}", max_attempts=2, max_cost=0.5, param=("lang=de", "n=3", 'list=["a"]', "bad=NaN"))
    assert found == {
        "params": {"prompt": "hello\n", "maxAttempts": 2, "lang": "de", "n": 3, "list": ["a"], "bad": "NaN"},
        "limits": {"maxCostUsd": 0.5},
    }


def test_a_prompt_may_begin_with_an_at_sign() -> None:
    assert payload(prompt="@@home")["params"] == {"prompt": "@home"}


def test_json_files_are_strict(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="NaN is not JSON"):
        payload(schema='{"minimum": NaN}')
    binary = tmp_path / "x.json"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(CommandError, match="not UTF-8 text"):
        payload(schema=str(binary))
    with pytest.raises(CommandError, match=r"nested too deeply|recursion"):
        payload(schema='{"a":' + "[" * 200_000)


def test_an_error_of_ours_is_not_explained_away() -> None:
    assert explained(KeyError("x")) is None


def test_usage_errors_are_clicks_own() -> None:
    with pytest.raises(click.UsageError, match="KEY=VALUE"):
        payload(param=("=x",))


def test_recipes_of_a_plan_are_a_list_of_names() -> None:
    given = payload(recipes="web-research, , analyze")
    assert given["params"]["availableRecipes"] == ["web-research", "analyze"]
