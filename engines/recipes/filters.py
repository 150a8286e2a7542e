"""The filters and tests a template may use: all of them, and nothing else.

Each takes the render context first, for its meter. A filter that could enlarge its input works out the size of the
result before it builds it; one that could be slow in a way that does not depend on sizes (a regular expression) has a
time limit of its own.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from jinja2 import Undefined, pass_context
from jinja2.runtime import Context

from engines.errors import TemplateError
from engines.recipes.limits import Meter
from engines.structured.patterns import BadPattern, compile_pattern

MAX_NUMBER = 10**15
MATCH_SECONDS = 0.1
_NOT_SLUG = re.compile(r"[^a-z0-9]+")
_YAML_BREAK = re.compile(r"(\r\n|[\n\r\x85\u2028\u2029])(?![\n\r\x85\u2028\u2029]|$)")


def meter_of(context: Context) -> Meter:
    """The meter of this rendering (set by ``engines.recipes.sandbox``)."""
    meter: Meter = context.meter  # type: ignore[attr-defined]
    return meter


def slug(text: str, limit: int | None = None) -> str:
    """A name that is safe in URLs and paths: ``a-z``, ``0-9`` and single hyphens; ``untitled`` when nothing is left."""
    result = _NOT_SLUG.sub("-", text.lower()).strip("-")
    if limit is not None:
        result = result[:limit].rstrip("-")
    return result or "untitled"


def text_of(context: Context, value: Any) -> str:
    """A value as it appears in the output: texts as they are, nothing for ``None``, JSON for everything else."""
    if type(value) is str:
        return value
    if isinstance(value, str):
        return str(value)
    if value is None:
        return ""
    if isinstance(value, Undefined):
        meter = meter_of(context)
        if meter.strict:
            raise TemplateError(f"{_undefined_name(value)} is not defined")
        return ""
    return _json(value)


def _undefined_name(value: Undefined) -> str:
    return repr(getattr(value, "_undefined_name", None) or "a value")


def _json(value: Any, indent: int | None = None) -> str:
    if isinstance(value, Mapping) and not isinstance(value, dict):
        value = dict(value)
    try:
        return json.dumps(value, ensure_ascii=False, indent=indent, allow_nan=False)
    except TypeError:
        raise TemplateError(f"a value of type {type(value).__name__} cannot be printed") from None


def number_of(value: Any) -> int | float:
    """``value`` when it is a number of bearable size, else an error."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        found = _undefined_name(value) + " (not defined)" if isinstance(value, Undefined) else type(value).__name__
        raise TemplateError(f"arithmetic needs numbers, found {found}")
    if not math.isfinite(value) or abs(value) > MAX_NUMBER:
        raise TemplateError("a number is too big")
    return value


def items_of(value: Any) -> Iterable[Any]:
    """What a loop or a list filter may walk over: lists, keys of a mapping, characters of a text, or nothing."""
    if value is None or isinstance(value, Undefined):
        return ()
    if isinstance(value, (str, list, tuple, Mapping)):
        return value
    if isinstance(value, Sequence):
        return value
    raise TemplateError(f"a value of type {type(value).__name__} is no list")


def _listed(context: Context, value: Any) -> list[Any]:
    found = items_of(value)
    meter_of(context).step(len(found))  # type: ignore[arg-type]
    return list(found)


def _text(context: Context, value: Any) -> str:
    text = text_of(context, value)
    meter_of(context).build(len(text))
    return text


