"""Sending webhooks: a real receiver, a real outbox, senders that are killed, doubled, refused and kept waiting."""

from __future__ import annotations

import importlib
import ipaddress
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from factory import row, rows, value
from fakes.receiver import NETWORKS, Answer, Receiver, Request
from hooks import endpoint, told
from processes import eventually
from rig import NO_REDIS, RecordingDatabase, Rig, in_threads

from engines.tools.guard import Guard
from models.store import outbox, webhooks
from models.store.database import DatabaseUnavailable
from models.store.outbox import DeliveryState
from tasks import faults
from tasks.logs import MASK, Redactor
from tasks.meter import WEBHOOKS, Meter
from tasks.webhooks.schedule import DELAYS
from tasks.webhooks.sender import Sender, webhook_fetcher

CLIENT = Path(__file__).resolve().parents[2] / "tasks" / "client"
INSIDE = (ipaddress.ip_network(NETWORKS),)


class Post:
    """An outbox and senders. Close it."""

    def __init__(self, database_url: str) -> None:
        self.database = RecordingDatabase(database_url, pool_size=12)
        self.counts: list[tuple[str, ...]] = []
        self._senders: list[Sender] = []

    def sender(self, *, guard: Guard | None = None, **options: Any) -> Sender:
        meter = Meter(redis.Redis.from_url(NO_REDIS))
        meter.count = lambda metric, *labels, by=1: self.counts.append((metric.name, *labels))  # type: ignore[method-assign]
        fetcher = webhook_fetcher(guard or Guard(networks=INSIDE, tls_only=True))
        made = Sender(database=self.database, fetcher=fetcher, meter=meter, **options)
        self._senders.append(made)
        return made

    def put(self, endpoint_id: int, number: int = 1) -> list[int]:
        """Deliveries to an endpoint."""
        tenant = value(self.database, "SELECT tenant FROM webhook_endpoints WHERE id = %(id)s", id=endpoint_id)
        made = [outbox.send_test(self.database, tenant, endpoint_id) for _ in range(number)]
        return [each for each in made if each is not None]

    def only(self) -> dict[str, Any]:
        """The one delivery there is."""
        (found,) = rows(self.database, "SELECT id FROM webhook_deliveries")
        return row(self.database, "webhook_deliveries", found[0])

    def endpoint(self, endpoint_id: int) -> webhooks.Endpoint:
        found = webhooks.get(self.database, "default", endpoint_id)
        assert found is not None
        return found

    def make_due(self) -> None:
        """As if the delays were over."""
        rows(self.database, "UPDATE webhook_deliveries SET due_at = now() WHERE state = 'PENDING'")
        rows(self.database, "UPDATE webhook_endpoints SET paused_until = now()")

    def close(self) -> None:
        for each in self._senders:
            each.close()
        self.database.dispose()


@pytest.fixture
def post(database_url: str) -> Iterator[Post]:
    post = Post(database_url)
    yield post
    post.close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


@pytest.fixture
def verify(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(CLIENT))
    return importlib.import_module("vancetope_client").verify_webhook


# -- what is sent ------------------------------------------------------------------------------------------------------


def test_a_closing_arrives_signed_and_once(post: Post, receiver: Receiver, database_url: str, verify: Any) -> None:
    number, secret = endpoint(post.database, receiver.url)
    with Rig(database_url) as rig:
        process = rig.submit({"finish": "Grüße"})
        rig.drain()
        result = rig.result(process)
    sender = post.sender()
    assert (sender.run(), sender.run()) == (1, 0)
    (request,) = receiver.requests
    assert request.path == "/hook"
    assert request.headers["content-type"] == "application/json"
    assert request.headers["user-agent"] == "vancetope-webhooks/1"
    event = verify(secret, request.headers, request.body)
    assert event == told(post.database)[0]
    assert (event["id"], event["data"]["processId"]) == (request.id, str(process))
    assert event["data"]["result"] == result
    assert "Grüße" in str(result)
    found = post.only()
    assert (found["state"], found["attempts"], found["status_code"], found["error"]) == ("DELIVERED", 1, 204, None)
    assert found["lease_expires_at"] is None
    assert post.endpoint(number).failing_since is None
    assert post.counts == [(WEBHOOKS.name, "delivered")]


