"""What the runner adds to the view of an engine that works on more than its own node."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeGuard

from engines.base import Engine, ModelingEngine, PlanningEngine
from models.records import View
from models.store.database import Database
from models.store.documents import find
from models.store.model_specs import get
from models.store.plan import load_plan

# What each class of engines is. Asking costs a tenth of a small turn: every member of the protocol is looked for.
_PLANNING: dict[type[Engine], bool] = {}
_MODELING: dict[type[Engine], bool] = {}


def _is_planning(engine: Engine) -> TypeGuard[PlanningEngine]:
    kind = type(engine)
    if kind not in _PLANNING:
        _PLANNING[kind] = isinstance(engine, PlanningEngine)
    return _PLANNING[kind]


def _is_modeling(engine: Engine) -> TypeGuard[ModelingEngine]:
    kind = type(engine)
    if kind not in _MODELING:
        _MODELING[kind] = isinstance(engine, ModelingEngine)
    return _MODELING[kind]


def look_around(database: Database, engine: Engine, view: View) -> View:
    """``view`` with the plan around its node, and the document or model the engine wishes for; others' as it is."""
    process = view.process
    if _is_planning(engine):
        view = replace(view, plan=load_plan(database, process.id, view.node.id))
        if (document := engine.wished_document(view)) is not None:
            found = find(database, process.tenant, process.project, by=document.by, value=document.value)
            view = replace(view, document=found)
    elif _is_modeling(engine) and (model := engine.wished_model(view)) is not None:
        stored = get(database, process.tenant, process.project, model.model_id, version=model.version)
        view = replace(view, model=stored)
    return view
