"""`webhooks`: who is told of events by HTTP, and what has become of it."""

from __future__ import annotations

import time

import click

from engines.tools.guard import Forbidden
from models.store import outbox
from models.store import webhooks as store
from models.store.database import Database
from models.store.outbox import DeliveryState, WebhookDelivery
from models.store.webhooks import Endpoint, Event, TooManyEndpoints
from tasks.cli.failures import FAILED, UNFINISHED, USAGE, CommandError
from tasks.cli.here import backend_settings
from tasks.cli.output import err, json_option, plain, print_json, print_table
from tasks.cli.store import open_database
from tasks.webhooks.sender import webhook_guard

_TENANT = click.option("--tenant", help="Default: VANCETOPE_TENANT.")
_ID = click.argument("webhook_id", metavar="ID", type=click.IntRange(min=1))
_SHOWN = (
    "id", "tenant", "project", "url", "description", "enabled", "disabled_reason", "failing_since", "paused_until",
    "previous_expires_at", "created_at",
)  # fmt: skip
_KEEP_HOURS = 24.0


@click.group()
def webhooks() -> None:
    """Endpoints that are told of closed jobs and of questions: signed, and tried again for days."""


@webhooks.command("add")
@click.argument("url")
@click.option(
    "--event",
    "events",
    multiple=True,
    type=click.Choice([event.value for event in Event]),
    help="May be given several times. Default: all of them.",
)
@click.option("--project", help="Only of this project.")
@click.option("--description", default="", help="For people.")
@_TENANT
@json_option
def add(
    url: str, events: tuple[str, ...], project: str | None, description: str, tenant: str | None, as_json: bool
) -> None:
    """Tell URL from now on. The secret of its signatures is printed this once and can never be read again."""
    settings = backend_settings()
    try:
        webhook_guard(settings).look_at(url)
        made, secret = store.create(
            open_database(settings),
            tenant or settings.tenant,
            url,
            [Event(event) for event in events] or list(Event),
            project=project,
            description=description,
        )
    except Forbidden as error:
        raise CommandError(
            f"{error}. VANCETOPE_WEBHOOK_NETWORKS says which other networks webhooks may go to", USAGE
        ) from None
    except TooManyEndpoints as error:
        raise CommandError(str(error), USAGE) from None
    _print_secret(made, secret, as_json)


@webhooks.command("ls")
@click.option("--tenant", help="Only this tenant's.")
@json_option
def ls(tenant: str | None, as_json: bool) -> None:
    """The endpoints, without their secrets."""
    found = store.endpoints(open_database(), tenant=tenant)
    if as_json:
        print_json([_shown(each) for each in found])
        return
    rows = [
        (str(each.id), each.tenant, each.project, _health(each), ", ".join(sorted(each.events)), each.url)
        for each in found
    ]
    columns = ("id", "tenant", "project", "state", "events", "url")
    print_table(columns, rows, empty="no webhooks: `vancetope webhooks add URL` makes one")


@webhooks.command("rm")
@_ID
@_TENANT
@json_option
def rm(webhook_id: int, tenant: str | None, as_json: bool) -> None:
    """Delete an endpoint: it is told nothing more, not even what is pending."""
    settings = backend_settings()
    deleted = store.delete(open_database(settings), tenant or settings.tenant, webhook_id)
    if as_json:
        print_json({"id": webhook_id, "deleted": deleted})
    elif not deleted:
        raise _unknown(webhook_id)


@webhooks.command("enable")
@_ID
@_TENANT
@json_option
def enable(webhook_id: int, tenant: str | None, as_json: bool) -> None:
    """Send to an endpoint again, also what has been pending since it was disabled."""
    _switch(webhook_id, tenant, enabled=True, as_json=as_json)


@webhooks.command("disable")
@_ID
@_TENANT
@json_option
def disable(webhook_id: int, tenant: str | None, as_json: bool) -> None:
    """Send nothing to an endpoint until it is enabled."""
    _switch(webhook_id, tenant, enabled=False, as_json=as_json)


@webhooks.command("rotate")
@_ID
@click.option(
    "--keep-hours",
    type=click.FloatRange(0, 720),
    default=_KEEP_HOURS,
    show_default=True,
    help="For so long the secret before signs as well; 0 when it was disclosed.",
)
@_TENANT
@json_option
def rotate(webhook_id: int, keep_hours: float, tenant: str | None, as_json: bool) -> None:
    """A new secret for an endpoint, printed this once."""
    settings = backend_settings()
    rotated = store.rotate(
        open_database(settings), tenant or settings.tenant, webhook_id, keep_seconds=keep_hours * 3_600
    )
    if rotated is None:
        raise _unknown(webhook_id)
    _print_secret(*rotated, as_json)


@webhooks.command("test")
@_ID
@click.option("--timeout", type=click.FloatRange(0, 600), default=30.0, show_default=True, help="Seconds to wait.")
@_TENANT
@json_option
def test(webhook_id: int, timeout: float, tenant: str | None, as_json: bool) -> None:
    """Have the workers send an event `webhook.test`, and say what came of it. Exit code 1: it was not taken."""
    settings = backend_settings()
    database = open_database(settings)
    _enabled(database, tenant or settings.tenant, webhook_id)
    made = outbox.send_test(database, tenant or settings.tenant, webhook_id)
    if made is None:
        raise _unknown(webhook_id)
    _print_outcome(_outcome(database, webhook_id, made, timeout), as_json)


