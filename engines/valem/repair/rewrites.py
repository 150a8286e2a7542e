"""The rewrites of one expression, each one mistake that models make, with the engine's own spelling in its place.

Every rewrite takes a :class:`Shape` and returns edits of its text that do not overlap; none means nothing to do. Except
for :data:`ALWAYS`, none of them finds anything in an expression that the engine compiles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from engines.valem.jsonata.tokens import Kind
from engines.valem.repair.operands import comparison_side_start, operand_end, path_end, path_start
from engines.valem.repair.shape import Holds, Shape

Edit = tuple[int, int, str]
"""Replace ``text[start:end]`` by the string."""
Rewrite = Callable[[Shape, frozenset[str]], list[Edit]]
"""The second argument: variables that the expression or the spec's library binds itself."""

CURRENT_YEAR: Final = "$number($substring($now(), 0, 4))"
_ROUND_BLOCKS: Final = frozenset({Holds.BLOCK, Holds.ROUND_BODY})


def invented_functions(shape: Shape, bound: frozenset[str]) -> list[Edit]:
    """``$currentYear()``, ``$getYear()``, ``$year($now())`` and ``$toInteger(x)``, which no engine has."""
    edits: list[Edit] = []
    for at, token in enumerate(shape.tokens):
        if token.kind is not Kind.VARIABLE or shape.holds.get(at + 1) is not Holds.CALL or token.text in bound:
            continue
        close = shape.match.get(at + 1)
        if token.text == "$toInteger":
            edits.append((token.start, token.end, "$number"))
        elif close is not None:
            arguments = "".join(part.text for part in shape.tokens[at + 2 : close])
            if (token.text, arguments) in {("$currentYear", ""), ("$getYear", ""), ("$year", "$now()")}:
                edits.append((token.start, shape.tokens[close].end, CURRENT_YEAR))
    return edits


def power(shape: Shape, bound: frozenset[str]) -> list[Edit]:
    """``base ** exponent`` as ``$power(base, exponent)``, the rightmost first: ``a ** b ** c`` is ``a ** (b ** c)``."""
    for at in sorted(shape.infix, reverse=True):
        if not shape.says(at, "**") or at == 0:
            continue
        first = path_start(shape, at - 1)
        sign = at + 1 if shape.says(at + 1, "-") else None
        last = path_end(shape, at + 1 if sign is None else at + 2)
        if first is None or last is None:
            continue
        base = _unwrapped(shape, first, at - 1)
        exponent = shape.source(at + 1, last) if sign is not None else _unwrapped(shape, at + 1, last)
        return [(shape.tokens[first].start, shape.tokens[last].end, f"$power({base}, {exponent})")]
    return []


def _unwrapped(shape: Shape, first: int, last: int) -> str:
    """The text of an operand without the parentheses around all of it, which a call does not need."""
    inner = shape.directly_in(first)
    if shape.match.get(first) != last or shape.holds.get(first) is not Holds.BLOCK or last - first < 2:
        return shape.source(first, last)
    if any(shape.tokens[at].text in {",", ";", ":="} for at in inner):
        return shape.source(first, last)
    return shape.text[shape.tokens[first].end : shape.tokens[last].start].strip()


def equality(shape: Shape, bound: frozenset[str]) -> list[Edit]:
    """``==`` and ``===`` as ``=``, ``!==`` as ``!=``."""
    spelt = {"==": "=", "===": "=", "!==": "!="}
    return [
        (shape.tokens[at].start, shape.tokens[at].end, spelt[shape.tokens[at].text])
        for at in sorted(shape.infix)
        if shape.tokens[at].text in spelt
    ]


def modulo(shape: Shape, bound: frozenset[str]) -> list[Edit]:
    """``a mod b`` as ``a % b``."""
    return [
        (shape.tokens[at].start, shape.tokens[at].end, "%")
        for at in sorted(shape.infix)
        if shape.says(at, "mod") and shape.starts_operand(at + 1)
    ]


