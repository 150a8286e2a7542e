"""The demonstration as a newcomer runs it, without a model: single questions, then a plan with a person in it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from processes import ended, eventually

pytestmark = pytest.mark.integration

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 400


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[dict[str, Any]], str]:
    """The results and what was said meanwhile."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("VANCETOPE_")}
    ran = subprocess.run(
        [sys.executable, "-m", "tasks.dev.demo", "--scripted", "--json"],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout), ran.stderr


def test_every_single_question_is_answered_and_one_after_a_correction(shown: Any) -> None:
    *single, _ = shown[0]
    assert [row["result"]["success"] for row in single] == [True] * 6
    assert sorted(row["result"]["attempts"] for row in single) == [1, 1, 1, 1, 1, 2]


def test_the_plan_fans_out_calls_recipes_asks_a_person_and_writes_a_report(shown: Any) -> None:
    plan = shown[0][-1]
    result = plan["result"]
    assert (result["success"], result["nodeCount"], result["failedChildren"]) == (True, 6, 0)
    assert result["documents"] == ["reports/briefing.md"]
    assert result["result"].startswith("# The tram that runs on water\n\nThe vote is planned")
    assert plan["answers"] == [["Who will read the briefing?", "council"]]
    question, expansion = plan["plan"]["rootNode"]["children"]
    assert (question["status"], len(expansion["children"])) == ("done", 3)
    # Four of the top, four of each section, three of each recipe call and none of the other nodes.
    assert plan["usage"]["calls"] == 4 + 3 * 4 + 3 * 2


def test_the_plan_is_seen_growing(shown: Any) -> None:
    said = shown[1]
    for words in (
        "waits for its subtasks",
        "inbox  Who will read the briefing?  council",
        "waits for a recipe",
        "done ",
    ):
        assert words in said
    assert said.index("waits for a recipe") < said.rindex("done ")


def test_nothing_is_left_running(shown: Any) -> None:
    pids = [int(found) for found in re.findall(r"pid (\d+)", shown[1])]
    assert len(pids) >= 6
    eventually(ended(pids), "all of it is gone")
