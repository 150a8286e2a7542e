"""The pre-flight for native structured output (cases B5, B7, B9, B10, B12; row 22)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from engines.llm.base import StructuredPath
from engines.structured.native import Dialect, plan_native
from engines.structured.reading import read_reply
from engines.structured.schema import compile_schema

STRICT, LOOSE, PROMPT = StructuredPath.STRICT, StructuredPath.LOOSE, StructuredPath.PROMPT
OPENAI: Dialect = "openai_strict"
ANTHROPIC: Dialect = "anthropic_strict"


def closed(properties: dict[str, Any], required: list[str] | None = None) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": sorted(properties) if required is None else required,
        "additionalProperties": False,
    }


def test_b7_optional_properties_become_required_and_nullable_and_come_back() -> None:
    schema = compile_schema(
        {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "integer"}}, "required": ["a"]}
    )
    plan = plan_native(schema, OPENAI)
    assert plan.path is STRICT
    assert plan.reasons == ()
    assert plan.sent_schema == closed({"a": {"type": "string"}, "b": {"type": ["integer", "null"]}})
    assert plan.restore({"a": "x", "b": None}) == {"a": "x"}
    assert plan.restore({"a": "x", "b": 3}) == {"a": "x", "b": 3}
    assert read_reply(plan.restore_text('{"a":"x","b":null}'), schema).data == {"a": "x"}
    assert read_reply('{"a":"x","b":null}', schema, restore=plan.restore).data == {"a": "x"}


def test_restore_drops_only_nulls_the_plan_introduced() -> None:
    item = {
        "type": "object",
        "properties": {
            "own_null": {"type": ["string", "null"]},
            "narrow": {"type": ["string", "null"], "enum": ["x"]},
            "choice": {"enum": ["x", None]},
            "plain": {"type": "string"},
            "must": {"type": "string"},
        },
        "required": ["must"],
    }
    schema = compile_schema({"type": "object", "properties": {"list": {"type": "array", "items": item}}})
    plan = plan_native(schema, OPENAI)
    assert plan.path is STRICT
    value = {"list": [{"own_null": None, "narrow": None, "choice": None, "plain": None, "must": None, "new": None}]}
    assert plan.restore(value) == {"list": [{"own_null": None, "choice": None, "must": None, "new": None}]}
    assert value["list"][0]["plain"] is None
    same = {"list": [{"must": "x"}]}
    assert plan.restore(same) is same
    for odd in (None, 3, [], {"list": 3}, {"list": [None]}):
        assert plan.restore(odd) == odd


def test_sent_enum_of_an_optional_property_takes_null() -> None:
    plan = plan_native(
        compile_schema({"type": "object", "properties": {"e": {"enum": ["x"]}, "c": {"const": 1}}}), OPENAI
    )
    assert plan.sent_schema is not None
    assert plan.sent_schema["properties"] == {
        "c": {"type": ["integer", "null"], "enum": [1, None]},
        "e": {"type": ["string", "null"], "enum": ["x", None]},
    }


@pytest.mark.parametrize("text", ['{"b": null', '{"b": null, "b": 1}', '{"a": "x"}', '{"a":1.10}', "x"])
def test_restore_text_leaves_other_text_as_it_is(text: str) -> None:
    schema = compile_schema({"type": "object", "properties": {"b": {"type": "integer"}}})
    assert plan_native(schema, OPENAI).restore_text(text) == text


def test_restore_text_keeps_every_digit() -> None:
    schema = compile_schema({"type": "object", "properties": {"b": {"type": "integer"}, "n": {"type": "integer"}}})
    text = plan_native(schema, OPENAI).restore_text('{"b": null, "n": 12345678901234567890123}')
    assert text == '{"n": 12345678901234567890123}'


def test_no_nulls_are_taken_out_where_none_were_put_in() -> None:
    schema = compile_schema({"type": "object", "properties": {"b": {"type": "integer"}}})
    for dialect in ("openai_loose", "anthropic_tool", "anthropic_strict", "none"):
        assert plan_native(schema, dialect).restore({"b": None}) == {"b": None}
        assert plan_native(schema, dialect).restore_text('{"b": null}') == '{"b": null}'


@pytest.mark.parametrize(
    ("properties", "reason"),
    [
        ({"tags": {"type": "array"}}, "/properties/tags: array without items"),
        ({"tags": {"type": "array", "items": True}}, "/properties/tags: array whose items name no type"),
        ({"tags": {"type": "array", "items": {}}}, "/properties/tags: array whose items name no type"),
        ({"x": True}, "/properties/x: schema true, which names no type"),
        ({"x": {}}, "/properties/x: no type"),
        ({"x": {"type": ["string", "integer"]}}, "/properties/x: several types"),
        ({"x": {"type": "object"}}, "/properties/x: object without properties"),
        ({"x": {"enum": [{"a": 1}]}}, "/properties/x: an enum or const value that is an object or array"),
        (
            {"x": {"type": "object", "properties": {"a": {"type": "null"}}, "additionalProperties": True}},
            "/properties/x: additionalProperties, where the provider takes closed objects only",
        ),
        (
            {"x": {"type": "object", "properties": {"a": {"type": "null"}}, "required": ["b"]}},
            '/properties/x: requires "b", which is not among its properties',
        ),
    ],
)
@pytest.mark.parametrize("dialect", [OPENAI, ANTHROPIC])
def test_b5_what_strict_refuses_goes_loose_with_a_reason(
    properties: dict[str, Any], reason: str, dialect: Dialect
) -> None:
    schema = compile_schema({"type": "object", "properties": {"ok": {"type": "string"}, **properties}})
    plan = plan_native(schema, dialect)
    assert plan.path is LOOSE
    assert plan.reasons == (reason,)
    assert plan.held_locally == ("",)


def test_row_22_the_loose_form_never_lacks_items_and_has_no_bare_booleans() -> None:
    schema = compile_schema(
        {
            "type": "object",
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "x-note": 1,
            "properties": {
                "tags": {"type": "array"},
                "rows": {"type": ["array", "null"], "items": {"type": "array", "items": True}},
                "any": True,
                "never": False,
                "map": {"type": "object", "additionalProperties": {"type": "array", "default": []}},
                "n": {"type": "integer", "minimum": 1, "description": "d", "examples": [1]},
            },
            "required": ["n"],
        }
    )
    assert plan_native(schema, "openai_loose").sent_schema == {
        "type": "object",
        "properties": {
            "tags": {"type": "array", "items": {}},
            "rows": {"type": ["array", "null"], "items": {"type": "array", "items": {}}},
            "any": {},
            "map": {"type": "object", "properties": {}, "additionalProperties": {"type": "array", "items": {}}},
            "n": {"type": "integer", "minimum": 1, "description": "d"},
        },
        "required": ["n"],
    }


def test_b9_bounds_move_into_descriptions_and_are_held_locally() -> None:
    schema = compile_schema(
        {
            "type": "object",
            "properties": {
                "k": {"type": "integer", "description": "1..10", "minimum": 1, "maximum": 10},
                "s": {"type": "string", "maxLength": 5, "pattern": "^a", "format": "date"},
                "u": {"type": "string", "format": "colour"},
                "l": {
                    "type": "array",
                    "items": {"type": "integer", "multipleOf": 2},
                    "minItems": 1,
                    "uniqueItems": True,
                },
            },
        }
    )
    plan = plan_native(schema, ANTHROPIC)
    assert plan.path is STRICT
    assert plan.sent_schema == closed(
        {
            "k": {"type": "integer", "description": "1..10 (at least 1; at most 10)"},
            "l": {
                "type": "array",
                "items": {"type": "integer", "description": "(a multiple of 2)"},
                "minItems": 1,
                "description": "(no item twice)",
            },
            "s": {
                "type": "string",
                "format": "date",
                "description": '(at most 5 characters; matches the regular expression "^a")',
            },
            "u": {"type": "string", "description": '(in the format "colour")'},
        },
        required=[],
    )
    assert plan.held_locally == (
        "/properties/k/minimum",
        "/properties/k/maximum",
        "/properties/s/maxLength",
        "/properties/s/pattern",
        "/properties/l/items/multipleOf",
        "/properties/l/uniqueItems",
    )
    (violation,) = schema.validate({"k": 11})
    assert violation.expected == "at most 10"


def test_b9_openai_takes_number_and_list_bounds_itself() -> None:
    schema = compile_schema(
        closed(
            {
                "k": {"type": "integer", "minimum": 1},
                "l": {"type": "array", "items": {"type": "string"}, "maxItems": 3},
                "p": {"type": "string", "pattern": "^[a-z]+$", "minLength": 2},
                "q": {"type": "string", "pattern": "^(?!x)"},
                "z": {"const": 1, "enum": [1, 2]},
            }
        )
    )
    plan = plan_native(schema, OPENAI)
    assert plan.sent_schema is not None
    sent = plan.sent_schema["properties"]
    assert sent["k"] == {"type": "integer", "minimum": 1}
    assert sent["l"]["maxItems"] == 3
    assert sent["p"] == {"type": "string", "pattern": "^[a-z]+$", "description": "(at least 2 characters)"}
    assert "pattern" not in sent["q"]
    assert plan.held_locally == ("/properties/p/minLength", "/properties/q/pattern", "/properties/z/enum")


def levels_deep(levels: int) -> dict[str, Any]:
    node: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        node = {"type": "object", "properties": {"a": node}, "required": ["a"]}
    return node


@pytest.mark.parametrize(
    ("schema", "path"),
    [
        ({"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(101)}}, STRICT),
        (levels_deep(6), STRICT),
        (levels_deep(10), STRICT),
        (levels_deep(11), LOOSE),
        (closed({"e": {"enum": [f"v{i}" for i in range(1_000)]}}), STRICT),
        (closed({"e": {"enum": [f"v{i}" for i in range(1_001)]}}), LOOSE),
        (closed({"e": {"enum": ["v" * 70 + str(i) for i in range(251)]}}), LOOSE),
    ],
)
def test_b12_openai_limits(schema: dict[str, Any], path: StructuredPath) -> None:
    plan = plan_native(compile_schema(schema), OPENAI)
    assert plan.path is path
    assert ("limit" in str(plan.reasons)) is (path is LOOSE)


@pytest.mark.parametrize(("optional", "path"), [(24, STRICT), (25, LOOSE)])
def test_b12_anthropic_limit_of_optional_properties(optional: int, path: StructuredPath) -> None:
    schema = {"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(optional)}}
    assert plan_native(compile_schema(schema), ANTHROPIC).path is path


@pytest.mark.parametrize(("unions", "path"), [(16, STRICT), (17, LOOSE)])
def test_b12_anthropic_limit_of_unions(unions: int, path: StructuredPath) -> None:
    schema = closed({f"p{i}": {"type": ["string", "null"]} for i in range(unions)})
    assert plan_native(compile_schema(schema), ANTHROPIC).path is path


@pytest.mark.parametrize(
    ("dialect", "highest", "path"),
    [
        ("openai_strict", STRICT, STRICT),
        ("openai_strict", LOOSE, LOOSE),
        ("openai_strict", PROMPT, PROMPT),
        ("openai_loose", STRICT, LOOSE),
        ("openai_loose", PROMPT, PROMPT),
        ("anthropic_strict", STRICT, STRICT),
        ("anthropic_tool", STRICT, LOOSE),
        ("none", STRICT, PROMPT),
        ("none", LOOSE, PROMPT),
    ],
)
def test_b10_never_above_the_highest_rung(dialect: Dialect, highest: StructuredPath, path: StructuredPath) -> None:
    plan = plan_native(compile_schema(closed({"a": {"type": "string"}})), dialect, highest)
    assert plan.path is path
    assert (plan.sent_schema is None) is (path is PROMPT)
    assert bool(plan.reasons) is (
        dialect in ("openai_strict", "openai_loose") and path is not STRICT and highest is path
    )


def test_equal_schemas_are_sent_as_equal_bytes() -> None:
    one = {"type": "object", "properties": {"b": {"type": "string"}, "a": {"type": "null"}}, "required": ["b", "a"]}
    two = {"required": ["b", "a"], "properties": {"b": {"type": "string"}, "a": {"type": "null"}}, "type": "object"}
    for dialect in ("openai_strict", "openai_loose", "anthropic_strict", "anthropic_tool"):
        first, second = (plan_native(compile_schema(schema), dialect).sent_schema for schema in (one, two))
        assert json.dumps(first) == json.dumps(second)


def test_the_sent_schema_is_the_caller_s_own_to_change() -> None:
    schema = compile_schema(closed({"a": {"enum": ["x"]}}))
    for dialect in ("openai_strict", "openai_loose"):
        sent = plan_native(schema, dialect).sent_schema
        assert sent is not None
        sent["properties"]["a"]["enum"].append("y")
        assert schema.schema["properties"]["a"]["enum"] == ["x"]


def test_a_false_property_is_left_out() -> None:
    plan = plan_native(compile_schema({"type": "object", "properties": {"a": {"type": "null"}, "b": False}}), OPENAI)
    assert plan.sent_schema == closed({"a": {"type": "null"}})
