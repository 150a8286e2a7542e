"""Evolutions of a view: views and components by their ids, replaced in place or moved."""

from __future__ import annotations

from typing import Any

import pytest

from engines.valem.evolution.apply import apply_evolution
from engines.valem.evolution.errors import EvolutionError
from engines.valem.evolution.parse import parse_evolution
from engines.valem.findings import Finding
from engines.valem.spec.parse import parse_spec

BASE: dict[str, Any] = {
    "id": "m",
    "schema": {},
    "viewDefinition": {
        "defaultView": "main",
        "views": [
            {
                "id": "main",
                "components": [
                    {"id": "a", "type": "text"},
                    {
                        "id": "b",
                        "type": "group",
                        "components": [{"id": "c", "type": "group"}, {"id": "d", "type": "text"}],
                    },
                    {"id": "e", "type": "text"},
                ],
            },
            {"id": "other"},
        ],
    },
}


def evolve(evolution: dict[str, Any], base: dict[str, Any] = BASE) -> dict[str, Any]:
    spec = apply_evolution(parse_spec(base), parse_evolution(evolution), lambda spec: [])
    assert spec.view_definition is not None
    return dict(spec.view_definition.raw)


def outline(components: list[dict[str, Any]]) -> str:
    """``a b(c d) e``"""
    return " ".join(
        component["id"] + (f"({outline(component['components'])})" if component.get("components") else "")
        for component in components
    )


def placed(*changes: dict[str, Any]) -> str:
    changes = tuple({"viewId": "main", **change} for change in changes)
    return outline(evolve({"upsertComponents": list(changes)})["views"][0]["components"])


def refusal(evolution: dict[str, Any]) -> Finding:
    with pytest.raises(EvolutionError) as raised:
        evolve(evolution)
    (finding,) = raised.value.findings
    assert finding.hint
    return finding


def test_a_component_is_replaced_in_place_at_any_depth() -> None:
    views = evolve({"upsertComponents": [{"viewId": "main", "component": {"id": "c", "type": "list"}}]})["views"]
    assert outline(views[0]["components"]) == "a b(c d) e"
    assert views[0]["components"][1]["components"][0] == {"id": "c", "type": "list"}


def test_a_new_component_goes_to_the_end_or_where_it_is_told() -> None:
    assert placed({"component": {"id": "n"}}) == "a b(c d) e n"
    assert placed({"component": {"id": "n"}, "beforeId": "b"}) == "a n b(c d) e"
    assert placed({"component": {"id": "n"}, "beforeId": "d"}) == "a b(c n d) e"
    assert placed({"component": {"id": "n"}, "parentId": "b"}) == "a b(c d n) e"
    assert placed({"component": {"id": "n"}, "parentId": "b", "beforeId": "c"}) == "a b(n c d) e"
    assert placed({"component": {"id": "n"}, "parentId": "c"}) == "a b(c(n) d) e"


def test_with_a_parent_or_an_anchor_a_component_moves() -> None:
    assert placed({"component": {"id": "a"}, "parentId": "b"}) == "b(c d a) e"
    assert placed({"component": {"id": "e"}, "beforeId": "a"}) == "e a b(c d)"
    assert placed({"component": {"id": "d"}, "beforeId": "c"}) == "a b(d c) e"
    assert placed({"component": {"id": "d"}, "beforeId": "e"}) == "a b(c) d e"


def test_changes_are_made_one_after_the_other() -> None:
    assert placed({"component": {"id": "n"}}, {"component": {"id": "o"}, "parentId": "n"}) == "a b(c d) e n(o)"


def test_components_are_removed_with_all_they_hold() -> None:
    views = evolve({"removeComponents": [{"viewId": "main", "componentId": part} for part in ("d", "b")]})["views"]
    assert outline(views[0]["components"]) == "a e"


def test_views_are_removed_replaced_and_appended() -> None:
    evolved = evolve(
        {
            "removeViews": ["other"],
            "upsertViews": [{"id": "new"}, {"id": "main", "label": "M"}],
            "upsertComponents": [{"viewId": "new", "component": {"id": "x"}}],
            "newDefaultView": "new",
        }
    )
    assert evolved == {
        "defaultView": "new",
        "views": [{"id": "main", "label": "M"}, {"id": "new", "components": [{"id": "x"}]}],
    }


def test_a_spec_without_views_gets_its_first_one() -> None:
    evolved = evolve({"upsertViews": [{"id": "v"}], "newDefaultView": "v"}, {"id": "m", "schema": {}})
    assert evolved == {"views": [{"id": "v"}], "defaultView": "v"}


@pytest.mark.parametrize(
    ("change", "location"),
    [
        ({"component": {"id": "b"}, "parentId": "b"}, "upsertComponents[0].parentId"),
        ({"component": {"id": "b"}, "parentId": "c"}, "upsertComponents[0].parentId"),
        ({"component": {"id": "b"}, "beforeId": "d"}, "upsertComponents[0].beforeId"),
        ({"component": {"id": "b"}, "beforeId": "b"}, "upsertComponents[0].beforeId"),
    ],
)
def test_a_component_cannot_move_into_itself(change: dict[str, Any], location: str) -> None:
    finding = refusal({"upsertComponents": [{"viewId": "main", **change}]})
    assert finding.location == location
    assert "itself or inside it" in finding.message


@pytest.mark.parametrize(
    ("evolution", "location"),
    [
        ({"removeViews": ["nope"]}, "removeViews[0]"),
        ({"removeViews": ["other", "other"]}, "removeViews[1]"),
        ({"upsertViews": [{"label": "x"}]}, "upsertViews[0]"),
        ({"upsertViews": [{"id": 3}]}, "upsertViews[0]"),
        ({"removeComponents": [{"viewId": "nope", "componentId": "a"}]}, "removeComponents[0].viewId"),
        ({"removeComponents": [{"viewId": "main", "componentId": "z"}]}, "removeComponents[0].componentId"),
        ({"upsertComponents": [{"viewId": "nope", "component": {"id": "x"}}]}, "upsertComponents[0].viewId"),
        ({"upsertComponents": [{"viewId": "main", "component": {"type": "x"}}]}, "upsertComponents[0].component"),
        (
            {"upsertComponents": [{"viewId": "main", "component": {"id": "x"}, "parentId": "z"}]},
            "upsertComponents[0].parentId",
        ),
        (
            {"upsertComponents": [{"viewId": "main", "component": {"id": "x"}, "beforeId": "z"}]},
            "upsertComponents[0].beforeId",
        ),
        (
            {"upsertComponents": [{"viewId": "main", "component": {"id": "x"}, "parentId": "b", "beforeId": "a"}]},
            "upsertComponents[0].beforeId",
        ),
    ],
)
def test_what_is_not_there_is_named(evolution: dict[str, Any], location: str) -> None:
    assert refusal(evolution).location == location


def test_a_refusal_tells_which_names_there_are() -> None:
    assert refusal({"removeViews": ["nope"]}).hint == 'the views there are "main", "other"'
    missing = refusal({"removeComponents": [{"viewId": "main", "componentId": "z"}]})
    assert missing.hint == 'the components there are "a", "b", "e", "c", "d"'
