"""A model's reply on its way to the parser: found, mended in place, filled in; and the sign that it was cut off."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.valem.repair.jsontext import collapse_line_ends, extract, mend_structure, parse_object
from engines.valem.repair.pipeline import MAX_CHARS, fill_in_policy, is_truncated, mend_expressions, repair
from engines.valem.repair.readonly import mark_derived_read_only, mark_read_only

VECTORS = Path(__file__).parents[4] / "shared" / "data" / "valem-vectors.json"
PASSES = {
    "extractJson": extract,
    "collapse": collapse_line_ends,
    "repairJson": mend_structure,
    "fix": lambda text: mend_expressions(text).text,
    "policy": lambda text: fill_in_policy(text).text,
}


@pytest.mark.skipif(not VECTORS.exists(), reason="the recorded repairs are not here")
@pytest.mark.parametrize("name", PASSES)
def test_recorded_repairs_are_reproduced(name: str) -> None:
    vectors = [vector for vector in json.loads(VECTORS.read_text())["passes"] if vector["pass"] == name]
    assert vectors
    assert {vector["in"]: PASSES[name](vector["in"]) for vector in vectors} == {
        vector["in"]: vector["out"] for vector in vectors
    }


FENCE = "```"


@pytest.mark.parametrize(
    ("reply", "wanted"),
    [
        (f'Sure!\n{FENCE}json\n{{"id":"a"}}\n{FENCE}\nbye {{x}}', '{"id":"a"}'),
        (f'{FENCE}\n{{"id":1}}', '{"id":1}'),
        (f'{FENCE}json {{"id":1}}{FENCE}', '{"id":1}'),
        (f'first:\n{FENCE}\nnot this\n{FENCE}\nthen:\n{FENCE}json\n{{"id":1}}\n{FENCE}', '{"id":1}'),
        (f"{FENCE}\nso: {{a}} there\n{FENCE}", "{a}"),
        ('Here: {"a":{"b":1}} ok', '{"a":{"b":1}}'),
        ('<think>{"no":1}</think>\n{"id":"a"}', '{"id":"a"}'),
        (f'{{"message":"\\n{FENCE}\\ncode\\n{FENCE}\\n"}}', f'{{"message":"\\n{FENCE}\\ncode\\n{FENCE}\\n"}}'),
        ("no json at all", "no json at all"),
        ("", ""),
    ],
)
def test_the_json_is_found(reply: str, wanted: str) -> None:
    assert extract(reply) == wanted


def test_line_ends_in_strings_become_blanks_and_outside_stay() -> None:
    assert collapse_line_ends('{\n "expr": "a +\r\n\tb",\n "x": "\\n"\n}') == '{\n "expr": "a +   b",\n "x": "\\n"\n}'


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ('{"type":"string}', '{"type":"string"}'),
        ('{"type":"string, "b":1}', '{"type":"string", "b":1}'),
        ('{"a":{"type":"string}, "b":"x, y"}', '{"a":{"type":"string"}, "b":"x, y"}'),
        ('{"enum":["a","b]}', '{"enum":["a","b"]}'),
    ],
)
def test_a_missing_closing_quote_is_set(text: str, wanted: str) -> None:
    assert mend_structure(text) == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ('{"n": qty * p}', '{"n": "qty * p"}'),
        ('{"a": $sum(a, b), "c": 5 mod 2}', '{"a": "$sum(a, b)", "c": "5 mod 2"}'),
        ('{"a": $x = "it, s", "b": function($v){$v}}', '{"a": "$x = \\"it, s\\"", "b": "function($v){$v}"}'),
        ('{"policy": rollback}', '{"policy": "rollback"}'),
        ('{"t": true, "z": null, "n": -1.5e3, "x": y}', '{"t": true, "z": null, "n": -1.5e3, "x": "y"}'),
        ('{"score": NaN}', '{"score": "NaN"}'),
    ],
)
def test_a_bare_expression_is_quoted_and_literals_stay(text: str, wanted: str) -> None:
    assert mend_structure(text) == wanted


@pytest.mark.parametrize(
    "text",
    [
        '{"a":1,}',
        "{'a':1}",
        '{"msg": "he said "hi" to me"}',
        '{"a": 1 // one\n}',
        '{"a": 1 /* one */}',
        '{"subject":"Hi","text":"Hello Bob,I hop',
        '{"a": qty * p',
        '{"a": {"b": x}',
        '{"a": 1e999}',
    ],
)
def test_what_stays_unreadable_is_not_half_mended(text: str) -> None:
    assert mend_structure(text) == text


def spec(expr: str, said: str) -> str:
    return json.dumps(
        {
            "id": "m",
            "schema": {"type": "object", "description": said},
            "derivations": [{"path": "$.x", "expr": expr, "description": said}],
            "constraints": [{"id": "c", "expr": expr, "message": said, "policy": "flag"}],
            "viewDefinition": {"views": [{"id": "v", "label": said, "components": [{"id": "i", "helperText": said}]}]},
            "tests": [{"description": said, "given": {}, "expect": {"$.x": said}}],
        },
        indent=1,
    )


HABITS = {
    "items[k=='a']": "items[k='a']",
    "5 mod 2": "5 % 2",
    "p between 1 and 2": "(p >= 1 and p <= 2)",
    "function($v)($v.p)": "function($v){$v.p}",
    "$x := 1; $x+1": "($x := 1; $x+1)",
}


@pytest.mark.parametrize("habit", HABITS)
def test_habits_of_other_languages_are_mended_and_visible_text_stays_byte_for_byte(habit: str) -> None:
    said = f"use == here; 5 mod 2: {habit}"
    result = repair(spec(habit, said))
    assert result.text == spec(HABITS[habit], said)
    assert [change.where for change in result.changes] == ["derivations[0].expr", "constraints[0].expr"]
    assert {(change.before, change.after) for change in result.changes} == {(habit, HABITS[habit])}


def test_expressions_are_mended_where_a_spec_has_them_and_nowhere_else() -> None:
    bad, good = "a mod b", "a % b"
    component = {"id": "c", "visible": bad, "onClick": {"mutations": bad}, "value": bad, "label": bad}
    effect = {
        "trigger": bad, "dedupeKey": bad, "afterMs": bad, "at": bad, "payload": {"k": bad},
        "response": {"set": {"$.a": bad}}, "request": {"url": bad, "body": bad}, "body": bad, "emit": bad,
    }  # fmt: skip
    item = {"expr": bad, "path": bad, "description": bad}
    evolution = {
        "upsertDerivations": [item], "upsertMetaDerivations": [item], "upsertDefaultValues": [item],
        "effects": [effect], "upsertEffects": [effect], "upsertComponents": [{"viewId": "v", "component": component}],
        "upsertViews": [{"id": bad, "components": [component]}], "newLibrary": {"define": bad},
        "constants": {"expr": bad}, "newTests": [{"given": {"expr": bad}}],
    }  # fmt: skip
    mended = json.loads(mend_expressions(json.dumps(evolution)).text)

    for name in ("effects", "upsertEffects"):
        assert mended[name] == [
            effect | {"trigger": good, "dedupeKey": good, "afterMs": good, "at": good, "payload": {"k": good},
                      "response": {"set": {"$.a": good}}}
        ]  # fmt: skip
    for name in ("upsertDerivations", "upsertMetaDerivations", "upsertDefaultValues"):
        assert mended[name] == [item | {"expr": good}]
    shown = component | {"visible": good, "onClick": {"mutations": good}}
    assert mended["upsertComponents"] == [{"viewId": "v", "component": shown}]
    assert mended["upsertViews"] == [{"id": bad, "components": [shown]}]
    assert all(mended[name] == evolution[name] for name in ("newLibrary", "constants", "newTests"))


def test_everything_outside_the_expression_keeps_its_bytes() -> None:
    text = (
        '{ "a" : 1.50,\t"n":1e2, "derivations" : [ {"expr":"x == \\u00e9",\n"path":"\\/"} ] ,"a":12345678901234567890}'
    )
    assert repair(text).text == text.replace('"x == \\u00e9"', '"x = é"')


def test_a_function_of_the_specs_own_library_is_not_invented() -> None:
    text = json.dumps(
        {
            "library": {"layers": [{"define": '($toInteger := function($x) {$floor($x)}; ["toInteger"])'}]},
            "derivations": [{"expr": "$toInteger(x)"}],
        }
    )
    assert repair(text).text == text


def test_a_text_that_is_no_json_is_mended_by_its_keys() -> None:
    text = '{"derivations":[{"expr":"a mod b","description":"a mod b"}'
    result = repair(text)
    assert result.text == text.replace('"expr":"a mod b"', '"expr":"a % b"')
    assert [change.steps for change in result.changes] == [("modulo",)]


def test_a_missing_policy_is_rollback_and_an_explicit_null_stays() -> None:
    text = '{"constraints":[{"id":"c"\n}, {}, {"policy":null}], "upsertConstraints":[{"id":"d"}], "other":[{"id":"e"}]}'
    result = repair(text)
    assert json.loads(result.text) == {
        "constraints": [{"id": "c", "policy": "rollback"}, {"policy": "rollback"}, {"policy": None}],
        "upsertConstraints": [{"id": "d", "policy": "rollback"}],
        "other": [{"id": "e"}],
    }
    assert [change.where for change in result.changes] == ["constraints[0]", "constraints[1]", "upsertConstraints[0]"]


def test_every_step_is_reported_in_order() -> None:
    parts = '"derivations": [{"path": "$.x", "expr": a ==\n b}], "constraints": [{"message": "one\ntwo"}]'
    reply = f'Here:\n{{"id": "m", {parts}}}'
    result = repair(reply)
    assert [(change.where, change.steps) for change in result.changes] == [
        ("", ("extract",)),
        ("", ("line ends",)),
        ("", ("structure",)),
        ("derivations[0].expr", ("equality",)),
        ("constraints[0]", ("policy",)),
    ]
    assert json.loads(result.text)["derivations"] == [{"path": "$.x", "expr": "a =\n b"}]
    assert result.changes[3].as_json() == {
        "where": "derivations[0].expr",
        "steps": ["equality"],
        "before": "a ==\n b",
        "after": "a =\n b",
    }


def test_a_sound_reply_comes_back_as_it_is() -> None:
    text = '{"id":"m","constraints":[{"expr":"x > 0","policy":"flag"}]}'
    assert repair(text).text is text
    assert repair(text).changes == ()


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        '{"a":' * 5_000,
        '"' * 9_999,
        "{" + '"a":"x},' * 2_000,
        "`" * 5_000,
        "```\n" * 3_000,
        '{"a": "\ud800"}',
    ],
)
def test_hostile_replies_are_survived(text: str) -> None:
    once = repair(text).text
    assert repair(once).text == once
    assert isinstance(is_truncated(text), bool)


def test_an_enormous_reply_is_returned_as_it_came() -> None:
    text = " " * MAX_CHARS + '{"a": b}'
    assert repair(text).text == text


PIECES = st.sampled_from(
    ["{", "}", "[", "]", ",", ":", '"', '"expr":', '"constraints":[', '"message":', '"a == b"', '"text"', "not x",
     "a mod b", "1", "true", "\n", " ", "\\", "```", "```json\n", "\n```", "<think>", "</think>", '"string}', "prose",
     "'x'", "(", ")", ";"]
)  # fmt: skip


@settings(deadline=None)
@given(st.lists(PIECES, max_size=16).map("".join) | st.text(max_size=40))
def test_repairing_twice_changes_nothing_more(reply: str) -> None:
    once = repair(reply).text
    assert repair(once).text == once


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.sampled_from(["a == b", "not x", "x mod y"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["expr", "message", "views", "a"]), inner)
    ),
    max_leaves=10,
)


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from(["constraints", "derivations", "effects", "viewDefinition", "x"]), JSON))
def test_only_the_reported_places_differ(document: dict[str, Any]) -> None:
    result = repair(json.dumps(document))
    reported = {change.where for change in result.changes}
    assert set(differing(document, json.loads(result.text), "")) == reported


def differing(one: Any, other: Any, at: str) -> Iterator[str]:
    if isinstance(one, dict) and isinstance(other, dict):
        if one.keys() != other.keys():
            yield at
        for key in one:
            yield from differing(one[key], other[key], f"{at}.{key}" if at else key)
    elif isinstance(one, list) and isinstance(other, list):
        for index, (left, right) in enumerate(zip(one, other, strict=True)):
            yield from differing(left, right, f"{at}[{index}]")
    elif one != other:
        yield at


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ('{"id":"m"}', False),
        (f'{FENCE}json\n{{"id":"m"}}\n{FENCE}', False),
        ('Sure "so: {"id":"m", "x": "}}}"}', False),
        ('<think>a { b</think>{"id": 1,}', False),
        ('{"id":"m", "schema": {"type":', True),
        ('{"id":"m", "schema": {"type": "object"}', True),
        (f'{FENCE}json\n{{"id":"m"', True),
        ('{"message": "a } b', True),
        ('{"subject":"Hi","text":"Hello Bob,I hop', True),
        ("I cannot do that.", True),
        ('{"id":"m"} Hope this helps!', True),
        ("", True),
    ],
)
def test_a_cut_reply_is_told_from_a_wrong_one(text: str, wanted: bool) -> None:
    assert is_truncated(text) is wanted


def test_a_spec_cut_anywhere_is_never_repaired_into_one() -> None:
    text = spec("a == (b mod 2)", "see: foo, bar; x}")
    for length in range(len(text)):
        cut = text[:length]
        assert parse_object(repair(cut).text) is None
        assert is_truncated(cut)


def test_derived_fields_become_read_only_and_inputs_stay() -> None:
    schema = {
        "properties": {
            "total": {"type": "number"},
            "paid": {"type": "boolean", "readOnly": False},
            "items": {"type": "array", "items": {"properties": {"sum": {}, "price": {"type": "number"}}}},
            "address": {"$ref": "#/$defs/Address"},
        },
        "$defs": {"Address": {"properties": {"line": {}}}},
    }
    paths = ["$.total", "$.items[*].sum", "$.absent", "$.address", "$.address.line", "not an address", "$", 7]
    document = {"id": "m", "schema": schema, "derivations": [{"path": path, "expr": "1"} for path in paths] + ["x"]}
    before = copy.deepcopy(document)
    marked = mark_derived_read_only(document)

    wanted = copy.deepcopy(schema)
    wanted["properties"]["total"]["readOnly"] = True
    wanted["properties"]["items"]["items"]["properties"]["sum"]["readOnly"] = True
    assert marked == {**before, "schema": wanted}
    assert document == before
    assert mark_derived_read_only(marked) == marked


@pytest.mark.parametrize(
    "document", [{}, {"schema": None}, {"schema": {}, "derivations": None}, {"schema": [], "derivations": 1}]
)
def test_marking_survives_what_is_no_spec(document: dict[str, Any]) -> None:
    assert mark_derived_read_only(document) == document


def test_a_field_of_a_schema_with_odd_parts_is_passed_over() -> None:
    schema = {"properties": {"a": {"items": [{}]}, "b": True}, "items": 3}
    assert mark_read_only(schema, ["$.a[*].x", "$.b", "$.b.c", "$[0]"]) == schema
