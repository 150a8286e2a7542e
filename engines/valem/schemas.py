"""The JSON Schemas that shape a model's answer, and the tool by which it hands one in.

They are permissive on purpose: no ``additionalProperties: false``, hardly anything required. They show a provider the
outline; what is right and what is not, the parser and the validator say, in words a model can act on. So they are meant
for the loose rung (``highest_path=LOOSE``): strict forms would forbid the open maps that a spec is full of.

Without other tools a request carries the schema under the name of the tool (``schema_name=SUBMIT_SPEC``): a response
format at some providers, a forced tool at others. Beside other tools it offers :func:`submit_spec_tool` unforced; a
call of it is the answer.
"""

from __future__ import annotations

from typing import Any, Final

from engines.llm.base import ToolSpec

SUBMIT_SPEC: Final = "submit_spec"

Schema = dict[str, Any]

_TEXT: Final[Schema] = {"type": "string"}
_OBJECT: Final[Schema] = {"type": "object"}
_FLAG: Final[Schema] = {"type": "boolean"}
_EXPRESSION: Final[Schema] = {"type": "string", "description": "JSONata on one line"}
_ADDRESS: Final[Schema] = {"type": "string", "description": "address such as $.rows[*].total"}


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _item(*required: str, **properties: Schema) -> Schema:
    return {"type": "object", "properties": properties, "required": list(required)}


_DERIVATION: Final = _item(
    "path",
    "expr",
    path=_ADDRESS,
    expr=_EXPRESSION,
    evaluation={"type": "string", "enum": ["eager", "lazy"]},
    description=_TEXT,
)
_DEFAULT: Final = _item("path", "expr", path=_ADDRESS, expr=_EXPRESSION, description=_TEXT)
_META: Final = _item("path", "property", "expr", path=_ADDRESS, property=_TEXT, expr={}, description=_TEXT)
_CONSTRAINT: Final = _item(
    "id",
    "expr",
    "policy",
    id=_TEXT,
    expr=_EXPRESSION,
    policy={"type": "string", "enum": ["rollback", "flag"]},
    message=_TEXT,
    path={"type": ["string", "array", "null"], "items": _TEXT},
)
_EFFECT: Final = _item(
    "id",
    "trigger",
    id=_TEXT,
    trigger=_EXPRESSION,
    executor={"type": "string", "description": "caller, server, llm or timer"},
    description=_TEXT,
    dedupeKey=_EXPRESSION,
    statusPath=_ADDRESS,
    policy=_OBJECT,
    emit=_TEXT,
    payload=_OBJECT,
    request=_OBJECT,
    requests={"type": ["array", "object"], "items": {}},
    target=_OBJECT,
    body={},
    prompt=_EXPRESSION,
    responseSchema=_OBJECT,
    response=_OBJECT,
    at=_EXPRESSION,
    afterMs={"type": ["string", "number"], "description": "an expression, in quotes"},
)
_TEST: Final = _item("given", "expect", description=_TEXT, given=_OBJECT, expect=_OBJECT)
_COMPONENT: Final = _item("id", "type", id=_TEXT, type=_TEXT, label=_TEXT, bind=_ADDRESS, components=_list(_OBJECT))
_VIEW: Final = _item("id", id=_TEXT, label=_TEXT, layout=_TEXT, components=_list(_COMPONENT))
_VIEW_DEFINITION: Final = _item("views", defaultView=_TEXT, views=_list(_VIEW))
_LIBRARY: Final[Schema] = {"type": ["string", "object"], "properties": {"define": _EXPRESSION, "description": _TEXT}}
_NAMES: Final = _list(_TEXT)


def model_spec_schema(*, include_view: bool) -> Schema:
    """A whole spec. Without a view, ``viewDefinition`` is not mentioned (and not forbidden)."""
    properties: Schema = {
        "id": _TEXT,
        "version": _TEXT,
        "schema": _OBJECT,
        "constants": _OBJECT,
        "library": _LIBRARY,
        "defaultValues": _list(_DEFAULT),
        "derivations": _list(_DERIVATION),
        "metaDerivations": _list(_META),
        "constraints": _list(_CONSTRAINT),
        "effects": _list(_EFFECT),
        "tests": _list(_TEST),
    }
    if include_view:
        properties["viewDefinition"] = _VIEW_DEFINITION
    return {"type": "object", "properties": properties, "required": ["id", "schema"]}


def evolution_schema(*, include_view: bool) -> Schema:
    """A change to a spec: every field is optional."""
    properties: Schema = {"newVersion": _TEXT, "expectedVersion": _TEXT}
    for name, item in (
        ("Derivations", _DERIVATION),
        ("Constraints", _CONSTRAINT),
        ("MetaDerivations", _META),
        ("DefaultValues", _DEFAULT),
        ("Effects", _EFFECT),
    ):
        properties[f"upsert{name}"] = _list(item)
        properties[f"remove{name}"] = _NAMES
    properties |= {
        "newSchema": {"type": ["object", "null"]},
        "upsertSchemaDefs": _OBJECT,
        "removeSchemaDefs": _NAMES,
        "upsertSchemaNodes": _list(_item("path", "schema", path=_ADDRESS, schema=_OBJECT, required=_FLAG)),
        "removeSchemaNodes": _NAMES,
        "newConstants": _OBJECT,
        "upsertConstants": _OBJECT,
        "removeConstants": _NAMES,
        "newLibrary": {**_LIBRARY, "type": ["string", "object", "null"]},
        "newTests": _list(_TEST),
        "backfill": _OBJECT,
    }
    if include_view:
        properties |= {
            "newViewDefinition": {**_VIEW_DEFINITION, "type": ["object", "null"]},
            "upsertViews": _list(_VIEW),
            "removeViews": _NAMES,
            "upsertComponents": _list(
                _item("viewId", "component", viewId=_TEXT, component=_COMPONENT, parentId=_TEXT, beforeId=_TEXT)
            ),
            "removeComponents": _list(_item("viewId", "componentId", viewId=_TEXT, componentId=_TEXT)),
            "newDefaultView": _TEXT,
        }
    return {"type": "object", "properties": properties}


def submit_spec_tool(*, evolution: bool, include_view: bool) -> ToolSpec:
    """The tool whose call is the answer: its arguments are the spec or the evolution. The same for a whole session."""
    what = "SpecEvolution: only what changes" if evolution else "complete model spec"
    schema = evolution_schema if evolution else model_spec_schema
    return ToolSpec(
        name=SUBMIT_SPEC,
        description=f"Hands in the answer, the {what}, as the arguments. Call it once, when the answer is final.",
        parameters=schema(include_view=include_view),
    )
