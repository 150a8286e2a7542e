"""Dependencies of a spec: who reads whom, in which order, and which circles are none."""

from __future__ import annotations

from typing import Any

import pytest

from engines.valem.compiled import CompileError, compile_spec
from engines.valem.spec.graph import Cycle, Dependencies, dependencies, evaluation_order
from engines.valem.spec.parse import parse_spec


def graph(*derivations: tuple[str, str], **parts: Any) -> Dependencies:
    items = [{"path": path, "expr": expr} for path, expr in derivations]
    return dependencies(parse_spec({"id": "m", "schema": {}, "derivations": items, **parts}))


def order(*derivations: tuple[str, str]) -> list[str]:
    found = graph(*derivations)
    positions = evaluation_order(found)
    assert not isinstance(positions, Cycle), str(positions)
    return [found.derivations[at].name for at in positions]


def cycle(*derivations: tuple[str, str]) -> tuple[str, ...]:
    found = evaluation_order(graph(*derivations))
    assert isinstance(found, Cycle)
    return found.paths


def test_a_derivation_comes_after_what_it_reads_wherever_it_is_declared() -> None:
    assert order(("$.c", "b + 1"), ("$.b", "a + 1"), ("$.a", "x")) == ["$.a", "$.b", "$.c"]


def test_a_sum_over_an_array_comes_after_the_elements_derived_fields() -> None:
    found = order(("$.total", "$sum(items.lineTotal)"), ("$.items[*].lineTotal", "$parent.price * $parent.qty"))
    assert found == ["$.items[*].lineTotal", "$.total"]


def test_what_an_expression_binds_itself_is_no_circle() -> None:
    assert order(
        ("$.rate", "$const.rate * 2"),
        ("$.total", "$sum($map(items, function($i) { $i.total }))"),
        ("$.price", "$sum(items[price > 0].qty)"),
        ("$.x", "($x := y; $x * 2)"),
    )


def test_an_element_reads_its_siblings_through_the_parent_binding() -> None:
    found = order(("$.rows[*].b", "$parent.a + 1"), ("$.rows[*].a", "$parent.x"), ("$.c", "rows[0].b"))
    assert found == ["$.rows[*].a", "$.rows[*].b", "$.c"]
    assert cycle(("$.rows[*].a", "$parent.b"), ("$.rows[*].b", "$parent.a"))


def test_counting_elements_does_not_wait_for_what_is_filled_into_them() -> None:
    assert order(("$.n", "$count(items)"), ("$.items[*].share", "$parent.x / n")) == ["$.n", "$.items[*].share"]
    assert cycle(("$.n", "$sum(items.share)"), ("$.items[*].share", "$parent.x / n"))


def test_whether_an_object_is_there_waits_for_what_is_derived_in_it() -> None:
    assert order(("$.has", "$exists(o)"), ("$.o.x", "1")) == ["$.o.x", "$.has"]


def test_reading_a_container_of_the_own_field_is_no_circle_and_reading_the_field_is() -> None:
    assert order(("$.order.total", "$sum($lookup(order, 'prices'))")) == ["$.order.total"]
    assert cycle(("$.order.total", "order.total + 1")) == ("$.order.total", "$.order.total")
    assert cycle(("$.rows[*].n", "$max(rows.n) + 1")) == ("$.rows[*].n", "$.rows[*].n")


def test_a_circle_is_shown_with_every_path_in_it_and_none_outside() -> None:
    paths = cycle(("$.first", "a"), ("$.a", "b"), ("$.b", "c"), ("$.c", "a"))
    assert paths[0] == paths[-1]
    assert set(paths) == {"$.a", "$.b", "$.c"}
    exprs = [("$.a", "b"), ("$.b", "c"), ("$.c", "a")]
    spec = parse_spec({"id": "m", "schema": {}, "derivations": [{"path": path, "expr": expr} for path, expr in exprs]})
    with pytest.raises(CompileError, match=r"\$\.a → \$\.b → \$\.c → \$\.a"):
        compile_spec(spec, now=0)


def test_containers_come_before_what_is_put_into_them() -> None:
    assert order(("$.box.size", "x"), ("$.box", "{ 'colour': y }")) == ["$.box", "$.box.size"]


def test_every_reader_of_a_spec_is_in_the_graph() -> None:
    found = graph(
        ("$.a", "x"),
        metaDerivations=[
            {"path": "$.b", "property": "readOnly", "expr": "a > 1"},
            {"path": "$.rows[*].n", "property": "maximum", "expr": "limit"},
        ],
        constraints=[
            {"id": "whole", "expr": "y > 0", "policy": "flag"},
            {"id": "one", "path": "$.year", "expr": "$ > 1900", "policy": "flag"},
            {"id": "each", "path": ["$.rows[*].n", "$.z"], "expr": "$ > 0", "policy": "flag"},
        ],
        effects=[{"id": "tell", "trigger": "a > 2", "payload": {"p": "q"}}],
    )
    assert [node.name for node in found.metas] == ["$.b#read_only", "$.rows[*].n#maximum"]
    assert [[read.path for read in node.reads] for node in (*found.metas, *found.constraints, *found.effects)] == [
        [("a",)], [("rows", "limit")], [("y",)], [("year",)], [("rows", "n"), ("z",)], [("a",), ("q",)],
    ]  # fmt: skip
    assert found.feeders(found.metas[0]) == frozenset({0})
    assert found.feeders(found.constraints[0]) == frozenset()


@pytest.mark.parametrize(
    ("parts", "location"),
    [
        ({"derivations": [{"path": "a", "expr": "1"}]}, "derivations[0]"),
        ({"derivations": [{"path": "$.a", "expr": "1 +"}]}, "derivations[0]"),
        ({"metaDerivations": [{"path": "$.a", "property": "enum", "expr": "("}]}, "metaDerivations[0]"),
        ({"defaultValues": [{"path": "$.a.0", "expr": "1"}]}, "defaultValues[0]"),
        ({"constraints": [{"id": "c", "expr": "a"}]}, "constraints[0]"),
        ({"constraints": [{"id": "c", "expr": "a", "policy": "flag", "path": "b"}]}, "constraints[0]"),
        ({"effects": [{"id": "e", "trigger": "a b"}]}, "effects"),
        ({"library": "( $f := 1 )"}, "library"),
        ({"library": {"layers": ["$"]}}, "library.layers[0]"),
    ],
)
def test_what_keeps_a_spec_from_running_is_named_with_its_place(parts: dict[str, Any], location: str) -> None:
    with pytest.raises(CompileError) as raised:
        compile_spec(parse_spec({"id": "m", "schema": {}, **parts}), now=0)
    assert raised.value.location == location
