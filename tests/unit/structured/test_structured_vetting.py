"""Which schemas are accepted, how the others are refused (B1, B2, B12, B13, B16, B18, B20; rows 5, 6, 19, 22)."""

from __future__ import annotations

import copy
import json
import socket
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest

from engines.errors import InvalidSchema
from engines.structured import schema as schema_module
from engines.structured.schema import MAX_SCHEMA_BYTES, compile_schema


@dataclass(frozen=True)
class Refused:
    name: str
    schema: Any
    pointer: str
    says: str


def with_property(subschema: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"a": subschema}}


def problems_of(schema: Any) -> dict[str, str]:
    with pytest.raises(InvalidSchema) as refused:
        compile_schema(schema)
    return dict(refused.value.problems)


REFUSED = [
    Refused("B1 file reference", {"$ref": "file:///etc/hostname"}, "/$ref", "not supported"),
    Refused("B1 http reference", {"$ref": "http://127.0.0.1:9/x"}, "/$ref", "not supported"),
    Refused("B1 nested", with_property({"$id": "http://h/", "$ref": "x.json"}), "/properties/a/$ref", "not supported"),
    Refused("B1 nested id", with_property({"$id": "http://h/", "$ref": "x"}), "/properties/a/$id", "top level"),
    Refused("B2 prefixItems", with_property({"prefixItems": [{}]}), "/properties/a/prefixItems", "positional"),
    Refused(
        "B3 patternProperties", {"type": "object", "patternProperties": {"^(a+)+$": {}}}, "/patternProperties", "not"
    ),
    Refused("B13 self reference", {"$ref": "#"}, "/$ref", "not supported"),
    Refused("B13 definitions", {"type": "object", "definitions": {"a": {}}}, "/definitions", "in place"),
    Refused("B16 array", {"type": "array"}, "/type", 'must be "object"'),
    Refused("B16 anyOf", {"anyOf": [{"type": "object"}]}, "/anyOf", "alternatives"),
    Refused("B16 true", True, "", "object"),
    Refused("B16 list", [], "", "object"),
    Refused("B16 string", "object", "", "object"),
    Refused("B16 null", None, "", "object"),
    Refused("B16 no type", {"properties": {}}, "", '"type": "object"'),
    Refused("B16 type list", {"type": ["object", "null"]}, "/type", 'must be "object"'),
    Refused("B18 properties list", {"type": "object", "properties": []}, "/properties", "an array"),
    Refused("B18 required string", {"type": "object", "required": "a"}, "/required", "array of property names"),
    Refused("B18 required true", with_property({"required": True}), "/properties/a/required", "on the object itself"),
    Refused("B18 synonym", {"type": "str"}, "/type", 'did you mean "string"'),
    Refused("B18 enum string", with_property({"enum": "abc"}), "/properties/a/enum", "array"),
    Refused(
        "B18 minLength string", with_property({"type": "string", "minLength": "3"}), "/properties/a/minLength", "whole"
    ),
    Refused("B18 other file", {"$ref": "other.json"}, "/$ref", "not supported"),
    Refused("row 19 oneOf", with_property({"oneOf": []}), "/properties/a/oneOf", "alternatives"),
    Refused("row 19 regex", with_property({"pattern": "("}), "/properties/a/pattern", "regular expression"),
    Refused("pattern type", with_property({"pattern": 3}), "/properties/a/pattern", "a string"),
    Refused(
        "pattern memory", with_property({"pattern": "((a{1000}){1000}){1000}"}), "/properties/a/pattern", "repeats"
    ),
    Refused("pattern length", with_property({"pattern": "a" * 1001}), "/properties/a/pattern", "1000 characters"),
    Refused("pattern nesting", with_property({"pattern": "(?:" * 320 + ")"}), "/properties/a/pattern", "regular expr"),
    Refused("row 22 unknown type", with_property({"type": "widget"}), "/properties/a/type", "the types are string"),
    Refused("row 22 typo", with_property({"type": "interger"}), "/properties/a/type", 'did you mean "integer"'),
    Refused("row 22 in a list", with_property({"type": ["int", "null"]}), "/properties/a/type", '"integer"'),
    Refused("type null", with_property({"type": None}), "/properties/a/type", "type name"),
    Refused("type list of numbers", with_property({"type": [1]}), "/properties/a/type", "type names"),
    Refused("type empty list", with_property({"type": []}), "/properties/a/type", "type name"),
    Refused("type twice", with_property({"type": ["null", "null"]}), "/properties/a/type", "twice"),
    Refused("items list", with_property({"items": [{}]}), "/properties/a/items", "one schema"),
    Refused("items string", with_property({"items": "string"}), "/properties/a/items", "must be a schema"),
    Refused("property null", with_property(None), "/properties/a", "must be a schema"),
    Refused("deep", with_property({"items": {"type": "flaot"}}), "/properties/a/items/type", "number"),
    Refused(
        "additional", {"type": "object", "additionalProperties": {"if": {}}}, "/additionalProperties/if", "condition"
    ),
    Refused("typo", with_property({"minlength": 3}), "/properties/a/minlength", 'did you mean "minLength"'),
    Refused("unknown", with_property({"zzz": 3}), "/properties/a/zzz", "unknown keyword"),
    Refused("nullable", with_property({"nullable": True}), "/properties/a/nullable", '["string", "null"]'),
    Refused("enum empty", with_property({"enum": []}), "/properties/a/enum", "at least one"),
    Refused("required twice", {"type": "object", "required": ["a", "a"]}, "/required", 'lists "a" twice'),
    Refused("required number", {"type": "object", "required": [1]}, "/required", "strings"),
    Refused(
        "required forbidden",
        {"type": "object", "required": ["b"], "additionalProperties": False},
        "/required",
        'requires "b"',
    ),
    Refused(
        "required false",
        {"type": "object", "properties": {"b": False}, "required": ["b"]},
        "/required",
        "whose schema is false",
    ),
    Refused(
        "bounds crossed", with_property({"minimum": 3, "maximum": 2}), "/properties/a/minimum", "greater than maximum"
    ),
    Refused("bound boolean", with_property({"exclusiveMinimum": True}), "/properties/a/exclusiveMinimum", "a number"),
    Refused("multipleOf zero", with_property({"multipleOf": 0}), "/properties/a/multipleOf", "greater than 0"),
    Refused("count negative", with_property({"minItems": -1}), "/properties/a/minItems", "0 or more"),
    Refused("flag", with_property({"uniqueItems": 1}), "/properties/a/uniqueItems", "true or false"),
    Refused("format", with_property({"format": 1}), "/properties/a/format", "a string"),
    Refused("name escaped", {"type": "object", "properties": {"x/y~": 3}}, "/properties/x~1y~0", "must be a schema"),
    Refused("NaN", with_property({"const": float("nan")}), "/properties/a/const", "finite"),
    Refused("python object", with_property({"const": object()}), "/properties/a/const", "not a Python object"),
    Refused("key not a string", {"type": "object", 1: 2}, "", "string keys"),
    Refused("huge number", with_property({"minimum": 10**5000}), "/properties/a/minimum", "fewer digits"),
    Refused("schema dialect", {"type": "object", "$schema": 7}, "/$schema", "a string"),
]


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.name)
def test_refused_with_pointer_and_remedy(case: Refused) -> None:
    problems = problems_of(case.schema)
    assert case.says in problems[case.pointer]