def _count(name: str, value: Any, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise TemplateError(f"{name} needs a whole number from 0 to {most}")
    return value


# --- filters ---------------------------------------------------------------------------------------------------------


def _raw(context: Context, value: Any) -> Any:
    """Does nothing: nothing is escaped here in the first place. Recipes written for other engines carry it."""
    return value


def _default(context: Context, value: Any, fallback: Any = "", boolean: bool = False) -> Any:
    if isinstance(value, Undefined) or value is None or (boolean and not value):
        return fallback
    return value


def _replace(context: Context, value: Any, old: Any, new: Any) -> str:
    text, before, after = _text(context, value), text_of(context, old), text_of(context, new)
    if not before:
        raise TemplateError("replace needs a text to look for")
    meter_of(context).build(len(text) + text.count(before) * max(0, len(after) - len(before)))
    return text.replace(before, after)


def _join(context: Context, value: Any, separator: Any = "", attribute: str | None = None) -> str:
    glue = text_of(context, separator)
    found = _listed(context, value)
    if attribute is not None:
        found = [item.get(attribute) if isinstance(item, Mapping) else None for item in found]
    parts = [text_of(context, item) for item in found]
    meter_of(context).build(sum(map(len, parts)) + len(glue) * len(parts))
    return glue.join(parts)


def concat(context: Context, values: Sequence[Any]) -> str:
    """``a ~ b ~ c``: the sandbox turns the operator into this filter because Jinja's own one has no limit."""
    return _join(context, values)


def _indent(context: Context, value: Any, width: int = 4, first: bool = False, blank: bool = False) -> str:
    text, pad = _text(context, value), " " * _count("indent", width, 40)
    lines = text.split("\n")
    meter_of(context).build(len(text) + len(lines) * len(pad))
    padded = [pad + line if (line or blank) and (first or number) else line for number, line in enumerate(lines)]
    return "\n".join(padded)


def _yaml_indent(context: Context, value: Any, width: int = 2) -> str:
    """Indents every line but the first, so that a text of many lines stays inside the YAML block scalar it is put into.
    Breaks at everything YAML takes for a line end, which is more than ``\\n``."""
    text, pad = _text(context, value), " " * _count("yamlIndent", width, 40)
    meter_of(context).build(len(text) + len(_YAML_BREAK.findall(text)) * len(pad))
    return _YAML_BREAK.sub(lambda found: found.group() + pad, text)


def _tojson(context: Context, value: Any, indent: int | None = None) -> str:
    if isinstance(value, Undefined):
        value = None
    text = _json(value, None if indent is None else _count("tojson", indent, 8))
    meter_of(context).build(len(text))
    return text


def _truncate(context: Context, value: Any, length: int = 255, end: str = "…") -> str:
    text, most, mark = _text(context, value), _count("truncate", length, 1_000_000), text_of(context, end)
    return text if len(text) <= most else text[: max(0, most - len(mark))] + mark


def _length(context: Context, value: Any) -> int:
    return len(items_of(value))  # type: ignore[arg-type]


def _first(context: Context, value: Any) -> Any:
    found = items_of(value)
    return next(iter(found), None)


def _last(context: Context, value: Any) -> Any:
    found = _listed(context, value)
    return found[-1] if found else None


def _items(context: Context, value: Any) -> list[tuple[Any, Any]]:
    if value is None or isinstance(value, Undefined):
        return []
    if not isinstance(value, Mapping):
        raise TemplateError("items needs a mapping")
    meter_of(context).step(len(value))
    return list(value.items())


def _sort(context: Context, value: Any, reverse: bool = False) -> list[Any]:
    found = _listed(context, value)
    meter_of(context).step(len(found))
    return sorted(found, reverse=bool(reverse))


def _lines(context: Context, value: Any) -> list[str]:
    found = _text(context, value).splitlines()
    meter_of(context).step(len(found))
    return found


def _int(context: Context, value: Any, default: int = 0) -> int:
    try:
        return int(number_of(int(value) if isinstance(value, str) and len(value) < 30 else value))
    except ValueError:
        return default


def _float(context: Context, value: Any, default: float = 0.0) -> float:
    try:
        return float(number_of(float(value) if isinstance(value, str) and len(value) < 40 else value))
    except ValueError:
        return default


def _round(context: Context, value: Any, digits: int = 0) -> int | float:
    return round(number_of(value), _count("round", digits, 15) or None)


def _of_text(function: Callable[[str], str]) -> Callable[..., Any]:
    def apply(context: Context, value: Any) -> str:
        return function(_text(context, value))

    return apply


FILTERS: dict[str, Callable[..., Any]] = {
    "abs": lambda context, value: abs(number_of(value)),
    "capitalize": _of_text(str.capitalize),
    "count": _length,
    "d": _default,
    "default": _default,
    "first": _first,
    "float": _float,
    "indent": _indent,
    "int": _int,
    "items": _items,
    "join": _join,
    "last": _last,
    "length": _length,
    "lines": _lines,
    "list": _listed,
    "lower": _of_text(str.lower),
    "raw": _raw,
    "replace": _replace,
    "reverse": lambda context, value: value[::-1] if isinstance(value, str) else _listed(context, value)[::-1],
    "round": _round,
    "slug": _of_text(slug),
    "sort": _sort,
    "string": _text,
    "title": _of_text(str.title),
    "tojson": _tojson,
    "trim": _of_text(str.strip),
    "truncate": _truncate,
    "upper": _of_text(str.upper),
    "wordcount": lambda context, value: len(_text(context, value).split()),
    "yamlIndent": _yaml_indent,
}


# --- tests -----------------------------------------------------------------------------------------------------------


def _matching(context: Context, value: Any, pattern: Any) -> bool:
    """The whole text matches the regular expression. A pattern that backtracks for ever is an error, not a hang."""
    if not isinstance(pattern, str):
        raise TemplateError("matching needs a regular expression")
    try:
        return compile_pattern(pattern).compiled.fullmatch(text_of(context, value), timeout=MATCH_SECONDS) is not None
    except (TimeoutError, MemoryError):
        raise TemplateError(f"the pattern {pattern!r} takes too long to match") from None
    except BadPattern as error:
        raise TemplateError(f"the pattern {pattern[:80]!r} {error}") from None


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


TESTS: dict[str, Callable[..., bool]] = {
    "boolean": lambda context, value: isinstance(value, bool),
    "defined": lambda context, value: not isinstance(value, Undefined),
    "empty": lambda context, value: value is None or isinstance(value, Undefined) or value in ("", [], {}, ()),
    "even": lambda context, value: number_of(value) % 2 == 0,
    "mapping": lambda context, value: isinstance(value, Mapping),
    "matching": _matching,
    "none": lambda context, value: value is None,
    "number": lambda context, value: _number(value),
    "odd": lambda context, value: number_of(value) % 2 == 1,
    "sequence": lambda context, value: isinstance(value, (list, tuple)),
    "string": lambda context, value: isinstance(value, str),
    "undefined": lambda context, value: isinstance(value, Undefined),
}


def metered(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function`` with one step charged before it; a wrong number of arguments becomes a readable error."""

    def call(context: Context, *arguments: Any, **keywords: Any) -> Any:
        meter_of(context).step()
        return function(context, *arguments, **keywords)

    # Taking the context also keeps Jinja from running the filter at compile time, where there is no meter.
    return pass_context(call)
