"""What there is to run: recipes and schemas, checked before anything is paid for. And what was paid."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from pydantic import BeforeValidator

from engines.errors import InvalidSchema, RecipeError
from engines.recipes.cascade import check_engine, list_recipes, resolve
from engines.recipes.model import parse_recipe
from engines.structured.schema import compile_schema
from models.store import read
from tasks.api import shapes
from tasks.api.access import Caller, Reader
from tasks.api.parts import Here, Parts
from tasks.api.problems import Problem, responses

router = APIRouter(prefix="/v1")


def _no_number(value: object) -> object:
    if isinstance(value, str) and value.replace(".", "", 1).lstrip("+-").isdecimal():
        raise ValueError("must be a date or a time in ISO 8601, such as 2026-11-30T12:00:00Z")
    return value


Point = Annotated[datetime, BeforeValidator(_no_number)]
"""A point in time. Numbers, which pydantic would take for seconds since 1970, are refused."""
Project = Annotated[str | None, Query(max_length=64, description="Default: the installation's.")]


@router.get("/recipes", summary="List recipes", tags=["recipes"])
def get_recipes(here: Here, who: Reader, project: Project = None) -> list[shapes.RecipeLine]:
    """The recipes that a job can name, those that are broken with what is wrong."""
    found = list_recipes(_sources(here, who, project))
    return [
        shapes.RecipeLine(
            name=each.name,
            engine=each.recipe.engine if each.recipe else None,
            summary=each.recipe.summary if each.recipe else None,
            source=each.recipe.source if each.recipe else None,
            error=each.error,
        )
        for each in found
        if each.recipe is None or (each.recipe.listed and not each.recipe.internal)
    ]


@router.get("/recipes/{name}", summary="Get a recipe", tags=["recipes"], responses=responses(HTTPStatus.NOT_FOUND))
def get_recipe(name: str, here: Here, who: Reader, project: Project = None) -> dict[str, Any]:
    """In full, as a job would use it."""
    try:
        found: dict[str, Any] = resolve(name, _sources(here, who, project)).model_dump(mode="json", by_alias=True)
    except RecipeError as error:
        raise Problem(HTTPStatus.NOT_FOUND, "not_found", error.message) from None
    return found


@router.post("/recipes/check", summary="Check a recipe", tags=["recipes"])
def check_recipe(wanted: shapes.RecipeText, here: Here, _: Reader) -> shapes.Checked:
    """Whether the text could be used as a recipe. Nothing is stored."""
    try:
        recipe = parse_recipe(wanted.name, wanted.text, "request")
        check_engine(recipe, here.runtime.engines)
        if recipe.json_schema is not None:
            compile_schema(recipe.json_schema)
    except InvalidSchema as error:
        problems = [f"schema {pointer or '/'}: {text}" for pointer, text in error.problems]
        return shapes.Checked(problems=problems, warnings=[])
    except RecipeError as error:
        return shapes.Checked(problems=[error.message], warnings=[])
    return shapes.Checked(problems=[], warnings=list(recipe.warnings))


@router.post("/schemas/check", summary="Check a JSON Schema", tags=["recipes"])
def check_schema(wanted: shapes.SchemaText, _: Reader) -> shapes.SchemaVerdict:
    """Whether jeltz takes it."""
    try:
        compiled = compile_schema(wanted.json_schema)
    except InvalidSchema as error:
        problems = [shapes.SchemaProblem(pointer=pointer or "/", problem=text) for pointer, text in error.problems]
        return shapes.SchemaVerdict(accepted=False, problems=problems)
    return shapes.SchemaVerdict(accepted=True, sha256=compiled.sha256)


@router.get("/usage", summary="Get the ledger", tags=["usage"], responses=responses(HTTPStatus.UNPROCESSABLE_ENTITY))
def get_usage(
    here: Here,
    who: Reader,
    group: Annotated[Literal["day", "recipe", "model"], Query()] = "day",
    since: Annotated[Point | None, Query(description="Default: 30 days ago. Without an offset it is UTC.")] = None,
    until: Annotated[Point | None, Query(description="Up to before this point; default: now.")] = None,
    project: Annotated[str | None, Query(max_length=64, description="Default: all.")] = None,
) -> list[shapes.LedgerLine]:
    """What the tenant's calls came to, added up by day, recipe or model."""
    end = _aware(until) or datetime.now(UTC)
    begin = _aware(since) or end - timedelta(days=30)
    if begin > end:
        raise Problem(HTTPStatus.UNPROCESSABLE_ENTITY, "invalid_request", "query.since: must not be after until")
    found = read.usage(here.runtime.database, tenant=who.tenant, group=group, since=begin, until=end, project=project)
    return [shapes.LedgerLine.model_validate(row) for row in found]


def _aware(value: datetime | None) -> datetime | None:
    return value.replace(tzinfo=UTC) if value is not None and value.tzinfo is None else value


def _sources(here: Parts, who: Caller, project: str | None) -> Any:
    return here.runtime.sources(who.tenant, project or here.runtime.settings.project)
