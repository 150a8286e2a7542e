"""From raw reply to data (cases A1 to A19, B5, B6, B14, B17; checklist rows 13, 14, 21)."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import pytest

from engines.structured.extract import MAX_TEXT_CHARS, complete_json, extract, parse_exactly
from engines.structured.reading import LAST_INVALID_CHARS, read_reply
from engines.structured.schema import compile_schema

S1 = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
ANY = {"type": "object"}
SCOPE = {
    "type": "object",
    "properties": {
        "action": {"enum": ["BLOCKED_BY_PROBLEM", "PROCEED_TO_CONCLUDE"]},
        "reason": {"type": "string"},
        "inner": {"type": "object"},
    },
    "required": ["action"],
}
MAIL = {
    "type": "object",
    "properties": {"subject": {"type": "string"}, "text": {"type": "string"}},
    "required": ["subject", "text"],
}
BARE = {"type": "object", "properties": {"tags": {"type": "array"}, "x": True}}
SCORE = {"type": "object", "properties": {"score": {"type": "number", "minimum": 0}}}


@dataclass(frozen=True)
class Read:
    name: str
    text: str
    data: Any
    repaired: bool = False
    schema: Any = None


READ = [
    Read("strict", '{"n": 1}', {"n": 1}),
    Read("A1 fence", '```json\n{"n": 1}\n```', {"n": 1}),
    Read("A1 bare fence", '```\n{"n":1}\n```', {"n": 1}),
    Read("A1 tildes", '~~~json\n{"n":1}\n~~~', {"n": 1}),
    Read("A1 unclosed fence", '```json\n{"n": 1}', {"n": 1}),
    Read("A1 indented fence in prose", 'Here:\n  ```JSON5\n  {"n": 1}\n  ```\nDone.', {"n": 1}),
    Read("A1 fence inside", 'So: {"n": 1, "c": "```\\n{\\"n\\": 2}\\n```"}', {"n": 1, "c": '```\n{"n": 2}\n```'}),
    Read("A3 prose and braces", 'Sure {as asked}: {"n": 1} - hope {that} helps', {"n": 1}),
    Read("A3 template before", 'In the form {"n": <number>}: {"n": 1}', {"n": 1}),
    Read("A3 loose template before", 'In the form {n: number}: {"n": 1}', {"n": 1}),
    Read("A3 footnotes", 'As said [1] and [see {below}]: {"n": 1}', {"n": 1}),
    Read("A3 brackets in strings", 'Result: {"n": 1, "s": "} ] { [\\""} ok', {"n": 1, "s": '} ] { ["'}),
    Read("think", '<think>maybe {"n": 5}?</think>\n{"n": 1}', {"n": 1}),
    Read("think with a broken draft", '<think>{"n": ... {</think>```json\n{"n": 1}\n```', {"n": 1}),
    Read("think opened in the prompt", 'I try {"n": 5} first</think>{"n": 1}', {"n": 1}),
    Read("think opened in the prompt, broken draft", 'I try {"n": </think>{"n": 1}', {"n": 1}),
    Read("think tag inside", 'So {"n": 1, "s": "</think>", "m": {"n": 2}}.', {"n": 1, "s": "</think>", "m": {"n": 2}}),
    Read("answer before the thoughts", '{"n": 1}<think>good</think>', {"n": 1}),
    Read("nothing but thoughts", '<think>{"n": 1}</think>', {"n": 1}),
    Read("byte order mark", '\ufeff \u200b{"n": 1}\n', {"n": 1}),
    Read("A5 trailing commas", '{"items":[1,2,],"note":"a,}b",}', {"items": [1, 2], "note": "a,}b"}, True, ANY),
    Read("A5 Python words", "{'ok': True, 'x': None, 's': \"it's\"}", {"ok": True, "x": None, "s": "it's"}, True, ANY),
    Read("A5 escaped apostrophe", r"{'s': 'it\'s \"x\" A'}", {"s": 'it\'s "x" A'}, True, ANY),
    Read("A5 double quotes inside single", "{'s': 'say \"hi\"'}", {"s": 'say "hi"'}, True, ANY),
    Read("A5 words inside strings", "{'s': 'True, None', 't': False,}", {"s": "True, None", "t": False}, True, ANY),
    Read("unquoted keys", "{n: 1, x_1: [1.5e2, -3]}", {"n": 1, "x_1": [150.0, -3]}, True, ANY),
    Read("comments", '{"n": 1, // one\n /* two */ "s": "// no #", # three\n}', {"n": 1, "s": "// no #"}, True, ANY),
    Read("repair inside a fence", "```python\n{'n': 1}\n```", {"n": 1}, True),
    Read("A6 raw line feed", '{"md":"line1\nline2\tx"}', {"md": "line1\nline2\tx"}, True, ANY),
    Read("A13 equal objects", '{"n":1}\n{ "n" : 1.0 }', {"n": 1}),
    Read("A13 one validates", '{"draft":true}{"n":2}', {"n": 2}),
    Read("A13 empty braces first", 'Between {} I write {"n":2}', {"n": 2}),
    Read("A14 list of one", '[{"n":1}]', {"n": 1}, True),
    Read("A14 list of one in a fence", '```json\n[{"n":1}]\n```', {"n": 1}, True),
    Read("A14 string holding JSON", '"{\\"n\\":1}"', {"n": 1}),
    Read("B5 bare subschemas", '{"tags":[1,"a"],"x":null}', {"tags": [1, "a"], "x": None}, False, BARE),
    Read("B6 integral float", '{"n":1.0}', {"n": 1}),
    Read("B6 exact digits", '{"n":12345678901234567890123}', {"n": 12345678901234567890123}),
    Read("B14 default", "{}", {}, False, {"type": "object", "properties": {"a": {"type": "integer", "default": "x"}}}),
    Read("non-ASCII", '{"s": "naïve 😀 \\ud83d\\ude00"}', {"s": "naïve 😀 😀"}, False, ANY),
    Read("prototype names", '{"__class__": 1, "n": 2}', {"__class__": 1, "n": 2}),
]  # fmt: skip


@pytest.mark.parametrize("case", READ, ids=lambda case: case.name)
def test_read(case: Read) -> None:
    reading = read_reply(case.text, compile_schema(case.schema or S1))
    assert repr(reading.data) == repr(case.data), reading.violations
    assert reading.ok
    assert reading.violations == ()
    assert reading.repaired is case.repaired
    assert reading.last_invalid is None


@dataclass(frozen=True)
class Rejected:
    name: str
    text: str
    says: str
    last_invalid: Any = "the text"
    schema: Any = None


REJECTED = [
    Rejected("empty", "", "an empty reply"),
    Rejected("blank", " \n\t", "an empty reply"),
    Rejected("row 13 no braces", "I cannot do that.", "no JSON object"),
    Rejected("row 14 array", "[1, 2]", "array of 2 items, expected exactly one JSON object", [1, 2]),
    Rejected("row 14 scalar", "5", "integer 5", 5),
    Rejected("row 14 null", "null", "found null", None),
    Rejected("A14 string", '"hello"', 'string "hello"', "hello"),
    Rejected("A14 string twice encoded", '"\\"{}\\""', "found string", '"{}"'),
    Rejected("A14 list of two", '[{"n":1},{"n":1}]', "array of 2 items", [{"n": 1}, {"n": 1}]),
    Rejected("A14 list of two in a fence", '```\n[{"n":1},{"n":1}]\n```', "array of 2 items", [{"n": 1}, {"n": 1}]),
    Rejected("A14 list of one list", '[[{"n":1}]]', "array of 1 item", [[{"n": 1}]]),
    Rejected("A14 list of one invalid", '[{"n":"x"}]', "/n: found string", {"n": "x"}),
    Rejected("A5 apostrophe in single quotes", "{'s': 'it's'}", "cut off or malformed", schema=ANY),
    Rejected("A5 bare words", '{"n": one}', "cut off or malformed"),
    Rejected("A5 missing comma", '{"n": 1 "m": 2}', '(Expecting \',\' delimiter near "{\\"n\\": 1 \\"m\\": 2}")'),
    Rejected("A5 unescaped quotes", '{"s": "say "hi" now"}', "cut off or malformed", schema=ANY),
    Rejected("A5 double comma", '{"n": 1,, "m": 2}', "cut off or malformed"),
    Rejected("A5 words as keys", "{True: 1}", "cut off or malformed", schema=ANY),
    Rejected("A5 octal", '{"n": 010}', "cut off or malformed"),
    Rejected("A5 Python escape", "{'s': '\\x41'}", "cut off or malformed", schema=ANY),
    Rejected("A8 cut text", '{"subject":"Hi","text":"Hello Bob,I hop', "cut off or malformed", schema=MAIL),
    Rejected("A8 cut after a complete inner object", '{"wrap": {"n": 1}, "rest": "abc', "cut off or malformed"),
    Rejected("A8 cut after a think tag in a string", '{"s": "</think>", "n": {"n": 1}', "cut off or malformed"),
    Rejected("A8 cut list", '[{"n": 1}, {"n": 2', "cut off or malformed"),
    Rejected("A8 second object cut", '{"n": 1}\n{"n": ', "cut off or malformed"),
    Rejected("inner object of a malformed one", '{"a": "un"quoted}", "b": {"n": 1}} ok', "cut off or malformed"),
    Rejected("A10 NaN", '{"score": NaN}', "/score: found NaN, expected a finite number", schema=SCORE),
    Rejected("A10 -Infinity", '{"score": -Infinity}', "/score: found a number too large", schema=SCORE),
    Rejected("A10 1e400", '{"score": 1e400}', "/score: found a number too large", schema=SCORE),
    Rejected("A10 in a list", '{"x": [1, -1e999]}', "/x/1: found a number too large", schema=ANY),
    Rejected("A10 thousands of digits", '{"n": -' + "9" * 5_000 + "}", "/n: found a number too large"),
    Rejected("A10 repaired", "{'score': NaN,}", "/score: found NaN", schema=SCORE),
    Rejected(
        "A11 duplicate key",
        '{"action":"BLOCKED_BY_PROBLEM","action":"PROCEED_TO_CONCLUDE","reason":"x"}',
        '/action: found duplicate key "action", expected each key once',
        schema=SCOPE,
    ),
    Rejected(
        "A11 deep",
        '{"action":"BLOCKED_BY_PROBLEM","inner":{"l":[0,{"k":1,"k":1}]}}',
        '/inner/l/1/k: found duplicate key "k"',
        schema=SCOPE,
    ),
    Rejected("A11 repaired", "{'n': 1, \"n\": 2,}", '/n: found duplicate key "n"'),
    Rejected("A11 escaped spelling", '{"n": 1, "\\u006e": 2}', '/n: found duplicate key "n"'),
    Rejected("A11 in a list of one", '[{"n": 1, "n": 1}]', '/n: found duplicate key "n"'),
    Rejected("A13 two valid", '{"n":1}\n{"n":2}', "2 different objects, expected exactly one JSON object"),
    Rejected("A13 none valid", '{"a":1} {"n":"x"}', "2 objects, none of them valid", {"n": "x"}),
    Rejected("A19 deep", "[" * 100_000, "nested too deeply"),
    Rejected("A19 deep and closed", "[" * 100_000 + "]" * 100_000, "cut off or malformed"),
    Rejected("A19 deep value", '{"n":1,"x":' + "[" * 300 + "]" * 300 + "}", "levels of nesting"),
    Rejected("A19 deep objects, repaired", "{'a':" * 5_000 + "1" + "}" * 5_000, "cut off or malformed", schema=ANY),
    Rejected("B6 boolean", '{"n":true}', "/n: found boolean true, expected integer", {"n": True}),
    Rejected("too long", '{"n":1}' + "x" * MAX_TEXT_CHARS, "more than 4,000,000 characters"),
    Rejected("too many objects", '{"n":1}' * 500, "too many places"),
]


@pytest.mark.parametrize("truncated", [False, True], ids=["ended", "truncated"])
@pytest.mark.parametrize("case", REJECTED, ids=lambda case: case.name)
def test_rejected(case: Rejected, truncated: bool) -> None:
    reading = read_reply(case.text, compile_schema(case.schema or S1), truncated=truncated)
    assert reading.data is None
    assert not reading.ok
    lines = [str(violation) for violation in reading.violations]
    assert lines
    if truncated:
        return
    assert any(case.says in line for line in lines), lines
    if case.last_invalid != "the text":
        assert reading.last_invalid == case.last_invalid
    elif len(case.text) <= LAST_INVALID_CHARS:
        assert reading.last_invalid == case.text
    else:
        assert len(reading.last_invalid) <= LAST_INVALID_CHARS
        assert reading.last_invalid.startswith(case.text[:1_000])


def test_b17_a_wrong_format_is_success_with_a_hint() -> None:
    schema = compile_schema({"type": "object", "properties": {"t": {"type": "string", "format": "date-time"}}})
    for text in ("2026-01-02T03:04:05", "tomorrow"):
        reading = read_reply(f'{{"t": "{text}"}}', schema)
        assert reading.data == {"t": text}
        (hint,) = reading.hints
        assert hint.startswith("/t: ")
        assert "date-time" in hint


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ('{"n": 1}', {"n": 1}),
        ('\ufeff```json\n{"n": 1}\n```', {"n": 1}),
        ('```json\n{"n": 1}', {"n": 1}),
        ('<think>x {"n": 2}</think>{"n": 1}', {"n": 1}),
        ("{'n': 1}", None),
        ('{"n": 1,}', None),
        ('[{"n": 1}]', None),
        ('{"n": 1} and the', None),
        ('<think>maybe {"n": 1}', None),
        ('So: {"n": 1}', None),
        ('{"n": 1', None),
        ('{"n": "x"}', None),
        ("```", None),
        ("", None),
    ],
)
def test_a8_a_truncated_reply_counts_only_when_complete(text: str, data: Any) -> None:
    reading = read_reply(text, compile_schema(S1), truncated=True)
    assert reading.data == data
    assert reading.repaired is False
    if data is None and "x" not in text:
        assert "cut off" in str(reading.violations[0])


def test_a8_a_cut_mail_is_not_completed() -> None:
    text = '{"subject":"Hi","text":"Hello Bob,I hop'
    reading = read_reply(text, compile_schema(MAIL), truncated=True)
    assert reading.data is None
    assert reading.last_invalid == text


def test_restore_is_applied_before_validation() -> None:
    schema = compile_schema({"type": "object", "properties": {"b": {"type": "integer"}}})
    assert read_reply('{"b": null}', schema).data is None
    reading = read_reply('{"b": null}', schema, restore=lambda value: {k: v for k, v in value.items() if v is not None})
    assert reading.data == {}


HOSTILE = [
    "{" * 1_000_000,
    "[" * 1_000_000,
    '"[' * 100_000,
    '["' * 100_000,
    '{"' * 500_000,
    '{"a":' * 200_000,
    '{"a":1,' * 150_000,
    '{"a":x}' * 150_000,
    "{'a':'" * 150_000,
    "['" * 300_000,
    "{}" * 500_000,
    '{"\\' * 300_000,
    '{"a":/*' * 150_000,
    "{//" * 300_000,
    "<think>" * 150_000,
    "</think>{" * 100_000,
    "```\n" + " " * 1_000_000 + "x",
    "{" + " " * 1_000_000,
    '{"a":"' + '\\"' * 500_000,
    '{"a":1' + " " * 500_000 + '{"b":' + " " * 500_000,
    "'" * 1_000_000,
    '{"a":[' * 100_000 + "]}" * 100_000,
    "{a:" * 300_000,
]


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: ascii(text[:12]))
def test_hostile_text_takes_well_under_a_second(text: str) -> None:
    schema = compile_schema(S1)
    started = time.process_time()
    assert read_reply(text, schema).data is None
    assert read_reply(text, schema, truncated=True).data is None
    assert time.process_time() - started < 1.0


def test_extract_says_what_it_found_in_order() -> None:
    found = extract("a {'x': 1} b [{\"y\": 2}] c")
    assert [(one.value, one.repaired) for one in found.candidates] == [({"x": 1}, True), ([{"y": 2}], False)]
    assert found.broken is None


def test_parse_exactly_takes_nothing_but_json() -> None:
    exact = parse_exactly(' {"a": {"b": 1, "b": 2}} ')
    assert exact is not None
    assert exact.problems == (("/a/b", 'duplicate key "b"'),)
    assert parse_exactly('{"a": 1,}') is None
    assert parse_exactly("```\n{}\n```") is None
    complete = complete_json("```\n{}\n```")
    assert complete is not None
    assert complete.value == {}
