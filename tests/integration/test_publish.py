"""Turn messages: the same form as Celery's own, in the right list, and hints that live in their worker only."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
import redis
from celery import Celery

from models.records import Turn
from tasks.broker import publisher_app
from tasks.publish import Publisher, engine_queue, queue_lists, turn_task
from tasks.settings import load_settings

TURN = Turn(node_id=17, turn=3, engine="jeltz", priority=3)
# Different in every message: ids, and the name of the producer.
OWN = ("id", "root_id", "origin", "correlation_id", "reply_to", "delivery_tag")


def decoded(raw: bytes) -> dict[str, Any]:
    message: dict[str, Any] = json.loads(raw)
    message["body"] = json.loads(base64.b64decode(message["body"]))
    return message


def without_own(message: dict[str, Any]) -> dict[str, Any]:
    for part in ("headers", "properties"):
        message[part] = {key: value for key, value in message[part].items() if key not in OWN}
    return message


@pytest.fixture
def client(redis_url: str) -> redis.Redis:
    return redis.Redis.from_url(redis_url)


@pytest.fixture
def app(redis_url: str) -> Celery:
    return publisher_app(load_settings({"VANCETOPE_REDIS_URL": redis_url}))


@pytest.mark.parametrize("priority", [0, 3, 6, 9])
def test_a_turn_looks_exactly_like_a_message_of_celery(client: redis.Redis, app: Celery, priority: int) -> None:
    turn = Turn(node_id=17, turn=3, engine="jeltz", priority=priority)
    app.send_task(turn_task("jeltz"), args=(17, 3), queue=engine_queue("jeltz"), priority=priority, ignore_result=True)
    used = [name for name in queue_lists(engine_queue("jeltz")) if client.exists(name)]
    assert len(used) == 1
    theirs = client.lpop(used[0])
    assert Publisher(client).publish([turn]) == 1
    ours = client.lpop(used[0])
    assert isinstance(theirs, bytes)
    assert isinstance(ours, bytes)
    assert set(decoded(ours)["headers"]) == set(decoded(theirs)["headers"])
    assert set(decoded(ours)["properties"]) == set(decoded(theirs)["properties"])
    assert without_own(decoded(ours)) == without_own(decoded(theirs))


def test_many_turns_keep_their_order_and_their_own_ids(client: redis.Redis) -> None:
    turns = [Turn(node_id=number, turn=1, engine="jeltz", priority=3) for number in range(50)]
    assert Publisher(client).publish(turns) == 50
    found = [decoded(raw) for raw in client.lrange(queue_lists(engine_queue("jeltz"))[1], 0, -1)]
    # Workers take from the right.
    assert [message["body"][0][0] for message in reversed(found)] == list(range(50))
    assert len({message["headers"]["id"] for message in found}) == 50
    assert len({message["properties"]["delivery_tag"] for message in found}) == 50


def test_a_priority_between_the_steps_goes_to_the_list_below_it(client: redis.Redis) -> None:
    Publisher(client).publish([Turn(node_id=1, turn=1, engine="jeltz", priority=5)])
    assert client.llen(queue_lists(engine_queue("jeltz"))[1]) == 1


def test_without_redis_nothing_is_sent_and_nothing_is_raised() -> None:
    nowhere = redis.Redis(host="127.0.0.1", port=1, socket_connect_timeout=1)
    assert Publisher(nowhere).publish([TURN]) == 0


def consumed(app: Celery, queue: str) -> tuple[Any, Any]:
    """A channel that holds one unacknowledged message of ``queue``, and the message."""
    connection = app.connection_for_read()
    channel = connection.default_channel
    message = app.amqp.queues[queue](channel).get(no_ack=False)
    assert message is not None
    return channel, message


@pytest.mark.parametrize(("queue", "kept_in_redis"), [("vancetope.jeltz", False), ("vancetope.control", True)])
def test_only_hints_are_held_in_memory_alone(client: redis.Redis, app: Celery, queue: str, kept_in_redis: bool) -> None:
    app.amqp.queues.add(queue)
    app.send_task("any.task", args=(1, 2), queue=queue, ignore_result=True)
    channel, message = consumed(app, queue)
    assert bool(client.hlen("unacked")) is kept_in_redis
    message.ack()
    assert client.hlen("unacked") == 0
    assert not channel.qos._delivered or channel.qos._dirty
    channel.connection.client.close()


@pytest.mark.parametrize("queue", ["vancetope.jeltz", "vancetope.control"])
def test_what_a_worker_still_holds_at_its_end_goes_back(client: redis.Redis, app: Celery, queue: str) -> None:
    app.amqp.queues.add(queue)
    app.send_task("any.task", args=(1, 2), queue=queue, ignore_result=True)
    channel, _ = consumed(app, queue)
    assert sum(client.llen(name) for name in queue_lists(queue)) == 0
    channel.qos.restore_unacked_once()
    assert sum(client.llen(name) for name in queue_lists(queue)) == 1
    assert client.hlen("unacked") == 0
    channel.connection.client.close()


def test_a_rejected_hint_is_back_in_its_queue(client: redis.Redis, app: Celery) -> None:
    app.amqp.queues.add("vancetope.jeltz")
    Publisher(client).publish([TURN])
    channel, message = consumed(app, "vancetope.jeltz")
    message.requeue()
    assert sum(client.llen(name) for name in queue_lists("vancetope.jeltz")) == 1
    channel.connection.client.close()
