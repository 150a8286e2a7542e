"""Valem on the wire: the real client against a fake provider of either format, on the real store and runner."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import pytest
from factory import broken_invariants, root_node, value
from fakes.provider import FakeProvider, Recorded
from fakes.wire_formats import Answer
from rig import Rig, in_threads
from valem_specs import GOOD, RAISE_VAT, failing_tests, text, wrong_paths

from engines.llm.client import RoutingClient, build_client, shutdown
from engines.llm.config import LlmConfig
from models.records import Turn
from models.store import model_specs, read
from tasks.settings import load_settings
from tasks.submission import parse_submission, prepare

HERE = ("default", "default")
MODELS = {"openai": "openai:gpt-4o", "anthropic": "anthropic:claude-sonnet-4-6", "groq": "groq:openai/gpt-oss-120b"}
EVALUATE = ("eval_jsonata", {"expression": "1 + 1"})


class Wired:
    """A rig whose calls go over HTTP to a provider that speaks ``wire``."""

    def __init__(self, rig: Rig, provider: FakeProvider, wire: str) -> None:
        self.rig = rig
        self.provider = provider
        self.wire = wire

    @property
    def is_anthropic(self) -> bool:
        return self.wire == "anthropic"

    def hands_in(self, spec: dict[str, Any]) -> Answer:
        """The answer as this format has it beside tools: a call of ``submit_spec``, or the text."""
        return Answer(tool_calls=[("submit_spec", spec)]) if self.is_anthropic else Answer(text=text(spec))

    def submit(self, recipe: str = "valem-generate", *, limits: Any = None, **params: Any) -> UUID:
        params = {"model": MODELS[self.wire], "domainDescription": "Orders.", "evolutionRequest": "Raise VAT."} | params
        payload = {"recipe": recipe, "params": params, "limits": limits or {}}
        return self.rig.send(prepare(parse_submission(payload), load_settings({}), self.rig.engines))

    def result(self, process: UUID) -> dict[str, Any]:
        wrapper = self.rig.result(process)
        assert wrapper is not None, read.status(self.rig.database, process)
        assert broken_invariants(self.rig.database) == {}
        return wrapper

    def system(self, request: Recorded) -> list[str]:
        """The stable tiers as they were sent."""
        if self.is_anthropic:
            return [block["text"] for block in request.body["system"]]
        return [each["content"] for each in request.body["messages"] if each["role"] in ("system", "developer")]

    def tools(self, request: Recorded) -> list[str]:
        found = request.body.get("tools", [])
        return [tool["name"] if self.is_anthropic else tool["function"]["name"] for tool in found]

    def limit(self, request: Recorded) -> int:
        body = request.body
        found: int = body["max_tokens"] if "max_tokens" in body else body["max_completion_tokens"]
        return found


@pytest.fixture
def provider() -> Iterator[FakeProvider]:
    with FakeProvider() as fake:
        yield fake
        shutdown()


@pytest.fixture
def on(provider: FakeProvider, database_url: str, redis_url: str) -> Iterator[Callable[[str], Wired]]:
    rigs: list[Rig] = []

    def make(wire: str) -> Wired:
        config = LlmConfig(
            api_keys={name: f"key-of-{name}" for name in MODELS},
            base_urls={name: provider.anthropic_url if name == "anthropic" else provider.openai_url for name in MODELS},
        )
        client = build_client(config)
        assert isinstance(client, RoutingClient)
        # With the limit on concurrent calls: what is sent goes past it as it is.
        rigs.append(Rig(database_url, client=client, redis_url=redis_url, concurrency=1))
        return Wired(rigs[-1], provider, wire)

    yield make
    for rig in rigs:
        rig.close()


@pytest.fixture(params=["openai", "anthropic"])
def wired(request: pytest.FixtureRequest, on: Callable[[str], Wired]) -> Wired:
    return on(request.param)


def test_tools_a_repair_and_an_answer(wired: Wired) -> None:
    wired.provider.enqueue(
        Answer(text="I try it.", tool_calls=[EVALUATE]), wired.hands_in(wrong_paths(1)), wired.hands_in(GOOD)
    )
    process = wired.submit()
    wired.rig.drain()
    wrapper = wired.result(process)
    assert (wrapper["success"], wrapper["attempts"], wrapper["version"]) == (True, 2, 1)
    requests = wired.provider.requests
    assert len(requests) == 3
    offered = ["eval_jsonata", "get_domain_guidance", "web_fetch"]
    for request in requests:
        # Forced never while there are other tools; the list stays the same, it begins the cached prefix.
        assert wired.tools(request) == [*offered, *(["submit_spec"] if wired.is_anthropic else [])]
        assert "tool_choice" not in request.body
        assert wired.limit(request) == 8_192
    assert len({json.dumps(wired.system(request)) for request in requests}) == 1
    if wired.is_anthropic:
        assert all("temperature" not in request.body for request in requests), "this model takes none"
    else:
        assert [request.body["temperature"] for request in requests] == [0.0, 0.0, 0.2]
        assert {request.body["response_format"]["json_schema"]["strict"] for request in requests} == {False}
    ledger = read.calls(wired.rig.database, process)
    assert [(row["attempt"], row["structured_path"]) for row in ledger] == [(1, "loose"), (1, "loose"), (2, "loose")]


def test_convergence_goes_on_to_the_hard_cap(wired: Wired) -> None:
    wired.provider.enqueue(*[wired.hands_in(wrong_paths(count)) for count in range(6, 0, -1)])
    process = wired.submit()
    wired.rig.drain()
    wrapper = wired.result(process)
    assert (wrapper["error"], wrapper["attempts"], len(wired.provider.requests)) == ("no_valid_spec", 6, 6)


def test_the_best_effort_is_stored_also_when_the_budget_is_spent(wired: Wired) -> None:
    wired.provider.enqueue(wired.hands_in(failing_tests(2)), wired.hands_in(failing_tests(1)))
    process = wired.submit(limits={"maxCalls": 2})
    wired.rig.drain()
    wrapper = wired.result(process)
    assert (wrapper["success"], wrapper["bestEffort"], wrapper["forced"], wrapper["attempts"]) == (True, True, True, 2)
    assert (len(wrapper["failingTests"]), len(wired.provider.requests)) == (1, 2)
    assert model_specs.get(wired.rig.database, *HERE, "order-total") is not None


def test_a_refusal_is_one_call_and_keeps_its_reason(wired: Wired) -> None:
    wired.provider.enqueue(Answer(refusal="I will not model that."))
    process = wired.submit()
    wired.rig.drain()
    wrapper = wired.result(process)
    assert (wrapper["error"], wrapper["attempts"], len(wired.provider.requests)) == ("refusal", 1, 1)
    assert "I will not model that." in wrapper["message"]


def marks(request: Recorded) -> int:
    return json.dumps(request.body).count('"cache_control"')


@pytest.mark.parametrize("results", [1, 8])
def test_e12_an_evolution_has_two_cache_marks_however_many_results(
    on: Callable[[str], Wired], provider: FakeProvider, results: int
) -> None:
    wired = on("anthropic")
    model_specs.put(wired.rig.database, *HERE, "order-total", GOOD, version=1, spec_version="1.0.0")
    provider.enqueue(
        Answer(tool_calls=[EVALUATE] * results), wired.hands_in({"removeConstants": ["vatPct"]}),
        wired.hands_in(RAISE_VAT),
    )  # fmt: skip
    process = wired.submit("valem-evolve", modelId="order-total", expectedVersion=1)
    wired.rig.drain()
    assert wired.result(process)["version"] == 2
    assert [marks(request) for request in provider.requests] == [2, 2, 2]
    for request in provider.requests:
        assert ["cache_control" in block for block in request.body["system"]] == [True, True]
    # E13: the prefix is the same to the byte in every call and every attempt.
    assert len({json.dumps([request.body["tools"], request.body["system"]]) for request in provider.requests}) == 1


def test_an_evolutions_tiers_stay_apart_as_leading_system_messages(
    on: Callable[[str], Wired], provider: FakeProvider
) -> None:
    wired = on("openai")
    provider.enqueue(wired.hands_in(RAISE_VAT))
    process = wired.submit("valem-evolve", spec=GOOD)
    wired.rig.drain()
    assert wired.result(process)["success"]
    messages = provider.requests[0].body["messages"]
    assert [message["role"] for message in messages] == ["system", "system", "user"]
    assert '"vatPct":20' in messages[1]["content"]


def test_without_caching_there_is_no_mark_and_one_system_text(
    on: Callable[[str], Wired], provider: FakeProvider
) -> None:
    wired = on("anthropic")
    provider.enqueue(wired.hands_in(RAISE_VAT))
    process = wired.submit("valem-evolve", spec=GOOD, promptCache=False)
    wired.rig.drain()
    assert wired.result(process)["success"]
    assert (marks(provider.requests[0]), len(provider.requests[0].body["system"])) == (0, 1)


def test_without_other_tools_the_answer_tool_is_forced_or_the_format_sent(wired: Wired) -> None:
    wired.provider.enqueue(Answer(json=GOOD))
    process = wired.submit(maxRoundTrips=0)
    wired.rig.drain()
    assert wired.result(process)["success"]
    (request,) = wired.provider.requests
    if wired.is_anthropic:
        assert request.body["tool_choice"] == {"type": "tool", "name": "submit_spec"}
        assert wired.tools(request) == ["submit_spec"]
    else:
        assert (wired.tools(request), "response_format" in request.body) == ([], True)


def test_a_call_that_hands_the_answer_in_counts_where_no_such_tool_was_offered(
    on: Callable[[str], Wired], provider: FakeProvider
) -> None:
    wired = on("groq")
    provider.enqueue(Answer(tool_calls=[("submit_spec", GOOD)]))
    process = wired.submit()
    wired.rig.drain()
    assert wired.result(process)["attempts"] == 1
    assert "submit_spec" not in wired.tools(provider.requests[0])


def test_without_structured_output_nothing_shapes_the_answer(wired: Wired) -> None:
    wired.provider.enqueue(Answer(text=f"Here it is:\n```json\n{text(GOOD)}\n```"))
    process = wired.submit(structuredOutput=False)
    wired.rig.drain()
    assert wired.result(process)["attempts"] == 1
    (request,) = wired.provider.requests
    assert ("submit_spec" in wired.tools(request), "response_format" in request.body) == (False, False)


def test_no_response_format_stands_beside_tools_where_the_pair_is_refused(
    on: Callable[[str], Wired], provider: FakeProvider
) -> None:
    wired = on("groq")
    provider.enqueue(Answer(tool_calls=[EVALUATE]), Answer(text=text(GOOD)))
    process = wired.submit()
    wired.rig.drain()
    assert wired.result(process)["attempts"] == 1
    assert [("response_format" in each.body, len(wired.system(each))) for each in provider.requests] == [(False, 1)] * 2


def test_g13_the_last_call_of_an_attempt_has_no_tools(wired: Wired) -> None:
    wired.provider.rule(lambda request: "eval_jsonata" in wired.tools(request), Answer(tool_calls=[EVALUATE]))
    wired.provider.rule("Orders.", Answer(json=GOOD))
    process = wired.submit(maxRoundTrips=3)
    wired.rig.drain()
    assert wired.result(process)["success"]
    requests = wired.provider.requests
    assert len(requests) == 4
    assert wired.tools(requests[-1]) == (["submit_spec"] if wired.is_anthropic else [])
    assert "No further tools can be used" in requests[-1].text
    assert len({json.dumps(wired.system(request)) for request in requests}) == 1


def test_g15_an_answer_cut_off_on_the_wire_gets_more_room(wired: Wired) -> None:
    wired.provider.enqueue(
        Answer(text=text(GOOD), cut_tokens=40), Answer(text=text(GOOD), cut_tokens=60), wired.hands_in(GOOD)
    )
    process = wired.submit()
    wired.rig.drain()
    wrapper = wired.result(process)
    assert (wrapper["success"], wrapper["attempts"]) == (True, 3)
    assert [wired.limit(request) for request in wired.provider.requests] == [8_192, 16_384, 8_192]
    assert "small spec" in wired.provider.requests[-1].text


def test_g14_of_two_evolutions_at_once_one_wins(wired: Wired) -> None:
    rig = wired.rig
    model_specs.put(rig.database, *HERE, "order-total", GOOD, version=1, spec_version="1.0.0")
    wired.provider.enqueue(*[wired.hands_in(RAISE_VAT)] * 2)
    processes = [wired.submit("valem-evolve", modelId="order-total") for _ in range(2)]
    for _ in range(4):  # both answers are there and checked
        rig.run_next()
    store = [turn for turn in (rig.publisher.take(), rig.publisher.take()) if turn is not None]
    assert len(store) == 2

    def write(index: int) -> None:
        turn: Turn = store[index]
        rig.runner.run(turn.engine, turn.node_id, turn.turn)

    in_threads(2, write)
    rig.drain()
    won, lost = sorted((wired.result(each) for each in processes), key=lambda each: not each["success"])
    assert (won["success"], won["version"]) == (True, 2)
    assert (lost["success"], lost["error"], lost["evolution"]) == (False, "version_conflict", RAISE_VAT)
    stored = model_specs.get(rig.database, *HERE, "order-total")
    assert stored is not None
    winner = next(each for each in processes if wired.result(each)["success"])
    assert stored.node_id == root_node(rig.database, winner)
    assert value(rig.database, "SELECT count(*) FROM model_specs") == 2
