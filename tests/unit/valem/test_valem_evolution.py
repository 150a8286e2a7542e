"""Evolutions: read, applied tier by tier, and refused with the reason."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from engines.valem.evolution.apply import apply_evolution, check_expected_version
from engines.valem.evolution.errors import EvolutionError, VersionConflict
from engines.valem.evolution.parse import parse_evolution
from engines.valem.evolution.records import SpecEvolution
from engines.valem.findings import Finding, Severity
from engines.valem.jsonata.errors import ExpressionError
from engines.valem.jsonata.evaluation import compile_text
from engines.valem.spec.nodes import SpecParseError
from engines.valem.spec.parse import dump_spec, parse_spec
from engines.valem.spec.records import ModelSpec
from engines.valem.spec.validate import validate_spec

VECTORS = Path(__file__).parents[4] / "shared" / "data" / "valem-vectors.json"

BASE: dict[str, Any] = {
    "id": "shop.eu/order",
    "version": "1.0.0",
    "schema": {
        "type": "object",
        "properties": {
            "price": {"type": "number"},
            "seller": {"$ref": "#/$defs/Party"},
            "items": {"type": "array", "items": {"properties": {"sku": {"type": "string"}}, "required": ["sku"]}},
        },
        "required": ["price"],
        "$defs": {"Party": {"properties": {"city": {"type": "string"}}}},
    },
    "constants": {"rate": 0.2, "rates": 3, "spare": 1},
    "library": {
        "define": '($twice := function($x) {$x * 2}; $half := function($x) {$x / 2}; ["twice", "half"])',
        "layers": [{"define": '($round2 := function($x) {$round($x, 2)}; ["round2"])', "extends": "base@1.0.0"}],
    },
    "defaultValues": [{"path": "$", "expr": '{"price": 0}'}],
    "derivations": [
        {"path": "$.tax", "expr": "price * $const.rate"},
        {"path": "$.double", "expr": "$twice(price)"},
        {"path": "$.total", "expr": "price + tax"},
    ],
    "metaDerivations": [{"path": "$.price", "property": "readOnly", "expr": "total > 9"}],
    "constraints": [{"id": "positive", "expr": "price >= 0", "policy": "rollback", "message": "too low"}],
    "effects": [{"id": "mail", "executor": "caller", "trigger": "total > 1", "emit": "mail"}],
    "tests": [{"given": {"$.price": 1}, "expect": {"$.double": 2}}],
    "viewDefinition": {
        "defaultView": "main",
        "views": [
            {
                "id": "main",
                "components": [
                    {"id": "head", "type": "button", "label": "Order"},
                    {"id": "box", "type": "group", "components": [{"id": "inner", "type": "group", "components": []}]},
                    {"id": "foot", "type": "button"},
                ],
            },
            {"id": "other"},
        ],
    },
    "template": {"ref": "shop.eu/old@1.0.0"},
    "lineage": [{"ref": "shop.eu/old@1.0.0"}],
}


def no_findings(spec: ModelSpec) -> list[Finding]:
    return []


def evolve(evolution: dict[str, Any], base: dict[str, Any] = BASE) -> dict[str, Any]:
    """The JSON form of the evolved spec."""
    return dump_spec(apply_evolution(parse_spec(base), parse_evolution(evolution), no_findings))


def refusal(evolution: dict[str, Any], base: dict[str, Any] = BASE) -> Finding:
    before = copy.deepcopy(base)
    with pytest.raises(EvolutionError) as raised:
        evolve(evolution, base)
    assert base == before
    (finding,) = raised.value.findings
    assert raised.value.misfit
    assert finding.is_error
    assert finding.hint
    return finding


def compiling_only(spec: ModelSpec) -> list[Finding]:
    """A validator that knows one rule."""
    findings = [Finding("derivations", "looks odd", Severity.WARNING)]
    for at, item in enumerate(spec.derivations):
        try:
            compile_text(item.expr)
        except ExpressionError as error:
            findings.append(Finding(f"derivations[{at}].expr", error.message))
    return findings


@pytest.mark.skipif(not VECTORS.exists(), reason="the recorded evolutions are not here")
def test_recorded_evolutions_are_reproduced() -> None:
    data = json.loads(VECTORS.read_text())
    base = parse_spec(data["evolution_base"])
    assert data["evolution"]
    for vector in data["evolution"]:
        evolution = parse_evolution(vector["evo"])
        if vector["result"] is None:
            with pytest.raises(EvolutionError) as raised:
                apply_evolution(base, evolution, validate_spec)
            assert raised.value.misfit is not ("Evolved spec failed validation" in vector["error"])
        else:
            assert apply_evolution(base, evolution, validate_spec) == parse_spec(vector["result"])


def test_the_tests_own_base_is_a_valid_spec() -> None:
    assert [finding for finding in validate_spec(parse_spec(BASE)) if finding.is_error] == []


def test_nothing_in_an_evolution_changes_nothing() -> None:
    assert (
        parse_evolution({"unknown": 1, "newSchema": None, "upsertEffects": None, "newTests": None}) == SpecEvolution()
    )
    assert evolve({}) == dump_spec(parse_spec(BASE))


def test_the_base_stays_as_it_is_and_shares_nothing_that_changes() -> None:
    before = copy.deepcopy(BASE)
    evolved = evolve(
        {
            "upsertSchemaNodes": [{"path": "$.items[*].n", "schema": {"type": "integer"}, "required": True}],
            "upsertComponents": [{"viewId": "main", "parentId": "inner", "component": {"id": "x", "type": "button"}}],
        }
    )
    assert evolved["schema"] != BASE["schema"]
    assert before == BASE


def test_id_template_and_lineage_are_kept() -> None:
    evolved = evolve({"newVersion": "2.0.0", "id": "other", "template": None, "lineage": []})
    assert (evolved["id"], evolved["template"], evolved["lineage"]) == (BASE["id"], BASE["template"], BASE["lineage"])
    assert evolved["version"] == "2.0.0"


@pytest.mark.parametrize(
    ("name", "key", "made", "section"),
    [
        ("Derivations", "path", lambda key: {"path": key, "expr": "1"}, "derivations"),
        ("DefaultValues", "path", lambda key: {"path": key, "expr": "{}"}, "defaultValues"),
        ("Constraints", "id", lambda key: {"id": key, "expr": "1", "policy": "flag"}, "constraints"),
        ("Effects", "id", lambda key: {"id": key, "executor": "caller", "trigger": "1", "emit": "e"}, "effects"),
    ],
)
def test_lists_keep_positions_append_in_order_and_move_on_request(name: str, key: str, made: Any, section: str) -> None:
    base = {"id": "m", "schema": {}, section: [made("$.a"), made("$.b"), made("$.c")]}

    def keys(evolution: dict[str, Any]) -> list[str]:
        return [item[key] for item in evolve(evolution, base)[section]]

    upsert, remove = f"upsert{name}", f"remove{name}"
    assert keys({upsert: [made("$.z"), made("$.b"), made("$.y"), made("$.x")]}) == [
        "$.a", "$.b", "$.c", "$.z", "$.y", "$.x",
    ]  # fmt: skip
    assert keys({remove: ["$.a"], upsert: [made("$.z"), made("$.a")]}) == ["$.b", "$.c", "$.z", "$.a"]
    assert keys({remove: ["$.a", "$.nope"]}) == ["$.b", "$.c"]
    changed = evolve({upsert: [made("$.b") | {"description": "x"} if name != "Constraints" else made("$.b")]}, base)
    assert [item[key] for item in changed[section]] == ["$.a", "$.b", "$.c"]


def test_of_two_upserts_of_a_key_the_last_one_counts() -> None:
    twice = [{"path": "$.new", "expr": "1"}, {"path": "$.tax", "expr": "2"}, {"path": "$.new", "expr": "3"}]
    evolved = evolve({"upsertDerivations": twice})["derivations"]
    assert [(item["path"], item["expr"]) for item in evolved] == [
        ("$.tax", "2"),
        ("$.double", "$twice(price)"),
        ("$.total", "price + tax"),
        ("$.new", "3"),
    ]


def test_meta_derivations_are_known_by_path_and_property() -> None:
    upsert = {"path": "$.price", "property": "readOnly", "expr": "false"}
    assert evolve({"upsertMetaDerivations": [upsert]})["metaDerivations"] == [upsert]
    for name in ("$.price#read_only", "$.price#readOnly"):
        assert "metaDerivations" not in evolve({"removeMetaDerivations": [name]})
    other = {"path": "$.price", "property": "minLength", "expr": "1"}
    kept = evolve({"removeMetaDerivations": ["$.price", "$.price#minimum"], "upsertMetaDerivations": [other]})
    assert kept["metaDerivations"] == [*BASE["metaDerivations"], other]


def test_an_item_without_a_key_is_left_for_the_validator() -> None:
    evolved = evolve({"upsertConstraints": [{"expr": "1"}, {"expr": "2"}]})
    assert evolved["constraints"] == [*BASE["constraints"], {"expr": "1"}, {"expr": "2"}]


@pytest.mark.parametrize(
    ("evolution", "location"),
    [
        ({"newSchema": {}, "removeSchemaNodes": ["$.price"]}, "newSchema"),
        ({"newSchema": {}, "upsertSchemaNodes": [{"path": "$.x", "schema": {}}]}, "newSchema"),
        ({"newSchema": {}, "upsertSchemaDefs": {"X": {}}}, "newSchema"),
        ({"newSchema": {}, "removeSchemaDefs": ["X"]}, "newSchema"),
        ({"newViewDefinition": {}, "removeViews": ["main"]}, "newViewDefinition"),
        ({"newViewDefinition": {}, "upsertViews": [{"id": "x"}]}, "newViewDefinition"),
        ({"newViewDefinition": {}, "newDefaultView": "x"}, "newViewDefinition"),
        ({"newViewDefinition": {}, "removeComponents": [{"viewId": "a", "componentId": "b"}]}, "newViewDefinition"),
        ({"newViewDefinition": {}, "upsertComponents": [{"viewId": "a", "component": {}}]}, "newViewDefinition"),
        ({"newConstants": {}, "upsertConstants": {"x": 1}}, "newConstants"),
        ({"newConstants": {}, "removeConstants": ["spare"]}, "newConstants"),
    ],
)
def test_a_whole_section_and_parts_of_it_exclude_each_other(evolution: dict[str, Any], location: str) -> None:
    assert refusal(evolution).location == location


def test_null_and_empty_parts_count_as_absent() -> None:
    assert evolve({"newSchema": None, "newViewDefinition": None, "newConstants": None}) == evolve({})
    assert evolve({"newSchema": {"type": "object"}, "removeSchemaNodes": [], "upsertSchemaDefs": {}})["schema"] == {
        "type": "object"
    }


def test_whole_sections_are_replaced() -> None:
    evolved = evolve({"newSchema": {"a": 1}, "newViewDefinition": {"views": []}, "newConstants": {"k": 1}})
    assert (evolved["schema"], evolved["viewDefinition"], evolved["constants"]) == ({"a": 1}, {"views": []}, {"k": 1})


def test_a_node_creates_what_is_missing_on_its_way_and_edits_required() -> None:
    schema = evolve(
        {
            "upsertSchemaNodes": [
                {"path": "$.new.deep[*].x", "schema": {"type": "string"}, "required": True},
                {"path": "$.items[*].sku", "schema": {"type": "integer"}, "required": False},
                {"path": "$.price", "schema": {"type": "integer"}},
                {"path": "$.tags", "schema": {"type": "array"}, "required": True},
                {"path": "$.tags[*]", "schema": {"type": "string"}},
                {"path": "$.tags", "schema": {"type": "array"}, "required": True},
            ]
        }
    )["schema"]
    made = {"properties": {"deep": {"items": {"properties": {"x": {"type": "string"}}, "required": ["x"]}}}}
    assert schema["properties"]["new"] == made
    assert schema["properties"]["items"]["items"] == {"properties": {"sku": {"type": "integer"}}, "required": []}
    assert list(schema["properties"]) == ["price", "seller", "items", "new", "tags"]
    assert schema["properties"]["price"] == {"type": "integer"}
    assert schema["properties"]["tags"] == {"type": "array"}
    assert schema["required"] == ["price", "tags"]


def test_a_removed_node_leaves_its_parents_list() -> None:
    schema = evolve({"removeSchemaNodes": ["$.price", "$.items[*].sku"]})["schema"]
    assert "price" not in schema["properties"]
    assert schema["required"] == []
    assert schema["properties"]["items"]["items"] == {"properties": {}, "required": []}
    assert "items" not in evolve({"removeSchemaNodes": ["$.items[*]"]})["schema"]["properties"]["items"]


@pytest.mark.parametrize(
    ("evolution", "location", "words"),
    [
        ({"removeSchemaNodes": ["$.nope"]}, "removeSchemaNodes[0]", "no field $.nope"),
        ({"removeSchemaNodes": ["$.nope.deeper"]}, "removeSchemaNodes[0]", "no field $.nope.deeper"),
        ({"removeSchemaNodes": ["$.price", "$.price"]}, "removeSchemaNodes[1]", "no field $.price"),
        ({"removeSchemaNodes": ["$.seller.city"]}, "removeSchemaNodes[0]", "#/$defs/Party"),
        ({"removeSchemaNodes": ["$"]}, "removeSchemaNodes[0]", "root $"),
        ({"removeSchemaNodes": ["price"]}, "removeSchemaNodes[0]", "not a canonical address"),
        ({"upsertSchemaNodes": [{"path": "$", "schema": {}}]}, "upsertSchemaNodes[0]", "root $"),
        ({"upsertSchemaNodes": [{"path": "$.a.0.b", "schema": {}}]}, "upsertSchemaNodes[0]", "not a canonical address"),
        ({"upsertSchemaNodes": [{"path": "$.items[0].n", "schema": {}}]}, "upsertSchemaNodes[0]", "one element"),
        ({"upsertSchemaNodes": [{"path": "$.seller.city", "schema": {}}]}, "upsertSchemaNodes[0]", "#/$defs/Party"),
        ({"upsertSchemaNodes": [{"path": "$.a", "schema": True}]}, "upsertSchemaNodes[0].schema", "boolean true"),
        ({"upsertSchemaNodes": [{"path": "$.a"}]}, "upsertSchemaNodes[0].schema", "null"),
        (
            {"upsertSchemaNodes": [{"path": "$.items[*]", "schema": {}, "required": True}]},
            "upsertSchemaNodes[0].required",
            "property",
        ),
        ({"upsertSchemaDefs": {"Party": None}}, "upsertSchemaDefs.Party", "null"),
        ({"removeSchemaDefs": ["Party"]}, "removeSchemaDefs[0]", "still referenced at $.properties.seller"),
    ],
)
def test_changes_that_do_not_fit_the_schema_are_refused(evolution: dict[str, Any], location: str, words: str) -> None:
    finding = refusal(evolution)
    assert finding.location == location
    assert words in finding.message


def test_a_misspelt_node_path_is_offered_in_its_right_form() -> None:
    assert refusal({"removeSchemaNodes": ["items.0.sku"]}).hint == "write $.items[0].sku"
    assert refusal({"upsertSchemaNodes": [{"path": "$.items[0].n", "schema": {}}]}).hint == "write $.items[*].n"


def test_a_way_blocked_by_something_else_is_refused() -> None:
    base = {"id": "m", "schema": {"properties": {"a": True, "b": {"properties": 3}}}}
    for path in ("$.a.x", "$.b.x"):
        assert "not an object" in refusal({"upsertSchemaNodes": [{"path": path, "schema": {}}]}, base).message


def test_the_referring_node_itself_can_be_replaced_and_then_its_definition_goes() -> None:
    evolved = evolve(
        {
            "upsertSchemaNodes": [{"path": "$.seller", "schema": {"type": "string"}}],
            "removeSchemaDefs": ["Party", "Nope"],
        }
    )
    assert evolved["schema"]["properties"]["seller"] == {"type": "string"}
    assert evolved["schema"]["$defs"] == {}


def test_definitions_are_upserted_before_anything_looks_at_them() -> None:
    evolved = evolve(
        {
            "upsertSchemaDefs": {"Party": {"type": "object"}, "City": {"type": "string"}},
            "upsertSchemaNodes": [{"path": "$.city", "schema": {"$ref": "#/$defs/City"}}],
        }
    )
    assert list(evolved["schema"]["$defs"]) == ["Party", "City"]
    assert evolved["schema"]["$defs"]["Party"] == {"type": "object"}


@pytest.mark.parametrize(
    ("node", "referenced"),
    [
        ({"anyOf": [{"$ref": "#/$defs/A~1b"}]}, True),
        ({"$ref": "#/$defs/A~1b/properties/c"}, True),
        ({"$ref": "#/$defs/A~1bc"}, False),
        ({"properties": {"$ref": {"const": "#/$defs/A~1b"}}}, False),
        ({"properties": {"$ref": {"$ref": "#/$defs/A~1b"}}}, True),
    ],
)
def test_references_are_found_wherever_they_are(node: dict[str, Any], referenced: bool) -> None:
    base = {"id": "m", "schema": {"properties": {"x": node}, "$defs": {"A/b": {}}}}
    if referenced:
        assert "$.properties.x" in refusal({"removeSchemaDefs": ["A/b"]}, base).message
    else:
        assert evolve({"removeSchemaDefs": ["A/b"]}, base)["schema"]["$defs"] == {}


def test_a_used_constant_cannot_be_removed_even_when_its_user_changes() -> None:
    rewritten = [{"path": "$.tax", "expr": "price"}]
    for evolution in ({"removeConstants": ["rate"]}, {"removeConstants": ["rate"], "upsertDerivations": rewritten}):
        finding = refusal(evolution)
        assert finding.location == "removeConstants[0]"
        assert "$const.rate is still referenced at derivations[0] ($.tax)" in finding.message


@pytest.mark.parametrize(
    ("expr", "name", "used"),
    [
        ("$const.rates", "rate", False),
        ("$const.rate", "rates", False),
        ("$const . rate * 2", "rate", True),
        ("$const.`rate`", "rate", True),
        ("$const.spare", "spare", True),
        ("$constant.spare", "spare", False),
        ("const.spare", "spare", False),
    ],
)
def test_a_reference_to_a_constant_ends_where_its_name_ends(expr: str, name: str, used: bool) -> None:
    base = {"id": "m", "schema": {}, "constants": {"rate": 1, "rates": 2, "spare": 3}}
    base["constraints"] = [{"id": "c", "expr": expr, "policy": "flag"}]
    if used:
        assert "constraints[0] (c)" in refusal({"removeConstants": [name]}, base).message
    else:
        assert name not in evolve({"removeConstants": [name]}, base)["constants"]


@pytest.mark.parametrize(
    ("section", "place"),
    [
        ({"effects": [{"id": "e", "trigger": "1", "payload": {"a": "$const.k"}}]}, "effects[0] (e)"),
        ({"effects": [{"id": "e", "trigger": "1", "request": {"url": "{$const.k}"}}]}, "effects[0] (e)"),
        ({"viewDefinition": {"views": [{"id": "v", "components": [{"text": "$const.k"}]}]}}, "viewDefinition (v)"),
        ({"library": '($f := function() {$const.k}; ["f"])'}, "library, layer 1"),
        ({"metaDerivations": [{"path": "$.a", "property": "minimum", "expr": "$const.k"}]}, "metaDerivations[0] ($.a)"),
        ({"defaultValues": [{"path": "$", "expr": '{"a": $const.k}'}]}, "defaultValues[0] ($)"),
    ],
)
def test_constants_are_looked_for_in_every_section(section: dict[str, Any], place: str) -> None:
    base = {"id": "m", "schema": {}, "constants": {"k": 1}, **section}
    assert f"still referenced at {place}" in refusal({"removeConstants": ["k"]}, base).message


def test_constants_keep_positions_and_move_on_request() -> None:
    evolved = evolve({"removeConstants": ["spare", "nope"], "upsertConstants": {"new": 1, "rate": 2}})["constants"]
    assert list(evolved.items()) == [("rate", 2), ("rates", 3), ("new", 1)]
    moved = evolve({"removeConstants": ["rate"], "upsertConstants": {"rate": 5}})["constants"]
    assert list(moved.items()) == [("rates", 3), ("spare", 1), ("rate", 5)]


def test_the_library_is_kept_replaced_or_dropped() -> None:
    unused = copy.deepcopy(BASE)
    unused["derivations"] = []
    layers = BASE["library"]["layers"]
    new = '($triple := function($x) {$x * 3}; ["triple"])'
    assert evolve({}, unused)["library"] == BASE["library"]
    assert evolve({"newLibrary": None}, unused)["library"] == {"layers": layers}
    assert evolve({"newLibrary": new}, unused)["library"] == {"define": new, "layers": layers}
    assert evolve({"newLibrary": {"define": new, "layers": layers}}, unused)["library"]["layers"] == layers
    del unused["library"]["layers"]
    assert "library" not in evolve({"newLibrary": None}, unused)
    del unused["library"]
    assert evolve({"newLibrary": new}, unused)["library"] == {"define": new}
    assert "library" not in evolve({"newLibrary": None}, unused)


def test_inherited_layers_cannot_be_changed() -> None:
    finding = refusal({"newLibrary": {"define": BASE["library"]["define"], "layers": [{"define": '($x := 1; ["x"])'}]}})
    assert finding.location == "newLibrary.layers"


@pytest.mark.parametrize("new", [None, '($half := function($x) {$x / 2}; ["half"])'])
def test_a_function_that_is_still_called_cannot_be_dropped(new: str | None) -> None:
    finding = refusal({"newLibrary": new})
    assert finding.location == "newLibrary"
    assert "$twice is dropped and still called at derivations[1] ($.double)" in finding.message


@pytest.mark.parametrize(
    ("expr", "called"),
    [
        ("$map(items, $twice)", True),
        ("($twice := function($x) {$x}; $twice(price))", False),
        ("$twices(price)", False),
        ("'$twice(x)'", False),
    ],
)
def test_what_counts_as_a_call_of_a_dropped_function(expr: str, called: bool) -> None:
    evolution = {"newLibrary": None, "upsertDerivations": [{"path": "$.double", "expr": expr}]}
    if called:
        assert "$twice" in refusal(evolution).message
    else:
        assert evolve(evolution)["library"] == {"layers": BASE["library"]["layers"]}


def test_one_evolution_may_drop_a_function_and_rewrite_its_callers() -> None:
    evolved = evolve({"newLibrary": None, "upsertDerivations": [{"path": "$.double", "expr": "price * 2"}]})
    assert evolved["library"] == {"layers": BASE["library"]["layers"]}


def test_tests_are_replaced_cleared_or_kept() -> None:
    new = [{"description": "n", "given": {}, "expect": {"$.a": None}}]
    assert evolve({"newTests": new})["tests"] == new
    assert "tests" not in evolve({"newTests": []})
    assert evolve({})["tests"] == BASE["tests"]


@pytest.mark.parametrize(("expected", "stored"), [("1.0.0", 4), (4, 4), (None, 4), ("1.0.0", None)])
def test_an_evolution_for_the_current_version_is_no_conflict(expected: str | int | None, stored: int | None) -> None:
    check_expected_version(parse_evolution({"expectedVersion": expected}), "1.0.0", stored)


@pytest.mark.parametrize(("expected", "stored"), [("0.9.0", 4), (3, 4), (4, None)])
def test_an_evolution_for_another_version_is_a_conflict(expected: str | int, stored: int | None) -> None:
    evolution = parse_evolution({"expectedVersion": expected})
    with pytest.raises(VersionConflict, match=f"not {expected}; read it again"):
        check_expected_version(evolution, "1.0.0", stored)
    assert apply_evolution(parse_spec(BASE), evolution, no_findings) == parse_spec(BASE)


def test_an_invalid_result_is_refused_with_all_its_errors() -> None:
    bad = {"upsertDerivations": [{"path": "$.tax", "expr": "(a"}, {"path": "$.total", "expr": "a mod b"}]}
    with pytest.raises(EvolutionError) as raised:
        apply_evolution(parse_spec(BASE), parse_evolution(bad), compiling_only)
    assert [finding.location for finding in raised.value.findings] == ["derivations[0].expr", "derivations[2].expr"]
    assert not raised.value.misfit
    again = copy.copy(raised.value)  # as a result backend or a process pool rebuilds it
    assert (again.findings, again.misfit) == (raised.value.findings, False)


def test_warnings_refuse_nothing() -> None:
    assert apply_evolution(parse_spec(BASE), SpecEvolution(), compiling_only) == parse_spec(BASE)


@pytest.mark.parametrize(
    ("evolution", "location"),
    [
        ([], ""),
        ({"upsertDerivations": [{"path": "$.a"}]}, "upsertDerivations[0].expr"),
        ({"upsertDerivations": [None]}, "upsertDerivations[0]"),
        ({"removeDerivations": [3]}, "removeDerivations[0]"),
        ({"removeDerivations": "x"}, "removeDerivations"),
        ({"upsertConstraints": [{"policy": "warn"}]}, "upsertConstraints[0].policy"),
        ({"newSchema": []}, "newSchema"),
        ({"upsertSchemaNodes": [{"schema": {}}]}, "upsertSchemaNodes[0].path"),
        ({"upsertSchemaNodes": [{"path": "$.a", "required": ["a"]}]}, "upsertSchemaNodes[0].required"),
        ({"upsertViews": ["main"]}, "upsertViews[0]"),
        ({"upsertComponents": [{"viewId": "v"}]}, "upsertComponents[0].component"),
        ({"removeComponents": [{"viewId": "v"}]}, "removeComponents[0].componentId"),
        ({"newTests": [{"expect": {}}]}, "newTests[0].given"),
        ({"expectedVersion": True}, "expectedVersion"),
        ({"expectedVersion": 1.5}, "expectedVersion"),
        ({"upsertActions": [{}]}, "upsertActions"),
    ],
)
def test_what_cannot_be_read_is_named_with_its_place(evolution: Any, location: str) -> None:
    with pytest.raises(SpecParseError) as raised:
        parse_evolution(evolution)
    assert raised.value.location == location
