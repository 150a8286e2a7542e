"""How long the tenant's closed processes and their texts are kept."""

from __future__ import annotations

from http import HTTPStatus

from fastapi import APIRouter

from models.ages import Ages, BadPolicy
from models.store import retention as store
from tasks.api import shapes
from tasks.api.access import Admin, Caller
from tasks.api.parts import Here, Parts
from tasks.api.problems import Problem, not_found, responses

router = APIRouter(prefix="/v1/retention", tags=["retention"])


@router.get("", summary="Get the retention policy")
def get_policy(here: Here, who: Admin) -> shapes.RetentionPolicy:
    """The tenant's own, or the installation's ages while it has none."""
    return _in_force(here, who)


@router.put("", summary="Set the retention policy", responses=responses(HTTPStatus.UNPROCESSABLE_ENTITY))
def set_policy(wanted: shapes.RetentionAges, here: Here, who: Admin) -> shapes.RetentionPolicy:
    """From now on these ages hold for the tenant, whatever the installation's are. What is left out is for ever."""
    try:
        store.set_policy(
            here.runtime.database, who.tenant, Ages(keep=wanted.keep_days, artifacts=wanted.artifacts_days)
        )
    except BadPolicy as error:
        raise Problem(HTTPStatus.UNPROCESSABLE_ENTITY, "invalid_request", str(error)) from None
    return _in_force(here, who)


@router.delete(
    "",
    summary="Remove the retention policy",
    status_code=HTTPStatus.NO_CONTENT,
    responses=responses(HTTPStatus.NOT_FOUND),
)
def remove_policy(here: Here, who: Admin) -> None:
    """From now on the installation's ages hold for the tenant."""
    if not store.remove_policy(here.runtime.database, who.tenant):
        raise not_found(f"retention policy of {who.tenant}")


@router.get("/preview", summary="See what retention would remove")
def get_preview(here: Here, who: Admin) -> shapes.RetentionPreview:
    """What would go if retention ran now. Nothing is changed."""
    found = store.preview(here.runtime.database, here.runtime.settings.retention(), tenant=who.tenant)
    if not found:
        policy = _in_force(here, who)
        return shapes.RetentionPreview(
            keep_days=policy.keep_days, artifacts_days=policy.artifacts_days, own=policy.own, processes=0, artifacts=0,
            undelivered=0,
        )  # fmt: skip
    return shapes.RetentionPreview.model_validate(found[0])


def _in_force(here: Parts, who: Caller) -> shapes.RetentionPolicy:
    own = store.policy(here.runtime.database, who.tenant)
    if own is not None:
        return shapes.RetentionPolicy(
            keep_days=own.keep_days, artifacts_days=own.artifacts_days, own=True, updated_at=own.updated_at
        )
    ages = here.runtime.settings.retention()
    return shapes.RetentionPolicy(keep_days=ages.keep, artifacts_days=ages.artifacts, own=False, updated_at=None)
