"""Model specs for tests: one that is good, and the ways in which an answer falls short of it."""

from __future__ import annotations

import copy
import json
from typing import Any

from engines.llm.scripted import ScriptedAnswer

GOOD: dict[str, Any] = {
    "id": "order-total",
    "version": "1.0.0",
    "schema": {
        "type": "object",
        "properties": {
            "items": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "price": {"type": "number", "minimum": 0},
                        "quantity": {"type": "integer", "minimum": 1},
                        "lineTotal": {"type": "number"},
                    },
                },
            },
            "discountPct": {"type": "number"},
            "net": {"type": "number"},
            "total": {"type": "number"},
        },
    },
    "constants": {"vatPct": 20},
    "defaultValues": [{"path": "$", "expr": "{'items': [], 'discountPct': 0}"}],
    "derivations": [
        {"path": "$.items[*].lineTotal", "expr": "$parent.price * $parent.quantity"},
        {"path": "$.net", "expr": "$sum(items.lineTotal) * (1 - discountPct / 100)"},
        {"path": "$.total", "expr": "$round(net * (1 + $const.vatPct / 100), 2)"},
    ],
    "constraints": [
        {"id": "discount-range", "expr": "discountPct >= 0 and discountPct <= 50", "policy": "rollback",
         "message": "The discount is between 0 and 50 %."},
    ],
    "tests": [
        {"description": "two items", "given": {"$.items": [{"price": 10, "quantity": 2}, {"price": 5, "quantity": 1}]},
         "expect": {"$.total": 30}},
        {"description": "with a discount", "given": {"$.items": [{"price": 100, "quantity": 1}], "$.discountPct": 10},
         "expect": {"$.total": 108}},
    ],
}  # fmt: skip


def changed(**parts: Any) -> dict[str, Any]:
    """The good spec with other parts; ``None`` leaves one out."""
    spec = copy.deepcopy(GOOD) | parts
    return {key: value for key, value in spec.items() if value is not None}


def wrong_paths(count: int) -> dict[str, Any]:
    """A spec with that many errors of validation."""
    return changed(derivations=[{"path": f"bad{n}", "expr": "1"} for n in range(count)], tests=[])


def failing_tests(count: int) -> dict[str, Any]:
    """A valid spec of which that many tests fail."""
    tests = [
        {
            "description": f"case {n}",
            "given": {"$.items": [{"price": 10, "quantity": 1}]},
            "expect": {"$.total": 99 + n},
        }
        for n in range(count)
    ]
    return changed(tests=[*GOOD["tests"], *tests])


UNSTABLE: dict[str, Any] = changed(
    defaultValues=[{"path": "$", "expr": "{'items': [], 'discountPct': 99}"}],
    tests=[],
)
"""A new model of it breaks its own constraint."""
RAISE_VAT: dict[str, Any] = {"newVersion": "1.1.0", "upsertConstants": {"vatPct": 25}, "newTests": []}


def text(spec: dict[str, Any]) -> str:
    return json.dumps(spec)


def answer(spec: dict[str, Any]) -> ScriptedAnswer:
    return ScriptedAnswer(text=text(spec))
