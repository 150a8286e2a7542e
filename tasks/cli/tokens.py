"""`tokens`: who may use the HTTP API, and for what."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import click

from models.store import tokens as store
from models.store.tokens import NameTaken, Scope
from tasks.cli.failures import USAGE, CommandError
from tasks.cli.here import backend_settings
from tasks.cli.output import err, json_option, print_json, print_table
from tasks.cli.store import open_database

_TENANT = click.option("--tenant", help="Default: VANCETOPE_TENANT.")


@click.group()
def tokens() -> None:
    """Create, list and revoke tokens of the HTTP API."""


@tokens.command("create")
@click.argument("name")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    type=click.Choice([scope.value for scope in Scope]),
    default=("read", "submit", "answer"),
    show_default=True,
    help="May be given several times; admin includes the others.",
)
@click.option("--days", type=click.IntRange(1, 3650), help="It stops working after so many days.")
@_TENANT
@json_option
def create(name: str, scopes: tuple[str, ...], days: int | None, tenant: str | None, as_json: bool) -> None:
    """A new token called NAME. Its secret is printed this once and can never be read again."""
    settings = backend_settings()
    expires = None if days is None else datetime.now(UTC) + timedelta(days=days)
    wanted = {Scope(scope) for scope in scopes}
    try:
        made, secret = store.create(
            open_database(settings), tenant or settings.tenant, name, wanted, expires_at=expires
        )
    except NameTaken as error:
        raise CommandError(f"{error}: revoke it first, or choose another name", USAGE) from None
    if as_json:
        print_json({"token": secret, "name": made.name, "tenant": made.tenant, "scopes": sorted(made.scopes)})
        return
    click.echo(secret)
    err().print(f"{made.name} of {made.tenant}: {', '.join(sorted(made.scopes))}. Keep it: it is not shown again.")


@tokens.command("ls")
@click.option("--tenant", help="Only this tenant's.")
@json_option
def ls(tenant: str | None, as_json: bool) -> None:
    """The tokens that work, without their secrets."""
    found = store.list_tokens(open_database(), tenant=tenant)
    if as_json:
        names = ("tenant", "name", "created_at", "expires_at", "last_used_at")
        print_json([{name: getattr(each, name) for name in names} | {"scopes": sorted(each.scopes)} for each in found])
        return
    rows = [
        (each.tenant, each.name, ", ".join(sorted(each.scopes)), each.created_at, each.last_used_at, each.expires_at)
        for each in found
    ]
    columns = ("tenant", "name", "scopes", "created", "last used", "expires")
    print_table(columns, rows, empty="no tokens: `vancetope tokens create NAME` makes one")


@tokens.command("revoke")
@click.argument("name")
@_TENANT
@json_option
def revoke(name: str, tenant: str | None, as_json: bool) -> None:
    """The token called NAME works no longer."""
    settings = backend_settings()
    revoked = store.revoke(open_database(settings), tenant or settings.tenant, name)
    if as_json:
        print_json({"name": name, "revoked": revoked})
    elif not revoked:
        raise CommandError(f"there is no token {name!r}: `vancetope tokens ls` shows all", USAGE)