@webhooks.command("deliveries")
@_ID
@click.option(
    "--state", type=click.Choice([state.value for state in DeliveryState], case_sensitive=False), help="Only these."
)
@click.option("--limit", type=click.IntRange(1, 1_000), default=20, show_default=True)
@_TENANT
@json_option
def deliveries(webhook_id: int, state: str | None, limit: int, tenant: str | None, as_json: bool) -> None:
    """What an endpoint was told in the last 30 days, the newest first."""
    settings = backend_settings()
    database = open_database(settings)
    _known(database, tenant or settings.tenant, webhook_id)
    wanted = None if state is None else DeliveryState(state.upper())
    found = outbox.deliveries(database, webhook_id, state=wanted, limit=limit)
    if as_json:
        print_json([_line(each) for each in found])
        return
    rows = [
        (
            str(each.id),
            each.type,
            each.state.value,
            each.attempts,
            each.created_at,
            each.due_at if each.state is DeliveryState.PENDING else None,
            each.error or each.status_code,
        )
        for each in found
    ]
    columns = ("id", "event", "state", "attempts", "happened", "next attempt", "answer")
    print_table(columns, rows, empty="it was told nothing so far")


@webhooks.command("retry")
@_ID
@click.argument("delivery_id", metavar="DELIVERY", type=click.IntRange(min=1))
@click.option("--timeout", type=click.FloatRange(0, 600), default=30.0, show_default=True, help="Seconds to wait.")
@_TENANT
@json_option
def retry(webhook_id: int, delivery_id: int, timeout: float, tenant: str | None, as_json: bool) -> None:
    """Have the workers send a delivery now, whatever has become of it, and say what came of it."""
    settings = backend_settings()
    database = open_database(settings)
    _enabled(database, tenant or settings.tenant, webhook_id)
    before = outbox.delivery(database, webhook_id, delivery_id)
    if before is None:
        raise CommandError(f"webhook {webhook_id} has no delivery {delivery_id}", USAGE)
    if not outbox.retry(database, webhook_id, delivery_id):
        raise CommandError(f"delivery {delivery_id} is being sent at this moment", FAILED)
    _print_outcome(_outcome(database, webhook_id, delivery_id, timeout, after=before[0].attempts), as_json)


def _known(database: Database, tenant: str, webhook_id: int) -> Endpoint:
    found = store.get(database, tenant, webhook_id)
    if found is None:
        raise _unknown(webhook_id)
    return found


def _enabled(database: Database, tenant: str, webhook_id: int) -> None:
    if not _known(database, tenant, webhook_id).enabled:
        raise CommandError(f"webhook {webhook_id} is disabled: `vancetope webhooks enable {webhook_id}` first", USAGE)


def _unknown(webhook_id: int) -> CommandError:
    return CommandError(f"there is no webhook {webhook_id}: `vancetope webhooks ls` shows all", USAGE)


def _switch(webhook_id: int, tenant: str | None, *, enabled: bool, as_json: bool) -> None:
    settings = backend_settings()
    changed = store.change(open_database(settings), tenant or settings.tenant, webhook_id, enabled=enabled)
    if changed is None:
        raise _unknown(webhook_id)
    if as_json:
        print_json(_shown(changed))


def _outcome(
    database: Database, webhook_id: int, delivery_id: int, timeout: float, *, after: int = 0
) -> WebhookDelivery:
    """The delivery once the attempt after those ``after`` has ended. A short wait: workers look every second."""
    until = time.monotonic() + timeout
    while True:
        found = outbox.delivery(database, webhook_id, delivery_id)
        if found is None:
            raise CommandError(f"delivery {delivery_id} was deleted meanwhile", FAILED)
        row = found[0]
        # An attempt has begun when it is counted, and has ended when it left an answer or what went wrong.
        if row.attempts > after and (row.state is not DeliveryState.PENDING or row.error is not None):
            return row
        if time.monotonic() >= until:
            detail = f"not sent within {timeout:g} s: `vancetope doctor` says whether beat and workers run"
            raise CommandError(detail, UNFINISHED)
        time.sleep(0.2)


def _print_outcome(row: WebhookDelivery, as_json: bool) -> None:
    taken = row.state is DeliveryState.DELIVERED
    if as_json:
        print_json(_line(row))
    elif taken:
        click.echo(f"delivered: answered {row.status_code}")
    else:
        click.echo(f"not taken: {plain(row.error)}", err=True)
    if not taken:
        raise SystemExit(FAILED)


def _print_secret(endpoint: Endpoint, secret: str, as_json: bool) -> None:
    if as_json:
        print_json(_shown(endpoint) | {"secret": secret})
        return
    click.echo(secret)
    what = ", ".join(sorted(endpoint.events))
    err().print(f"webhook {endpoint.id} of {endpoint.tenant}: {what}. Keep the secret: it is not shown again.")


def _shown(endpoint: Endpoint) -> dict[str, object]:
    return {name: getattr(endpoint, name) for name in _SHOWN} | {"events": sorted(endpoint.events)}


def _line(row: WebhookDelivery) -> dict[str, object]:
    return {name: getattr(row, name) for name in WebhookDelivery.__dataclass_fields__}


def _health(endpoint: Endpoint) -> str:
    if not endpoint.enabled:
        return "disabled" + (f": {endpoint.disabled_reason}" if endpoint.disabled_reason else "")
    return "failing" if endpoint.failing_since else "ok"
