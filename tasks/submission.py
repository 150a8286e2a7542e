"""From what a caller asks for to a process that can be stored: recipe, parameters, limits, all checked here."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, Self
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, field_validator, model_validator
from pydantic.alias_generators import to_camel
from uuid_utils.compat import uuid7

from engines.base import CarefulEngine, Engine, NamesParams, PlanningEngine
from engines.errors import EngineError, InvalidParams, RecipeError, UnknownRecipe
from engines.recipes.cascade import RecipeSource, check_engine, effective_params, resolve
from engines.recipes.model import Recipe
from engines.recipes.params import check_params, check_recipe_params
from engines.recipes.snapshots import Callee, stored_recipe
from models.records import BROKER_PRIORITY, Limits, NewProcess, Priority
from tasks.cookbook import Sources, recipe_sources
from tasks.settings import Settings

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


Lane = Literal["normal", "batch"]


class SubmissionError(EngineError):
    """The request cannot become a process. The message names the field, what was found and what would be right."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", alias_generator=to_camel, populate_by_name=True, frozen=True)


class Callback(_Part):
    """A Celery task to send when the process closes: ``task(process_id, wrapper)``, at least once."""

    task: Annotated[str, Field(min_length=1, max_length=200)]
    queue: Annotated[str, Field(min_length=1, max_length=200)] | None = None


class Budget(_Part):
    """Hard limits of the process, sub-processes included. Money is US dollars, the deadline counts from submission."""

    max_calls: Annotated[int, Field(ge=1, le=2_000_000_000)] | None = None
    max_tokens: Annotated[int, Field(ge=1, le=10**15)] | None = None
    max_cost_usd: Annotated[float, Field(gt=0, le=1e7)] | None = None
    deadline_seconds: Annotated[float, Field(gt=0, le=315_360_000)] | None = None


class Submission(_Part):
    """The payload of ``vancetope.submit``. Keys in camelCase (``traceContext``) or snake_case."""

    id: UUID = Field(default_factory=uuid7)
    """The process id, chosen by the caller: sending the same one again changes nothing."""
    recipe: Annotated[str, Field(min_length=1, max_length=200)]
    params: dict[str, JsonValue] = Field(default_factory=dict)
    goal: str = ""
    tenant: str | None = None
    project: str | None = None
    owner: Annotated[str, Field(max_length=200)] | None = None
    """Who submits it: shown with the job, and whose its questions are."""
    priority: Priority = Priority.NORMAL
    limits: Budget = Budget()
    lane: Lane = "normal"
    """``batch``: its model calls may wait for the providers' batches, which cost less and take hours."""
    batch_deadline_seconds: Annotated[float, Field(gt=0, le=31_536_000)] | None = None
    """How long, from submission; then its calls are made at once. Default: the installation's."""
    callback: Callback | None = None
    trace_context: dict[str, str] = Field(default_factory=dict)

    @field_validator("owner")
    @classmethod
    def _somebody(cls, value: str | None) -> str | None:
        return (value.strip() or None) if value is not None else None

    @field_validator("tenant", "project")
    @classmethod
    def _plain_name(cls, value: str | None) -> str | None:
        if value is not None and not _NAME.fullmatch(value):
            raise ValueError("must be letters, digits, '_', '.', '-', at most 64, beginning with a letter or digit")
        return value

    @model_validator(mode="after")
    def _deadline_of_a_lane(self) -> Self:
        if self.batch_deadline_seconds is not None and self.lane != "batch":
            raise ValueError('batchDeadlineSeconds is for jobs with lane "batch"; this one is in lane "normal"')
        return self


def parse_submission(payload: object) -> Submission:
    """Check the payload's form. Raises :class:`SubmissionError` naming every field at fault."""
    if not isinstance(payload, Mapping):
        raise SubmissionError(f"the payload must be an object with at least 'recipe', not {type(payload).__name__}")
    try:
        return Submission.model_validate(payload)
    except ValidationError as error:
        problems = (
            f"{'.'.join(str(part) for part in item['loc']) or 'payload'}: {item['msg']}"
            for item in error.errors(include_input=False, include_url=False)
        )
        raise SubmissionError("; ".join(problems)) from None


