"""From a wish to a recipe to a plan that ran: the architect on the real store and runner, with a scripted model."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from designs import TEMPLATES, design
from plans import Stage, closed_plan, straight, user_text
from rig import Rig

from engines.llm.base import LlmRequest
from engines.llm.scripted import ScriptedAnswer, ScriptedToolCall
from models.store import documents, inbox
from tasks.cookbook import recipe_sources
from tasks.settings import load_settings
from tasks.submission import parse_submission, prepare

RESEARCH, CHAPTERS, DECISION = TEMPLATES
TASK_LISTS = re.compile(r"^\[$.*?^\]$", re.DOTALL | re.MULTILINE)


@pytest.fixture
def stage(database_url: str) -> Iterator[Stage]:
    made = Stage(database_url)
    yield made
    made.close()


class Author:
    """A model that designs what it was given, one design after the other; in a plan it does what its prompt says."""

    def __init__(self, *designs: dict[str, Any]) -> None:
        self.designs = list(designs)

    def __call__(self, phase: str, goal: str, request: LlmRequest) -> Any:
        if request.schema is None:
            return self._designs(request)
        shape = TASK_LISTS.findall(user_text(request).partition("## Goal of this node")[0])
        if phase == "SCOPE" and shape:
            return {"action": "NEEDS_SUBTASKS", "newTasks": json.loads(shape[0]), "reason": "the shape"}
        if phase == "CONCLUDE":
            actions = json.loads(shape[1]) if len(shape) > 1 else []
            return {"result": written(goal), "postActions": actions, "reason": "written"}
        return straight()(phase)

    def _designs(self, request: LlmRequest) -> ScriptedAnswer:
        if any(tool.name == "recipe_write" for tool in request.tools) and self.designs:
            return ScriptedAnswer(tool_calls=(ScriptedToolCall(name="recipe_write", arguments=self.designs.pop(0)),))
        return ScriptedAnswer(text="The recipe is ready.")


def written(goal: str) -> str:
    return "- Water supply\n- Roads & bridges" if goal.startswith("Outline") else f"Text on: {goal}"


def submit(rig: Rig, recipe: str, goal: str) -> UUID:
    settings = load_settings({})
    submission = parse_submission({"recipe": recipe, "goal": goal})
    return rig.send(prepare(submission, settings, rig.engines, recipe_sources(settings, rig.database)))


def architect(rig: Rig, goal: str = "I need such a recipe") -> dict[str, Any]:
    process = submit(rig, "marvin-architect", goal)
    rig.drain()
    wrapper = rig.result(process)
    assert wrapper is not None
    return wrapper


def stored(rig: Rig, prefix: str) -> dict[str, str]:
    paths = [each.path for each in documents.list_documents(rig.database, "default", "default", prefix=prefix)]
    found = {path: documents.get(rig.database, "default", "default", path) for path in paths}
    return {path: each.content for path, each in found.items() if each is not None}


def test_errors_come_back_to_the_model_and_the_corrected_recipe_is_stored_once(stage: Stage) -> None:
    bad = design(RESEARCH, outputPathTpl="recipes/report.md", availableRecipes=["web-reserach"])
    rig, model = stage(Author(bad, design(RESEARCH)))
    wrapper = architect(rig)
    assert (wrapper["success"], wrapper["documents"]) == (True, ["recipes/subject-report.yaml"])
    told = [message.content for message in model.requests[1].messages if message.role == "tool"]
    assert "did you mean 'web-research'" in told[0]
    assert "params.outputPathTpl: " in told[0]
    assert list(stored(rig, "recipes/")) == ["recipes/subject-report.yaml"]
    found = documents.get(rig.database, "default", "default", "recipes/subject-report.yaml")
    assert found is not None
    assert (found.version, found.mime) == (1, "application/yaml")


def test_bundled_recipes_and_those_written_by_hand_stay_as_they_are(stage: Stage) -> None:
    rig, model = stage(Author(design(RESEARCH, name="outline"), design(RESEARCH)))
    documents.put(rig.database, "default", "default", "recipes/subject-report.yaml", "description: x\nengine: ford\n")
    wrapper = architect(rig)
    assert "documents" not in wrapper
    told = [message.content for message in model.requests[-1].messages if message.role == "tool"]
    assert "there is a recipe 'outline' already (bundled: recipes/outline.yaml)" in told[0]
    assert "somebody wrote by hand" in told[1]
    assert stored(rig, "recipes/") == {"recipes/subject-report.yaml": "description: x\nengine: ford\n"}


def test_the_research_recipe_runs(stage: Stage) -> None:
    rig, model = stage(Author(design(RESEARCH)))
    architect(rig)
    process = submit(rig, "subject-report", "Tidal power")
    rig.drain()
    wrapper = closed_plan(rig, process)
    assert (wrapper["nodeCount"], wrapper["documents"]) == (3, ["reports/tidal-power.md"])
    assert stored(rig, "reports/") == {"reports/tidal-power.md": "Text on: Tidal power"}
    goals = {goal for phase, goal in model.asked if phase == "SCOPE"}
    assert goals >= {"As an engineer: Find out how Tidal power works."}


def test_the_chapters_recipe_writes_its_outline_then_a_document_per_entry_then_the_whole(stage: Stage) -> None:
    rig, _ = stage(Author(design(CHAPTERS)))
    architect(rig)
    process = submit(rig, "handbook", "Town Planning")
    rig.drain()
    wrapper = closed_plan(rig, process)
    assert (wrapper["nodeCount"], wrapper["failedChildren"]) == (5, 0)
    books = stored(rig, "books/")
    base = "books/town-planning"
    assert books[f"{base}/outline.md"] == "---\nkind: list\n---\n- Water supply\n- Roads & bridges"
    chapters = f"{base}/chapters"
    assert {path for path in books if path.startswith(chapters)} == {
        f"{chapters}/1-water-supply.md", f"{chapters}/2-roads-bridges.md",
    }  # fmt: skip
    chapter = "Write chapter 2, Roads & bridges, of the handbook on Town Planning"
    assert books[f"{chapters}/2-roads-bridges.md"] == f"Text on: {chapter}"
    assert books[f"{base}/introduction.md"] == "Text on: Town Planning"


def test_the_decision_recipe_asks_everything_at_once_and_decides_on_the_answers(stage: Stage) -> None:
    rig, model = stage(Author(design(DECISION)))
    architect(rig)
    process = submit(rig, "choose-supplier", "Paper")
    rig.drain()
    items = {item.title: item for item in inbox.items(rig.database, "default", "default")}
    assert set(items) == {"Which supplier?", "Anything else?"}
    assert items["Which supplier?"].body == "For Paper."
    for title, value in (("Which supplier?", {"chosen": "B"}), ("Anything else?", {"text": "Be quick."})):
        given = {"outcome": "DECIDED", "value": value}
        rig.publisher.publish(inbox.answer(rig.database, items[title].id, given, by="ada").due)
    rig.drain()
    wrapper = closed_plan(rig, process)
    assert wrapper["documents"] == ["decisions/paper.md"]
    concluded = next(request for request in reversed(model.requests) if request.schema_name == "conclude")
    assert "Be quick." in user_text(concluded)
