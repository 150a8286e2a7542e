"""What a compiled schema says about values (cases A10, B3, B5, B6, B14, B17; rows 15, 20, 21)."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import pytest

from engines.structured.checks import MAX_VALUE_DEPTH, Violation
from engines.structured.patterns import BadPattern, MatchClock, compile_pattern
from engines.structured.schema import MAX_HINTS, MAX_VIOLATIONS, compile_schema

NAN, INFINITY = float("nan"), float("inf")


def a(subschema: Any, **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"a": subschema}, **more}


@dataclass(frozen=True)
class Case:
    name: str
    schema: dict[str, Any]
    value: Any
    lines: tuple[str, ...] = ()


CASES = [
    Case("integer", a({"type": "integer"}), {"a": 3}),
    Case("B6 integral float", a({"type": "integer"}), {"a": 2.0}),
    Case("B6 boolean", a({"type": "integer"}), {"a": True}, ("/a: found boolean true, expected integer",)),
    Case("boolean as number", a({"type": "number"}), {"a": False}, ("/a: found boolean false, expected number",)),
    Case("fraction", a({"type": "integer"}), {"a": 2.5}, ("/a: found number 2.5, expected integer",)),
    Case("B6 big", a({"type": "integer"}), {"a": 12345678901234567890123}),
    Case("huge against a float", a({"maximum": 1.5}), {"a": 10**400}, ("/a: found integer 1000",)),
    Case("huge multiple", a({"multipleOf": 0.5}), {"a": 10**400}),
    Case("decimal multiple", a({"multipleOf": 0.01}), {"a": 19.01}),
    Case("not a multiple", a({"multipleOf": 0.1}), {"a": 0.25}, ("/a: found number 0.25, expected a multiple of 0.1",)),
    Case("A10 NaN", a({"type": "number", "minimum": 0}), {"a": NAN}, ("/a: found NaN, expected a finite number",)),
    Case("A10 infinity", a({"type": "number"}), {"a": -INFINITY}, ("/a: found a number too large",)),
    Case("A10 anywhere", {"type": "object"}, {"x": [{"y": NAN}]}, ("/x/0/y: found NaN",)),
    Case(
        "A10 with others",
        a({"type": "number"}, required=["b"]),
        {"a": NAN},
        ("/a: found NaN", "/b: found nothing, expected a required property: any value"),
    ),
    Case(
        "row 20 required",
        a(a({"type": "string"}, required=["a"])),
        {"a": {}},
        ("/a/a: found nothing, expected a required property: string",),
    ),
    Case("row 20 enum", a({"enum": ["x", "y"]}), {"a": "z"}, ('/a: found string "z", expected one of "x", "y"',)),
    Case("enum strict", a({"enum": [1, "b"]}), {"a": True}, ('/a: found boolean true, expected one of 1, "b"',)),
    Case("enum false and zero", a({"enum": [False]}), {"a": 0}, ("/a: found integer 0, expected one of false",)),
    Case("enum number forms", a({"enum": [1]}), {"a": 1.0}),
    Case("enum inside", a({"enum": [[True]]}), {"a": [1]}, ("/a: found array of 1 item",)),
    Case("const", a({"const": {"k": [1]}}), {"a": {"k": [1.0]}}),
    Case("const strict", a({"const": {"k": 1}}), {"a": {"k": True}}, ("/a: found object with keys",)),
    Case("const null", a({"const": None}), {"a": 0}, ("/a: found integer 0, expected exactly null",)),
    Case("const against enum", a({"const": 1, "enum": [2]}), {"a": 1}, ("/a: found integer 1, expected one of 2",)),
    Case("unique numbers", a({"uniqueItems": True}), {"a": [1, True, "1", None, 0, False]}),
    Case(
        "unique twice",
        a({"uniqueItems": True}),
        {"a": [1, {"x": 1}, 1.0, {"x": 1}]},
        ("/a/2: found number 1.0, the same as item 0", "/a/3: found object"),
    ),
    Case("length", a({"type": "string", "maxLength": 2}), {"a": "abc"}, ('/a: found string "abc" (3 characters), ',)),
    Case("length in characters", a({"maxLength": 1}), {"a": "😀"}),
    Case("short", a({"minLength": 1}), {"a": ""}, ("/a: found string",)),
    Case("items", a({"minItems": 1}), {"a": []}, ("/a: found array of 0 items, expected at least 1 item",)),
    Case("many", a({"maxItems": 1}), {"a": [1, 2]}, ("/a: found array of 2 items, expected at most 1 item",)),
    Case(
        "size", a({"maxProperties": 0}), {"a": {"k": 1}}, ('/a: found object with keys "k", expected at most 0 prop',)
    ),
    Case("exclusive", a({"exclusiveMinimum": 0}), {"a": 0}, ("/a: found integer 0, expected more than 0",)),
    Case("exclusive top", a({"exclusiveMaximum": 1}), {"a": 1}, ("/a: found integer 1, expected less than 1",)),
    Case("closed", a({}, additionalProperties=False), {"ab": 1}, ("/ab: found integer 1, expected no such property",)),
    Case("map", a({"additionalProperties": {"type": "integer"}}), {"a": {"k": "v"}}, ("/a/k: found string",)),
    Case("false", a(False), {"a": 1}, ("/a: found integer 1, expected nothing here",)),
    Case("false items", a({"items": False}), {"a": [1]}, ("/a/0: found integer 1, expected nothing here",)),
    Case("B5 true and bare", a(True), {"a": [NAN, 1][1:]}),
    Case("B5 items true", a({"type": "array", "items": True}), {"a": [1, "x"]}),
    Case("B14 default", a({"type": "integer", "default": "x"}), {}),
    Case("B17 format", a({"type": "string", "format": "date-time"}), {"a": "tomorrow"}),
    Case(
        "pattern", a({"pattern": "^a+$"}), {"a": "b"}, ('/a: found string "b", expected a string matching the pattern',)
    ),
    Case("pattern unanchored", a({"pattern": "b"}), {"a": "abc"}),
    Case("pattern end", a({"pattern": "^a$"}), {"a": "a\n"}, ("/a: found string",)),
    Case("pattern other type", a({"pattern": "b"}), {"a": 3}),
    Case("null in list of types", a({"type": ["string", "null"]}), {"a": None}),
    Case("types", a({"type": ["string", "null"]}), {"a": 1}, ("/a: found integer 1, expected string or null",)),
    Case("top", {"type": "object"}, [1], ("(top level): found array of 1 item, expected object",)),
    Case("escaped pointer", {"type": "object", "properties": {"x/y~": {"type": "null"}}}, {"x/y~": 1}, ("/x~1y~0: ",)),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_validate(case: Case) -> None:
    found = [str(violation) for violation in compile_schema(case.schema).validate(case.value)]
    assert len(found) == len(case.lines), found
    for line, expected in zip(found, case.lines, strict=True):
        assert line.startswith(expected)


def test_all_violations_in_document_order() -> None:
    schema = {
        "type": "object",
        "properties": {
            "items": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {"id": {"type": "integer"}, "code": {"type": "string", "pattern": "^[A-Z]{3}$"}},
                    "required": ["id", "code"],
                },
            },
            "kind": {"enum": ["x"]},
        },
        "required": ["kind"],
    }
    value = {"items": [{"id": "1", "code": "ABC"}, {"code": "ab"}]}
    pointers = [violation.pointer for violation in compile_schema(schema).validate(value)]
    assert pointers == ["/kind", "/items/0/id", "/items/1/id", "/items/1/code"]


def test_misspelt_name_is_suggested() -> None:
    schema = {"type": "object", "properties": {"timestamp": True}, "additionalProperties": False}
    (violation,) = compile_schema(schema).validate({"timestmp": 1})
    assert 'did you mean "timestamp"?' in violation.expected


def test_violations_are_bounded_in_number_and_length() -> None:
    compiled = compile_schema(a({"items": {"type": "integer"}}))
    assert len(compiled.validate({"a": ["x"] * 10_000})) == MAX_VIOLATIONS
    (violation,) = compile_schema(a({"type": "integer"}, additionalProperties=False)).validate(
        {"k" * 9_000: "v" * 9_000}
    )
    assert len(str(violation)) < 1_000
    (violation,) = compile_schema(a({"enum": ["e" * 5_000] * 12})).validate({"a": "z"})
    assert len(str(violation)) < 1_000


def test_violation_text_is_one_escaped_line() -> None:
    line = str(Violation("/a\n\u202eb", 'string "x\ny"', "b\u2028c"))
    assert line.isprintable()
    assert "\\n" in line
    assert "\\u202e" in line


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def test_value_depth_is_limited_without_recursion() -> None:
    compiled = compile_schema({"type": "object", "properties": {"a": {"uniqueItems": True}}})
    assert compiled.validate({"a": deep(MAX_VALUE_DEPTH - 2)}) == ()
    (violation,) = compiled.validate({"a": deep(50_000)})
    assert "levels of nesting" in violation.expected


def test_hostile_pattern_is_a_violation_within_a_second() -> None:
    """B3: one string, and a thousand of them, which share one time limit."""
    text = "a" * 40 + "!"
    started = time.process_time()
    (violation,) = compile_schema(a({"type": "string", "pattern": "^(a+)+$"})).validate({"a": text})
    assert violation.pointer == "/a"
    (violation,) = compile_schema(a({"pattern": "^(a|aa)+$"})).validate({"a": text})
    assert "could not be matched in time" in violation.found
    many = compile_schema(a({"items": {"pattern": "^(a|aa)+$"}}))
    assert len(many.validate({"a": [text] * 1_000})) == MAX_VIOLATIONS
    assert time.process_time() - started < 1.5


@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [
        (r"^\d+$", "12", True),
        (r"^\d$", "٣", False),
        (r"^\w$", "é", False),
        (r"^\p{Lu}$", "É", True),
        (r"^\u{1F600}$", "😀", True),
        (r"^\u0041\x42\cJ$", "AB\n", True),
        (r"^(?<q>['\"])x\k<q>$", "'x'", True),
        (r"^(?<q>['\"])x\k<q>$", "'x\"", False),
        (r"^{x}$", "{x}", True),
        (r"^a{,3}$", "aa", False),
        (r"a{e}", "b", False),
        (r"^[[{&|~$]+$", "[{&|~$", True),
        (r"^[^\]$]$", "$", False),
        (r"^\$$", "$", True),
        (r"^a{2,3}$", "aaaa", False),
        (r"^(?!x)", "x", False),
        (r"^(?:[a-z]{1,63}\.){1,8}[a-z]{2,}$", "ab.cd", True),
    ],
)
def test_patterns_read_as_ecma_262(pattern: str, text: str, matches: bool) -> None:
    assert compile_pattern(pattern).found_in(text, MatchClock()) is matches


@pytest.mark.parametrize(
    "pattern", ["[]", "[^]", r"\u{110000}", "a**", "(", ")", "[a", "\\", "a{99999999999999999999}"]
)
def test_bad_patterns_are_refused(pattern: str) -> None:
    with pytest.raises(BadPattern):
        compile_pattern(pattern)


@pytest.mark.parametrize("pattern", ["(a{100}){100}", "(?:(a{99}){99}b){2}", "a{5001}", "(a{60}|b{60}){60}"])
def test_patterns_that_multiply_are_refused(pattern: str) -> None:
    with pytest.raises(BadPattern, match="repeats too much"):
        compile_pattern(pattern)


NORMALISED = [
    (a({"type": "integer"}), {"a": 1.0}, {"a": 1}),
    (a({"type": ["integer", "null"]}), {"a": -0.0}, {"a": 0}),
    (a({"type": "number"}), {"a": 1.0}, {"a": 1.0}),
    (a({"type": ["integer", "number"]}), {"a": 1.0}, {"a": 1.0}),
    (a({"items": {"type": "integer"}}), {"a": [1.0, 2, 1e20]}, {"a": [1, 2, 10**20]}),
    (a({"additionalProperties": {"type": "integer"}}), {"a": {"x": 3.0}, "b": 3.0}, {"a": {"x": 3}, "b": 3.0}),
    (a({"type": "integer"}), {"a": 12345678901234567890123}, {"a": 12345678901234567890123}),
    (a({"type": "integer", "default": 3}), {}, {}),
]


@pytest.mark.parametrize(("schema", "value", "expected"), NORMALISED)
def test_normalise_makes_integers_of_integer_places_only(schema: dict[str, Any], value: Any, expected: Any) -> None:
    before = repr(value)
    assert repr(compile_schema(schema).normalise(value)) == repr(expected)
    assert repr(value) == before


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("date-time", "2026-01-02T03:04:05Z", "2026-01-02T03:04:05"),
        ("date-time", "2026-01-02T03:04:60.123+02:00", "2026-13-02T03:04:05Z"),
        ("date", "2024-02-29", "2026-02-29"),
        ("time", "03:04:05Z", "25:04:05Z"),
        ("duration", "P1DT2H", "P"),
        ("email", "a.b@example.org", "a b@example.org"),
        ("hostname", "example.org", "-x.example"),
        ("ipv4", "127.0.0.1", "256.0.0.1"),
        ("ipv6", "::1", ":::1"),
        ("uri", "https://example.org/x?y", "no uri"),
        ("uuid", "123e4567-e89b-12d3-a456-426614174000", "123e4567"),
        ("uri", "x:y", "x:" + "y" * 3_000),
    ],
)
def test_format_is_a_hint(name: str, good: str, bad: str) -> None:
    compiled = compile_schema(a({"type": "string", "format": name}))
    assert compiled.validate({"a": bad}) == ()
    assert compiled.format_hints({"a": good}) == ()
    (hint,) = compiled.format_hints({"a": bad})
    assert hint.startswith("/a: string ")
    assert name in hint


def test_hints_are_bounded_and_unknown_formats_give_none() -> None:
    assert len(compile_schema(a({"items": {"format": "date"}})).format_hints({"a": ["x"] * 100})) == MAX_HINTS
    assert compile_schema(a({"format": "colour"})).format_hints({"a": "x"}) == ()
