"""The vocabulary of view components: closed, complete for the example specs, and consistent in itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engines.valem.view_catalogue import view_catalogue

SHARED = Path(__file__).resolve().parents[4] / "shared" / "data"
SPECS = sorted((SHARED / "valem-examples").glob("*.json"))


def components(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [each for one in found for each in (one, *components(one.get("components") or []))]


def test_the_vocabulary_has_sixty_six_types_of_distinct_names() -> None:
    types = view_catalogue().types
    assert len(types) == 66
    assert len({name.lower() for name in types}) == 66
    assert {each.group for each in types.values()} == {group.name for group in view_catalogue().groups}


def test_fields_of_a_type_are_its_own_its_groups_and_everyones() -> None:
    table = view_catalogue().types["dataTable"]
    assert table.fields == {
        *("id", "type", "label", "helperText", "visible", "className"),
        *("bind", "tableColumns", "pageSize"),
    }
    assert table.needed == {"id", "type", "bind", "tableColumns"}
    assert table.own == ("tableColumns*", "pageSize")


def test_the_catalogue_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        view_catalogue().types["new"] = view_catalogue().types["label"]  # type: ignore[index]


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_components_of_an_example_spec_are_known(path: Path) -> None:
    views = json.loads(path.read_text(encoding="utf-8"))["viewDefinition"]["views"]
    for each in components([one for view in views for one in view["components"]]):
        kind = view_catalogue().types[each["type"]]
        assert set(each) <= kind.fields, each["id"]
