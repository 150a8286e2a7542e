"""Expressions: compiled once, asked what they read, evaluated against documents."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from typing import Any, Final

from engines.valem.depth import MAX_LEVELS, is_too_deep
from engines.valem.jsonata.errors import BAD_INPUT, TOO_DEEP, ExpressionError
from engines.valem.jsonata.evaluation import (
    CACHED_EXPRESSIONS,
    Evaluation,
    Evaluator,
    Limits,
    compile_text,
    evaluate_here,
)

Names = tuple[str, ...]


class Undefined(Enum):
    """No value at all, which is something else than ``null``."""

    UNDEFINED = "undefined"

    def __repr__(self) -> str:
        return "UNDEFINED"

    def __bool__(self) -> bool:
        return False


UNDEFINED: Final = Undefined.UNDEFINED


@dataclass(frozen=True, slots=True)
class Read:
    """A place that an expression reads, as property names; arrays are looked through.

    whole: whether the value matters with all that is in it. ``$count(items)`` needs only that there are items.
    """

    path: Names
    whole: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Reads:
    """What an expression reads. Names that it binds itself are not among them.

    fields: places of its document. bindings: variable name -> places of its value.
    any_binding: it may read every variable there is (``$eval``).
    """

    fields: tuple[Read, ...] = ()
    bindings: Mapping[str, tuple[Read, ...]] = field(default_factory=dict)
    any_binding: bool = False


@dataclass(frozen=True, slots=True)
class Document:
    """A JSON value kept as text, for several evaluations of the same one."""

    text: str

    @classmethod
    def of(cls, value: Any) -> Document:
        """Raises :class:`ExpressionError` for a value that is not JSON."""
        try:
            return cls(json.dumps(value, ensure_ascii=False, allow_nan=False))
        except (ValueError, TypeError, RecursionError) as error:
            raise ExpressionError(BAD_INPUT, f"the document is not JSON: {error}") from None


@dataclass(frozen=True, slots=True)
class Expression:
    """A compiled expression.

    text: as the spec has it.
    preludes: blocks of bindings, each visible to the next ones and to the text (see :mod:`.library`).
    source: what the engine is given. Each prelude opens a scope of its own, the text is in the innermost.
    """

    text: str
    preludes: tuple[str, ...] = ()
    source: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        source = "".join(f"({prelude};" for prelude in self.preludes) + self._inner + ")" * len(self.preludes)
        object.__setattr__(self, "source", source)

    @property
    def _inner(self) -> str:
        # On lines of its own: a comment at the end of a text must not swallow the bracket.
        return f"(\n{self.text}\n)" if self.preludes else self.text

    def evaluate(
        self,
        document: Any = UNDEFINED,
        bindings: Mapping[str, Any] | None = None,
        *,
        now: int,
        evaluator: Evaluator = evaluate_here,
        limits: Limits | None = None,
    ) -> Any:
        """The value for ``document`` (a JSON value, a :class:`Document`, or ``UNDEFINED``): JSON or ``UNDEFINED``.

        Raises :class:`ExpressionError`; its position is one in :attr:`text`.
        """
        if not isinstance(document, Document) and document is not UNDEFINED:
            document = self.document(document)
        evaluation = Evaluation(
            text=self.source,
            document=None if document is UNDEFINED else document.text,
            bindings=bindings or {},
            now=now,
            limits=limits or Limits(),
        )
        try:
            result = evaluator(evaluation)
        except ExpressionError as error:
            raise self._relocated(error) from None
        return UNDEFINED if result is None else _parsed(result)

    def reads(self) -> Reads:
        """What the expression reads of its document and of its bindings."""
        return _reads(self.source)

    def document(self, value: Any) -> Document:
        """A JSON value prepared for this expression: what it does not read is left out, which makes no difference."""
        if isinstance(value, dict):
            wanted = {read.path[0] if read.path else None for read in self.reads().fields}
            if None not in wanted:
                value = {name: below for name, below in value.items() if name in wanted}
        return Document.of(value)

    def _relocated(self, error: ExpressionError) -> ExpressionError:
        if not self.preludes or error.position is None:
            return error
        position = error.position - self.source.rindex(self._inner) - 2
        if 0 <= position <= len(self.text):
            return ExpressionError(error.code, error.message, position, error.token)
        return ExpressionError(error.code, f"in a function of the library: {error.message}", None, error.token)


@lru_cache(maxsize=CACHED_EXPRESSIONS)
def compile_expression(text: str, preludes: tuple[str, ...] = ()) -> Expression:
    """``text`` compiled; ``preludes`` in front only when it calls something it does not bind itself.

    Raises :class:`ExpressionError` for a text that does not compile, with the offset in it.
    """
    compile_text(text)
    if not preludes:
        return Expression(text)
    reads = _reads(text)
    if not reads.bindings and not reads.any_binding:
        return Expression(text)
    expression = Expression(text, preludes)
    compile_text(expression.source)
    return expression


def _parsed(result: str) -> Any:
    try:
        value = json.loads(result)
    except RecursionError:
        raise _too_deep() from None
    # Counting brackets is quick, and most results have few.
    if result.count("[") + result.count("{") > MAX_LEVELS and is_too_deep(value):
        raise _too_deep()
    return value


def _too_deep() -> ExpressionError:
    return ExpressionError(TOO_DEEP, f"the result has more than {MAX_LEVELS} levels of objects and arrays")


@lru_cache(maxsize=CACHED_EXPRESSIONS)
def _reads(source: str) -> Reads:
    found = compile_text(source).reads()
    bindings = {name: tuple(_places(read, ())) for name, read in found["bindings"].items()}
    # That there is a document at all (an empty read of it) is no place in it.
    fields = tuple(_places(found["input"], ())) if found.get("input") else ()
    return Reads(fields=fields, bindings=bindings, any_binding=found.get("everyBinding", False))


def _places(read: Any, path: Names) -> Iterator[Read]:
    if read is True or not read:
        yield Read(path, whole=read is True)
        return
    for name, below in read.items():
        yield from _places(below, (*path, name))
