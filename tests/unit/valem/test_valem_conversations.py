"""One conversation for each way through valem's loops, as it was agreed: what is asked, what is done, how it ends.

The files in ``golden/conversations`` hold them. ``VANCETOPE_TEST_GOLDEN=write`` writes them anew and fails: look at the
difference.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from rig import ProbeClient
from valem_specs import GOOD, RAISE_VAT, UNSTABLE, changed, failing_tests, text, wrong_paths

from engines.llm.base import LlmRequest
from engines.llm.scripted import Script, ScriptedAnswer
from engines.recipes.cascade import BundledRecipes, effective_params, resolve
from engines.tools.registry import Registry, bundled_tools, internal_tools
from engines.valem.engine import Valem
from engines.valem.jsonata.evaluation import evaluate_here
from models.transition import Transition
from tasks.cli.valem.session import Session
from tasks.toolbox import Toolbox

GOLDEN = Path(__file__).parent / "golden" / "conversations"
DANGLING = {"defaultView": "main", "views": [{"id": "main", "components": [
    {"id": "total", "type": "label", "bind": "$.nowhere"},
]}]}  # fmt: skip
CUT = ScriptedAnswer.model_validate({"text": text(GOOD)[:600], "stop": "length"})


def using(*names: str) -> ScriptedAnswer:
    calls = [{"id": name, "name": "eval_jsonata", "arguments": {"expression": name}} for name in names]
    return ScriptedAnswer.model_validate({"text": "I try.", "tool_calls": calls})


PATHS: dict[str, tuple[str, dict[str, Any], list[Any]]] = {
    "first-answer": ("valem-generate", {}, [text(GOOD)]),
    "validation-repair": ("valem-generate", {}, [text(wrong_paths(2)), text(wrong_paths(1)), text(GOOD)]),
    "unreadable": ("valem-generate", {"maxTokensHard": 8192}, ["Sorry, {I} cannot.", text(GOOD) + "}", text(GOOD)]),
    "truncated-twice": ("valem-generate", {}, [CUT, CUT, text(GOOD)]),
    "initial-state": ("valem-generate", {"modelId": "acme/orders"}, [text(UNSTABLE), text(GOOD)]),
    "tests-then-view": ("valem-generate", {"includeView": True}, [
        text(failing_tests(1) | {"viewDefinition": DANGLING}), text(changed(viewDefinition=DANGLING)), text(GOOD),
    ]),
    "best-effort": ("valem-generate", {}, [text(failing_tests(2)), text(failing_tests(1)), text(failing_tests(1))]),
    "convergence": ("valem-generate", {"maxRetries": 1, "maxRetriesHard": 3}, [
        text(wrong_paths(n)) for n in (3, 2, 1)
    ]),
    "tools": ("valem-generate", {"evalCalls": 1, "maxRoundTrips": 2}, [
        using("1 + 1", "2 +"), using("3"), text(wrong_paths(1)), text(GOOD),
    ]),
    "evolution": ("valem-evolve", {"spec": GOOD}, [text(RAISE_VAT)]),
    "evolution-repair": ("valem-evolve", {"spec": GOOD}, [
        "no", text({"removeConstants": ["vatPct"]}), text({"upsertConstants": {"vatPct": 25}}),
    ]),
}  # fmt: skip


@pytest.mark.parametrize("name", PATHS)
def test_the_conversation_goes_as_agreed(name: str) -> None:
    recipe_name, given, answers = PATHS[name]
    recipe = resolve(recipe_name, [BundledRecipes()])
    question = {"domainDescription": "Orders with VAT.", "evolutionRequest": "Raise VAT to 25 %."}
    tools = Registry(bundled_tools(evaluator=evaluate_here), internal=internal_tools(evaluate_here))
    script = Script.of(*answers)
    turns: list[Transition] = []
    session = Session(
        engine=Valem(tools.specs()),
        client=ProbeClient(script),
        toolbox=Toolbox(tools, None, lambda tenant, project: ()),
        report=turns.append,
    )
    wrapper = session.run(recipe, effective_params(recipe, question | given).params)
    lines = told(turns, script.requests, wrapper)
    file = GOLDEN / f"{name}.txt"
    if os.environ.get("VANCETOPE_TEST_GOLDEN") == "write":
        GOLDEN.mkdir(parents=True, exist_ok=True)
        file.write_text(lines, encoding="utf-8")
        pytest.fail(f"{file.name} was written anew: look at the difference, then run without VANCETOPE_TEST_GOLDEN")
    assert lines == file.read_text(encoding="utf-8")


def test_there_is_no_golden_conversation_of_nothing() -> None:
    assert {path.stem for path in GOLDEN.glob("*.txt")} == set(PATHS)


def told(turns: list[Transition], requests: list[LlmRequest], wrapper: dict[str, Any]) -> str:
    """Every turn with what was asked in it, and the result; what changes from run to run is left out."""
    left = iter(requests)
    parts: list[str] = []
    for turn in turns:
        note = turn.note
        output = {key: value for key, value in note.output.items() if key not in ("tiers", "path")}
        if note.phase in ("ASK", "ANSWER"):
            parts.append(asked(next(left)))
        parts.append(f"{note.phase} {note.iteration}: {json.dumps(output, ensure_ascii=False)}")
    short = wrapper | ({"spec": "…"} if "spec" in wrapper else {})
    if "lastRaw" in short:
        short["lastRaw"] = short["lastRaw"][:60]
    parts.append(f"RESULT: {json.dumps(short, ensure_ascii=False)}")
    return "\n".join(parts) + "\n"


def asked(request: LlmRequest) -> str:
    """The request without the tiers that other tests hold, and without what was written before."""
    head = (
        f"→ temperature {request.temperature}, at most {request.max_output_tokens} tokens,"
        f" tools: {', '.join(tool.name for tool in request.tools) or 'none'}"
    )
    shown = [message for message in request.messages if message.role != "system"]
    lines = [f"  {message.role}: {plain(message.content)}" for message in shown]
    return "\n".join((head, *lines))


_QUOTED = r"(<<< (?:Previous spec|Rejected evolution) \[token\]\n).*?(\n\[token\] end >>>)"


def plain(content: str) -> str:
    content = re.sub(r"\[[0-9a-f]{8}\]", "[token]", content)
    fenced = re.sub(_QUOTED, r"\1…\2", content, flags=re.DOTALL)
    lines = [line if len(line) <= 200 else line[:200] + "…" for line in fenced.split("\n")]
    # The fields of an evolution and the exemplars are the prompts' own matter.
    return "\n    ".join(lines[:14] + (["…"] if len(lines) > 14 else []))
