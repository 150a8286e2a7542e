"""Jobs in the batch lane: the real store and runner, the official SDKs, and a fake provider over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from fakes.provider import FakeProvider
from fakes.wire_formats import Answer
from lanes import BatchLaneStage

from engines.llm.client import shutdown

MakeStage = Callable[..., BatchLaneStage]


@pytest.fixture
def provider() -> Iterator[FakeProvider]:
    with FakeProvider(default=Answer(json={"n": 1})) as fake:
        yield fake
        shutdown()


@pytest.fixture
def make(provider: FakeProvider, database_url: str, redis_url: str) -> Iterator[MakeStage]:
    made: list[BatchLaneStage] = []

    def stage(wire: str = "openai", **options: object) -> BatchLaneStage:
        made.append(BatchLaneStage(database_url, redis_url, provider, wire, **options))
        return made[-1]

    yield stage
    for each in made:
        each.close()


@pytest.mark.parametrize("wire", ["openai", "anthropic"])
def test_a_job_goes_through_a_batch_and_costs_half(make: MakeStage, wire: str) -> None:
    stage = make(wire)
    usage = {"input": 1_000, "output": 100}
    stage.provider.rule("How many?", Answer(json={"n": 7}, usage=usage))
    process = stage.jeltz()
    stage.park()
    assert stage.states() == ["WAITING"]
    stage.settle()
    wrapper = stage.wrapper(process)
    assert (wrapper["success"], wrapper["data"], wrapper["attempts"]) == (True, {"n": 7}, 1)
    assert stage.ledger(process) == [("batch", None)]
    assert stage.calls_at_once() == 0
    assert stage.batches() == [("ENDED", "completed", 1)]

    live = stage.jeltz(lane="normal")
    stage.rig.drain()
    assert stage.wrapper(live)["data"] == {"n": 7}
    assert stage.ledger(live) == [("normal", None)]
    assert stage.cost(process) == pytest.approx(stage.cost(live) / 2)
