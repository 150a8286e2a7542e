"""Expressions as models misspell them, and what becomes of them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.valem.jsonata.errors import ExpressionError
from engines.valem.jsonata.evaluation import compile_text
from engines.valem.jsonata.expression import compile_expression
from engines.valem.jsonata.tokens import Kind, Unreadable, tokenise
from engines.valem.repair.expression import MAX_CHARS, bound_variables, repair_expression
from engines.valem.repair.rewrites import ALWAYS, EVERY
from engines.valem.repair.shape import Holds, read

VECTORS = Path(__file__).parents[4] / "shared" / "data" / "valem-vectors.json"

INVERTED = {
    "$currentYear() - birthYear": "a chain binds looser than the minus: here the recorded result fails at run time",
    "$year($now()) - y": "a chain binds looser than the minus: here the recorded result fails at run time",
    "$getYear()": "the same text as in the two above",
    "(1 + r) ** n": "$power exists in this dialect; a loop would only take whole exponents",
    "(1 + r) ** -n": "$power exists in this dialect; a loop would only take whole exponents",
    "P * r * (1 + r) ** n / ((1 + r) ** n - 1)": "$power exists in this dialect",
    "x between 1 and 5": "the specification lists between among the rewrites",
}
"""Recorded repairs that this dialect must not reproduce, with the reason."""


def repaired(text: str) -> str:
    return repair_expression(text).text


def compiles(text: str) -> bool:
    try:
        compile_text(text)
    except ExpressionError:
        return False
    return True


def recorded() -> list[dict[str, Any]]:
    if not VECTORS.exists():
        return []
    passes = json.loads(VECTORS.read_text())["passes"]
    return [vector for vector in passes if vector["pass"] == "expr" and not vector.get("suspect")]


@pytest.mark.skipif(not VECTORS.exists(), reason="the recorded repairs are not here")
def test_recorded_repairs_are_reproduced() -> None:
    wanted = {vector["in"]: vector["out"] for vector in recorded() if vector["in"] not in INVERTED}
    assert {text: repaired(text) for text in wanted} == wanted


@pytest.mark.skipif(not VECTORS.exists(), reason="the recorded repairs are not here")
def test_what_this_dialect_spells_differently_compiles() -> None:
    known = {vector["in"] for vector in recorded()}
    assert known >= INVERTED.keys()
    assert all(compiles(repaired(text)) for text in INVERTED)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("$currentYear() - born", "$number($substring($now(), 0, 4)) - born"),
        ("$year( $now() ) - born", "$number($substring($now(), 0, 4)) - born"),
        ("$getYear()", "$number($substring($now(), 0, 4))"),
        ("$toInteger(x)", "$number(x)"),
        ("$year(signed)", "$year(signed)"),
        ("($toInteger := function($x) {$x}; $toInteger(3))", "($toInteger := function($x) {$x}; $toInteger(3))"),
    ],
)
def test_invented_functions(text: str, wanted: str) -> None:
    assert repaired(text) == wanted


def test_a_function_that_the_library_defines_is_not_invented() -> None:
    bound = bound_variables('($toInteger := function($x) {$floor($x)}; ["toInteger"])')
    assert repair_expression("$toInteger(x)", bound).text == "$toInteger(x)"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("(a) ** (b)", "$power(a, b)"),
        ("x ** 2", "$power(x, 2)"),
        ("x ** -2", "$power(x, -2)"),
        ("x ** (-n)", "$power(x, -n)"),
        ("-x**2", "-$power(x, 2)"),
        ("2 * x ** 2 + 1", "2 * $power(x, 2) + 1"),
        ("a ** b ** c", "$power(a, $power(b, c))"),
        ("x ** -n ** 2", "$power(x, -$power(n, 2))"),
        ("P * (1 + r) ** n / ((1 + r) ** n - 1)", "P * $power(1 + r, n) / ($power(1 + r, n) - 1)"),
        ("items[0].(p + 1) ** q.r[1]", "$power(items[0].(p + 1), q.r[1])"),
        ("$f(x)(y) ** 2", "$power($f(x)(y), 2)"),
        ("items^(>p)[0].q ** 2", "$power(items^(>p)[0].q, 2)"),
        ("($a := 2; $a) ** 2", "$power(($a := 2; $a), 2)"),
        ("$power(a, b)", "$power(a, b)"),
        ("items.**.p", "items.**.p"),
        ("**.p ** 2", "$power(**.p, 2)"),
    ],
)
def test_powers_become_calls(text: str, wanted: str) -> None:
    assert repaired(text) == wanted
    assert compiles(wanted)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("a == b", "a = b"),
        ("a === b", "a = b"),
        ("a !== b", "a != b"),
        ("items[k=='a']", "items[k='a']"),
        ("($x := 1; $x <= 2 and $x >= 0 and $x != 5)", "($x := 1; $x <= 2 and $x >= 0 and $x != 5)"),
    ],
)
def test_equality_has_one_sign_and_other_signs_stay(text: str, wanted: str) -> None:
    assert repaired(text) == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("5 mod 2", "5 % 2"),
        ("(a) mod (b) == 0", "(a) % (b) = 0"),
        ("model.modCount", "model.modCount"),
        ("mod", "mod"),
        ("mod - 1", "mod - 1"),
        ("a and mod", "a and mod"),
        ("a.mod", "a.mod"),
        ("$mod(a, 2)", "$mod(a, 2)"),
    ],
)
def test_modulo_only_between_operands(text: str, wanted: str) -> None:
    assert repaired(text) == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("p between 1 and 2", "(p >= 1 and p <= 2)"),
        ("a.b * 2 between lo and hi or c", "(a.b * 2 >= lo and a.b * 2 <= hi) or c"),
        ("a between 1 and 2 and b between 3 and 4", "(a >= 1 and a <= 2) and (b >= 3 and b <= 4)"),
        ("not p between 1 and 2", "$not(p >= 1 and p <= 2)"),
        ("$filter(xs, function($v) {$v between 1 and 9})", "$filter(xs, function($v) {($v >= 1 and $v <= 9)})"),
        ("between = 1", "between = 1"),
        ("p between 1", "p between 1"),
    ],
)
def test_between_becomes_a_range_test(text: str, wanted: str) -> None:
    assert repaired(text) == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("not paid", "$not(paid)"),
        ("not (a and b)", "$not(a and b)"),
        ("not a = b and c", "$not(a = b) and c"),
        ("a and not b", "a and $not(b)"),
        ("not (a).b", "$not((a).b)"),
        ("not (a + 1) > b", "$not((a + 1) > b)"),
        ("not(a) = not(b)", "$not(a) = $not(b)"),
        ("not not paid", "$not($not(paid))"),
        ("not()", "not()"),
        ("not $exists(a)", "$not($exists(a))"),
        ("x = 1 ? not a : not b", "x = 1 ? $not(a) : $not(b)"),
        ("notional > 0", "notional > 0"),
        ("$not(a)", "$not(a)"),
        ("not", "not"),
        ("not[0]", "not[0]"),
        ("not - 1", "not - 1"),
        ("a.not(b)", "a.not(b)"),
    ],
)
def test_not_is_a_function(text: str, wanted: str) -> None:
    assert repaired(text) == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("$map(xs, function($v)($v.p))", "$map(xs, function($v){$v.p})"),
        ("$map(xs, function($x) ($x * (2 + 1)))", "$map(xs, function($x) {$x * (2 + 1)})"),
        ("function($x, $y)<n-n:n> ($x + $y)", "function($x, $y)<n-n:n> {$x + $y}"),
        ("λ($x) ($x)", "λ($x) {$x}"),
    ],
)
def test_a_function_body_stands_in_braces(text: str, wanted: str) -> None:
    assert repaired(text) == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("($a := 1, $b := 2, $a + $b)", "($a := 1; $b := 2; $a + $b)"),
        ("($a := $max([1,2]), $f($a, {\"k\": 1, \"l\": 2}))", "($a := $max([1,2]); $f($a, {\"k\": 1, \"l\": 2}))"),
        ("($a := 1, items^(>p, q))", "($a := 1; items^(>p, q))"),
        ("($a := 1, $ ~> |items|{\"x\": 1},\"p\"|)", "($a := 1; $ ~> |items|{\"x\": 1},\"p\"|)"),
        ("$f($a := 1, $a)", "$f($a := 1, $a)"),
        ("(a, b)", "(a, b)"),
    ],
)  # fmt: skip
def test_bindings_are_separated_by_semicolons(text: str, wanted: str) -> None:
    assert repaired(text) == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("$reduce(xs, function($a,$v) {$s := $a + $v, $s})", "$reduce(xs, function($a,$v) {($s := $a + $v; $s)})"),
        ("$map(xs, function($m) {$a := $m; $a})", "$map(xs, function($m) {($a := $m; $a)})"),
        ("$map(xs, function($m) {($a := $m; $a)})", "$map(xs, function($m) {($a := $m; $a)})"),
        ("$x := 1; $x+1", "($x := 1; $x+1)"),
        ("$x := 1, $x + 1", "($x := 1; $x + 1)"),
        ("$x := 1", "$x := 1"),
        ("($x := 1; $x)", "($x := 1; $x)"),
    ],
)
def test_a_sequence_is_wrapped_once(text: str, wanted: str) -> None:
    assert repaired(text) == wanted
    assert repaired(wanted) == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ('{"A": 1; "B": x ? 2 : 3}', '{"A": 1, "B": x ? 2 : 3}'),
        ('items{name: p; "all": q}', 'items{name: p, "all": q}'),
        ("{$a := 1; $a}", "{$a := 1; $a}"),
    ],
)
def test_members_of_an_object_are_separated_by_commas(text: str, wanted: str) -> None:
    assert repaired(text) == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("($a := 1; ($b := ($a + 2", "($a := 1; ($b := ($a + 2)))"),
        ("($a := \"(\"; $a", "($a := \"(\"; $a)"),
        ("(a + b", "(a + b"),
        ("x(($y", "x(($y"),
        ("$sum(items.(p*q)", "$sum(items.(p*q)"),
        ("($a := [1; $a", "($a := [1; $a"),
        ("($a := 1)); ($b", "($a := 1)); ($b"),
        ("($a := 'open", "($a := 'open"),
    ],
)  # fmt: skip
def test_missing_parentheses_are_added_at_the_end(text: str, wanted: str) -> None:
    assert repaired(text) == wanted


@pytest.mark.skipif(not VECTORS.exists(), reason="the recorded repairs are not here")
def test_recorded_parentheses_are_balanced() -> None:
    passes = json.loads(VECTORS.read_text())["passes"]
    wanted = {vector["in"]: vector["out"] for vector in passes if vector["pass"] == "balance"}
    assert wanted
    assert {text: json.dumps(repaired(json.loads(text))) for text in wanted} == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("$sum(items[*].price)", "$sum(items.price)"),
        ("$.items[ * ].tags[*].name", "$.items.tags.name"),
        ("items[*]", "items[*]"),
        ("items.*.price", "items.*.price"),
        ("[*].x", "[*].x"),
        ("items[0].x", "items[0].x"),
    ],
)
def test_a_wildcard_is_no_filter(text: str, wanted: str) -> None:
    assert repaired(text) == wanted


def test_a_sum_over_wildcard_rows_has_its_value_after_the_repair() -> None:
    rows = {"items": [{"p": 3, "q": 2}, {"p": 10, "q": 2}]}
    assert compile_expression(repaired("$sum(items[*].(p * q))")).evaluate(rows, now=0) == 26


@pytest.mark.parametrize(
    "text",
    [
        'name = "not set"',
        "x = 'it mod y'",
        'status = "a == b, c ** d; p between 1 and 2"',
        "`not x` = `a ** b`",
        "$match(s, /a==b|not x/)",
        "a /* == mod not x */ = b",
        "'function($v)($v)' & x",
        r'"escaped \" == quote" = x',
    ],
)
def test_literals_names_and_comments_are_not_touched(text: str) -> None:
    assert repaired(text) == text


def test_a_repair_beside_a_literal_leaves_the_literal() -> None:
    assert repaired("n == 'a == b' and not $m(n, /x==y/)") == "n = 'a == b' and $not($m(n, /x==y/))"
    assert repaired("/* a == b */ `k==` == \"==\"") == "/* a == b */ `k==` = \"==\""  # fmt: skip


@pytest.mark.parametrize(
    "text", ["a && b", "a || b", "!a", "x in [1,2]", "a ?? 0", "", "   ", "a mod", "'open", "/* open"]
)
def test_what_is_not_repaired_comes_back_as_it_was(text: str) -> None:
    assert repair_expression(text).steps == ()
    assert repaired(text) == text


def test_a_huge_expression_is_left_alone() -> None:
    text = "a == b and " * (MAX_CHARS // 11 + 1) + "c"
    assert repaired(text) == text


def test_the_steps_are_named_in_order() -> None:
    result = repair_expression("$map(xs, function($v) ($v.on == true and $v.k mod 2 == 1))")
    assert result.text == "$map(xs, function($v) {$v.on = true and $v.k % 2 = 1})"
    assert result.steps == ("equality", "modulo", "function body")


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("use == here; 5 mod 2", "use == here; 5 mod 2"),
        ("not paid", "not paid"),
        ("Rows: $5 == cheap, not more", "Rows: $5 == cheap, not more"),
        ("a == b", "a = b"),
        ('"Rate: " & $string(r ** 2)', '"Rate: " & $string($power(r, 2))'),
    ],
)
def test_plain_language_stays_plain_language(text: str, wanted: str) -> None:
    assert repair_expression(text, perhaps_plain=True).text == wanted


FRAGMENTS = st.sampled_from(
    re.findall(
        r"\S+",
        """a b c.d $x $ 1 2.5 's' "a==b" `n,m` /r/ ( ) [ ] { } , ; : ? . .. := = == === != !== < <= * ** % - + & ~> | ^(
        @$i #$i function($v) function($v,$w)<n:n> λ($q)( not mod between and or in true $power( [*] [*]. $toInteger(
        $currentYear() $year($now()) ?? ?: {"k": ($y:=1, /*c;*/""",
    )
)
SCRIBBLES = st.lists(FRAGMENTS, max_size=14).flatmap(
    lambda parts: st.sampled_from(["", " "]).map(lambda blank: blank.join(parts))
)


@settings(deadline=None)
@given(SCRIBBLES | st.text(max_size=30), st.booleans())
def test_repairing_twice_changes_nothing_more(text: str, plain: bool) -> None:
    once = repair_expression(text, perhaps_plain=plain).text
    assert repair_expression(once, perhaps_plain=plain).text == once


def operands(parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.builds("{} {} {}".format, parts, st.sampled_from(["+", "*", "%", "=", "!=", "and", "in", "&", "??"]), parts),
        st.builds("({})".format, parts),
        st.builds("($v := {}; $v)".format, parts),
        st.builds("[{}, {}]".format, parts, parts),
        st.builds("$f({}, {})".format, parts, parts),
        st.builds("{{'k': {}, 'l': {}}}".format, parts, parts),
        st.builds("function($p, $q) {{{}}}".format, parts),
        st.builds("({})[{}].x".format, parts, parts),
        st.builds("({} ? {} : {})".format, parts, parts, parts),
        st.builds("(- ({}))".format, parts),
    )


SOUND = st.recursive(
    st.sampled_from(
        [
            "a",
            "not",
            "mod",
            "between",
            "and",
            "$x",
            "$",
            "7",
            "'a == b; c'",
            "`x ** y`",
            "a.b[0]",
            "items.*",
            "**",
            "/x,y/",
        ]
    ),
    operands,
    max_leaves=12,
)


@settings(deadline=None)
@given(SOUND)
def test_an_expression_that_compiles_keeps_its_text(text: str) -> None:
    if not compiles(text):
        return
    shape = read(text)
    assert [name for name, rewrite in EVERY.items() if name not in ALWAYS and rewrite(shape, frozenset())] == []
    result = repair_expression(text)
    assert compiles(result.text)
    assert result.text == text or set(result.steps) <= ALWAYS.keys()


def test_tokens_are_cut_as_the_engine_cuts_them() -> None:
    tokens = tokenise("a/2/b = /x\\/y/i /* c */ ** `q r`!==\"s\"")  # fmt: skip
    assert [(token.kind, token.text) for token in tokens] == [
        (Kind.NAME, "a"),
        (Kind.OPERATOR, "/"),
        (Kind.NUMBER, "2"),
        (Kind.OPERATOR, "/"),
        (Kind.NAME, "b"),
        (Kind.OPERATOR, "="),
        (Kind.REGEX, "/x\\/y/i"),
        (Kind.OPERATOR, "**"),
        (Kind.QUOTED, "`q r`"),
        (Kind.OPERATOR, "!=="),
        (Kind.STRING, '"s"'),
    ]


@pytest.mark.parametrize("text", ["'open", '"open', "`open", "/* open", "= /open"])
def test_a_text_without_an_end_is_unreadable(text: str) -> None:
    with pytest.raises(Unreadable):
        tokenise(text)


def test_brackets_are_known_by_what_they_hold() -> None:
    shape = read("f(x)[0]{k: 1} + ({'a': [1]}; function($v)<n:n>{$v}; items^(p))")
    assert [(shape.tokens[at].text, holds) for at, holds in sorted(shape.holds.items())] == [
        ("(", Holds.CALL),
        ("[", Holds.PREDICATE),
        ("{", Holds.GROUP),
        ("(", Holds.BLOCK),
        ("{", Holds.OBJECT),
        ("[", Holds.ARRAY),
        ("(", Holds.PARAMETERS),
        ("{", Holds.BODY),
        ("(", Holds.ORDER),
    ]
    assert shape.balanced


FIELDS = {"a": "a", "b": "b", "c.d": "c_d", "xs[1]": "xs_1", "o.e[0].f": "o_f"}
DOCUMENT = {"a": 2, "b": 3, "c": {"d": 1.5}, "xs": [7, 4], "o": {"e": [{"f": 2}]}}
NUMBERS = st.sampled_from(["1", "2", *FIELDS, "(a + 1)", "b ** 2", "c.d ** -1", "2 ** (a)", "(b - 1) ** a ** 2"])
ARITHMETIC = st.recursive(
    NUMBERS,
    lambda inner: (
        st.builds("{} {} {}".format, inner, st.sampled_from(["+", "-", "*"]), inner)
        | st.builds("({})".format, inner)
        | st.builds("-{}".format, NUMBERS)
    ),
    max_leaves=5,
)
TRUTHS = st.recursive(
    st.builds(
        "{}{} {} {}".format,
        st.sampled_from(["", "", "not "]),
        ARITHMETIC.filter(lambda text: not text.startswith("-")),
        st.sampled_from(["==", "!=", "<", "<=", ">"]),
        ARITHMETIC,
    ),
    lambda inner: (
        st.builds("{} {} {}".format, inner, st.sampled_from(["and", "or"]), inner)
        | st.builds("{}({})".format, st.sampled_from(["", "not ", "not", "not not "]), inner)
    ),
    max_leaves=4,
)


def in_python(text: str) -> Any:
    """The value in the language whose habits the text has."""
    for field, name in FIELDS.items():
        text = text.replace(field, name)
    return eval(text, {"__builtins__": {}, "a": 2, "b": 3, "c_d": 1.5, "xs_1": 4, "o_f": 2})


@settings(deadline=None)
@given(ARITHMETIC)
def test_mended_arithmetic_has_the_value_that_was_meant(text: str) -> None:
    assert compile_expression(repaired(text)).evaluate(DOCUMENT, now=0) == pytest.approx(in_python(text))


@settings(max_examples=60, deadline=None)
@given(TRUTHS)
def test_mended_conditions_have_the_value_that_was_meant(text: str) -> None:
    assert compile_expression(repaired(text)).evaluate(DOCUMENT, now=0) is in_python(text)
