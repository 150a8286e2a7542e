"""A spec's own functions: layers of definitions, made callable in every expression.

A layer is a block that binds names and ends in the list of those that are meant to be called. The engine takes
functions only from the text it runs, so a layer's bindings are written in front of each expression that calls one,
every layer in a scope of its own: a later layer sees the earlier ones, and its names win without changing what the
earlier ones call.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engines.errors import EngineError
from engines.structured.text import quote
from engines.valem.jsonata.errors import ExpressionError
from engines.valem.jsonata.evaluation import Evaluator, evaluate_here
from engines.valem.jsonata.expression import Expression, compile_expression
from engines.valem.jsonata.scan import statements

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_TIP = 'put the whole definition into brackets: ( $f := function($x) { … }; ["f"] )'


class LibraryError(EngineError):
    """A layer cannot be used. ``layer`` counts from zero, in the order in which layers are bound."""

    def __init__(self, layer: int, message: str) -> None:
        super().__init__(message)
        self.layer = layer


@dataclass(frozen=True, slots=True)
class CompiledLibrary:
    """preludes: the bindings of each layer, for :func:`~.expression.compile_expression`. exports: names, sorted."""

    preludes: tuple[str, ...] = ()
    exports: tuple[str, ...] = ()


def compile_library(
    defines: Sequence[str],
    constants: Mapping[str, Any] | None = None,
    *,
    now: int,
    evaluator: Evaluator = evaluate_here,
) -> CompiledLibrary:
    """The library made of the layers' definitions, in order. Raises :class:`LibraryError` for the first bad layer."""
    preludes: tuple[str, ...] = ()
    exports: set[str] = set()
    for layer, define in enumerate(defines):
        bindings, names = _cut(layer, define)
        preludes = (*preludes, bindings)
        try:
            found = Expression(names, preludes).evaluate(
                bindings={"const": dict(constants or {})}, now=now, evaluator=evaluator
            )
            exports |= _exported(layer, found, preludes, now, evaluator)
        except ExpressionError as error:
            raise LibraryError(layer, error.message) from None
    return CompiledLibrary(preludes, tuple(sorted(exports)))


def _cut(layer: int, define: str) -> tuple[str, str]:
    """The bindings and the list of names of a layer."""
    try:
        compile_expression(define)
    except ExpressionError as error:
        tip = f"; {_TIP}" if error.token == ";" else ""
        raise LibraryError(layer, f"the definition does not compile: {error.message}{tip}") from None
    parts = statements(define)
    if parts is None:
        raise LibraryError(layer, f"the definition is no block of bindings: {_TIP}")
    while parts and not parts[-1]:
        parts.pop()
    if len(parts) < 2:
        raise LibraryError(layer, f"the definition binds nothing, or does not end in a list of names: {_TIP}")
    return ";".join(parts[:-1]), parts[-1]


def _exported(layer: int, found: Any, preludes: tuple[str, ...], now: int, evaluator: Evaluator) -> set[str]:
    names = [found] if isinstance(found, str) else found
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise LibraryError(layer, 'the definition must end in a list of the names it exports, such as ["f", "g"]')
    for name in names:
        if not _NAME.match(name):
            raise LibraryError(layer, f"{quote(name)} cannot be the name of a function")
    probe = "[" + ", ".join(f"$exists(${name})" for name in names) + "]"
    bound = Expression(probe, preludes).evaluate(now=now, evaluator=evaluator)
    for name, is_bound in zip(names, bound, strict=True):
        if not is_bound:
            raise LibraryError(layer, f"{quote(name)} is exported but not defined")
    return set(names)
