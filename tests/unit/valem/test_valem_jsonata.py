"""The JSONata module: values told apart from none, errors with their place, what is read, functions of a library."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engines.valem.jsonata.budget import BudgetedEvaluator
from engines.valem.jsonata.errors import BAD_INPUT, NO_TIME_LEFT, TOO_DEEP, TOO_LONG, ExpressionError
from engines.valem.jsonata.evaluation import CACHED_EXPRESSIONS, MAX_EXPRESSION_CHARS, evaluate_here
from engines.valem.jsonata.expression import UNDEFINED, Document, Read, compile_expression
from engines.valem.jsonata.library import LibraryError, compile_library
from engines.valem.jsonata.scan import statements

NOW = 1_700_000_000_000


def value(text: str, document: Any = UNDEFINED, **bindings: Any) -> Any:
    return compile_expression(text).evaluate(document, bindings, now=NOW)


def error(text: str, document: Any = UNDEFINED) -> ExpressionError:
    with pytest.raises(ExpressionError) as raised:
        value(text, document)
    return raised.value


def test_undefined_is_not_null() -> None:
    assert value("missing", {"a": 1}) is UNDEFINED
    assert value("a", {"a": None}) is None
    assert not UNDEFINED


@pytest.mark.parametrize(
    ("text", "document", "result"),
    [
        ("one.p", {"one": [{"p": 10, "q": 2}]}, 10),
        ("one.[p]", {"one": [{"p": 10, "q": 2}]}, [10]),
        ("one.p[]", {"one": [{"p": 10, "q": 2}]}, [10]),
        ("$sum(items.(p*q))", {"items": [{"p": 10, "q": 2}, {"p": 5, "q": 1}]}, 25),
        ("missing + 1", {}, UNDEFINED),
        ("$sum(missing)", {}, UNDEFINED),
        ("$round(2.5)", {}, 2),
        ("0.1 + 0.2", {}, 0.30000000000000004),
        ("5.0", {}, 5),
        ("$power(2, 10)", {}, 1024),
        ("'a' in tags", {"tags": ["a"]}, True),
        ("missing ?? 7", {}, 7),
        ("$", 3, 3),
    ],
)
def test_values(text: str, document: Any, result: Any) -> None:
    found = value(text, document)
    assert found == result
    assert type(found) is type(result)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("1/0", "D1001"),
        ("n + 1", "T2001"),
        ("items.p > 6", "T2010"),
        ("$sum(items.p*q)", "T2001"),
        ("$nothing(1)", "T1006"),
    ],
)
def test_a_failed_evaluation_has_a_code_and_a_place(text: str, code: str) -> None:
    found = error(text, {"n": None, "q": 2, "items": [{"p": 10}, {"p": 5}]})
    assert found.code == code
    assert found.position is not None
    assert not found.is_syntax
    assert "Traceback" not in found.message


@pytest.mark.parametrize(
    ("text", "code", "position", "token"),
    [
        ("a ** b", "S0201", 2, "**"),
        ("5 mod 2", "S0201", 2, "mod"),
        ("items[k=='a']", "S0211", 8, "="),
        ("function($v)($v.p)", "S0202", 12, "("),
        ("$x := 1; $x+1", "S0201", 7, ";"),
        ("(a", "S0203", 2, "(end)"),
        ("", "S0207", 0, "(end)"),
    ],
)
def test_what_does_not_compile_is_refused_with_its_place(text: str, code: str, position: int, token: str) -> None:
    found = error(text)
    assert (found.code, found.position, found.token) == (code, position, token)
    assert found.is_syntax


def test_an_expression_may_not_be_endless() -> None:
    assert error("1" + " " * MAX_EXPRESSION_CHARS).code == TOO_LONG
    assert "nested too deeply" in error("(" * 5_000 + "1" + ")" * 5_000).message


@pytest.mark.parametrize("document", [{"a": float("nan")}, {"a": object()}, {"a": "\ud800"}, {"a": 10**400}])
def test_a_document_that_is_no_json_is_an_error_like_any_other(document: Any) -> None:
    assert error("a", document).code == BAD_INPUT


def test_a_document_nested_too_deeply_is_an_error() -> None:
    deep: Any = 1
    for _ in range(3_000):
        deep = [deep]
    assert error("a", {"a": deep}).code == BAD_INPUT


def test_a_result_nested_too_deeply_is_an_error() -> None:
    nested = "$reduce([1..{}], function($inner, $n) {{ {{'a': {{'a': $inner}}}} }}, 1)"
    assert error(nested.format(60)).code == TOO_DEEP
    assert error(nested.format(450)).code == TOO_DEEP
    assert value(nested.format(40)) is not UNDEFINED


def test_the_clock_is_the_callers_and_chance_repeats() -> None:
    assert value("$millis()") == NOW
    assert value("$now()") == "2023-11-14T22:13:20.000Z"
    assert value("$random()") == value("$random()")


def test_a_document_may_be_prepared_once() -> None:
    document = Document.of({"a": 2, "b": 3})
    assert compile_expression("a * b").evaluate(document, now=NOW) == 6
    assert compile_expression("$keys($)").evaluate(document, now=NOW) == ["a", "b"]


def test_leaving_out_what_is_not_read_changes_nothing() -> None:
    assert value("$keys($)", {"a": 1, "b": 2}) == ["a", "b"]
    assert value("$count($)", {"a": 1}) == 1
    assert value("*", {"a": 1, "b": 2}) == [1, 2]
    assert value("$lookup($, 'b')", {"a": 1, "b": 2}) == 2
    assert value("a.($$.b)", {"a": 1, "b": 2}) == 2


def test_reads_are_scoped() -> None:
    def fields(text: str) -> list[str]:
        return [".".join(read.path) for read in compile_expression(text).reads().fields]

    assert fields("$map(items, function($i) { $i.total })") == ["items.total"]
    assert sorted(fields("items[price > 0].qty")) == ["items.price", "items.qty"]
    assert fields("$const.rate * x") == ["x"]
    assert fields("$parent.price") == []
    assert fields("($v := a; $v.b)") == ["a.b"]
    assert compile_expression("$parent.price").reads().bindings == {"parent": (Read(("price",)),)}
    assert compile_expression("$count(items)").reads().fields == (Read(("items",), whole=False),)
    assert compile_expression("$eval(x)").reads().any_binding
    assert compile_expression("$").reads().fields == (Read(()),)


def test_one_module_knows_the_engine() -> None:
    root = Path(__file__).resolve().parents[3]
    sources = [path for package in ("engines", "tasks", "models") for path in (root / package).rglob("*.py")]
    assert [path.name for path in sources if "jlens" in path.read_text(encoding="utf-8")] == ["evaluation.py"]


def test_compiled_expressions_are_kept() -> None:
    assert compile_expression("a + 1") is compile_expression("a + 1")
    assert compile_expression.cache_info().maxsize == CACHED_EXPRESSIONS


LAYERS = (
    "( $rate := function($x) { $x * 2 }; $twice := function($v) { $rate($v) }; ['rate', 'twice'] )",
    "( $rate := function($x) { $x * 100 }; ['rate'] ) /* newer */",
)


def test_the_later_layer_wins_and_the_earlier_one_keeps_calling_its_own() -> None:
    library = compile_library(LAYERS, now=NOW)
    assert library.exports == ("rate", "twice")
    both = compile_expression("$twice(a) + $rate(b) /* end */", library.preludes)
    assert both.evaluate({"a": 1, "b": 1}, now=NOW) == 102
    assert sorted(read.path for read in both.reads().fields) == [("a",), ("b",)]
    assert both.reads().bindings == {}


def test_constants_are_seen_inside_a_library() -> None:
    library = compile_library(["( $net := function($x) { $x * $const.rate }; ['net'] )"], {"rate": 3}, now=NOW)
    expression = compile_expression("$net(a)", library.preludes)
    assert expression.evaluate({"a": 2}, {"const": {"rate": 3}}, now=NOW) == 6


def test_an_error_names_the_place_in_the_expression_not_in_the_library() -> None:
    library = compile_library(LAYERS, now=NOW)
    for text, position in (("   $rate(1) + null", 3), ("$rate(1) + a.(1 + null)", 14)):
        with pytest.raises(ExpressionError) as raised:
            compile_expression(text, library.preludes).evaluate({"a": 1}, now=NOW)
        assert raised.value.position == position
    with pytest.raises(ExpressionError, match="in a function of the library") as raised:
        compile_expression("$twice('x')", library.preludes).evaluate(now=NOW)
    assert raised.value.position is None


def test_an_expression_that_calls_nothing_goes_without_the_library() -> None:
    library = compile_library(LAYERS, now=NOW)
    assert compile_expression("a + 1", library.preludes).source == "a + 1"


@pytest.mark.parametrize(
    ("define", "words"),
    [
        ('$a := 1; ["a"]', "put the whole definition into brackets"),
        ('["a"]', "no block"),
        ('( ["a"] )', "binds nothing"),
        ("( $a := 1; [] )", "must end in a list"),
        ("( $a := 1; 5 )", "must end in a list"),
        ('( $a := 1; ["b"] )', '"b" is exported but not defined'),
        ('( $a := 1; ["a b"] )', '"a b" cannot be the name'),
        ("( $a := ", "does not compile"),
        ("", "does not compile"),
    ],
)
def test_a_bad_definition_is_refused_with_what_would_be_right(define: str, words: str) -> None:
    with pytest.raises(LibraryError) as raised:
        compile_library([LAYERS[0], define], now=NOW)
    assert words in raised.value.message
    assert raised.value.layer == 1


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("(a; b)", ["a", "b"]),
        ("/* x; ( */ ( $a := 'x;)'; $b := /[;(/)]\\)/; $c := 4 / 2; /* ; */ d ) /* ) */",
         ["$a := 'x;)'", "$b := /[;(/)]\\)/", "$c := 4 / 2", "/* ; */ d"]),
        ("( {'k;': (1; 2)}; `a;b`; \"\\\";\" )", ["{'k;': (1; 2)}", "`a;b`", '"\\";"']),
        ("(a) + (b)", None),
        ("$f(a; b)", None),
        ("a", None),
    ],
)  # fmt: skip
def test_a_block_is_cut_at_its_own_semicolons(text: str, parts: list[str] | None) -> None:
    assert statements(text) == parts


def test_a_budget_refuses_what_comes_after_the_time_is_used_up() -> None:
    times = iter([0.0, 3.0, 3.0, 6.0])
    budgeted = BudgetedEvaluator(evaluate_here, 5.0, lambda: next(times))
    assert [compile_expression("1").evaluate(now=NOW, evaluator=budgeted) for _ in range(2)] == [1, 1]
    with pytest.raises(ExpressionError, match="took all of the 5 s") as raised:
        compile_expression("1").evaluate(now=NOW, evaluator=budgeted)
    assert raised.value.code == NO_TIME_LEFT
