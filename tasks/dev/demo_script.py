"""What the model says in the demonstration's plan where none is configured: a script for the scripted provider."""

from __future__ import annotations

import json
import re
from typing import Any, Final

from engines.recipes.cascade import bundled_path
from engines.recipes.model import parse_recipe
from engines.recipes.prompt import prompt_variables
from engines.recipes.render import render_prompt

RECIPE_FILE: Final = bundled_path() / "examples" / "briefing" / "briefing.yaml"
READERS: Final = ("council", "residents", "press")
_SECONDS: Final = 0.25
"""How long a scripted answer takes: enough to see the plan grow."""
_SECTIONS: Final = {
    "The bridge, and why hydrogen": (
        "Line 2 crosses a swing bridge that opens forty times a week, where no overhead wire can follow. Buses needed a"
        " six-kilometre detour.",
        "Line 2 crosses the old swing bridge. It opens for ships forty times a week, and no wire can follow it."
        " Diesel buses once took a detour of six kilometres; the hydrogen trams wait at the quay with nothing burning.",
    ),
    "What it costs and where it falls short": (
        "A filling costs about twice the electricity for the distance; one filling station, at the depot; a fifth less"
        " range on cold days.",
        "A filling costs about twice as much as electricity for the same distance. The only station is at the depot, so"
        " a tram that runs low leaves the line, and on cold days the range falls by a fifth. Drivers praise the quiet"
        " start and the even braking.",
    ),
    "The engineers' third way": (
        "Wires along the shore, a battery for the 400 metres over the bridge; eleven million, a little less than six"
        " new hydrogen trams.",
        "The engineers propose wires along the shore and a battery for the four hundred metres over the bridge. Such"
        " trams are built in series and charge under the wire. The cost is eleven million, a little less than six new"
        " hydrogen trams.",
    ),
}
_OPENINGS: Final = {
    "council": "The vote is planned for the first week of March, and three ways lie before you.",
    "residents": "What runs past your door from next year on is decided in the first week of March.",
    "press": "Ellesund votes in the first week of March on the future of its hydrogen tram.",
}


def plan_rules() -> list[dict[str, Any]]:
    """Rules for every call of the plan and of the recipe it calls: the same answers each time."""
    tasks, actions = _told()
    rules: list[dict[str, Any]] = []
    for title, (finding, text) in _SECTIONS.items():
        call = {"recipe": "analyze", "steerContent": f"Read demo/article.md. What does it say about: {title}?"}
        goal = rf"<<< Goal \[\w+\]\nSection '{title}'"
        rules += [
            _says("scope", goal, {"action": "CALL_RECIPE", "recipeCall": call, "reason": "The article has the facts."}),
            _says("conclude", goal, {"result": text, "reason": "Written from what was found."}),
            {
                "when": {"contains": call["steerContent"], "tools": True},
                "replies": [
                    {"tool_calls": [{"name": "doc_read", "arguments": {"path": "demo/article.md"}}], "delay": _SECONDS},
                    {"text": finding, "delay": _SECONDS},
                ],
            },
        ]
    onward = {"action": "PROCEED_TO_CONCLUDE", "reason": "What is needed is there."}
    passed = {"verdict": "PASS", "issues": [], "reason": "It does what the goal asks."}
    rules += [_says("conclude", f"Answer: {reader}", _report(reader, actions)) for reader in READERS]
    return [
        *rules,
        _says("conclude", None, _report(READERS[0], actions)),
        _says("scope", None, {"action": "NEEDS_SUBTASKS", "newTasks": tasks, "reason": "The shape is settled."}),
        _says("reflect", None, onward),
        _says("post_children", None, onward),
        _says("validate", None, passed),
    ]


def _says(phase: str, pattern: str | None, answer: dict[str, Any]) -> dict[str, Any]:
    when = {"schema": phase} | ({"regex": pattern} if pattern else {})
    return {"when": when, "reply": {"json": answer, "delay": _SECONDS}}


def _told() -> list[list[dict[str, Any]]]:
    """The lists that the recipe's prompt tells the top of the plan to answer with: its tasks, its post-actions."""
    recipe = parse_recipe(RECIPE_FILE.stem, RECIPE_FILE.read_text(encoding="utf-8"), str(RECIPE_FILE))
    prompt = render_prompt(recipe.prompt_prefix, prompt_variables(recipe, params=recipe.params))
    return [json.loads(found) for found in re.findall(r"^\[$.*?^\]$", prompt, re.DOTALL | re.MULTILINE)]


def _report(reader: str, actions: list[dict[str, Any]]) -> dict[str, Any]:
    sections = "\n\n".join(f"## {title}\n\n{text}" for title, (_, text) in _SECTIONS.items())
    return {
        "result": f"# The tram that runs on water\n\n{_OPENINGS[reader]}\n\n{sections}",
        "postActions": actions,
        "reason": "Every section is there.",
    }
