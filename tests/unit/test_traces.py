"""Traces: whose trace a turn belongs to, where in it, and when OpenTelemetry is loaded at all."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from models.records import Lease, NodeStatus, NodeView, ProcessView
from tasks.settings import SettingsError, load_settings
from tasks.traces import build_traces, endpoint, node_span, origin, parent_of_node, part_span, sent_along, turn_span

ROOT = UUID("0190f5fe-7c3a-7a1b-8c2d-3e4f5a6b7c8d")
SUB = UUID("0190f5fe-7c3a-7a1b-8c2d-000000000001")
THEIRS = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def process(**fields: Any) -> ProcessView:
    known = ProcessView(
        id=ROOT, root_id=ROOT, parent_node_id=None, tenant="t", project="p", owner=None, engine="jeltz",
        recipe_name="jeltz", goal="", params={}, recipe={}, limits_counted=False, deadline_at=None, overdue=False,
        priority=3, trace_context={}, callback=None,
    )  # fmt: skip
    return replace(known, **fields)


def node(**fields: Any) -> NodeView:
    known = NodeView(
        id=7, parent_id=None, depth=0, order_key=(), kind="ROOT", goal="", status=NodeStatus.RUNNING, phase="START",
        cursor={}, transport={}, turn=1, losses=0, spawned_calls=0,
    )  # fmt: skip
    return replace(known, **fields)


LEASE = Lease(node_id=7, turn=1, fence=11, process_id=ROOT, root_id=ROOT)


def test_without_a_traceparent_the_trace_is_named_like_the_root_process() -> None:
    found = origin(process())
    assert (f"{found.trace_id:032x}", found.parent_id, found.sampled) == (ROOT.hex, None, True)
    assert origin(process(id=SUB, parent_node_id=7)) == found
    assert origin(process(id=UUID(int=0), root_id=UUID(int=0))).trace_id == 1


def test_the_enqueuers_trace_is_gone_on_with() -> None:
    found = origin(process(trace_context={"Traceparent": THEIRS, "tracestate": "a=1"}))
    assert f"{found.trace_id:032x}" == "4bf92f3577b34da6a3ce929d0e0e4736"
    assert f"{found.parent_id:016x}" == "00f067aa0ba902b7"
    assert (found.sampled, found.state) == (True, "a=1")
    assert not origin(process(trace_context={"traceparent": THEIRS[:-1] + "0"})).sampled
    later = origin(process(trace_context={"traceparent": "cc" + THEIRS[2:] + "-what-comes-later"}))
    assert (later.trace_id, later.parent_id) == (found.trace_id, found.parent_id)


@pytest.mark.parametrize(
    "header",
    [
        "", "rubbish", THEIRS.upper(), "ff" + THEIRS[2:], THEIRS[:-3], f"00-{'0' * 32}-00f067aa0ba902b7-01",
        f"00-4bf92f3577b34da6a3ce929d0e0e4736-{'0' * 16}-01", THEIRS + "\n" + THEIRS,
    ],
)  # fmt: skip
def test_a_traceparent_that_is_none_is_as_if_it_was_not_there(header: str) -> None:
    assert origin(process(trace_context={"traceparent": header})) == origin(process())


@pytest.mark.parametrize(
    ("headers", "kept"),
    [
        ({"traceparent": THEIRS, "tracestate": "a=1", "other": "x"}, {"traceparent": THEIRS, "tracestate": "a=1"}),
        ({"traceparent": THEIRS, "tracestate": "a=" + "1" * 511}, {"traceparent": THEIRS}),
        ({"traceparent": [THEIRS], "tracestate": 7}, {}),
        ({"traceparent": ""}, {}),
    ],
)
def test_of_what_is_sent_along_the_trace_headers_are_taken(headers: dict[str, Any], kept: dict[str, str]) -> None:
    assert sent_along(headers.get) == kept


def test_the_spans_hang_together_like_the_plan() -> None:
    theirs = process(trace_context={"traceparent": THEIRS})
    assert parent_of_node(process(), node()) is None
    assert parent_of_node(theirs, node()) == int("00f067aa0ba902b7", 16)
    assert parent_of_node(theirs, node(id=8, parent_id=7)) == node_span(theirs, 7)
    called = process(id=SUB, parent_node_id=8, trace_context={"traceparent": THEIRS})
    assert parent_of_node(called, node(id=9)) == node_span(theirs, 8)


def test_ids_are_the_same_everywhere_and_differ_for_what_differs() -> None:
    again = Lease(node_id=7, turn=1, fence=12, process_id=ROOT, root_id=ROOT)
    found = [
        node_span(process(), 7), node_span(process(), 8), node_span(process(root_id=SUB), 7),
        turn_span(LEASE), turn_span(again), part_span(LEASE, "call"), part_span(LEASE, "tool 0"),
    ]  # fmt: skip
    assert len(set(found)) == len(found)
    assert all(0 < each < 2**64 for each in found)
    assert turn_span(LEASE) == turn_span(replace(LEASE))


def test_where_traces_go() -> None:
    ours = load_settings({"VANCETOPE_OTEL_ENDPOINT": "http://collector:4318/"})
    none = load_settings({})
    assert endpoint(none, {}) is None
    assert endpoint(ours, {}) == "http://collector:4318/v1/traces"
    assert endpoint(none, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://a:4318/otlp"}) == "http://a:4318/otlp/v1/traces"
    both = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://a:4318", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://b/as-it-is"}
    assert endpoint(none, both) == "http://b/as-it-is"
    assert endpoint(ours, both) == "http://collector:4318/v1/traces"
    assert endpoint(ours, {"OTEL_SDK_DISABLED": "TRUE"}) is None


def test_an_address_that_is_none_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"VANCETOPE_OTEL_ENDPOINT: .*http or https address, like http://collector"):
        load_settings({"VANCETOPE_OTEL_ENDPOINT": "collector:4317"})


def test_without_the_package_our_own_setting_is_an_error_and_the_standard_one_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "tasks.otel", None)
    with pytest.raises(SettingsError, match=r"VANCETOPE_OTEL_ENDPOINT is set, but .*pip install"):
        build_traces(load_settings({"VANCETOPE_OTEL_ENDPOINT": "http://collector:4318"}), {})
    assert build_traces(load_settings({}), {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}) is None


@pytest.mark.parametrize(
    ("wanted", "before", "expected"),
    [
        # redis-py loads the API when it is there, so that alone says nothing.
        ({}, "", "False"),
        ({}, "sys.modules['opentelemetry'] = None", "False"),
        ({"VANCETOPE_OTEL_ENDPOINT": "http://127.0.0.1:1"}, "", "True"),
    ],
    ids=["off", "off and not installed", "on"],
)
def test_opentelemetry_is_loaded_only_when_it_is_wanted(wanted: dict[str, str], before: str, expected: str) -> None:
    program = (
        f"import sys; {before}\nfrom tasks.celery import runtime; runtime.runner\n"
        "print('tasks.otel' in sys.modules and any(name.startswith('opentelemetry.exporter') for name in sys.modules))"
    )
    nowhere = {
        "VANCETOPE_DATABASE_URL": "postgresql://u@127.0.0.1:1/x",
        "VANCETOPE_REDIS_URL": "redis://127.0.0.1:1/0",
    }
    command = [sys.executable, "-c", program]
    ended = subprocess.run(command, env={**nowhere, **wanted}, capture_output=True, text=True, timeout=60)
    assert ended.stdout.strip() == expected, ended.stderr