def between(shape: Shape, bound: frozenset[str]) -> list[Edit]:
    """``x between low and high`` as two comparisons."""
    for at in sorted(shape.infix):
        if not shape.says(at, "between") or at == 0:
            continue
        first = comparison_side_start(shape, at - 1)
        low_end = operand_end(shape, at + 1, with_comparison=False)
        if first is None or low_end is None or not (shape.says(low_end + 1, "and") and low_end + 1 in shape.infix):
            continue
        high_end = operand_end(shape, low_end + 2, with_comparison=False)
        if high_end is None:
            continue
        value, low, high = (
            shape.source(first, at - 1), shape.source(at + 1, low_end), shape.source(low_end + 2, high_end)
        )  # fmt: skip
        test = f"({value} >= {low} and {value} <= {high})"
        return [(shape.tokens[first].start, shape.tokens[high_end].end, test)]
    return []


def array_wildcard(shape: Shape, bound: frozenset[str]) -> list[Edit]:
    """``items[*].x`` as ``items.x``: in an expression ``[*]`` is a filter, and of numeric rows it leaves nothing."""
    return [
        (shape.tokens[at].start, shape.tokens[at + 2].end, "")
        for at, holds in shape.holds.items()
        if holds is Holds.PREDICATE
        and shape.match.get(at) == at + 2
        and shape.says(at + 1, "*")
        and shape.says(at + 3, ".")
    ]


def negated_call(shape: Shape, bound: frozenset[str]) -> list[Edit]:
    """``not (x)`` as ``$not(x)``: it calls a field, which no data can answer.

    Written like a call, ``not(x) = y``, it ends with its brackets; as a word, ``not (x) = y``, it reaches as far as
    :func:`negated_word` says.
    """
    for at in reversed(_nots(shape)):
        bracket = at + 1
        if shape.holds.get(bracket) is not Holds.CALL or shape.match.get(bracket) in (None, bracket + 1):
            continue
        apart = shape.tokens[at].end < shape.tokens[bracket].start
        last = operand_end(shape, bracket, with_comparison=True) if apart else path_end(shape, at)
        if last is None:
            continue
        if last == shape.match[bracket]:
            return [(shape.tokens[at].start, shape.tokens[bracket].start, "$not")]
        return [(shape.tokens[at].start, shape.tokens[last].end, f"$not({shape.source(bracket, last)})")]
    return []


def negated_word(shape: Shape, bound: frozenset[str]) -> list[Edit]:
    """``not x`` as ``$not(x)``, as far as ``not`` reaches elsewhere: to the next ``and`` or looser."""
    for at in reversed(_nots(shape)):
        following = at + 1
        if following >= len(shape) or shape.prefix[following] or shape.tokens[following].kind is Kind.OPERATOR:
            continue
        if following in shape.infix:
            continue
        last = _bare_end(shape, following)
        if last is not None:
            operand = shape.source(following, last)
            return [(shape.tokens[at].start, shape.tokens[last].end, f"$not({operand})")]
    return []


def _bare_end(shape: Shape, first: int) -> int | None:
    # The operand stands where none is expected, behind the field that ``not`` looks like.
    shape.prefix[first] = True
    try:
        return operand_end(shape, first, with_comparison=True)
    finally:
        shape.prefix[first] = False


def _nots(shape: Shape) -> list[int]:
    found: list[int] = []
    for at, token in enumerate(shape.tokens):
        begins = shape.prefix[at] and not shape.says(at - 1, ".", "@", "#")
        if token.kind is Kind.NAME and token.text == "not" and (begins or at - 1 in found[-1:]):
            found.append(at)
    return found


def block_commas(shape: Shape, bound: frozenset[str]) -> list[Edit]:
    """``($a := 1, $a)`` as ``($a := 1; $a)``."""
    blocks = [at for at, holds in shape.holds.items() if holds in _ROUND_BLOCKS and shape.binds(at)]
    return [edit for at in blocks for edit in _separators(shape, at, ",", ";")]


def round_bodies(shape: Shape, bound: frozenset[str]) -> list[Edit]:
    """``function($v) (…)`` as ``function($v) {…}``."""
    edits: list[Edit] = []
    for at, holds in shape.holds.items():
        if holds is Holds.ROUND_BODY and at in shape.match:
            edits += [
                (shape.tokens[at].start, shape.tokens[at].end, "{"),
                (shape.tokens[shape.match[at]].start, shape.tokens[shape.match[at]].end, "}"),
            ]
    return edits


