"""Properties that hold for every input: round trips, no exceptions, and one meaning of "valid" in both checkers."""

from __future__ import annotations

import json
import math
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from engines.errors import InvalidSchema
from engines.structured.checks import explain, scan
from engines.structured.correction import correction_text
from engines.structured.extract import complete_json, extract, parse_exactly
from engines.structured.native import Dialect, plan_native
from engines.structured.reading import read_reply
from engines.structured.schema import compile_schema
from engines.structured.verdict import compile_verdict, identity

ANY = compile_schema({"type": "object"})
TYPES = ["string", "integer", "number", "boolean", "object", "array", "null"]

keys = st.one_of(st.sampled_from(["a", "b", "id", "$ref", "$id", "{x}", 'q"', "a.b", ""]), st.text(max_size=5))
numbers = st.one_of(
    st.integers(-3, 3),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([1.0, 0.0, -0.0, 2.5, 10**30]),
)
scalars = st.one_of(
    st.none(), st.booleans(), numbers, st.text(max_size=6), st.sampled_from(["a", "ab", "```", "</think>"])
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(keys, inner, max_size=4)),
    max_leaves=12,
)
objects = st.dictionaries(keys, values, max_size=5)
prose = st.text(alphabet="abc .,:;'()\n#*-é", max_size=30)


@st.composite
def schemas(draw: st.DrawFn, depth: int = 3) -> Any:
    """Accepted subschemas with every keyword that decides something."""
    if draw(st.integers(0, 9)) == 0:
        return draw(st.booleans())
    node: dict[str, Any] = {}
    optional: dict[str, st.SearchStrategy[Any]] = {
        "type": st.one_of(
            st.sampled_from(TYPES), st.lists(st.sampled_from(TYPES), min_size=1, max_size=3, unique=True)
        ),
        "enum": st.lists(values, min_size=1, max_size=3),
        "const": values,
        "minLength": st.integers(0, 2),
        "maxLength": st.integers(2, 4),
        "minimum": st.one_of(st.integers(-2, 0), st.floats(-2, 0)),
        "maximum": st.one_of(st.integers(0, 2), st.floats(0, 2)),
        "exclusiveMinimum": st.integers(-2, 2),
        "exclusiveMaximum": st.integers(-2, 2),
        "multipleOf": st.sampled_from([1, 2, 0.5, 0.1, 1e-7]),
        "minItems": st.integers(0, 1),
        "maxItems": st.integers(1, 2),
        "uniqueItems": st.booleans(),
        "minProperties": st.integers(0, 1),
        "maxProperties": st.integers(1, 2),
        "format": st.just("date"),
        "default": values,
        "description": st.text(max_size=5),
    }
    for keyword in draw(st.lists(st.sampled_from(sorted(optional)), max_size=3, unique=True)):
        node[keyword] = draw(optional[keyword])
    if depth and draw(st.booleans()):
        node["properties"] = draw(st.dictionaries(keys, schemas(depth - 1), max_size=3))
        allowed = [name for name, item in node["properties"].items() if item is not False]
        node["required"] = draw(st.lists(st.sampled_from(allowed), unique=True, max_size=2)) if allowed else []
        if draw(st.booleans()):
            node["additionalProperties"] = draw(schemas(depth - 1))
    if depth and draw(st.booleans()):
        node["items"] = draw(schemas(depth - 1))
    return node


@st.composite
def top_schemas(draw: st.DrawFn) -> dict[str, Any]:
    properties = draw(st.dictionaries(keys, schemas(), min_size=1, max_size=4))
    return {"type": "object", "properties": properties, "additionalProperties": draw(st.booleans())}