def test_after_a_rotation_both_secrets_fit_and_later_the_new_one_alone(
    post: Post, receiver: Receiver, verify: Any
) -> None:
    number, first = endpoint(post.database, receiver.url)
    rotated = webhooks.rotate(post.database, "default", number, keep_seconds=3_600)
    assert rotated is not None
    _, second = rotated
    assert first != second
    post.put(number)
    post.sender().run()
    rows(post.database, "UPDATE webhook_endpoints SET previous_expires_at = now()")
    post.put(number)
    post.sender().run()
    both, new = receiver.requests
    assert len(both.headers["webhook-signature"].split(" ")) == 2
    assert verify(first, both.headers, both.body) == verify(second, both.headers, both.body)
    assert len(new.headers["webhook-signature"].split(" ")) == 1
    with pytest.raises(ValueError, match="no signature"):
        verify(first, new.headers, new.body)


# -- what fails --------------------------------------------------------------------------------------------------------


def test_a_500_is_tried_again_with_the_same_id_and_body_and_a_new_time(post: Post, receiver: Receiver) -> None:
    number, _ = endpoint(post.database, receiver.url)
    post.put(number)
    receiver.answer = lambda _: (500, {}, b"out of\nmemory \x00 here")
    clock = iter([1_700_000_000.0, 1_700_000_009.0])
    sender = post.sender(wall_clock=lambda: next(clock))
    assert sender.run() == 1
    found = post.only()
    assert (found["state"], found["attempts"], found["status_code"]) == ("PENDING", 1, 500)
    assert found["error"] == "answered 500: out of memory \ufffd here"
    wait = value(post.database, "SELECT extract(epoch FROM due_at - attempted_at)::float8 FROM webhook_deliveries")
    assert DELAYS[0] * 0.8 <= wait <= DELAYS[0] * 1.2 + 5
    assert post.endpoint(number).failing_since is not None
    # Nothing is due before its time.
    assert sender.run() == 0
    receiver.answer = 200
    post.make_due()
    assert sender.run() == 1
    first, second = receiver.requests
    assert (first.id, first.body) == (second.id, second.body)
    assert (first.headers["webhook-timestamp"], second.headers["webhook-timestamp"]) == ("1700000000", "1700000009")
    assert (post.only()["state"], post.only()["attempts"], post.only()["error"]) == ("DELIVERED", 2, None)
    assert post.endpoint(number).failing_since is None
    assert [outcome for _, outcome in post.counts] == ["retried", "delivered"]


def test_a_receiver_that_is_away_gets_it_when_it_is_back(post: Post) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    number, _ = endpoint(post.database, f"http://127.0.0.1:{port}/hook")
    post.put(number)
    post.sender().run()
    found = post.only()
    assert (found["state"], found["status_code"]) == ("PENDING", None)
    assert "refused" in found["error"].lower()
    with Receiver() as back:
        webhooks.change(post.database, "default", number, url=back.url)
        assert post.endpoint(number).failing_since is None
        post.make_due()
        post.sender().run()
        assert len(back.requests) == 1


def test_after_the_last_attempt_it_is_given_up_and_can_be_sent_again_by_hand(post: Post, receiver: Receiver) -> None:
    number, _ = endpoint(post.database, receiver.url)
    (delivery,) = post.put(number)
    receiver.answer = 503
    sender = post.sender()
    for _ in range(len(DELAYS) + 1):
        assert post.only()["state"] == "PENDING"
        post.make_due()
        assert sender.run() == 1
    found = post.only()
    assert (found["state"], found["attempts"]) == ("FAILED", len(DELAYS) + 1)
    assert post.counts[-1] == (WEBHOOKS.name, "failed")
    post.make_due()
    assert sender.run() == 0
    receiver.answer = 204
    assert outbox.retry(post.database, number, delivery)
    assert sender.run() == 1
    assert post.only()["state"] == "DELIVERED"
    # Also one that has arrived.
    assert outbox.retry(post.database, number, delivery)
    assert sender.run() == 1
    assert len({each.id for each in receiver.requests}) == 1
    assert not outbox.retry(post.database, number + 1, delivery)


def test_410_disables_the_endpoint(post: Post, receiver: Receiver) -> None:
    number, _ = endpoint(post.database, receiver.url)
    post.put(number, 3)
    receiver.answer = 410
    sender = post.sender(threads=1)
    assert sender.run() == 1
    found = post.endpoint(number)
    assert (found.enabled, found.disabled_reason) == (False, "the receiver answered 410 Gone")
    states = [each.state for each in outbox.deliveries(post.database, number)]
    assert states == [DeliveryState.PENDING, DeliveryState.PENDING, DeliveryState.FAILED]
    # The others rest until somebody enables it again.
    receiver.answer = 200
    assert sender.run() == 0
    webhooks.change(post.database, "default", number, enabled=True)
    assert sender.run() == 2
    assert post.endpoint(number).disabled_reason is None


