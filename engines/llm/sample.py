"""A small value that fits a JSON Schema: what scripted answers and demos give when nobody wrote one.

Deterministic, and made to pass the local validator for ordinary schemas; it does not solve ``pattern``.
"""

from __future__ import annotations

from typing import Any

_MAX_DEPTH = 12
_SAMPLES = {
    "date-time": "2026-01-02T03:04:05Z",
    "date": "2026-01-02",
    "time": "03:04:05Z",
    "email": "a@example.org",
    "uri": "https://example.org/",
    "uuid": "00000000-0000-4000-8000-000000000000",
}


def sample_value(schema: Any, *, text: str = "sample", depth: int = 0) -> Any:
    """A value for ``schema``. Optional properties are left out; ``text`` fills free strings."""
    if not isinstance(schema, dict) or depth > _MAX_DEPTH:
        return text
    if "const" in schema:
        return schema["const"]
    choices = schema.get("enum")
    if isinstance(choices, list) and choices:
        return choices[0]
    for keyword in ("anyOf", "oneOf"):
        options = schema.get(keyword)
        if isinstance(options, list) and options:
            return sample_value(options[0], text=text, depth=depth + 1)
    match _type(schema):
        case "object":
            properties = schema.get("properties") or {}
            names = schema.get("required") or ()
            return {name: sample_value(properties.get(name, {}), text=text, depth=depth + 1) for name in names}
        case "array":
            item = sample_value(schema.get("items", {}), text=text, depth=depth + 1)
            return [item] * max(0, int(schema.get("minItems") or 0))
        case "integer":
            return int(_number(schema, 1))
        case "number":
            return _number(schema, 1)
        case "boolean":
            return True
        case "null":
            return None
        case _:
            return _string(schema, text)


def _type(schema: dict[str, Any]) -> str:
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = next((item for item in kind if item != "null"), "null")
    if kind is None:
        kind = "object" if "properties" in schema or "required" in schema else "string"
    return str(kind)


def _number(schema: dict[str, Any], preferred: int) -> float:
    low = schema.get("minimum", schema.get("exclusiveMinimum"))
    high = schema.get("maximum", schema.get("exclusiveMaximum"))
    value: float = preferred
    if low is not None and value <= low:
        value = low + (1 if "exclusiveMinimum" in schema else 0)
    if high is not None and value >= high:
        value = high - (1 if "exclusiveMaximum" in schema else 0)
    step = schema.get("multipleOf")
    if step:
        value = step * -(-value // step)
    return value


def _string(schema: dict[str, Any], text: str) -> str:
    value = _SAMPLES.get(str(schema.get("format")), text)
    value = value.ljust(int(schema.get("minLength") or 0), ".")
    limit = schema.get("maxLength")
    return value if limit is None else value[: int(limit)]