@settings(max_examples=120, deadline=None)
@given(schema=top_schemas(), data=st.data())
def test_both_checkers_agree(schema: dict[str, Any], data: st.DataObject) -> None:
    """fastjsonschema's verdict is our explanation's: valid exactly when there is nothing to explain."""
    value = data.draw(
        st.one_of(objects, st.fixed_dictionaries({}, optional={name: values for name in schema["properties"]}))
    )
    verdict = compile_verdict(schema)(value)
    violations = list(explain(schema, value))
    if verdict is not None:
        assert verdict is (not violations), violations
    compiled = compile_schema(schema)
    assert (compiled.validate(value) == ()) is (not violations)
    for violation in violations:
        assert str(violation).isprintable()
    if not violations:
        normalised = compiled.normalise(value)
        assert identity(normalised) == identity(value)
        assert compiled.validate(normalised) == ()


@settings(max_examples=100, deadline=None)
@given(value=objects, before=prose, after=prose, fence=st.sampled_from(["", "```json\n", "~~~\n", "```\n"]))
def test_any_object_survives_fences_and_prose(value: dict[str, Any], before: str, after: str, fence: str) -> None:
    closing = f"\n{fence.strip('json' + chr(10))}" if fence else ""
    for text in (json.dumps(value), json.dumps(value, ensure_ascii=False, indent=2)):
        reading = read_reply(f"{before}\n{fence}{text}{closing}\n{after}", ANY)
        assert repr(reading.data) == repr(value)
        assert reading.repaired is False


def spelt(value: Any) -> str:
    """``value`` as a careless writer spells it: Python literals, trailing commas, a comment."""
    if isinstance(value, dict):
        return "{" + "".join(f"{spelt(key)}: {spelt(item)}, " for key, item in value.items()) + "/* end */}"
    if isinstance(value, list):
        return "[" + "".join(f"{spelt(item)}," for item in value) + "]"
    return json.dumps(value) if isinstance(value, str) else repr(value)


@settings(max_examples=100, deadline=None)
@given(value=st.dictionaries(keys, values, min_size=1, max_size=4))
def test_a_repair_never_changes_a_value(value: dict[str, Any]) -> None:
    reading = read_reply(spelt(value), ANY)
    assert repr(reading.data) == repr(value)
    assert reading.repaired is True


@settings(max_examples=150, deadline=None)
@given(value=st.dictionaries(keys, values, min_size=1, max_size=3), data=st.data())
def test_a_cut_object_is_never_completed(value: dict[str, Any], data: st.DataObject) -> None:
    text = json.dumps(value)
    cut = text[: data.draw(st.integers(1, len(text) - 1))]
    assert read_reply(cut, ANY).data is None
    assert read_reply(cut, ANY, truncated=True).data is None
    assert read_reply(f"```json\n{cut}", ANY, truncated=True).data is None


JSON_LIKE = st.text(alphabet="{}[]\"'\\:,`~<>/think nulTrue0159.-eE+#*\n\u2028\x00\ud800", max_size=60)


@settings(max_examples=400, deadline=None)
@given(text=st.one_of(st.text(), JSON_LIKE), truncated=st.booleans())
def test_no_text_raises_and_no_rejection_is_silent(text: str, truncated: bool) -> None:
    reading = read_reply(text, ANY, truncated=truncated)
    assert (reading.data is None) is bool(reading.violations)
    assert not scan(reading.last_invalid)
    assert correction_text(reading.violations)
    extract(text)
    complete_json(text)
    exact = parse_exactly(text)
    if exact is not None and isinstance(exact.value, dict) and not exact.problems and not scan(exact.value):
        assert repr(reading.data) == repr(exact.value)


@settings(max_examples=150, deadline=None)
@given(
    schema=st.one_of(values, st.dictionaries(st.sampled_from(["type", "properties", "items", "enum", "$ref"]), values))
)
def test_no_schema_raises_anything_but_invalid_schema(schema: Any) -> None:
    problems: tuple[tuple[str, str], ...] = (("", "none"),)
    try:
        compile_schema(schema)
    except InvalidSchema as refused:
        problems = refused.problems
    assert problems
    assert all(message.isprintable() for _, message in problems)


