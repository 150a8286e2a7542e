"""A caller's JSON Schema, vetted and compiled: the one gate between what a model wrote and what an engine keeps.

``compile_schema`` refuses with every problem at once and does no I/O whatever the schema says. A compiled schema is
immutable, safe to share between threads, and cheap to get again: the compiled parts are cached by the schema's
canonical text, since each turn of a durable process starts from the stored schema.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain, islice
from typing import Any

from engines.errors import InvalidSchema
from engines.structured.checks import TOO_DEEP, Violation, explain, has_type, pattern_violations, scan, walk
from engines.structured.formats import format_hint
from engines.structured.text import child
from engines.structured.verdict import compile_verdict
from engines.structured.vetting import MAX_LEVELS, vet

MAX_SCHEMA_BYTES = 64 * 1024
"""Canonical text. Also what keeps the generated validator small."""
MAX_SCHEMA_DEPTH = 2 * MAX_LEVELS + 40
"""Objects and arrays inside each other, in the schema's own text (each level of schemas takes two)."""
MAX_VIOLATIONS = 500
MAX_HINTS = 20
CACHED_SCHEMAS = 256


@dataclass(frozen=True, slots=True)
class CompiledSchema:
    """An accepted schema.

    schema: the schema as given (a private copy, key order kept; treat it as read-only).
    canonical_json: its canonical text: keys sorted, no spaces, ASCII; equal schemas have equal bytes.
    sha256: hex digest of ``canonical_json``.
    """

    schema: dict[str, Any]
    canonical_json: str
    sha256: str
    _verdict: Callable[[object], bool | None] = field(repr=False, compare=False)
    _has_patterns: bool = field(repr=False, compare=False)

    def validate(self, value: object) -> tuple[Violation, ...]:
        """Everything wrong with a parsed reply (JSON types only), at most ``MAX_VIOLATIONS``; empty when it is valid.

        Never raises. A value that is not JSON at heart (NaN, endless nesting) is a violation like any other.
        """
        unsound = scan(value)
        if any(violation.found == TOO_DEEP for violation in unsound):
            return tuple(unsound[:MAX_VIOLATIONS])
        verdict = False if unsound else self._verdict(value)
        # An accepting verdict stands; a rejecting (or undecided) one is put into words.
        keywords: Iterator[Violation] = iter(()) if verdict is True else explain(self.schema, value)
        patterns = pattern_violations(self.schema, value) if self._has_patterns else iter(())
        found = tuple(islice(chain(unsound, keywords, patterns), MAX_VIOLATIONS))
        if not found and verdict is False:
            return (Violation("", "a value that does not fit", "a value that fits the schema"),)
        return found

    def normalise(self, value: Any) -> Any:
        """``value`` with whole-number floats of integer-typed places as integers (``1.0`` becomes ``1``), as a copy."""
        return _with_integers(self.schema, value)

    def format_hints(self, value: object) -> tuple[str, ...]:
        """A note per string that does not look like its ``format``. Notes only: such a value is valid."""
        notes = (
            format_hint(pointer, node["format"], item)
            for pointer, node, item in walk(self.schema, value)
            if isinstance(node, dict) and isinstance(node.get("format"), str) and isinstance(item, str)
        )
        return tuple(islice((note for note in notes if note), MAX_HINTS))


def compile_schema(schema: object) -> CompiledSchema:
    """Vet and compile ``schema``. Raises :class:`~engines.errors.InvalidSchema` with all its problems at once."""
    if not isinstance(schema, dict):
        raise InvalidSchema((("", 'must be a JSON object with "type": "object"'),))
    problem = _not_json(schema)
    if problem:
        raise InvalidSchema((problem,))
    canonical = json.dumps(schema, sort_keys=True, separators=(",", ":"), allow_nan=False)
    if len(canonical) > MAX_SCHEMA_BYTES:
        raise InvalidSchema((("", f"is {len(canonical):,} bytes: at most {MAX_SCHEMA_BYTES:,} are accepted"),))
    digest, verdict, has_patterns = _compiled(canonical)
    return CompiledSchema(deepcopy(schema), canonical, digest, verdict, has_patterns)


@lru_cache(maxsize=CACHED_SCHEMAS)
def _compiled(canonical: str) -> tuple[str, Callable[[object], bool | None], bool]:
    """Digest, verdict and whether any pattern is to be matched. Refusals are not cached: each ends its process."""
    schema = json.loads(canonical)
    problems = vet(schema)
    if problems:
        raise InvalidSchema(tuple(problems))
    try:
        verdict = compile_verdict(schema)
    except Exception as error:
        # The generator and Python's compiler have limits of their own; meeting one is the schema's doing.
        raise InvalidSchema((("", f"cannot be compiled: {type(error).__name__}"),)) from error
    return hashlib.sha256(canonical.encode()).hexdigest(), verdict, '"pattern":' in canonical


def _not_json(schema: dict[Any, Any]) -> tuple[str, str] | None:
    """The first thing about ``schema`` that JSON cannot hold or that is over a limit. Bounded work on any input."""
    stack: list[tuple[str, Any, int]] = [("", schema, 1)]
    seen = 0
    while stack:
        pointer, node, depth = stack.pop()
        seen += 1
        if seen > MAX_SCHEMA_BYTES or depth > MAX_SCHEMA_DEPTH:
            limit = (
                f"{MAX_SCHEMA_BYTES:,} bytes" if seen > MAX_SCHEMA_BYTES else f"{MAX_LEVELS} schemas inside each other"
            )
            return pointer, f"is too {'large' if seen > MAX_SCHEMA_BYTES else 'deep'}: at most {limit} are accepted"
        if isinstance(node, dict):
            if not all(isinstance(key, str) for key in node):
                return pointer, "must have string keys only"
            stack.extend((child(pointer, key), item, depth + 1) for key, item in node.items())
        elif isinstance(node, list):
            stack.extend((child(pointer, at), item, depth + 1) for at, item in enumerate(node))
        elif isinstance(node, float) and not math.isfinite(node):
            return pointer, "must be a finite number"
        elif isinstance(node, int) and node.bit_length() > 4_096:
            return pointer, "must be a number of fewer digits"
        elif node is not None and not isinstance(node, str | int | float | bool):
            return pointer, f"must be JSON, not a Python {type(node).__name__}"
    return None


def _with_integers(schema: Any, value: Any) -> Any:
    if isinstance(value, float):
        types = schema.get("type", ()) if isinstance(schema, dict) else ()
        names = [types] if isinstance(types, str) else types
        return int(value) if "integer" in names and "number" not in names and has_type(value, "integer") else value
    if isinstance(value, list):
        items = schema.get("items", True) if isinstance(schema, dict) else True
        return [_with_integers(items, item) for item in value]
    if isinstance(value, dict):
        properties = schema.get("properties", {}) if isinstance(schema, dict) else {}
        others = schema.get("additionalProperties", True) if isinstance(schema, dict) else True
        return {key: _with_integers(properties.get(key, others), item) for key, item in value.items()}
    return value
