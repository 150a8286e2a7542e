"""The schemas that shape answers: wide enough for every spec, sent on the loose rung, the same bytes each time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engines.llm import anthropic_body
from engines.llm import openai as openai_wire
from engines.llm.base import LlmRequest, Message, StructuredPath, ToolSpec
from engines.llm.catalogue import Catalogue
from engines.llm.ladder import plan
from engines.llm.wire import Call
from engines.structured.schema import compile_schema
from engines.valem.prompts.evolve import evolution_fields
from engines.valem.prompts.resources import text
from engines.valem.prompts.tiers import PromptParts
from engines.valem.schemas import SUBMIT_SPEC, evolution_schema, model_spec_schema, submit_spec_tool

SHARED = Path(__file__).resolve().parents[4] / "shared" / "data"
SPECS = sorted((SHARED / "valem-examples").glob("*.json"))
PARTS = PromptParts(system="rules", user="go")
EVOLUTION = {
    "newVersion": "1.1.0",
    "upsertDerivations": [{"path": "$.total", "expr": "1"}],
    "removeConstraints": ["old"],
    "upsertMetaDerivations": [{"path": "$.a", "property": "maximum", "expr": 5}],
    "removeMetaDerivations": ["$.a#read_only"],
    "upsertSchemaNodes": [{"path": "$.b", "schema": {"type": "string"}, "required": True}],
    "upsertSchemaDefs": {"Name": {"type": "string"}},
    "newSchema": None,
    "newLibrary": None,
    "newViewDefinition": None,
    "upsertComponents": [{"viewId": "main", "component": {"id": "x", "type": "label"}, "beforeId": "y"}],
    "removeComponents": [{"viewId": "main", "componentId": "x"}],
    "newTests": [{"description": "t", "given": {}, "expect": {"$.a": {"$meta": {"maximum": 5}}}}],
    "backfill": {"$.b": "x"},
    "unknown": 1,
}


def problems(schema: dict[str, Any], value: Any) -> tuple[Any, ...]:
    return compile_schema(schema).validate(value)


@pytest.mark.parametrize("include_view", [False, True])
@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_an_example_spec_fits(path: Path, include_view: bool) -> None:
    assert problems(model_spec_schema(include_view=include_view), json.loads(path.read_text(encoding="utf-8"))) == ()


@pytest.mark.parametrize("include_view", [False, True])
def test_the_worked_spec_fits(include_view: bool) -> None:
    worked = {**json.loads(text("worked.json")), "viewDefinition": json.loads(text("view_example.json"))}
    assert problems(model_spec_schema(include_view=include_view), worked) == ()


@pytest.mark.parametrize(
    "part",
    [
        {"library": "( $f := 1; ['f'] )"},
        {"library": {"layers": [{"define": "x"}]}},
        {
            "constraints": [
                {"id": "a", "expr": "true", "policy": "flag", "path": path} for path in (None, "$.a", ["$.a"])
            ]
        },
        {"effects": [{"id": "e", "trigger": "true", "executor": "timer", "afterMs": 900000, "response": {"set": {}}}]},
        {"actions": [], "_name": "kept by others", "lineage": [], "template": {}},
    ],
    ids=lambda part: next(iter(part)),
)
def test_every_form_of_a_part_fits(part: dict[str, Any]) -> None:
    assert problems(model_spec_schema(include_view=True), {"id": "x", "schema": {"type": "object"}, **part}) == ()


def test_the_outline_is_held() -> None:
    schema = model_spec_schema(include_view=True)
    for wrong in (
        {},
        {"id": "x", "schema": []},
        {"id": "x", "schema": {}, "derivations": {"$.a": "1"}},
        {"id": "x", "schema": {}, "constraints": [{"id": "c", "expr": "true", "policy": "warn"}]},
        {"id": "x", "schema": {}, "tests": [{"expect": {}}]},
    ):
        assert problems(schema, wrong) != ()
    assert problems(evolution_schema(include_view=False), {"upsertDerivations": {"path": "$.a"}}) != ()


@pytest.mark.parametrize("include_view", [False, True])
def test_an_evolution_fits_and_so_does_an_empty_one(include_view: bool) -> None:
    schema = evolution_schema(include_view=include_view)
    assert problems(schema, EVOLUTION) == problems(schema, {}) == ()


@pytest.mark.parametrize("include_view", [False, True])
def test_schema_and_prompt_name_the_same_fields(include_view: bool) -> None:
    fields = set(evolution_schema(include_view=include_view)["properties"])
    said = evolution_fields(include_view=include_view)
    # Backfill is for those who store the result, not for those who write the change.
    assert {field for field in fields if field in said} == fields - {"backfill"}
    assert ("newViewDefinition" in fields) is include_view
    assert ("viewDefinition" in model_spec_schema(include_view=include_view)["properties"]) is include_view


@pytest.mark.parametrize(
    "model", ["openai:gpt-4o", "anthropic:claude-sonnet-4-6", "mistral:default", "ollama:llama3.1"]
)
@pytest.mark.parametrize("schema", [model_spec_schema(include_view=True), evolution_schema(include_view=True)])
def test_the_schemas_travel_on_the_loose_rung(model: str, schema: dict[str, Any]) -> None:
    pair = Catalogue.load().split(model)
    assert pair is not None
    request = LlmRequest(
        model=model,
        messages=(Message(role="user", content="go"),),
        schema=schema,
        highest_path=StructuredPath.LOOSE,
    )
    planned = plan(request, Catalogue.load().candidate(*pair))
    assert planned.path is StructuredPath.LOOSE
    assert planned.native is not None
    assert set(planned.native.schema["properties"]) == set(schema["properties"])


def call(model: str, **more: Any) -> Call:
    pair = Catalogue.load().split(model)
    assert pair is not None
    candidate = Catalogue.load().candidate(*pair)
    request = LlmRequest(
        model=model, messages=PARTS.messages(), highest_path=StructuredPath.LOOSE, schema_name=SUBMIT_SPEC, **more
    )
    planned = plan(request, candidate)
    return Call(
        candidate=candidate, messages=planned.messages, tools=request.tools, native=planned.native, max_output=9
    )


def test_alone_the_schema_forces_the_answer() -> None:
    schema = model_spec_schema(include_view=False)
    anthropic = anthropic_body.build_body(call("anthropic:claude-sonnet-4-6", schema=schema))
    openai = openai_wire.build_body(call("openai:gpt-4o", schema=schema))
    assert anthropic["tool_choice"] == {"type": "tool", "name": "submit_spec"}
    assert [tool["name"] for tool in anthropic["tools"]] == ["submit_spec"]
    assert openai["response_format"]["json_schema"]["name"] == "submit_spec"
    assert openai["response_format"]["json_schema"]["strict"] is False


def test_beside_other_tools_the_answer_is_offered_unforced() -> None:
    look = ToolSpec(name="eval_jsonata", description="Evaluates.", parameters={"type": "object"})
    tools = (look, submit_spec_tool(evolution=False, include_view=False))
    for body in (
        anthropic_body.build_body(call("anthropic:claude-sonnet-4-6", tools=tools)),
        openai_wire.build_body(call("groq:default", tools=tools)),
    ):
        assert len(body["tools"]) == 2
        assert not {"tool_choice", "response_format", "output_config"} & set(body)


@pytest.mark.parametrize("evolution", [False, True])
def test_the_submit_tool_takes_the_answer_as_its_arguments(evolution: bool) -> None:
    tool = submit_spec_tool(evolution=evolution, include_view=True)
    schema = evolution_schema if evolution else model_spec_schema
    assert (tool.name, tool.parameters) == ("submit_spec", schema(include_view=True))
    assert ("only what changes" in tool.description) is evolution
    assert tool == submit_spec_tool(evolution=evolution, include_view=True)