def test_an_endpoint_to_which_nothing_gets_through_for_days_is_disabled(post: Post, receiver: Receiver) -> None:
    number, _ = endpoint(post.database, receiver.url)
    receiver.answer = 500
    sender = post.sender()
    for age, enabled in (("4 days 23 hours", True), ("5 days", False)):
        rows(
            post.database,
            "UPDATE webhook_endpoints SET failing_since = now() - %(age)s::interval - interval '1 second'",
            age=age,
        )
        post.put(number)
        assert sender.run() == 1
        assert post.endpoint(number).enabled is enabled
    assert post.endpoint(number).disabled_reason == "every attempt failed for 5 days"


@pytest.mark.parametrize("status", [429, 503])
def test_an_endpoint_that_asks_for_a_rest_gets_it(post: Post, receiver: Receiver, status: int) -> None:
    number, _ = endpoint(post.database, receiver.url)
    post.put(number, 5)
    receiver.answer = lambda _: (status, {"Retry-After": "3600"}, b"")
    sender = post.sender(threads=1)
    assert sender.run() == 1
    assert sender.run() == 0
    wait = "SELECT extract(epoch FROM {} - now())::float8 FROM {} WHERE {}"
    for column, table, which in (
        ("paused_until", "webhook_endpoints", "true"),
        ("due_at", "webhook_deliveries", "attempts = 1"),
    ):
        assert 3_500 < value(post.database, wait.format(column, table, which)) <= 3_600
    receiver.answer = 200
    rows(post.database, "UPDATE webhook_endpoints SET paused_until = now()")
    assert sender.run() == 4


@pytest.mark.parametrize("where", ["http://169.254.169.254/latest/meta-data", "inside"])
def test_a_redirect_is_a_failure_and_is_not_followed(post: Post, receiver: Receiver, where: str) -> None:
    with Receiver() as inside:
        target = inside.url if where == "inside" else where
        receiver.answer = lambda _: (302, {"Location": target}, b"")
        number, _ = endpoint(post.database, receiver.url)
        post.put(number)
        assert post.sender().run() == 1
        assert inside.requests == []
    assert (post.only()["state"], post.only()["error"]) == ("PENDING", "answered 302: redirects are not followed")


@pytest.mark.parametrize(
    ("url", "address", "why"),
    [
        ("https://hooks.example/in", "10.0.0.7", "a private address"),
        ("https://hooks.example/in", "169.254.169.254", "a link-local address"),
        ("https://hooks.example/in", "::ffff:127.0.0.1", "a loopback address"),
        ("https://127.0.0.1/in", "127.0.0.1", "a loopback address"),
        ("http://hooks.example/in", "93.184.216.34", "only https"),
        ("https://hooks.example:25/in", "93.184.216.34", "port 25"),
    ],
)
def test_nothing_is_sent_to_where_nothing_may_be_sent(post: Post, url: str, address: str, why: str) -> None:
    number, _ = endpoint(post.database, url)
    post.put(number)
    post.sender(guard=Guard(lambda host, port: [address], tls_only=True)).run()
    found = post.only()
    assert (found["state"], found["status_code"]) == ("PENDING", None)
    assert found["error"].startswith("not sent: ")
    assert why in found["error"]


def test_a_name_that_leads_somewhere_else_the_second_time_is_asked_once(post: Post, receiver: Receiver) -> None:
    asked: list[str] = []

    def resolve(host: str, port: int) -> list[str]:
        asked.append(host)
        return ["127.0.0.1"] if len(asked) == 1 else ["10.0.0.7"]

    number, _ = endpoint(post.database, receiver.url.replace("127.0.0.1", "hooks.example"))
    post.put(number)
    post.sender(guard=Guard(resolve, networks=INSIDE)).run()
    assert asked == ["hooks.example"]
    assert receiver.requests[0].headers["host"] == f"hooks.example:{receiver.server_port}"
    assert post.only()["state"] == "DELIVERED"


def test_a_receiver_that_never_ends_its_answer_is_cut_and_what_it_said_is_bounded(
    post: Post, receiver: Receiver
) -> None:
    # An answer that promises more than it sends: the sender must not wait for the rest for ever.
    receiver.answer = lambda _: (500, {"Content-Length": "100000000"}, b"x" * 50_000)
    number, _ = endpoint(post.database, receiver.url)
    post.put(number)
    assert post.sender(attempt_seconds=1.0).run() == 1
    assert len(post.only()["error"]) == outbox.MAX_ERROR_CHARS