def prepare(
    submission: Submission,
    settings: Settings,
    engines: Mapping[str, Engine],
    sources: Sources | None = None,
    warn: Callable[[str], None] = lambda text: None,
) -> NewProcess:
    """Resolve the recipe and put everything together. Raises :class:`SubmissionError`.

    sources: where recipes are read from; without documents if left out. warn: told what is legal but surely not meant.
    """
    tenant = submission.tenant or settings.tenant
    project = submission.project or settings.project
    cascade = (sources or recipe_sources(settings))(tenant, project)
    try:
        recipe = usable_recipe(submission.recipe, cascade, engines)
        if recipe.internal:
            raise RecipeError(f"{recipe.name!r} is internal: only engines start it")
    except RecipeError as error:
        raise SubmissionError(f"recipe: {error.message}") from None
    engine = engines[recipe.engine]
    try:
        if isinstance(engine, NamesParams):
            check_params(submission.params, recipe, engine.param_names)
    except InvalidParams as error:
        raise SubmissionError(f"params.{error.message}") from None
    effective = effective_params(recipe, submission.params)
    params = effective.params
    for text in effective.warnings:
        warn(text)
    node_kind = "ROOT"
    callees: dict[str, Callee] = {}
    unusable: dict[str, str] = {}
    if isinstance(engine, CarefulEngine):
        objection = engine.objection(submission.goal, params)
        if objection is not None:
            raise SubmissionError(objection)
    if isinstance(engine, PlanningEngine):
        node_kind = engine.root_kind
        callees, unusable = _callees(engine, params, cascade, engines, warn)
    stored = stored_recipe(recipe, callees, unusable)
    size = len(
        json.dumps([submission.goal, params, stored], ensure_ascii=False, default=str).encode("utf-8", "replace")
    )
    if size > settings.max_input_bytes:
        raise SubmissionError(
            f"params: prompt, schema and parameters together are {size:,} bytes; at most {settings.max_input_bytes:,}"
            " are accepted here (VANCETOPE_MAX_INPUT_BYTES)"
        )
    return NewProcess(
        id=submission.id,
        engine=recipe.engine,
        recipe_name=recipe.name,
        recipe=stored,
        params=params,
        goal=submission.goal,
        tenant=tenant,
        project=project,
        owner=submission.owner,
        priority=BROKER_PRIORITY[submission.priority],
        limits=limits_of(submission.limits, recipe, settings),
        batch_seconds=_batch_seconds(submission, settings),
        callback=submission.callback.model_dump() if submission.callback else None,
        trace_context=submission.trace_context,
        first_phase=engine.first_phase,
        node_kind=node_kind,
    )


def _batch_seconds(submission: Submission, settings: Settings) -> float | None:
    if submission.lane == "normal":
        return None
    return submission.batch_deadline_seconds or settings.batch_deadline_seconds


def usable_recipe(name: str, sources: Sequence[RecipeSource], engines: Mapping[str, Engine]) -> Recipe:
    """The recipe ``name``, checked against the engine it names. Raises :class:`RecipeError`."""
    recipe = resolve(name, sources)
    check_recipe(recipe, engines)
    return recipe


def check_recipe(recipe: Recipe, engines: Mapping[str, Engine]) -> None:
    """Raises :class:`RecipeError` when there is no such engine, or a parameter's name is misspelt."""
    check_engine(recipe, engines)
    engine = engines[recipe.engine]
    if isinstance(engine, NamesParams):
        check_recipe_params(recipe, engine.param_names)


def _callees(
    engine: PlanningEngine,
    params: Mapping[str, Any],
    sources: Sequence[RecipeSource],
    engines: Mapping[str, Engine],
    warn: Callable[[str], None],
) -> tuple[dict[str, Callee], dict[str, str]]:
    """The recipes the process may call, as they are now, and why broken ones cannot be used: a call is told that."""
    found: dict[str, Callee] = {}
    unusable: dict[str, str] = {}
    for name in (*engine.own_recipes, *engine.called_recipes(params)):
        try:
            recipe = usable_recipe(name, sources, engines)
        except RecipeError as error:
            if name in engine.own_recipes:
                raise SubmissionError(f"recipe: {engine.name} needs the recipe {name!r}: {error.message}") from None
            warn(f"the plan cannot call {name!r}: {error.message}")
            # Names of others are for the submitter; a model would only try them.
            if not isinstance(error, UnknownRecipe):
                unusable[name] = error.message
            continue
        called = engines[recipe.engine]
        root_kind = called.root_kind if isinstance(called, PlanningEngine) else "ROOT"
        found[recipe.name] = Callee(recipe=recipe, first_phase=called.first_phase, root_kind=root_kind)
    return found, unusable


def limits_of(asked: Budget, recipe: Recipe, settings: Settings) -> Limits:
    """The recipe's limits or else the installation's; a caller may set what is open and lower what is not."""

    def choose(caller: float | None, of_recipe: float | None, of_installation: float | None) -> float | None:
        if caller is not None and of_recipe is not None:
            return min(caller, of_recipe)
        return next((value for value in (caller, of_recipe, of_installation) if value is not None), None)

    own = recipe.limits
    calls = choose(asked.max_calls, own.max_calls, settings.max_calls)
    tokens = choose(asked.max_tokens, own.max_tokens, settings.max_tokens)
    return Limits(
        max_calls=None if calls is None else int(calls),
        max_tokens=None if tokens is None else int(tokens),
        max_cost_usd=choose(asked.max_cost_usd, own.max_cost_usd, settings.max_cost_usd),
        deadline_seconds=choose(asked.deadline_seconds, own.deadline_seconds, settings.deadline_seconds),
    )


def rejected(payload: object, process_id: UUID, message: str, settings: Settings) -> tuple[NewProcess, dict[str, Any]]:
    """What to store for a submission that came over the broker and cannot run, so that its sender gets an answer."""
    given: Mapping[str, Any] = payload if isinstance(payload, Mapping) else {}
    name = given.get("recipe")
    callback = given.get("callback")
    try:
        known_callback = Callback.model_validate(callback).model_dump() if callback is not None else None
    except ValidationError:
        known_callback = None
    process = NewProcess(
        id=process_id,
        engine="none",
        recipe_name=name[:200] if isinstance(name, str) else "",
        recipe={},
        params={},
        goal="",
        tenant=settings.tenant,
        project=settings.project,
        callback=known_callback,
    )
    return process, {"success": False, "attempts": 0, "error": "invalid_params", "message": message}
