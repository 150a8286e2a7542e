"""What the runner adds to the view of an engine whose processes are trees."""

from __future__ import annotations

from dataclasses import replace

from engines.base import Engine, PlanningEngine
from models.records import View
from models.store.database import Database
from models.store.documents import find
from models.store.plan import load_plan


def look_around(database: Database, engine: Engine, view: View) -> View:
    """``view`` with the plan around its node and the document the engine wishes for; other engines' as it is."""
    if not isinstance(engine, PlanningEngine):
        return view
    process = view.process
    view = replace(view, plan=load_plan(database, process.id, view.node.id))
    wish = engine.wished_document(view)
    if wish is None:
        return view
    return replace(view, document=find(database, process.tenant, process.project, by=wish.by, value=wish.value))
