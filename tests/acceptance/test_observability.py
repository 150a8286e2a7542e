"""Metrics and traces of real worker processes: what operators see of work that was spread over several of them."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from celery.signals import before_task_publish
from cluster import Cluster, MakeCluster, Member
from factory import new_process
from fakes.collector import Collector, Received
from fakes.provider import FakeProvider
from fakes.wire_formats import Answer
from fastapi.testclient import TestClient
from opentelemetry.propagate import inject
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context
from processes import eventually
from prometheus_client.parser import text_string_to_metric_families

from models.store import processes as store
from tasks.api.app import create_app
from tasks.broker import publisher_app
from tasks.sweeper import SWEPT_KEY
from tasks.wiring import Runtime

ASK = {"ask": "what is n?", "model": "compatible:fake-model"}
TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
THEIRS = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
INTERNAL, CLIENT, CONSUMER = 1, 3, 5


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as server:
        yield server


@pytest.fixture
def traced(make_cluster: MakeCluster, collector: Collector) -> Cluster:
    """A cluster that knows the probe engine and exports what it does."""
    return make_cluster(engines="factory:PROBE", otel_endpoint=collector.url)


def submit(cluster: Cluster, *steps: dict[str, Any], **fields: Any) -> UUID:
    process = new_process(steps, **fields)
    cluster.runtime.publisher.publish(store.submit(cluster.runtime.database, [process]))
    return process.id


def whole_trace(collector: Collector, cluster: Cluster, number: int) -> list[Received]:
    """The spans, once all of ``number`` turns are there. Workers are ended for that, which is when they flush."""
    end(*cluster.members)
    eventually(lambda: len(turns_of(collector.spans)) >= number, f"{number} turns are exported", timeout=20)
    return collector.spans


def end(*members: Member) -> None:
    """A warm shutdown, as a deployment does it."""
    for member in members:
        member.ask_to_end()
    for member in members:
        assert member.wait(30), f"{member.name} does not end"


def turns_of(spans: list[Received]) -> list[Received]:
    return [span for span in spans if span.name.startswith("turn ")]


def scrape(cluster: Cluster) -> dict[str, float]:
    """What an API process shows: ``name{label="value",…}``."""
    app = create_app(Runtime(cluster.settings, publisher_app(cluster.settings)), open_to_loopback=True)
    found = {}
    with TestClient(app, base_url="http://127.0.0.1:8000", client=("127.0.0.1", 50_000)) as client:
        for family in text_string_to_metric_families(client.get("/metrics").text):
            for sample in family.samples:
                found[sample.name + json.dumps(sample.labels, sort_keys=True)] = sample.value
    return found


def test_one_trace_goes_over_workers_nodes_and_sub_processes(
    traced: Cluster, collector: Collector, provider: FakeProvider
) -> None:
    held = threading.Event()
    provider.rule("held", Answer(json={"n": 1}, hold=held))
    branch = [{**ASK, "ask": "held"}, {"finish": 1}]
    inner = [ASK, {"finish": "inner"}]
    # The first worker goes down in the middle of a call, which it still commits; the second one does the rest.
    first = traced.worker(concurrency=1)
    job = submit(traced, {"fan_out": 2, "steps": branch}, {"call": inner}, {"finish": 1}, trace_context=THEIRS)
    provider.wait_for(lambda requests: len(requests) == 1, timeout=30)
    first.ask_to_end()
    held.set()
    end(first)
    traced.worker(concurrency=2)
    traced.beat()
    traced.wait_closed(job)
    turns = traced.rows("SELECT count(*) FROM phase_records")[0][0]
    spans = whole_trace(collector, traced, turns)

    assert {span.trace for span in spans} == {TRACE}
    assert len({span.id for span in spans}) == len(spans)
    assert len({span.sender for span in spans}) == 2
    by_id = {span.id: span for span in spans}

    # From every span there is a way up to the enqueuer's.
    for span in spans:
        up = span
        while up.parent != PARENT:
            assert up.parent in by_id, f"{up.name} hangs in the air"
            up = by_id[up.parent]
        assert up.name == "process probe"

    processes = [span for span in spans if span.name.startswith("process ")]
    root, sub = processes
    assert (root.parent, root.attributes["vancetope.process.id"]) == (PARENT, str(job))
    assert by_id[sub.parent] is root, "the node that called it is the root's own"
    assert sub.attributes["vancetope.process.root_id"] == str(job)
    assert sub.attributes["vancetope.process.id"] != str(job)
    nodes = [span for span in spans if span.name.startswith("node ")]
    assert [by_id[node.parent] for node in nodes] == [root, root]

    assert len(turns_of(spans)) == turns
    assert {span.name for span in turns_of(spans)} == {"turn probe STEP"}
    above = {by_id[span.parent].name.split(" ")[0] for span in turns_of(spans)}
    assert above == {"process", "node"}
    calls = [span for span in spans if span.name.startswith("chat ")]
    assert [by_id[call.parent].name for call in calls] == ["turn probe STEP"] * 3
    assert {path for path, _ in collector.requests} == {"/v1/traces"}


def test_a_message_of_an_instrumented_sender_goes_on_with_their_trace(traced: Cluster, collector: Collector) -> None:
    theirs = SpanContext(int(TRACE, 16), int(PARENT, 16), is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))
    within = set_span_in_context(NonRecordingSpan(theirs))

    def instrumented(headers: dict[str, Any], **_: Any) -> None:
        # What the Celery instrumentation does before a message is published.
        inject(headers, context=within)

    traced.worker(concurrency=1)
    before_task_publish.connect(instrumented)
    try:
        job = traced.send("how many?")
        other = "b" * 32
        explicit = traced.send("how many?", traceContext={"traceparent": f"00-{other}-{PARENT}-01"})
    finally:
        before_task_publish.disconnect(instrumented)
    traced.wait_closed(job, explicit)
    spans = whole_trace(collector, traced, 2)
    processes = {span.attributes["vancetope.process.id"]: span for span in spans if span.name.startswith("process ")}
    assert (processes[str(job)].trace, processes[str(job)].parent) == (TRACE, PARENT)
    assert processes[str(explicit)].trace == other, "what the payload says is more explicit"


def test_a_call_says_in_standard_words_what_it_was(
    traced: Cluster, collector: Collector, provider: FakeProvider
) -> None:
    provider.rule("turned away", Answer(status=400, body={"error": {"message": "no such thing"}}))
    traced.worker(pool="prefork", concurrency=1)
    job = submit(traced, ASK, {**ASK, "ask": "turned away"})
    traced.wait_closed(job)
    spans = whole_trace(collector, traced, 2)
    good, bad = (span for span in spans if span.name == "chat fake-model")
    # Nobody has sent a trace of theirs: it is named like the process.
    assert {span.trace for span in spans} == {job.hex}
    said = good.attributes
    assert (said["gen_ai.operation.name"], said["gen_ai.provider.name"]) == ("chat", "compatible")
    assert (said["gen_ai.request.model"], said["gen_ai.response.finish_reasons"]) == ("fake-model", ["stop"])
    ledger = traced.rows("SELECT input_tokens, output_tokens FROM llm_calls WHERE error_kind IS NULL")[0]
    assert (said["gen_ai.usage.input_tokens"], said["gen_ai.usage.output_tokens"]) == ledger
    assert ledger[0] > 0
    assert "error.type" not in said
    assert (good.kind, good.failed) == (CLIENT, False)
    assert (bad.attributes["error.type"], bad.failed) == ("bad_request", True)
    assert all(span.began <= span.ended for span in spans)
    by_id = {span.id: span for span in spans}
    assert by_id[good.parent].began <= good.began <= good.ended <= by_id[good.parent].ended
    everything = json.dumps([span.attributes for span in spans])
    assert "what is n?" not in everything, "prompts are not shown unless that is asked for"
    assert '\\"n\\"' not in everything


def test_prompts_and_replies_are_shown_when_that_is_asked_for(
    make_cluster: MakeCluster, collector: Collector, provider: FakeProvider
) -> None:
    cluster = make_cluster(
        engines="factory:PROBE", otel_endpoint=collector.url, otel_capture_content="true", llm_api_key="very-secret-key"
    )
    cluster.worker(concurrency=1)
    job = submit(cluster, {**ASK, "ask": "what is n? say very-secret-key"})
    cluster.wait_closed(job)
    spans = whole_trace(collector, cluster, 2)
    (call,) = [span for span in spans if span.name.startswith("chat ")]
    (asked,) = json.loads(call.attributes["gen_ai.input.messages"])
    assert asked == {"role": "user", "parts": [{"type": "text", "content": "what is n? say [redacted]"}]}
    (said,) = json.loads(call.attributes["gen_ai.output.messages"])
    assert (said["role"], said["finish_reason"]) == ("assistant", "stop")
    assert json.loads(said["parts"][0]["content"]) == {"n": 1}


def test_a_trace_the_enqueuer_does_not_record_is_not_recorded(traced: Cluster, collector: Collector) -> None:
    traced.worker(concurrency=1)
    silent = submit(traced, {"finish": 1}, trace_context={"traceparent": f"00-{TRACE}-{PARENT}-00"})
    shown = submit(traced, {"finish": 1})
    traced.wait_closed(silent, shown)
    spans = whole_trace(collector, traced, 1)
    assert {span.trace for span in spans} == {shown.hex}


@pytest.mark.parametrize("status", [None, 500], ids=["nobody listens", "it answers 500"])
def test_a_collector_that_fails_costs_no_turn_and_no_shutdown(status: int | None, make_cluster: MakeCluster) -> None:
    with Collector(status or 200) as server:
        url = server.url if status else "http://127.0.0.1:1"
        cluster = make_cluster(engines="factory:PROBE", otel_endpoint=url)
        worker = cluster.worker(concurrency=2)
        jobs = [submit(cluster, ASK, {"finish": 1}) for _ in range(10)]
        cluster.wait_closed(*jobs)
        end(worker)
    assert cluster.rows("SELECT DISTINCT close_reason FROM processes") == [("DONE",)]


@pytest.mark.parametrize("pool", ["threads", "prefork"])
def test_the_figures_of_several_workers_are_shown_together(
    pool: str, make_cluster: MakeCluster, provider: FakeProvider
) -> None:
    cluster = make_cluster(engines="factory:PROBE")
    workers = cluster.workers(2, pool=pool)
    cluster.beat()
    jobs = [submit(cluster, ASK, {"finish": 1}) for _ in range(20)]
    cluster.wait_closed(*jobs)
    eventually(lambda: cluster.runtime.redis.exists(SWEPT_KEY), "a whole sweep is noted")
    end(*workers)
    found = scrape(cluster)
    turns = cluster.rows("SELECT count(*) FROM phase_records")[0][0]
    assert found['vancetope_turns_total{"engine": "probe", "outcome": "committed"}'] == turns == 40
    assert found['vancetope_turn_duration_seconds_count{"engine": "probe", "phase": "STEP"}'] == turns
    names = '"model": "fake-model", "provider": "compatible"'
    assert found[f'vancetope_provider_calls_total{{"error_kind": "", {names}}}'] == len(provider.requests) == 20
    tokens = cluster.rows("SELECT sum(input_tokens), sum(output_tokens) FROM llm_calls")[0]
    assert found[f'vancetope_provider_tokens_total{{"kind": "input", {names}}}'] == tokens[0]
    assert found[f'vancetope_provider_tokens_total{{"kind": "output", {names}}}'] == tokens[1]
    assert found['vancetope_processes_closed_total{"reason": "DONE"}'] == 20
    assert found["vancetope_sweeps_total{}"] >= 1
    assert found["vancetope_last_sweep_age_seconds{}"] < 60
    assert found['vancetope_leased_turns{"engine": "probe"}'] == 0


def test_a_lost_worker_is_seen(make_cluster: MakeCluster, provider: FakeProvider) -> None:
    cluster = make_cluster(engines="factory:PROBE", lease_seconds=1.0)
    provider.rule("for ever", Answer(hang=True), Answer(json={"n": 1}))
    doomed = cluster.worker(concurrency=1)
    job = submit(cluster, {**ASK, "ask": "for ever"}, {"finish": 1})
    provider.wait_for(lambda requests: len(requests) == 1, timeout=30)
    doomed.kill9()
    survivor = cluster.worker(concurrency=2)
    cluster.beat()
    cluster.wait_closed(job)
    end(survivor)
    assert scrape(cluster)['vancetope_sweep_repairs_total{"repair": "leases_taken_back"}'] >= 1
