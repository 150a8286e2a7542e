"""The pre-flight: which rung of the structured-output ladder a schema takes at a provider, and what is sent there.

For provider modules::

    plan = plan_native(compile_schema(request.schema), "openai_strict", request.highest_path)
    plan.path          # STRICT, LOOSE or PROMPT
    plan.sent_schema   # the dict for the provider; None for PROMPT
    plan.restore_text(text)   # the reply without the nulls that only the sent schema asked for

A dialect is the best a model can do: a schema that does not fit goes down to that provider's loose form, never up. The
local validator has the last word on every rung, so a plan only changes how often a correction is needed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final, Literal

from engines.llm.base import StructuredPath
from engines.structured.extract import parse_exactly
from engines.structured.schema import CompiledSchema
from engines.structured.strictform import DIALECTS, StrictForm, allows_null, strict_form

Dialect = Literal["openai_strict", "openai_loose", "anthropic_strict", "anthropic_tool", "none"]

_HIGHEST_OF: Final[dict[str, StructuredPath]] = {
    "openai_strict": StructuredPath.STRICT,
    "openai_loose": StructuredPath.LOOSE,
    "anthropic_strict": StructuredPath.STRICT,
    "anthropic_tool": StructuredPath.LOOSE,
    "none": StructuredPath.PROMPT,
}
_LADDER: Final = (StructuredPath.STRICT, StructuredPath.LOOSE, StructuredPath.PROMPT)
_LOOSE_KEYWORDS: Final = (
    "type", "description", "title", "enum", "const", "required", "pattern", "format", "minLength", "maxLength",
    "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minItems", "maxItems", "uniqueItems",
    "minProperties", "maxProperties",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class NativePlan:
    """How one schema is put to one provider.

    path: the rung. sent_schema: a fresh dict in the form of :func:`stable`; ``None`` when nothing is sent (PROMPT).
    held_locally: JSON pointers (into the caller's schema) of the keywords that only our validator holds; ``("",)``
    means the whole schema, as the provider promises nothing on that rung.
    reasons: why a higher rung was not taken, one line each; empty when the dialect's best rung was.
    """

    path: StructuredPath
    sent_schema: dict[str, Any] | None
    held_locally: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    _restores: dict[str, Any] | None = None

    def restore(self, value: Any) -> Any:
        """``value`` (a parsed reply) without the nulls this plan introduced; the same object when there are none.

        Dropped are nulls of properties that the caller's schema made optional and not nullable, and only if the sent
        schema made them required and nullable.
        """
        return value if self._restores is None else _without_nulls(self._restores, value)

    def restore_text(self, text: str) -> str:
        """:meth:`restore` on a reply's JSON text. Unsound text, or text that needs nothing, is returned as is."""
        if self._restores is None:
            return text
        parsed = parse_exactly(text)
        if parsed is None or parsed.problems:
            return text
        restored = self.restore(parsed.value)
        return text if restored is parsed.value else json.dumps(restored, ensure_ascii=False)


def plan_native(
    schema: CompiledSchema, dialect: Dialect, highest: StructuredPath = StructuredPath.STRICT
) -> NativePlan:
    """The plan for ``schema`` at a provider that speaks ``dialect``, on no rung above ``highest``. Never raises."""
    top = _HIGHEST_OF[dialect]
    rung = _LADDER[max(_LADDER.index(top), _LADDER.index(highest))]
    reasons: list[str] = [] if rung is top else [f"limited to {rung.value}: a higher path was refused or not wanted"]
    if rung is StructuredPath.STRICT:
        form = strict_form(schema.schema, DIALECTS[dialect])
        if not form.reasons:
            return _strict_plan(schema, form)
        reasons.extend(form.reasons)
        rung = StructuredPath.LOOSE
    if rung is StructuredPath.LOOSE:
        return NativePlan(rung, stable(_loose(schema.schema)), held_locally=("",), reasons=tuple(reasons))
    return NativePlan(StructuredPath.PROMPT, None, held_locally=("",), reasons=tuple(reasons))


def _strict_plan(schema: CompiledSchema, form: StrictForm) -> NativePlan:
    return NativePlan(
        StructuredPath.STRICT,
        stable(form.schema),
        held_locally=tuple(form.held_locally),
        _restores=schema.schema if form.introduced_nulls else None,
    )


def _loose(node: Any) -> dict[str, Any]:
    """The schema without annotations a provider might refuse. An array always has ``items``: OpenAI demands it."""
    if isinstance(node, bool):
        return {}
    sent = {keyword: node[keyword] for keyword in _LOOSE_KEYWORDS if keyword in node}
    if "properties" in node or node.get("type") == "object":
        properties = node.get("properties", {})
        sent["properties"] = {name: _loose(item) for name, item in properties.items() if item is not False}
    if "additionalProperties" in node:
        others = node["additionalProperties"]
        sent["additionalProperties"] = others if isinstance(others, bool) else _loose(others)
    if "items" in node or "array" in node.get("type", ()):
        sent["items"] = _loose(node.get("items", True))
    return sent


def _without_nulls(schema: Any, value: Any) -> Any:
    if isinstance(schema, bool):
        return value
    if isinstance(value, list):
        items = [_without_nulls(schema.get("items", True), item) for item in value]
        return items if any(new is not old for new, old in zip(items, value, strict=True)) else value
    if not isinstance(value, dict):
        return value
    properties, required = schema.get("properties", {}), schema.get("required", ())
    kept = {
        key: _without_nulls(properties.get(key, True), item)
        for key, item in value.items()
        if item is not None or key in required or key not in properties or allows_null(properties[key])
    }
    unchanged = len(kept) == len(value) and all(kept[key] is value[key] for key in kept)
    return value if unchanged else kept


def stable(schema: Any) -> Any:
    """A deep copy with sorted keywords, so that equal schemas are equal bytes: providers cache by them.

    Names under ``properties`` stay in their author's order: models write them in it, and a verdict is to follow its
    reasons.
    """
    if isinstance(schema, list | tuple):
        return [stable(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    copy = {key: stable(schema[key]) for key in sorted(schema)}
    properties = schema.get("properties")
    if isinstance(properties, dict):
        copy["properties"] = {name: stable(item) for name, item in properties.items()}
    return copy