def test_all_problems_at_once() -> None:
    problems = problems_of(
        {"type": "array", "properties": {"a": {"type": "str"}, "b": {"$ref": "#"}, "c": {"minLength": -1}}, "oneOf": []}
    )
    assert set(problems) == {"/type", "/oneOf", "/properties/a/type", "/properties/b/$ref", "/properties/c/minLength"}


def test_problems_are_bounded() -> None:
    assert len(problems_of({"type": "object", "properties": {f"p{i}": {"type": "x"} for i in range(500)}})) == 50


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "http://127.0.0.1:{port}/x"},
        {"type": "object", "properties": {"a": {"$id": "http://127.0.0.1:{port}/", "$ref": "x.json"}}},
        {"type": "object", "$id": "http://127.0.0.1:{port}/", "properties": {"a": {"type": "string"}}},
        {"type": "object", "properties": {"a": {"const": {"$ref": "http://127.0.0.1:{port}/x"}}}},
        {"type": "object", "properties": {"a": {"const": {"$id": "http://127.0.0.1:{port}/x", "b": {"$ref": "y"}}}}},
        {"type": "object", "properties": {"a": {"enum": [{"$ref": "http://127.0.0.1:{port}/x"}]}}},
        {"type": "object", "properties": {"$ref": {"type": "string"}, "$id": {"type": "string"}}},
    ],
    ids=str,
)
def test_no_schema_opens_a_connection(schema: dict[str, Any]) -> None:
    """B1: counted at a listening socket. Accepted or refused, nothing is fetched, and literals stay as they are."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.05)
        text = json.dumps(schema).replace("{port}", str(server.getsockname()[1]))
        literal = json.loads(text).get("properties", {}).get("a", {}).get("const", "text")
        with suppress(InvalidSchema):
            assert compile_schema(json.loads(text)).validate({"a": literal}) == () or "enum" in text
        with pytest.raises(TimeoutError):
            server.accept()


ACCEPTED: list[dict[str, Any]] = [
    {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "http://h/x", "type": "object"},
    {"type": "object", "title": "t", "description": "d", "examples": [{}], "x-order": 1, "$comment": "c"},
    with_property({"type": "string", "deprecated": True, "readOnly": True, "default": 3, "x-ui": {"$ref": "no"}}),
    {"type": "object", "properties": {"tags": {"type": "array"}, "x": True, "y": False, "z": {}}},
    with_property({"type": ["string", "null"], "enum": ["a", None]}),
    with_property({"type": "object", "additionalProperties": {"type": "integer"}, "maxProperties": 3}),
    {"type": "object", "required": ["undeclared"]},
    with_property({"type": "string", "format": "no-such-format"}),
    with_property({"minLength": 3, "type": "integer"}),
]


@pytest.mark.parametrize("schema", ACCEPTED, ids=str)
def test_accepted(schema: dict[str, Any]) -> None:
    assert compile_schema(schema).schema == schema


def nested(levels: int, through: str) -> dict[str, Any]:
    """``levels`` schemas inside each other, through properties or items."""
    node: dict[str, Any] = {"type": "integer"}
    for _ in range(levels - 2):
        node = {"type": "array", "items": node} if through == "items" else with_property(node)
    return with_property(node)


def nested_value(levels: int, through: str, leaf: object) -> Any:
    value = leaf
    for _ in range(levels - 2):
        value = [value] if through == "items" else {"a": value}
    return {"a": value}


@pytest.mark.parametrize("through", ["items", "properties"])
@pytest.mark.parametrize("levels", [8, 9, 16, 30, 64])
def test_nesting_beyond_what_python_can_compile_in_one_function(levels: int, through: str) -> None:
    compiled = compile_schema(nested(levels, through))
    assert compiled.validate(nested_value(levels, through, 3)) == ()
    (violation,) = compiled.validate(nested_value(levels, through, "3"))
    assert violation.pointer.count("/") == levels - 1
    assert violation.expected == "integer"


def test_nested_too_deeply() -> None:
    assert "at most 64" in str(problems_of(nested(65, "properties")))
    assert "64 schemas inside each other" in str(problems_of(nested(5_000, "properties")))


def test_literals_nested_too_deeply() -> None:
    literal: list[Any] = []
    for _ in range(5_000):
        literal = [literal]
    assert "too deep" in str(problems_of(with_property({"const": literal})))


def test_size_cap() -> None:
    """B12: a schema over 64 KiB is refused, however it is made; 101 properties and 1,001 enum values are not."""
    huge = with_property({"description": "x" * 6_000_000})
    assert f"{MAX_SCHEMA_BYTES:,}" in problems_of(huge)[""]
    assert "too large" in str(problems_of(with_property({"enum": list(range(1_000_000))})))
    many = {"type": "object", "properties": {f"p{i}": True for i in range(2_001)}}
    assert "2,001 properties" in problems_of(many)[""]
    compile_schema({"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(101)}})
    wide = compile_schema(with_property({"enum": [f"v{i}" for i in range(1_001)]}))
    assert wide.validate({"a": "v1000"}) == ()
    assert len(wide.validate({"a": "w"})) == 1


def test_canonical_text_does_not_depend_on_key_order() -> None:
    one = compile_schema({"type": "object", "properties": {"b": True, "a": {"title": "é"}}})
    two = compile_schema({"properties": {"a": {"title": "é"}, "b": True}, "type": "object"})
    assert one.canonical_json == two.canonical_json
    assert one.canonical_json.isascii()
    assert one.sha256 == two.sha256
    assert list(one.schema["properties"]) == ["b", "a"]


def test_the_given_schema_is_copied_and_never_changed() -> None:
    given = with_property({"const": {"$ref": "x", "$id": "http://h/"}, "default": 1})
    before = copy.deepcopy(given)
    compiled = compile_schema(given)
    assert given == before
    given["properties"]["a"]["const"]["$ref"] = "y"
    assert compiled.schema == before


def test_compiled_parts_are_reused_for_an_equal_schema() -> None:
    schema_module._compiled.cache_clear()
    for _ in range(3):
        compile_schema({"type": "object", "title": "cached", "properties": {"a": True}})
    compile_schema({"properties": {"a": True}, "type": "object", "title": "cached"})
    assert schema_module._compiled.cache_info().misses == 1
    assert schema_module._compiled.cache_info().hits == 3


def test_the_refusal_is_rebuilt_with_its_problems() -> None:
    with pytest.raises(InvalidSchema) as refused:
        compile_schema({"type": "str"})
    copied = copy.copy(refused.value)  # through __reduce__, as a result backend does it
    assert copied.problems == refused.value.problems


HOSTILE_NAMES = [
    "a\"\n'b{x}",
    "{0.__class__}",
    "__class__",
    '"""',
    "x'); import os #",
    "\ud800",
    "",
    "a.b[0]",
    "{}",
    "\\",
]


@pytest.mark.parametrize("name", HOSTILE_NAMES, ids=ascii)
def test_hostile_names_are_plain_data(name: str) -> None:
    """B20: names, texts and formats never act, and every message shows them on one escaped line."""
    inner = {
        "type": "object",
        "description": '"""',
        "title": name,
        "properties": {name: {"type": "integer", "format": name, "enum": [1, name, {name: name}]}},
        "required": [name],
        "additionalProperties": {"type": "string"},
    }
    compiled = compile_schema({"type": "object", "properties": {name: inner}, "additionalProperties": False})
    assert compiled.validate({name: {name: 1}}) == ()
    assert compiled.validate({name: {name: 1, name + "x": "text"}}) == ()
    for bad in ({name: {name: "x"}}, {name: {}}, {name: {name: 1, name + "x": 5}}, {name + "y": 1}):
        violations = compiled.validate(bad)
        assert len(violations) == 1
        assert str(violations[0]).isprintable()
