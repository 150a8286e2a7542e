"""`vancetope webhooks` on a real PostgreSQL and Redis."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result
from factory import rows
from fakes.receiver import NETWORKS, Receiver

from models.store.database import Database
from tasks.broker import publisher_app
from tasks.cli import main
from tasks.settings import load_settings
from tasks.wiring import Runtime


@pytest.fixture(autouse=True)
def _here(database_url: str, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VANCETOPE_DATABASE_URL", database_url)
    monkeypatch.setenv("VANCETOPE_REDIS_URL", redis_url)
    monkeypatch.setenv("VANCETOPE_WEBHOOK_NETWORKS", NETWORKS)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


@pytest.fixture
def at_work(_here: None) -> Iterator[None]:
    """A worker that sends what is due."""
    settings = load_settings()
    runtime = Runtime(settings, publisher_app(settings))
    stop = threading.Event()

    def work() -> None:
        while not stop.wait(0.05):
            runtime.webhooks.run()

    thread = threading.Thread(target=work)
    thread.start()
    yield
    stop.set()
    thread.join(30)
    runtime.close()


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["webhooks", *arguments])


def said(*arguments: str, code: int = 0) -> Any:
    result = invoke(*arguments, "--json")
    assert result.exit_code == code, result.output
    return json.loads(result.stdout)


def test_an_endpoint_is_added_listed_switched_and_removed(receiver: Receiver) -> None:
    result = invoke("add", receiver.url, "--event", "process.closed", "--description", "the shop")
    assert result.exit_code == 0, result.output
    secret = result.stdout.strip()
    assert secret.startswith("whsec_")
    (found,) = said("ls")
    assert (found["url"], found["events"], found["enabled"]) == (receiver.url, ["process.closed"], True)
    number = str(found["id"])
    assert "ok" in invoke("ls").stdout
    assert said("disable", number)["enabled"] is False
    assert "disabled" in invoke("ls").stdout
    assert said("enable", number)["enabled"] is True
    rotated = said("rotate", number, "--keep-hours", "1")
    assert rotated["secret"] != secret
    assert rotated["previous_expires_at"] is not None
    shown = invoke("ls").stdout + str(said("ls")) + str(said("disable", number))
    assert "whsec_" not in shown
    assert said("rm", number) == {"id": found["id"], "deleted": True}
    assert said("ls") == []
    assert "vancetope webhooks add URL" in invoke("ls").stderr


@pytest.mark.usefixtures("at_work")
def test_a_test_and_a_retry_say_what_came_of_them(receiver: Receiver) -> None:
    number = str(said("add", receiver.url)["id"])
    assert said("ls")[0]["events"] == ["inbox.closed", "inbox.opened", "process.closed"]
    result = invoke("test", number)
    assert (result.exit_code, result.stdout) == (0, "delivered: answered 204\n")
    receiver.answer = lambda _: (500, {}, b"no \x1b[31mway")
    result = invoke("test", number)
    assert result.exit_code == 1
    assert "not taken: answered 500: no \ufffd[31mway" in result.stderr
    failed, delivered = said("deliveries", number)
    assert (failed["state"], failed["attempts"], delivered["state"]) == ("PENDING", 1, "DELIVERED")
    assert len(said("deliveries", number, "--state", "delivered")) == 1
    assert "answered 500" in invoke("deliveries", number).stdout
    assert said("retry", number, str(failed["id"]), code=1)["attempts"] == 2
    receiver.answer = 200
    again = said("retry", number, str(failed["id"]))
    assert (again["state"], again["attempts"], again["event_id"]) == ("DELIVERED", 3, failed["event_id"])


def test_nobody_at_work_is_said(receiver: Receiver) -> None:
    number = str(said("add", receiver.url)["id"])
    result = invoke("test", number, "--timeout", "0")
    assert result.exit_code == 4
    assert "vancetope doctor" in result.output


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("add", "http://10.0.0.1/"), "VANCETOPE_WEBHOOK_NETWORKS"),
        (("add", "hooks.example"), "only http and https"),
        (("add", "https://hooks.example/", "--event", "process.open"), "process.closed"),
        (("enable", "7"), "there is no webhook 7"),
        (("rm", "7"), "there is no webhook 7"),
        (("rotate", "7"), "there is no webhook 7"),
        (("test", "7"), "there is no webhook 7"),
        (("deliveries", "7"), "there is no webhook 7"),
        (("retry", "7", "1"), "there is no webhook 7"),
        (("enable", "0"), "x>=1"),
    ],
)
def test_what_is_wrong_is_said_without_a_traceback(arguments: tuple[str, ...], why: str) -> None:
    result = invoke(*arguments)
    assert result.exit_code == 2, result.output
    assert why in result.output
    assert "Traceback" not in result.output


def test_what_is_disabled_or_unknown_is_not_sent(receiver: Receiver) -> None:
    number = str(said("add", receiver.url)["id"])
    result = invoke("retry", number, "99")
    assert (result.exit_code, "has no delivery 99" in result.output) == (2, True)
    invoke("disable", number)
    result = invoke("test", number)
    assert result.exit_code == 2
    assert f"vancetope webhooks enable {number}" in result.output


def test_the_doctor_names_endpoints_that_take_nothing(receiver: Receiver, database_url: str) -> None:
    fine, failing, gone = (said("add", f"{receiver.url}/{each}")["id"] for each in range(3))
    database = Database(database_url, pool_size=1)
    for change, number in (("failing_since = now()", failing), ("enabled = false, disabled_reason = 'gone'", gone)):
        rows(database, f"UPDATE webhook_endpoints SET {change} WHERE id = %(id)s", id=number)
    database.dispose()
    shown = CliRunner().invoke(main, ["doctor"]).output
    assert f"webhook {failing} of default takes nothing at present" in shown
    assert f"webhook {gone} of default was disabled: gone" in shown
    assert f"webhook {fine} " not in shown