# -- many at once ------------------------------------------------------------------------------------------------------


class Gate:
    """An answer that waits until it is opened."""

    def __init__(self, status: int = 200) -> None:
        self.status = status
        self.opened = threading.Event()
        self.entered = threading.Semaphore(0)

    def __call__(self, _: Request) -> Answer:
        self.entered.release()
        assert self.opened.wait(30)
        return (self.status, {}, b"")


def test_a_slow_receiver_delays_no_other_one_and_no_turn(post: Post, receiver: Receiver, database_url: str) -> None:
    gate = Gate()
    with Receiver(gate) as slow:
        waits, _ = endpoint(post.database, slow.url)
        post.put(waits, 40)
        sender = post.sender()
        assert sender.kick()
        assert gate.entered.acquire(timeout=20)
        assert not sender.kick()
        # All this happens while the slow one answers nothing.
        quick, _ = endpoint(post.database, receiver.url)
        with Rig(database_url) as rig:
            for _ in range(5):
                rig.submit({"finish": 1})
            rig.drain()
            assert rig.all_closed()
        told_of = "SELECT count(*) FROM webhook_deliveries WHERE endpoint_id = %(id)s AND state = 'DELIVERED'"
        eventually(lambda: value(post.database, told_of, id=quick) == 5, "the quick one has all of its own")
        assert slow.most <= 4
        assert len(slow.requests) <= 4
        gate.opened.set()
        # Those 40 and the 5 closings, which it is told of, too.
        eventually(lambda: len(slow.requests) == 45, "the slow one has all of its own")
        assert slow.most <= 4


def test_endpoints_that_fail_take_half_of_the_threads_at_most(post: Post, receiver: Receiver) -> None:
    gate = Gate(500)
    with Receiver(gate) as slow:
        bad = [endpoint(post.database, slow.url)[0] for _ in range(12)]
        rows(post.database, "UPDATE webhook_endpoints SET failing_since = now()")
        for each in bad:
            post.put(each, 3)
        sender = post.sender(threads=4)
        assert sender.kick()
        for _ in range(2):
            assert gate.entered.acquire(timeout=20)
        good, _ = endpoint(post.database, receiver.url)
        post.put(good, 10)
        eventually(lambda: len(receiver.requests) == 10, "the good one has all of its own")
        assert slow.most == 2
        gate.opened.set()
        eventually(
            lambda: value(post.database, "SELECT count(*) FROM webhook_deliveries WHERE attempts > 0") == 46,
            "all tried",
        )


def test_the_first_of_every_endpoint_goes_before_the_second_of_any(post: Post) -> None:
    crowded, _ = endpoint(post.database)
    lonely, _ = endpoint(post.database)
    post.put(crowded, 20)
    post.put(lonely, 1)
    found = outbox.claim(post.database, limit=2, each=10, lease_seconds=60)
    assert sorted(each.endpoint_id for each in found) == sorted([crowded, lonely])


def test_senders_at_the_same_time_send_each_attempt_once(post: Post, receiver: Receiver) -> None:
    ids = [endpoint(post.database, receiver.url)[0] for _ in range(6)]
    for each in ids:
        post.put(each, 20)
    made = in_threads(4, lambda _: post.sender(threads=6).run())
    assert sum(made) == 120
    assert rows(post.database, "SELECT DISTINCT error FROM webhook_deliveries") == [(None,)]
    assert len(receiver.requests) == len({each.id for each in receiver.requests}) == 120
    found = rows(post.database, "SELECT state, attempts, count(*) FROM webhook_deliveries GROUP BY 1, 2")
    assert found == [("DELIVERED", 1, 120)]


def test_claims_at_the_same_time_never_overlap(post: Post) -> None:
    number, _ = endpoint(post.database)
    post.put(number, 60)
    claimed = in_threads(
        6, lambda _: [a.id for _ in range(5) for a in outbox.claim(post.database, limit=5, each=60, lease_seconds=60)]
    )
    seen = [each for some in claimed for each in some]
    assert len(seen) == len(set(seen)) == 60


# -- crashes -----------------------------------------------------------------------------------------------------------


def age_leases(post: Post) -> None:
    rows(
        post.database,
        "UPDATE webhook_deliveries SET lease_expires_at = now(), due_at = now() WHERE lease_expires_at IS NOT NULL",
    )


