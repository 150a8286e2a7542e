"""The validator: every kind of mistake gets its own finding, at its place, with what would be right."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from engines.valem.findings import Finding
from engines.valem.jsonata.expression import compile_expression
from engines.valem.spec.checks.names import BUILT_IN
from engines.valem.spec.parse import parse_spec
from engines.valem.spec.validate import lint_findings, validate_spec

SPEC: dict[str, Any] = {
    "id": "acme.eu/quote-1",
    "version": "1.0.0",
    "schema": {
        "type": "object",
        "properties": {
            "qty": {"type": "integer"},
            "price": {"type": "number"},
            "total": {"type": "number"},
            "items": {
                "type": "array",
                "items": {"type": "object", "properties": {"price": {"type": "number"}, "net": {"type": "number"}}},
            },
        },
    },
    "constants": {"vat": 0.2},
    "derivations": [{"path": "$.total", "expr": "qty * price * (1 + $const.vat)"}],
    "constraints": [{"id": "positive", "expr": "qty >= 0", "policy": "rollback", "message": "no negative quantity"}],
}


def findings(**changes: Any) -> list[Finding]:
    """What is found in the sound spec with these sections put in the place of its own."""
    return validate_spec(parse_spec({**copy.deepcopy(SPEC), **changes}))


def errors(**changes: Any) -> list[tuple[str, str]]:
    return [(found.location, found.message) for found in findings(**changes) if found.is_error]


def warnings(**changes: Any) -> list[tuple[str, str]]:
    return [(found.location, found.message) for found in findings(**changes) if not found.is_error]


def only(found: list[tuple[str, str]]) -> tuple[str, str]:
    assert len(found) == 1, found
    return found[0]


def test_a_sound_spec_has_no_findings() -> None:
    assert findings() == []


# -- identity ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["acme.eu/quote-1", "loan", "a/b", "Loan_2"])
def test_an_id_is_a_name_with_or_without_a_namespace(name: str) -> None:
    assert errors(id=name) == []


@pytest.mark.parametrize("name", ["1loan", "my loan", "loan@2", "a/b/c", "a//b", "/loan", "loan/", "a..b/c", "", "  "])
def test_other_ids_are_refused(name: str) -> None:
    assert only(errors(id=name))[0] == "id"


@pytest.mark.parametrize("version", ["1.0.0-rc.1", "0.0.1", "10.20.30"])
def test_a_version_has_three_numbers(version: str) -> None:
    assert errors(version=version) == []


@pytest.mark.parametrize("version", ["1.0", "v1.0.0", "01.0.0", "1.0.0+b", "1.0.0-", "latest"])
def test_other_versions_are_refused(version: str) -> None:
    location, message = only(errors(version=version))
    assert location == "version"
    assert "1.0.0" in message


# -- schema ------------------------------------------------------------------------------------------------------------


def test_a_missing_schema_is_an_error() -> None:
    assert ("schema", "is missing: it must be a JSON Schema object that says which fields the model has") in errors(
        schema=None
    )


def test_a_section_of_the_spec_inside_the_schema_is_an_error_and_a_field_of_that_name_is_none() -> None:
    inside = {**SPEC["schema"], "derivations": [{"path": "$.a", "expr": "1"}]}
    assert only(errors(schema=inside))[0] == "schema.derivations"
    named = {"type": "object", "properties": {**SPEC["schema"]["properties"], "tests": {"type": "array"}}}
    assert errors(schema=named) == []


def schema_with(**more: Any) -> dict[str, Any]:
    properties = {**SPEC["schema"]["properties"], "extra": more.pop("extra")}
    return {**SPEC["schema"], "properties": properties, **more}


@pytest.mark.parametrize(
    "ref", ["https://example.com/a.json", "other.json#/$defs/A", "#/definitions/A", "#/properties/qty", "#", 7]
)
def test_references_elsewhere_are_errors(ref: Any) -> None:
    location, message = only(errors(schema=schema_with(extra={"$ref": ref})))
    assert location == "schema.properties.extra.$ref"
    assert "#/$defs/Name" in message


def test_a_dangling_reference_is_an_error_that_lists_the_definitions() -> None:
    schema = schema_with(extra={"$ref": "#/$defs/Adress"}, **{"$defs": {"Address": {}, "Money": {}}})
    location, message = only(errors(schema=schema))
    assert location == "schema.properties.extra.$ref"
    assert '"Address", "Money"' in message


def test_an_unused_definition_and_a_keyword_beside_a_reference_are_warnings() -> None:
    schema = schema_with(
        extra={"$ref": "#/$defs/Used", "minimum": 3, "description": "harmless"},
        **{"$defs": {"Used": {"type": "number"}, "Idle": {}}},
    )
    assert errors(schema=schema) == []
    assert sorted(location for location, _ in warnings(schema=schema)) == [
        "schema.$defs.Idle",
        "schema.properties.extra.$ref",
    ]


def test_a_pattern_must_compile() -> None:
    location, message = only(errors(schema=schema_with(extra={"type": "string", "pattern": "([a-z"})))
    assert location == "schema.properties.extra.pattern"
    assert "is not closed" in message


# -- addresses, expressions, duplicates --------------------------------------------------------------------------------


@pytest.mark.parametrize("section", ["derivations", "defaultValues", "metaDerivations"])
def test_an_address_that_is_not_canonical_is_refused_with_the_one_that_is(section: str) -> None:
    item = {"path": "$.items.0.price", "expr": "{}", "property": "minimum"}
    location, message = only(errors(**{section: [item]}))
    assert location == f"{section}[0].path"
    assert "$.items[0].price" in message


def test_an_address_begins_at_the_root() -> None:
    location, message = only(errors(derivations=[{"path": "total", "expr": "1"}]))
    assert (location, "$.total" in message) == ("derivations[0].path", True)


@pytest.mark.parametrize(
    ("section", "item", "place"),
    [
        ("derivations", {"path": "$.total", "expr": "1"}, "derivations[1].path"),
        ("defaultValues", {"path": "$", "expr": "{}"}, "defaultValues[1].path"),
        ("metaDerivations", {"path": "$.qty", "property": "readOnly", "expr": "true"}, "metaDerivations[1]"),
        ("constraints", {"id": "c", "expr": "true", "policy": "flag", "message": "m"}, "constraints[1].id"),
        ("effects", {"id": "e", "executor": "caller", "emit": "x", "trigger": "qty > 1"}, "effects[1].id"),
    ],
)
def test_two_items_of_one_key_are_an_error(section: str, item: dict[str, Any], place: str) -> None:
    location, message = only(errors(**{section: [item, item]}))
    assert location == place
    assert f"also at {section}[0]" in message


def test_two_metas_of_one_field_but_different_keywords_are_fine() -> None:
    items = [{"path": "$.qty", "property": name, "expr": "1"} for name in ("minimum", "maximum")]
    assert errors(metaDerivations=items) == []


@pytest.mark.parametrize(
    "expr", ["qty *", "(qty", "qty == 1", "5 mod 2", "qty between 1 and 2", "function($v)($v.p)", "", "  "]
)
def test_an_expression_that_does_not_compile_is_an_error_at_its_place(expr: str) -> None:
    location, message = only(errors(derivations=[{"path": "$.total", "expr": expr}]))
    assert location == "derivations[0].expr"
    assert "does not compile" in message or "is blank" in message


@pytest.mark.parametrize("expr", ["$lookup($const, 'vat')", "$eval('qty')"])
def test_functions_that_hide_what_is_read_are_warned_of(expr: str) -> None:
    assert [place for place, _ in warnings(derivations=[{"path": "$.total", "expr": expr}])] == ["derivations[0].expr"]
    text = {"path": "$.total", "expr": "'never $lookup( or $eval( here'"}
    assert warnings(derivations=[text]) == []


# -- constraints -------------------------------------------------------------------------------------------------------


def test_what_a_constraint_lacks_is_said_for_each_key() -> None:
    assert [place for place, _ in errors(constraints=[{"message": "m"}])] == [
        "constraints[0].id",
        "constraints[0].expr",
        "constraints[0].policy",
    ]


def test_an_empty_message_only_warns() -> None:
    item = {"id": "c", "expr": "true", "policy": "flag"}
    assert errors(constraints=[item]) == []
    assert only(warnings(constraints=[item]))[0] == "constraints[0].message"


# -- names -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expr", "meant"),
    [
        ("$avg(items.price)", "$average("),
        ("$rond(qty)", "$round("),
        ("$toInteger('1')", "$number("),
        ("$pow(2, 3)", "$power("),
    ],
)
def test_an_unknown_function_is_an_error_with_the_nearest(expr: str, meant: str) -> None:
    found = [each for each in findings(derivations=[{"path": "$.total", "expr": expr}]) if each.is_error]
    assert [each.location for each in found] == ["derivations[0].expr"]
    assert meant in (found[0].hint or "")


@pytest.mark.parametrize("name", sorted(BUILT_IN))
def test_the_functions_said_to_be_built_in_are(name: str) -> None:
    assert compile_expression(f"${name}").reads().bindings == {}


def test_an_unbound_variable_only_warns() -> None:
    place, message = only(warnings(derivations=[{"path": "$.total", "expr": "$price * qty"}]))
    assert (place, "$price" in message) == ("derivations[0].expr", True)
    assert errors(derivations=[{"path": "$.total", "expr": "$price * qty"}]) == []


@pytest.mark.parametrize(
    "expr", ["($f := function($v){$v*2}; $f(qty))", "$map(items, function($i){$i.price})", "$const.vat"]
)
def test_names_that_an_expression_binds_itself_are_known(expr: str) -> None:
    assert findings(derivations=[{"path": "$.total", "expr": expr}]) == []


# -- effects -----------------------------------------------------------------------------------------------------------


def effect(**more: Any) -> dict[str, Any]:
    return {"id": "e", "trigger": "qty > 1", **more}


@pytest.mark.parametrize(
    ("item", "place"),
    [
        (effect(executor="caller"), "effects[0].emit"),
        (effect(), "effects[0]"),
        (effect(request={"url": "https://a.example"}, target={"ref": "r", "read": "x"}), "effects[0]"),
        (effect(request={"url": "https://a.example", "method": "HEAD"}), "effects[0].request.method"),
        (effect(requests=[{"method": "GET"}]), "effects[0].requests[0].url"),
        (effect(target={"ref": "r"}), "effects[0].target"),
        (effect(target={"ref": "r", "path": "p", "read": "x"}), "effects[0].target"),
        (effect(target={"ref": "r", "read": "x"}, body={"a": 1}), "effects[0].body"),
        (effect(executor="timer"), "effects[0]"),
        (effect(executor="llm"), "effects[0].prompt"),
        (effect(executor="caller", emit="x", statusPath="status"), "effects[0].statusPath"),
        (effect(executor="caller", emit="x", payload={"a": "qty +"}), "effects[0].payload.a"),
        (effect(executor="servr"), "effects[0].executor"),
        (effect(executor="llm", prompt="'p'", response={"set": {"a.0": "$response"}}), "effects[0].response.set"),
    ],
)
def test_what_an_executor_needs(item: dict[str, Any], place: str) -> None:
    assert only(errors(effects=[item]))[0] == place


@pytest.mark.parametrize(
    "item",
    [
        effect(request={"url": "https://a.example/{ qty }", "method": "post", "body": {"q": "qty"}}),
        effect(requests=[{"url": "https://a.example"}]),
        effect(target={"ref": "r", "path": "p"}, body={"a": 1}),
        effect(executor="llm", prompt="'p'", response={"set": {"$.total": "this is + not checked"}}),
        effect(executor="timer", afterMs=500),
        effect(executor="timer", at="$now()"),
    ],
)
def test_effects_that_are_complete(item: dict[str, Any]) -> None:
    assert errors(effects=[item]) == []


def test_an_executor_of_the_installation_is_known_to_it() -> None:
    spec = parse_spec({**SPEC, "effects": [effect(executor="mail")]})
    assert [found.location for found in validate_spec(spec)] == ["effects[0].executor"]
    assert validate_spec(spec, executors=["mail"]) == []


# -- constants, lineage ------------------------------------------------------------------------------------------------


def test_a_constant_without_a_name_is_an_error_and_one_that_is_no_identifier_a_warning() -> None:
    assert only(errors(constants={**SPEC["constants"], " ": 1}))[0] == "constants"
    assert only(warnings(constants={**SPEC["constants"], "vat-rate": 1}))[0] == "constants.vat-rate"


def test_ancestors_are_references_and_each_is_there_once() -> None:
    assert errors(lineage=[{"ref": "acme/base@1.0.0"}, {"ref": "base@2.0.0"}]) == []
    lineage = [{"ref": "a/b@1.0.0"}, {"ref": "a/b@1.0.0"}, {"ref": "a/b"}, {}]
    assert [place for place, _ in errors(lineage=lineage)] == ["lineage[1].ref", "lineage[2].ref", "lineage[3].ref"]


# -- cycles ------------------------------------------------------------------------------------------------------------


def test_a_cycle_of_two_derivations_is_an_error_that_names_both() -> None:
    circle = [{"path": "$.qty", "expr": "total / 2"}, {"path": "$.total", "expr": "qty * 2"}]
    location, message = only(errors(derivations=circle))
    assert location == "derivations"
    assert "$.qty" in message
    assert "$.total" in message


def test_a_cycle_is_not_looked_for_while_there_are_other_errors() -> None:
    circle = [{"path": "$.qty", "expr": "total / 2"}, {"path": "$.total", "expr": "qty * 2"}]
    assert only(errors(derivations=circle, version="1"))[0] == "version"


# -- views -------------------------------------------------------------------------------------------------------------


def view(*components: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"views": [{"id": "main", "components": list(components)}], **more}


@pytest.mark.parametrize(
    ("definition", "place"),
    [
        ({"views": [{"components": []}]}, "viewDefinition.views[0].id"),
        ({"views": [{"id": "a"}, {"id": "a"}]}, "viewDefinition.views[1].id"),
        (view({"id": "x", "type": "label"}, {"id": "x", "type": "label"}), "viewDefinition.views[0].components[1].id"),
        (view({"id": "x"}), "viewDefinition.views[0].components[0].type"),
        (view(defaultView="start"), "viewDefinition.defaultView"),
        (view({"id": "x", "type": "sectionList", "itemView": "row"}), "viewDefinition.views[0].components[0].itemView"),
    ],
)
def test_what_a_view_can_have_wrong(definition: dict[str, Any], place: str) -> None:
    assert only(errors(viewDefinition=definition))[0] == place


def test_an_unknown_component_type_is_an_error_with_the_nearest_and_all_there_are() -> None:
    group = {"id": "g", "type": "group", "components": [{"id": "x", "type": "numberField"}]}
    found = [each for each in findings(viewDefinition=view(group)) if each.is_error]
    assert [each.location for each in found] == ["viewDefinition.views[0].components[0].components[0].type"]
    assert 'did you mean "numericField"' in (found[0].hint or "")
    assert '"statTile"' in (found[0].hint or "")


def test_one_component_id_may_be_in_two_views() -> None:
    views = [{"id": name, "components": [{"id": "x", "type": "label"}]} for name in ("a", "b")]
    assert errors(viewDefinition={"views": views}) == []


@pytest.mark.parametrize("bind", ["$.price", "$.items[0].price", "$.items[*].price", "$.total", "$.items"])
def test_a_bound_field_that_exists(bind: str) -> None:
    assert warnings(viewDefinition=view({"id": "x", "type": "label", "bind": bind})) == []


def test_a_component_bound_to_nothing_is_warned_of_with_the_nearest_field() -> None:
    found = findings(viewDefinition=view({"id": "x", "type": "label", "bind": "$.items[0].prise"}))
    assert [each.location for each in found] == ["viewDefinition.views[0].components[0].bind"]
    assert "$.items[*].price" in (found[0].hint or "")


def test_a_state_that_an_effect_reports_can_be_bound() -> None:
    effects = [effect(executor="caller", emit="x", statusPath="$.sending")]
    bound = view({"id": "x", "type": "label", "bind": "$.sending.phase"})
    assert warnings(effects=effects, viewDefinition=bound) == []


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"label": "'Total'"}, "label"),
        ({"text": '"Total"'}, "text"),
        ({"value": "total"}, "value"),
        ({"caption": "items[0].price"}, "caption"),
    ],
)
def test_text_that_would_not_show_as_meant_is_warned_of(fields: dict[str, str], place: str) -> None:
    definition = view({"id": "x", "type": "statTile", **fields})
    assert only(warnings(viewDefinition=definition))[0] == f"viewDefinition.views[0].components[0].{place}"
    spec = parse_spec({**SPEC, "viewDefinition": definition})
    assert len(lint_findings(spec)) == 1


@pytest.mark.parametrize(
    "fields", [{"label": "Total"}, {"value": "$string(total)"}, {"text": "unknown"}, {"text": "It's"}]
)
def test_text_that_shows_as_meant(fields: dict[str, str]) -> None:
    assert warnings(viewDefinition=view({"id": "x", "type": "statTile", **fields})) == []


# -- library -----------------------------------------------------------------------------------------------------------


def library_errors(define: Any) -> list[tuple[str, str]]:
    return errors(library=define)


def test_functions_of_the_library_are_known_to_every_expression_and_may_use_constants() -> None:
    library = '( $gross := function($n) { $n * (1 + $const.vat) }; ["gross"] )'
    derivations = [{"path": "$.total", "expr": "$gross(qty * price)"}]
    assert findings(library=library, derivations=derivations) == []
    found = [each for each in findings(library=library, derivations=[{"path": "$.total", "expr": "$gros(1)"}])]
    assert [(each.location, each.hint) for each in found] == [("derivations[0].expr", "did you mean $gross(?")]


def test_a_function_that_only_one_layer_defines_is_not_exported_by_accident() -> None:
    library = "( $inner := function($n) { $n }; $f := function($n) { $inner($n) }; ['f'] )"
    assert errors(library=library, derivations=[{"path": "$.total", "expr": "$f(qty)"}]) == []
    assert only(errors(library=library, derivations=[{"path": "$.total", "expr": "$inner(qty)"}]))[0] == (
        "derivations[0].expr"
    )


def test_a_library_that_reads_a_field_is_refused_with_the_whole_path() -> None:
    location, message = only(library_errors('( $f := function($n) { $n * order.rate.base }; ["f"] )'))
    assert location == "library.define"
    assert '"order.rate.base"' in message


@pytest.mark.parametrize(
    "define",
    [
        '( $f := function($n) { {"a": $n} }; ["f"] )',
        '( $f := function($n) { $n > 0 ? $g($n - 1) : 0 }; $g := function($n) { $f($n) }; ["f"] )',
    ],
)
def test_a_library_that_reads_nothing_of_the_document_is_sound(define: str) -> None:
    assert library_errors(define) == []


def test_a_layer_may_call_an_earlier_one() -> None:
    first = {"define": '( $twice := function($n) { $n * 2 }; ["twice"] )'}
    assert library_errors({"layers": [first], "define": '( $f := function($n) { $twice($n) }; ["f"] )'}) == []


@pytest.mark.parametrize("call", ["$now()", "$millis()", "$random()"])
def test_a_library_has_no_clock_and_no_dice(call: str) -> None:
    assert only(library_errors(f'( $f := function($n) {{ $n & {call} }}; ["f"] )'))[0] == "library.define"


@pytest.mark.parametrize("name", ["sum", "const", "parent", "now"])
def test_names_that_are_taken_cannot_be_exported(name: str) -> None:
    location, message = only(library_errors(f'( ${name} := function($n) {{ $n }}; ["{name}"] )'))
    assert location == "library.define"
    assert name in message


@pytest.mark.parametrize(
    "define",
    ["( $f := function($n) { $n }; [] )", "( $f := function($n) { $n } )", "", "( $f := function($n) { $n }; ['g'] )",
     "$f := function($n) { $n }; ['f']", "( $f := function($n) ( $n; ['f'] )", {"define": None}],
)  # fmt: skip
def test_a_library_must_export_something_it_defines(define: Any) -> None:
    assert only(library_errors(define))[0] == "library.define"


def test_layers_are_counted_and_a_later_one_may_replace_a_function() -> None:
    layer = {"define": '( $f := function($n) { $n }; ["f"] )'}
    assert errors(library={"layers": [layer] * 8}) == []
    assert {place for place, _ in warnings(library={"layers": [layer] * 2})} == {"library.layers[1].define"}
    assert only(errors(library={"layers": [layer] * 9}))[0] == "library.layers"


def test_an_inherited_layer_needs_its_constants_and_a_whole_reference() -> None:
    layer = {"define": '( $f := function($n) { $n }; ["f"] )', "extends": "acme/base@1.0.0", "constants": ["vat"]}
    assert errors(library={"layers": [layer]}) == []
    assert only(errors(library={"layers": [{**layer, "constants": ["rate"]}]}))[0] == "library.layers[0].constants"
    assert only(errors(library={"layers": [{**layer, "extends": "base"}]}))[0] == "library.layers[0].extends"


def test_a_library_that_is_too_long_is_refused() -> None:
    define = f'( $f := function($n) {{ "{"x" * 20_000}" }}; ["f"] )'
    assert "20,000" in only(library_errors(define))[1]


# -- specs of others ---------------------------------------------------------------------------------------------------

EXAMPLES = sorted((Path(__file__).resolve().parents[4] / "shared" / "data" / "valem-examples").glob("*.json"))


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_specs_known_to_be_sound_have_no_errors(file: Path) -> None:
    spec = parse_spec(json.loads(file.read_text("utf-8")))
    assert [found for found in validate_spec(spec) if found.is_error] == []