@settings(max_examples=60, deadline=None)
@given(
    schema=top_schemas(), value=objects, dialect=st.sampled_from(["openai_strict", "anthropic_strict", "openai_loose"])
)
def test_plans_never_raise_and_restoring_is_harmless(
    schema: dict[str, Any], value: dict[str, Any], dialect: Dialect
) -> None:
    compiled = compile_schema(schema)
    plan = plan_native(compiled, dialect)
    if plan.sent_schema is not None:
        assert json.loads(json.dumps(plan.sent_schema)) == plan.sent_schema
    restored = plan.restore(value)
    assert plan.restore(restored) == restored
    if compiled.validate(value) == ():
        assert restored == value


@st.composite
def strict_schemas(draw: st.DrawFn, depth: int = 2) -> dict[str, Any]:
    """Objects a strict mode can take: typed properties, some optional, some nullable, some with bounds."""
    properties: dict[str, Any] = {}
    for name in draw(st.lists(st.sampled_from(["a", "b", "c", "$ref"]), min_size=1, max_size=3, unique=True)):
        kind = draw(st.sampled_from([*TYPES[:4], "enum", "const", *(["object", "array"] if depth else [])]))
        null = draw(st.booleans())
        if kind == "enum":
            properties[name] = {"enum": ["x", "y", *([None] if null else [])]}
        elif kind == "const":
            properties[name] = {"const": draw(st.sampled_from(["x", 1, True]))}
        else:
            properties[name] = {"type": [kind, "null"] if null else kind}
        if kind == "object":
            properties[name] = {**draw(strict_schemas(depth - 1)), **properties[name]}
        if kind == "array":
            properties[name] |= {"items": draw(strict_schemas(depth - 1)), "maxItems": 1}
        if kind in ("integer", "string"):
            properties[name] |= {"minimum": 0, "maxLength": 2}
    required = draw(st.lists(st.sampled_from(sorted(properties)), unique=True))
    return {"type": "object", "properties": properties, "required": required}


def replies_to(sent: dict[str, Any]) -> st.SearchStrategy[Any]:
    """What a provider that holds nothing but the shape would answer."""
    if "enum" in sent:
        return st.sampled_from(sent["enum"])
    makers = {
        "string": lambda: st.text(max_size=4),
        "integer": lambda: st.integers(-5, 5),
        "number": lambda: st.floats(-5, 5),
        "boolean": st.booleans,
        "null": st.none,
        "array": lambda: st.lists(replies_to(sent["items"]), max_size=2),
        "object": lambda: st.fixed_dictionaries(
            {name: replies_to(sent["properties"][name]) for name in sent["required"]},
            optional={n: replies_to(item) for n, item in sent["properties"].items() if n not in sent["required"]},
        ),
    }
    types = sent["type"] if isinstance(sent["type"], list) else [sent["type"]]
    return st.one_of(*(makers[name]() for name in types))


@settings(max_examples=100, deadline=None)
@given(schema=strict_schemas(), dialect=st.sampled_from(["openai_strict", "anthropic_strict"]), data=st.data())
def test_a_reply_to_the_sent_schema_fits_the_callers_apart_from_bounds(
    schema: dict[str, Any], dialect: Dialect, data: st.DataObject
) -> None:
    compiled = compile_schema(schema)
    plan = plan_native(compiled, dialect)
    assert plan.sent_schema is not None
    assert plan.reasons == () or "limit" in str(plan.reasons)
    reply = data.draw(replies_to(plan.sent_schema)) if plan.reasons == () else {}
    if plan.reasons == ():
        for violation in compiled.validate(plan.restore(reply)):
            assert violation.expected.startswith(("at least", "at most")), (plan.sent_schema, reply)
    assert plan.restore(json.loads(plan.restore_text(json.dumps(reply)))) == plan.restore(reply)


@given(value=st.floats())
def test_scan_finds_exactly_what_is_not_finite(value: float) -> None:
    assert bool(scan({"a": [value]})) is not math.isfinite(value)
