"""A service that turns one worker away is left alone by all of them, as long as Redis is there to tell."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis
from fakes.search import SearchService
from rig import NO_REDIS

from engines.tools.base import ToolContext
from engines.tools.pauses import OwnPauses
from engines.tools.web_search import WebSearch
from tasks.pauses import SharedPauses

CONTEXT = ToolContext(seconds=5.0, max_chars=2_000)
FOUND = b'{"results": [{"url": "http://a.example/"}]}'


@pytest.fixture
def service() -> Iterator[SearchService]:
    service = SearchService()
    yield service
    service.shutdown()
    service.server_close()


@pytest.fixture
def client(redis_url: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(redis_url) as client:
        yield client


def tool(service: SearchService, client: redis.Redis, *, path: str = "s", own: OwnPauses | None = None) -> WebSearch:
    """The tool as a worker of its own has it."""
    url = f"http://127.0.0.1:{service.server_address[1]}/{path}?key=secret&q={{query}}"
    return WebSearch(url, pauses=SharedPauses(lambda: client, own))


def test_a_worker_heeds_the_pause_of_another(service: SearchService, client: redis.Redis) -> None:
    service.answer = (429, b"", {"Retry-After": "40"})
    first, second = tool(service, client), tool(service, client)
    assert not first.run({"query": "x"}, CONTEXT).ok
    service.answer = (200, FOUND, {})
    told = second.run({"query": "y"}, CONTEXT)
    assert not told.ok
    assert "rate limited" in told.text
    assert len(service.asked) == 1
    assert tool(service, client, path="other").run({"query": "z"}, CONTEXT).ok, "another service is another matter"
    (key,) = client.keys("vancetope:pause:*")
    assert b"secret" not in key
    assert 30_000 < client.pttl(key) <= 40_000
    client.delete(key)
    assert second.run({"query": "y"}, CONTEXT).ok


def test_the_longer_of_two_pauses_counts(client: redis.Redis) -> None:
    one, two = SharedPauses(lambda: client), SharedPauses(lambda: client)
    one.pause("s", 100.0)
    two.pause("s", 5.0)
    assert two.left("s") > 50
    one.pause("s", 200.0)
    assert two.left("s") > 150
    two.pause("t", 0.0)
    assert one.left("t") == 0


def test_without_redis_a_worker_knows_its_own_pauses_and_asks_otherwise(service: SearchService) -> None:
    away = redis.Redis.from_url(NO_REDIS, socket_connect_timeout=1)
    now = [0.0]
    searching = tool(service, away, own=OwnPauses(lambda: now[0]))
    service.answer = (200, FOUND, {})
    assert searching.run({"query": "x"}, CONTEXT).ok
    service.answer = (429, b"", {})
    assert not searching.run({"query": "x"}, CONTEXT).ok
    service.answer = (200, FOUND, {})
    assert not searching.run({"query": "x"}, CONTEXT).ok
    assert len(service.asked) == 2
    now[0] = 31.0
    assert searching.run({"query": "x"}, CONTEXT).ok
    away.close()