def test_who_dies_between_sending_and_marking_has_sent_and_it_is_sent_again(
    post: Post, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    number, _ = endpoint(post.database, receiver.url)
    post.put(number)

    def dies(point: str) -> None:
        assert point == "after_webhook"
        raise faults.InjectedFault(point)

    with monkeypatch.context() as patched:
        patched.setattr(faults, "reach", dies)
        post.sender().run()
    assert (post.only()["state"], post.only()["attempts"]) == ("PENDING", 1)
    # Not before its lease is over.
    assert post.sender().run() == 0
    age_leases(post)
    assert post.sender().run() == 1
    first, second = receiver.requests
    assert (first.id, first.body) == (second.id, second.body)
    assert (post.only()["state"], post.only()["attempts"]) == ("DELIVERED", 2)


def test_a_database_that_goes_away_before_the_mark_costs_a_repetition(post: Post, receiver: Receiver) -> None:
    number, _ = endpoint(post.database, receiver.url)
    post.put(number)

    def away(sql: str) -> None:
        if "'DELIVERED'" in sql:
            raise DatabaseUnavailable("gone")

    post.database.hooks.append(away)
    assert post.sender().run() == 1
    post.database.hooks.clear()
    age_leases(post)
    assert post.sender().run() == 1
    assert len({each.id for each in receiver.requests}) == 1
    assert post.only()["state"] == "DELIVERED"


def test_who_has_lost_the_lease_marks_nothing(post: Post) -> None:
    number, _ = endpoint(post.database)
    post.put(number)
    (first,) = outbox.claim(post.database, limit=1, each=1, lease_seconds=60)
    age_leases(post)
    (second,) = outbox.claim(post.database, limit=1, each=1, lease_seconds=60)
    assert (first.id, first.number, second.number) == (second.id, 1, 2)
    assert outbox.mark_failed(post.database, first, error="late", delay_seconds=None) is None
    assert not outbox.mark_delivered(post.database, first, status_code=200)
    assert post.only()["state"] == "PENDING"
    # Who retries by hand meanwhile is told to wait.
    assert not outbox.retry(post.database, number, first.id)
    assert outbox.mark_delivered(post.database, second, status_code=200)


def test_a_sender_that_is_closed_cuts_what_hangs_and_takes_nothing_more(post: Post) -> None:
    gate = Gate()
    with Receiver(gate) as slow:
        number, _ = endpoint(post.database, slow.url)
        post.put(number, 2)
        sender = post.sender(attempt_seconds=30.0)
        sender.kick()
        assert gate.entered.acquire(timeout=20)
        began = time.monotonic()
        sender.close(timeout=0.2)
        assert time.monotonic() - began < 15
        assert not sender.kick()
        states = {(each.state, each.attempts) for each in outbox.deliveries(post.database, number)}
        assert states == {(DeliveryState.PENDING, 1)}
        gate.opened.set()


def test_what_no_secret_can_sign_stops_nothing_else(post: Post, receiver: Receiver) -> None:
    broken, _ = endpoint(post.database, receiver.url)
    rows(post.database, "UPDATE webhook_endpoints SET secret = 'whsec_!' WHERE id = %(id)s", id=broken)
    post.put(broken)
    good, _ = endpoint(post.database, receiver.url)
    post.put(good)
    assert post.sender().run() == 2
    assert len(receiver.requests) == 1


def test_no_secret_shows_in_what_is_shown_or_logged(post: Post) -> None:
    number, secret = endpoint(post.database)
    post.put(number)
    (attempt,) = outbox.claim(post.database, limit=1, each=1, lease_seconds=60)
    assert attempt.secrets == (secret,)
    shown = f"{attempt!r} {webhooks.endpoints(post.database)!r} {outbox.deliveries(post.database, number)!r}"
    assert "whsec_" not in shown
    assert Redactor()(f"signed with {secret}, sent") == f"signed with {MASK}, sent"


def test_old_deliveries_are_pruned_and_young_ones_stay(post: Post, receiver: Receiver) -> None:
    number, _ = endpoint(post.database, receiver.url)
    post.put(number, 3)
    rows(
        post.database,
        "UPDATE webhook_deliveries SET created_at = now() - interval '31 days', state = 'FAILED', finished_at = now()"
        " WHERE id < (SELECT max(id) FROM webhook_deliveries)",
    )
    assert post.sender().run() == 1
    assert post.only()["state"] == "DELIVERED"


def test_without_endpoints_there_is_nothing_to_send(post: Post) -> None:
    assert outbox.send_test(post.database, "default", 1) is None
    assert post.sender().run() == 0
