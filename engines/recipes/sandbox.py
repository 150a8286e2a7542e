"""The Jinja environment templates run in: plain data, no globals, nothing callable.

Jinja's sandbox stops a template from reaching Python's internals but not from eating the machine, and it lets methods
be called. So :mod:`engines.recipes.syntax` lets only a small language through before anything is compiled, and what
remains is metered here (see :mod:`engines.recipes.limits`). The stock sandbox stays on underneath.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

from jinja2 import ChainableUndefined, pass_context
from jinja2.exceptions import SecurityError
from jinja2.runtime import Context, LoopContext
from jinja2.sandbox import ImmutableSandboxedEnvironment

from engines.recipes.filters import FILTERS, TESTS, concat, items_of, meter_of, metered, number_of, text_of
from engines.recipes.limits import Meter

# Names that no template can spell, for the operations the rewriter puts in.
CONCAT, LOOP, STEP, PROTECT = "~concat", "~loop", "~step", "~protect"

_SYNTAX = frozenset("{}%#\r")
_QUOTED = str.maketrans({c: f"\\x{ord(c):02x}" for c in '{}%#"\r'} | {"\\": "\\\\"})
_LOOP_ATTRIBUTES = frozenset(
    {"index", "index0", "first", "last", "length", "revindex", "revindex0", "previtem", "nextitem"}
)


class RenderContext(Context):
    """A context that carries the meter of its rendering."""

    meter: Meter


class _Counted:
    """A list that charges a step for every item walked over."""

    __slots__ = ("_items", "_meter")

    def __init__(self, items: Any, meter: Meter) -> None:
        self._items = items
        self._meter = meter

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Any]:
        for item in self._items:
            self._meter.step()
            yield item


class TemplateEnvironment(ImmutableSandboxedEnvironment):
    """Renders recipe templates: no globals, no loader, no escaping, plain data only."""

    context_class = RenderContext
    intercepted_binops = frozenset({"+", "-", "*", "/", "//", "%", "**"})
    intercepted_unops = frozenset({"+", "-"})

    def __init__(self, *, trim: bool) -> None:
        super().__init__(
            autoescape=False,
            trim_blocks=trim,
            lstrip_blocks=trim,
            keep_trailing_newline=True,
            undefined=ChainableUndefined,
            optimized=False,
            finalize=_finalize,
            cache_size=0,
        )
        self.globals.clear()
        self.filters = {name: metered(function) for name, function in FILTERS.items()}
        self.filters |= {CONCAT: metered(concat), LOOP: pass_context(_loop), STEP: pass_context(_step)}
        self.filters |= {PROTECT: metered(_protect)}
        self.tests = {name: metered(function) for name, function in TESTS.items()}

    def getattr(self, obj: Any, attribute: str) -> Any:
        return self.getitem(obj, attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        """Keys of mappings, positions of lists, the numbers of a loop. Python attributes do not exist here."""
        if isinstance(obj, Mapping):
            try:
                return obj[argument]
            except (KeyError, TypeError):
                pass
        elif isinstance(obj, ChainableUndefined):
            return obj
        elif isinstance(obj, LoopContext):
            if argument in _LOOP_ATTRIBUTES:
                return getattr(obj, argument)
        elif isinstance(obj, (str, list, tuple)) and isinstance(argument, (int, slice)):
            try:
                return obj[argument]
            except IndexError:
                pass
        if isinstance(argument, str) and argument.startswith("__"):
            raise SecurityError(f"access to {argument!r} is not allowed")
        return self.undefined(obj=obj, name=argument)

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> NoReturn:
        raise SecurityError("calls are not allowed")

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        meter_of(context).step()
        if operator == "+" and isinstance(left, str) and isinstance(right, str):
            return concat(context, (left, right))
        if operator == "**":
            raise SecurityError("the operator ** is not allowed")
        return number_of(self.binop_table[operator](number_of(left), number_of(right)))

    def call_unop(self, context: Context, operator: str, arg: Any) -> Any:
        return self.unop_table[operator](number_of(arg))


@pass_context
def _finalize(context: Context, value: Any) -> str:
    return text_of(context, value)


def _loop(context: Context, value: Any) -> _Counted:
    found = items_of(value)
    if meter_of(context).strict and not found:
        text_of(context, value)  # names the variable if it is undefined
    return _Counted(found, meter_of(context))


def _step(context: Context, value: Any) -> Any:
    meter_of(context).step()
    return value


def _protect(context: Context, value: Any) -> str:
    """A value for a template of the next stage: a quoted constant wherever it could be taken for syntax."""
    text = text_of(context, value)
    meter_of(context).build(len(text))
    plain = _SYNTAX.isdisjoint(text) and text.strip() == text
    return text if plain else constant(text)


def constant(text: str, *, keep_lines: bool = False) -> str:
    """A template that prints ``text`` and nothing else, whatever is in it. ``keep_lines`` leaves line ends as they are,
    so that line numbers in later messages stay right."""
    quoted = text.translate(_QUOTED)
    return '{{ "' + (quoted if keep_lines else quoted.replace("\n", "\\n")) + '" }}'