def body_commas(shape: Shape, bound: frozenset[str]) -> list[Edit]:
    """Commas between the statements of a function body that binds, as semicolons."""
    bodies = [at for at, holds in shape.holds.items() if holds is Holds.BODY and shape.binds(at)]
    return [edit for at in bodies for edit in _separators(shape, at, ",", ";")]


def sequences(shape: Shape, bound: frozenset[str]) -> list[Edit]:
    """Several statements need parentheses, in a function body and at the top level."""
    edits: list[Edit] = []
    for at, holds in shape.holds.items():
        if holds is Holds.BODY and at in shape.match and any(shape.says(part, ";") for part in shape.directly_in(at)):
            start, end = shape.tokens[at].end, shape.tokens[shape.match[at]].start
            edits += [(start, start, "("), (end, end, ")")]
    if shape.balanced and _is_sequence(shape):
        start, end = shape.tokens[0].start, shape.tokens[-1].end
        edits += [(start, start, "("), (end, end, ")")]
    return edits


def _is_sequence(shape: Shape) -> bool:
    top = {shape.tokens[at].text for at in shape.directly_in(-1)}
    return ";" in top or {":=", ","} <= top


def object_semicolons(shape: Shape, bound: frozenset[str]) -> list[Edit]:
    """``{"a": 1; "b": 2}`` as ``{"a": 1, "b": 2}``, where every part is a key and its value."""
    edits: list[Edit] = []
    for at, holds in shape.holds.items():
        if holds in (Holds.OBJECT, Holds.GROUP) and at in shape.match and all(_members(shape, at)):
            edits += _separators(shape, at, ";", ",")
    return edits


def _members(shape: Shape, bracket: int) -> Iterator[bool]:
    """Of each part of the braces: whether it starts with a key and a colon and binds nothing."""
    start = bracket + 1
    ends = [at for at in shape.directly_in(bracket) if shape.says(at, ",", ";")]
    for end in [*ends, shape.match[bracket]]:
        if start < end:
            keyed = shape.says(start + 1, ":") or shape.holds.get(start) is Holds.BLOCK
            yield keyed and not any(shape.says(at, ":=") for at in range(start, end) if shape.inside[at] == bracket)
        start = end + 1


def missing_parentheses(shape: Shape, bound: frozenset[str]) -> list[Edit]:
    """``($a := 1; ($a + 2`` with exactly the parentheses that are missing at its end."""
    starts = shape.says(0, "(") and any(token.kind is Kind.VARIABLE for token in shape.tokens)
    if not starts or shape.stray or not shape.open or any(not shape.says(at, "(") for at in shape.open):
        return []
    end = shape.tokens[-1].end
    return [(end, end, ")" * len(shape.open))]


def _separators(shape: Shape, bracket: int, wrong: str, right: str) -> list[Edit]:
    """Every ``wrong`` directly in ``bracket`` as ``right``, except the one comma a transform (``|a|b,c|``) may hold."""
    bars = 0
    edits: list[Edit] = []
    for at in shape.directly_in(bracket):
        bars += shape.says(at, "|")
        if shape.says(at, wrong) and bars % 3 == 0:
            edits.append((shape.tokens[at].start, shape.tokens[at].end, right))
    return edits


ALWAYS: Final[dict[str, Rewrite]] = {
    "invented function": invented_functions,
    "array wildcard": array_wildcard,
    "not": negated_call,
}
"""What compiles and fails, or finds nothing, when it runs."""

EVERY: Final[dict[str, Rewrite]] = {
    "invented function": invented_functions,
    "power": power,
    "equality": equality,
    "modulo": modulo,
    "between": between,
    "array wildcard": array_wildcard,
    "not": negated_call,
    "not word": negated_word,
    "block commas": block_commas,
    "function body": round_bodies,
    "body commas": body_commas,
    "sequence": sequences,
    "object semicolons": object_semicolons,
    "missing parentheses": missing_parentheses,
}
"""In the order they are tried: later ones build on earlier ones."""
