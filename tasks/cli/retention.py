"""`retention`: how long closed processes and their texts are kept, tenant by tenant."""

from __future__ import annotations

from dataclasses import asdict

import click

from models.ages import Ages, BadPolicy
from models.store import retention as store
from tasks.cli.failures import USAGE, CommandError
from tasks.cli.here import backend_settings
from tasks.cli.output import json_option, out, print_json, print_table
from tasks.cli.store import open_database

_TENANT = click.option("--tenant", help="Default: VANCETOPE_TENANT.")


@click.group()
def retention() -> None:
    """Show, set and remove retention policies. Beside them hold VANCETOPE_RETENTION_DAYS and …_ARTIFACTS_DAYS."""


@retention.command("ls")
@json_option
def ls(as_json: bool) -> None:
    """The installation's ages and every tenant's own."""
    settings = backend_settings()
    found = store.policies(open_database(settings))
    ages = settings.retention()
    if as_json:
        default = {"keep_days": ages.keep, "artifacts_days": ages.artifacts}
        print_json({"default": default, "policies": [asdict(each) for each in found]})
        return
    rows: list[tuple[object, ...]] = [("(all others)", _days(ages.keep), _texts(ages.artifacts), None)]
    rows += [(each.tenant, _days(each.keep_days), _texts(each.artifacts_days), each.updated_at) for each in found]
    print_table(("tenant", "processes", "texts", "set"), rows, empty="")


@retention.command("set")
@_TENANT
@click.option("--days", type=float, help="Processes go so long after they were closed. Left out: never.")
@click.option("--artifacts-days", type=float, help="Their texts go so long after. Left out: with the process.")
@json_option
def set_(tenant: str | None, days: float | None, artifacts_days: float | None, as_json: bool) -> None:
    """Give a tenant ages of its own, in place of the installation's."""
    settings = backend_settings()
    try:
        made = store.set_policy(
            open_database(settings), tenant or settings.tenant, Ages(keep=days, artifacts=artifacts_days)
        )
    except BadPolicy as error:
        message = str(error).replace("keepDays", "--days").replace("artifactsDays", "--artifacts-days")
        raise CommandError(message, USAGE) from None
    if as_json:
        print_json(asdict(made))
        return
    kept, texts = _days(made.keep_days), _texts(made.artifacts_days)
    out().print(f"{made.tenant}: processes {kept}, texts {texts}", markup=False)


@retention.command("rm")
@_TENANT
@json_option
def rm(tenant: str | None, as_json: bool) -> None:
    """From now on the installation's ages hold for the tenant."""
    settings = backend_settings()
    name = tenant or settings.tenant
    removed = store.remove_policy(open_database(settings), name)
    if as_json:
        print_json({"tenant": name, "removed": removed})
    elif not removed:
        raise CommandError(f"{name!r} has no policy of its own: `vancetope retention ls` shows all", USAGE)


@retention.command("preview")
@click.option("--tenant", help="Only this tenant's.")
@json_option
def preview(tenant: str | None, as_json: bool) -> None:
    """What would go if retention ran now. Nothing is deleted.

    Top-level processes; everything below them goes with them.
    """
    settings = backend_settings()
    found = store.preview(open_database(settings), settings.retention(), tenant=tenant)
    if as_json:
        print_json([asdict(each) for each in found])
        return
    rows = [
        (each.tenant, _days(each.keep_days), _texts(each.artifacts_days), each.processes, each.artifacts,
         each.undelivered)
        for each in found
    ]  # fmt: skip
    columns = ("tenant", "processes", "texts", "would be deleted", "would lose texts", "kept undelivered")
    print_table(columns, rows, empty="there is no closed process whose result was handed over")


def _days(days: float | None) -> str:
    return "for ever" if days is None else f"{days:g} days"


def _texts(days: float | None) -> str:
    return "as their process" if days is None else f"{days:g} days"
