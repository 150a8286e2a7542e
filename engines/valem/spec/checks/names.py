"""Functions and variables that an expression uses and nobody defines."""

from __future__ import annotations

import difflib
from collections.abc import Collection
from typing import Final

from engines.structured.text import quote_all
from engines.valem.jsonata.expression import Expression
from engines.valem.jsonata.tokens import called_names
from engines.valem.spec.checks.report import Report

BUILT_IN: Final = frozenset({
    "abs", "append", "assert", "average", "base64decode", "base64encode", "boolean", "ceil", "clone", "contains",
    "count", "decodeUrl", "decodeUrlComponent", "distinct", "each", "encodeUrl", "encodeUrlComponent", "error",
    "eval", "exists", "filter", "floor", "formatBase", "formatInteger", "formatNumber", "fromMillis", "join", "keys",
    "length", "lookup", "lowercase", "map", "match", "max", "merge", "millis", "min", "not", "now", "number", "pad",
    "parseInteger", "power", "random", "reduce", "replace", "reverse", "round", "shuffle", "sift", "single", "sort",
    "split", "spread", "sqrt", "string", "substring", "substringAfter", "substringBefore", "sum", "toMillis", "trim",
    "type", "uppercase", "zip",
})  # fmt: skip
CONTEXT: Final = frozenset({"const", "parent", "self", "response", "now", "status"})
"""Names that the shell or the cycle binds, each in its own kind of expression. No library may export them."""
_HABITS: Final = {
    "avg": "average",
    "mean": "average",
    "len": "length",
    "size": "count",
    "toInteger": "number",
    "toNumber": "number",
    "parseInt": "number",
    "parseFloat": "number",
    "toString": "string",
    "str": "string",
    "concat": "join",
    "upper": "uppercase",
    "lower": "lowercase",
    "ceiling": "ceil",
    "pow": "power",
    "find": "filter",
    "flatten": "reduce",
    "if": "boolean",
    "coalesce": "exists",
    "fold": "reduce",
}


def check_names(report: Report, location: str, expression: Expression, exports: Collection[str]) -> None:
    """An error for each unknown function, with the nearest known one; a warning for each unbound variable."""
    called = called_names(expression.text)
    for name in expression.reads().bindings:
        if name in exports or name in CONTEXT or not name:
            continue
        if name in called:
            report.error(location, f"calls the unknown function ${name}(", _nearest(name, exports))
        else:
            report.warn(
                location,
                f"the variable ${name} is bound nowhere, so it has no value",
                f"a field is written without $, a constant as $const.{name}",
            )


def _nearest(name: str, exports: Collection[str]) -> str:
    known = {each.lower(): each for each in (*sorted(BUILT_IN), *exports)}
    meant = _HABITS.get(name)
    if meant is None:
        found = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.6)
        meant = known[found[0]] if found else None
    if meant is not None:
        return f"did you mean ${meant}(?"
    if exports:
        return f"JSONata has no such function; the library exports {quote_all(sorted(exports))}"
    return "JSONata has no such function: write it out, or define it in the library"
