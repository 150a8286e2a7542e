"""Spans of turns run on the real store: tools, failures, crashed workers, and what is kept out of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from factory import expire_lease, root_node
from fakes.collector import Collector, Received
from rig import Rig

from engines.base import ToolResult
from engines.llm.scripted import Script, ScriptedAnswer
from engines.tools.base import ToolContext
from tasks.observe import Observer, TurnSeen
from tasks.otel import MAX_CONTENT, SpanExport
from tasks.settings import load_settings
from tasks.submission import parse_submission, prepare

Export = Callable[..., tuple[Rig, Callable[[], list[Received]]]]


class Gauge:
    """A tool: measures what it knows and fails at everything else."""

    name = "gauge"
    description = "Measures."
    parameters: dict[str, Any] = {"type": "object", "properties": {"what": {"type": "string"}}}  # noqa: RUF012

    def run(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        known = arguments["what"] == "tower"
        return ToolResult(text="324 metres" if known else "[tool error] no such thing", ok=known)


def _redacted(text: str) -> str:
    return text.replace("s3cret", "***")


@pytest.fixture
def exporting(database_url: str) -> Iterator[Export]:
    """``exporting(*answers, capture=…)``: a rig whose turns are exported, and how to get their spans."""
    with ExitStack() as stack:

        def make(*answers: Any, capture: bool = False) -> tuple[Rig, Callable[[], list[Received]]]:
            collector = stack.enter_context(Collector())
            export = SpanExport(f"{collector.url}/v1/traces", capture=capture, redact=_redacted)
            script = Script.of(*answers, keep=100)
            rig = stack.enter_context(Rig(database_url, script=script, tools=[Gauge()], sinks=[export]))

            def spans() -> list[Received]:
                export.close()
                return collector.spans

            return rig, spans

        yield make


def ask_ford(rig: Rig, goal: str) -> None:
    rig.send(prepare(parse_submission({"recipe": "ford", "goal": goal}), load_settings({}), rig.engines))
    rig.drain()


def measuring(*things: str) -> ScriptedAnswer:
    calls = [{"id": f"c{at}", "name": "gauge", "arguments": {"what": what}} for at, what in enumerate(things)]
    return ScriptedAnswer.model_validate({"text": "I measure.", "tool_calls": calls})


def test_tools_are_spans_of_their_turn(exporting: Export) -> None:
    rig, spans = exporting(measuring("tower", "soul"), "It is 324 m.")
    ask_ford(rig, "How high is it?")
    found = spans()
    turns = {span.id: span for span in found if span.name.startswith("turn ")}
    assert sorted(span.name for span in turns.values()) == ["turn ford ASK", "turn ford ASK", "turn ford TOOLS"]
    tools = [span for span in found if span.name == "execute_tool gauge"]
    assert [turns[tool.parent].name for tool in tools] == ["turn ford TOOLS"] * 2
    by_call = {tool.attributes["gen_ai.tool.call.id"]: tool for tool in tools}
    good, bad = by_call["c0"], by_call["c1"]
    assert good.attributes["gen_ai.operation.name"] == "execute_tool"
    assert (good.attributes["gen_ai.tool.name"], good.failed) == ("gauge", False)
    assert (bad.attributes["error.type"], bad.failed) == ("tool_error", True)
    for tool in tools:
        assert turns[tool.parent].began <= tool.began <= tool.ended <= turns[tool.parent].ended
    first = next(span for span in found if span.name.startswith("chat "))
    assert first.attributes["gen_ai.response.finish_reasons"] == ["stop"]
    everything = json.dumps([span.attributes for span in found])
    for text in ("How high", "324", "tower", "no such thing", "I measure"):
        assert text not in everything


def test_content_is_whole_redacted_and_bounded(exporting: Export) -> None:
    rig, spans = exporting(measuring("tower"), "It is 324 m.", capture=True)
    ask_ford(rig, "s3cret " + "How high is it? " * 5_000)
    found = spans()
    (tool,) = [span for span in found if span.name.startswith("execute_tool")]
    assert json.loads(tool.attributes["gen_ai.tool.call.arguments"]) == {"what": "tower"}
    assert "324 metres" in tool.attributes["gen_ai.tool.call.result"]
    first, second = (span.attributes for span in found if span.name.startswith("chat "))
    assert json.loads(first["gen_ai.system_instructions"])[0]["type"] == "text"
    (asked,) = json.loads(first["gen_ai.input.messages"])
    text = asked["parts"][0]["content"]
    assert "*** How high" in text
    assert "s3cret" not in json.dumps([span.attributes for span in found])
    assert len(text) == MAX_CONTENT
    roles = [message["role"] for message in json.loads(second["gen_ai.input.messages"])]
    assert roles == ["user", "assistant", "tool"]
    (said,) = json.loads(second["gen_ai.output.messages"])
    assert said["parts"] == [{"type": "text", "content": "It is 324 m."}]


def test_a_turn_that_lost_its_worker_is_another_span_when_it_is_run_again(exporting: Export) -> None:
    rig, spans = exporting({"n": 1}, {"n": 1})
    process = rig.submit({"ask": "n?"}, {"finish": 1})

    def meanwhile(*_: object) -> None:
        rig.client.during = None
        expire_lease(rig.database, root_node(rig.database, process))
        rig.publisher.publish(rig.publisher.seen[:1])
        rig.drain()

    rig.client.during = meanwhile
    rig.run_next()
    found = spans()
    assert len({span.id for span in found}) == len(found)
    first = [span for span in found if span.name.startswith("turn ") and span.attributes["vancetope.turn"] == 1]
    assert [span.attributes["vancetope.outcome"] for span in first] == ["lost", "committed"]
    assert {span.trace for span in found} == {process.hex}
    assert [span.name for span in found].count("process probe") == 1
    assert [span.name for span in found].count("chat scripted") == 2


def test_how_a_turn_ended_is_on_its_span(exporting: Export) -> None:
    rig, spans = exporting()
    rig.submit({"crash": "bang", "times": 1}, {"fail": "no luck"})
    rig.drain(skip_delays=True)
    crashed, _, failed = (span for span in spans() if span.name.startswith("turn "))
    assert (crashed.attributes["vancetope.reason"], crashed.failed) == ("CRASHED", True)
    assert (failed.attributes["vancetope.close_reason"], failed.failed) == ("FAILED", True)
    assert (failed.attributes["vancetope.turn"], failed.attributes["vancetope.engine"]) == (3, "probe")


def test_an_observer_that_breaks_does_not_break_the_turn(database_url: str, caplog: pytest.LogCaptureFixture) -> None:
    seen: list[TurnSeen] = []

    def broken(_: TurnSeen) -> None:
        raise RuntimeError("full disk")

    with Rig(database_url, {"n": 1}) as rig:
        rig.runner._observer = Observer(broken, seen.append)
        process = rig.submit({"ask": "n?"})
        rig.drain()
        assert rig.status(process) == "CLOSED"
    assert [turn.outcome for turn in seen] == ["committed"] * 2
    assert "turn not observed" in caplog.text
