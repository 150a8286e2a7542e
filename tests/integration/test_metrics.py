"""`/metrics` on a real PostgreSQL and Redis: figures that are right and cheap, and not shown to everybody."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import redis
import yaml
from factory import make_everything_due
from fakes.provider import FakeProvider
from fakes.wire_formats import Answer
from fastapi.testclient import TestClient
from hooks import endpoint
from lanes import BatchLaneStage
from prometheus_client.parser import text_string_to_metric_families
from rig import NO_REDIS, Rig, in_threads

from engines.llm.base import ErrorKind, LlmError, Usage
from engines.llm.client import shutdown
from models.records import Limits
from models.store import outbox, tokens
from models.store.tokens import Scope
from tasks import meter
from tasks.api.app import create_app
from tasks.api.exposition import FRESH_SECONDS, Metrics
from tasks.broker import publisher_app
from tasks.control import stop_process
from tasks.meter import KEY, WEBHOOKS, Meter, stored
from tasks.publish import URGENT_QUEUE, engine_queue
from tasks.settings import load_settings
from tasks.wiring import Runtime

MONITORING = Path(__file__).parents[2] / "tasks" / "api" / "monitoring"
ASK = {"ask": "what is n?"}
LOOPBACK = ("127.0.0.1", 50_000)
Figures = dict[str, float]


class Api:
    """An API process of its own. ``is_open``: callers of the loopback need no token."""

    def __init__(self, database_url: str, redis_url: str, *, is_open: bool = False, **settings: str) -> None:
        given = {"database_url": database_url, "redis_url": redis_url, **settings}
        found = load_settings({f"VANCETOPE_{name.upper()}": value for name, value in given.items()})
        self.runtime = Runtime(found, publisher_app(found))
        self.app = create_app(self.runtime, open_to_loopback=is_open)
        self.client = TestClient(self.app, base_url="http://127.0.0.1:8000", client=LOOPBACK)

    def token(self, scope: Scope, tenant: str = "default") -> dict[str, str]:
        """The header of a new token."""
        _, secret = tokens.create(self.runtime.database, tenant, str(uuid4()), (scope,))
        return {"Authorization": f"Bearer {secret}"}


def problem(response: Any, status: int, code: str) -> dict[str, Any]:
    body: dict[str, Any] = response.json()
    assert (response.status_code, body["code"]) == (status, code), response.text
    return body


def read(text: str) -> Figures:
    """``name{label="value",…}`` with the labels in order, and the value."""
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = ",".join(f"{key}={value}" for key, value in sorted(sample.labels.items()))
            found[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return found


def scrape(database_url: str, redis_url: str) -> Figures:
    """What a fresh API process shows."""
    api = Api(database_url, redis_url, is_open=True)
    with api.client as client:
        response = client.get("/metrics")
        assert response.status_code == 200, response.text
        return read(response.text)


def shown(figures: Mapping[str, float], name: str) -> Figures:
    """Those of ``name`` that are not zero, by their labels."""
    return {key[len(name) + 1 : -1]: value for key, value in figures.items() if key.startswith(name + "{") and value}


@pytest.fixture
def rig(database_url: str, redis_url: str) -> Iterator[Rig]:
    with Rig(database_url, redis_url=redis_url) as made:
        yield made


# -- what the tables know ----------------------------------------------------------------------------------------------


def test_an_installation_where_nothing_happens_shows_zeros(database_url: str, redis_url: str) -> None:
    found = scrape(database_url, redis_url)
    assert (found["vancetope_postgresql_up"], found["vancetope_redis_up"]) == (1, 1)
    assert found["vancetope_processes{engine=jeltz,status=RUNNING}"] == 0
    assert found["vancetope_oldest_due_turn_seconds{engine=marvin}"] == 0
    assert found[f"vancetope_queue_messages{{queue={URGENT_QUEUE}}}"] == 0
    assert found["vancetope_nodes{state=waits_for_person}"] == 0
    assert found["vancetope_last_sweep_age_seconds"] == float("inf")


def test_processes_nodes_and_turns_are_counted_by_what_they_wait_for(
    rig: Rig, database_url: str, redis_url: str
) -> None:
    rig.submit({"fan_out": 3, "mode": "SEQUENTIAL", "steps": [{"park": None}]})
    rig.submit({"call": [{"park": None}]})
    rig.submit({"wait": 3600}, {"finish": 1})
    rig.submit({"finish": 1})
    rig.drain()
    late = rig.submit(ASK)
    make_old = "UPDATE nodes SET due_at = now() - interval '90 seconds' WHERE process_id = %(id)s RETURNING id"
    assert rig.database.statement(make_old, {"id": late})
    found = scrape(database_url, redis_url)
    assert shown(found, "vancetope_processes") == {"engine=probe,status=RUNNING": 4, "engine=probe,status=INIT": 1}
    states = shown(found, "vancetope_nodes")
    assert states == {
        "state=due": 1, "state=delayed": 1, "state=waits_for_sibling": 2, "state=waits_for_children": 1,
        "state=waits_for_process": 1,
    }  # fmt: skip
    assert found["vancetope_due_turns{engine=probe}"] == 1
    assert 90 <= found["vancetope_oldest_due_turn_seconds{engine=probe}"] < 200
    assert found["vancetope_undelivered_results"] == 1


def test_a_leased_turn_a_budget_and_a_dead_letter_are_seen(rig: Rig, database_url: str, redis_url: str) -> None:
    rig.submit(ASK, limits=Limits(max_calls=1))
    seen: list[Figures] = []
    rig.client.during = lambda request, cancel: seen.append(scrape(database_url, redis_url))
    rig.script.add({"n": 1})
    rig.database.statement("INSERT INTO dead_letters (task, problem, payload) VALUES ('t', 'p', 'x') RETURNING id", {})
    rig.run_next()
    assert seen[0]["vancetope_leased_turns{engine=probe}"] == 1
    assert seen[0]["vancetope_due_turns{engine=probe}"] == 0
    assert seen[0]["vancetope_nodes{state=leased}"] == 1
    assert seen[0]["vancetope_budgets_nearly_spent"] == 1
    assert seen[0]["vancetope_dead_letters"] == 1


def test_no_statement_walks_over_what_is_over(rig: Rig) -> None:
    """Ten thousand closed processes, and none of them is touched."""
    rig.database.statement(
        "WITH p AS (INSERT INTO processes (id, root_id, tenant, project, engine, recipe_name, status, close_reason,"
        " closed_at, delivered_at) SELECT g.id, g.id, 't', 'p', 'probe', 'r', 'CLOSED', 'DONE', now(), now()"
        " FROM (SELECT gen_random_uuid() AS id FROM generate_series(1, 10000)) g RETURNING id)"
        " INSERT INTO nodes (process_id, kind, phase, status, settled_at)"
        " SELECT id, 'ROOT', 'END', 'DONE', now() FROM p",
        {},
    )
    number, _ = endpoint(rig.database)
    rig.database.statement(
        "INSERT INTO webhook_deliveries (endpoint_id, event_id, type, payload, state, finished_at)"
        " SELECT %(id)s, 'evt_' || g, 'process.closed', '{}', 'DELIVERED', now() FROM generate_series(1, 10000) g",
        {"id": number},
    )
    for table in ("processes", "nodes", "webhook_deliveries"):
        rig.database.statement(f"ANALYZE {table}", {})
    rig.submit(ASK)
    from_figures = [
        value
        for name, value in vars(__import__("models.store.figures", fromlist=["x"])).items()
        if name.startswith("_")
    ]
    statements = [str(value) for value in from_figures if type(value).__name__ == "TextClause"]
    assert len(statements) == 5
    for statement in statements:
        plan = rig.database.statement(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}", {})[0][0]
        for step in steps_of(plan[0]["Plan"]):
            touched = step.get("Actual Rows", 0) + step.get("Rows Removed by Filter", 0)
            assert touched < 100, (step, statement)


def test_webhooks_that_wait_and_endpoints_that_fail_are_seen(rig: Rig, database_url: str, redis_url: str) -> None:
    fine, failing, given_up, switched_off = (endpoint(rig.database)[0] for _ in range(4))
    set_to = "UPDATE webhook_endpoints SET {} WHERE id = %(id)s RETURNING id"
    rig.database.statement(set_to.format("failing_since = now()"), {"id": failing})
    rig.database.statement(set_to.format("enabled = false, disabled_reason = 'gone'"), {"id": given_up})
    rig.database.statement(set_to.format("enabled = false"), {"id": switched_off})
    for each in (fine, failing, given_up, switched_off):
        made = outbox.send_test(rig.database, "default", each)
        age = {fine: 60, failing: 7200}.get(each, 9000)
        rig.database.statement(
            "UPDATE webhook_deliveries SET created_at = now() - make_interval(secs => %(age)s),"
            " due_at = now() - make_interval(secs => %(age)s) WHERE id = %(id)s RETURNING id",
            {"id": made, "age": age},
        )
    found = scrape(database_url, redis_url)
    assert found["vancetope_webhooks_pending"] == 2
    assert 7200 <= found["vancetope_oldest_pending_webhook_seconds"] < 7300
    # Only what nothing but the senders holds up.
    assert 60 <= found["vancetope_oldest_due_webhook_seconds"] < 160
    assert (found["vancetope_webhook_endpoints_failing"], found["vancetope_webhook_endpoints_given_up"]) == (1, 1)
    assert "vancetope_webhook_attempts_total{outcome=delivered}" not in found
    rig.background.meter.count(WEBHOOKS, "delivered")
    rig.flush_counts()
    assert scrape(database_url, redis_url)["vancetope_webhook_attempts_total{outcome=delivered}"] == 1


def steps_of(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for inner in plan.get("Plans", []):
        yield from steps_of(inner)


# -- what the workers have counted -------------------------------------------------------------------------------------


def test_turns_calls_tokens_and_cost_are_counted(rig: Rig, database_url: str, redis_url: str) -> None:
    first, second = rig.submit(ASK, {"finish": 1}), rig.submit(ASK)
    failure = LlmError(
        ErrorKind.REFUSAL, "no", provider="scripted", model="scripted", usage=Usage(input_tokens=5), cost_usd=0.25
    )
    rig.script.add({"n": 1})
    rig.run_next()
    rig.client.during = _raising(failure)
    rig.run_next()
    rig.client.during = None
    rig.drain()
    rig.flush_counts()
    found = scrape(database_url, redis_url)
    turns = shown(found, "vancetope_turns_total")
    assert set(turns) == {"engine=probe,outcome=committed"}
    ledger = rig.database.statement("SELECT count(*), sum(input_tokens), sum(output_tokens) FROM llm_calls", {})[0]
    calls = shown(found, "vancetope_provider_calls_total")
    names = "model=scripted,provider=scripted"
    assert calls == {f"error_kind=,{names}": 1, f"error_kind=refusal,{names}": 1}
    assert sum(calls.values()) == ledger[0]
    tokens = shown(found, "vancetope_provider_tokens_total")
    assert tokens[f"kind=input,{names}"] == ledger[1]
    assert tokens.get(f"kind=output,{names}", 0) == ledger[2]
    assert shown(found, "vancetope_provider_cost_usd_total") == {names: 0.25}
    assert found[f"vancetope_provider_call_duration_seconds_count{{{names}}}"] == 2
    records = rig.database.statement("SELECT count(*) FROM phase_records", {})[0][0]
    assert found["vancetope_turn_duration_seconds_count{engine=probe,phase=STEP}"] == records == sum(turns.values())
    reasons = {row[0]: row[1] for row in _closed(rig)}
    assert shown(found, "vancetope_processes_closed_total") == {
        f"reason={key}": value for key, value in reasons.items()
    }
    assert {rig.status(first), rig.status(second)} == {"CLOSED"}


def _raising(failure: LlmError) -> Any:
    def during(*_: object) -> None:
        raise failure

    return during


def _closed(rig: Rig) -> list[tuple[Any, ...]]:
    return rig.database.statement("SELECT close_reason, count(*) FROM processes WHERE status = 'CLOSED' GROUP BY 1", {})


def test_a_turn_that_is_lost_or_put_off_is_counted_as_that(rig: Rig, database_url: str, redis_url: str) -> None:
    process = rig.submit(ASK)
    rig.client.during = lambda request, cancel: stop(rig, process)
    rig.script.add({"n": 1})
    rig.run_next()
    rig.flush_counts()
    found = scrape(database_url, redis_url)
    assert shown(found, "vancetope_turns_total") == {"engine=probe,outcome=lost": 1}
    assert shown(found, "vancetope_turn_duration_seconds_count") == {}
    # Paid for, although the ledger never hears of it.
    assert sum(shown(found, "vancetope_provider_calls_total").values()) == 1
    assert shown(found, "vancetope_processes_closed_total") == {"reason=STOPPED": 1}


def stop(rig: Rig, process: Any) -> None:
    class Wired:
        engines, database, background, deliverer = rig.engines, rig.database, rig.background, staticmethod(len)

    assert stop_process(Wired, process) == (process,)  # type: ignore[arg-type]


def test_several_workers_add_up_and_a_restart_takes_nothing_away(redis_url: str, database_url: str) -> None:
    client = redis.Redis.from_url(redis_url)
    workers = [Meter(client) for _ in range(4)]

    def work(index: int) -> None:
        for _ in range(50):
            workers[index].count(meter.TURNS, "jeltz", "committed")
            workers[index].observe(meter.TURN_SECONDS, "jeltz", "ASK", value=0.2)
        workers[index].flush(everything=True)

    in_threads(4, work)
    Meter(client).flush(everything=True)
    for found in (scrape(database_url, redis_url), scrape(database_url, redis_url)):
        assert found["vancetope_turns_total{engine=jeltz,outcome=committed}"] == 200
        assert found["vancetope_turn_duration_seconds_bucket{engine=jeltz,le=0.25,phase=ASK}"] == 200
        assert found["vancetope_turn_duration_seconds_sum{engine=jeltz,phase=ASK}"] == pytest.approx(40.0)
    client.close()


def test_counts_wait_for_a_redis_that_is_away(redis_url: str) -> None:
    now = [0.0]
    away = redis.Redis.from_url(NO_REDIS, socket_connect_timeout=1)
    counts = Meter(away, clock=lambda: now[0])
    woken: list[int] = []
    counts.on_first(lambda: woken.append(1))
    counts.count(meter.SWEEPS)
    counts.count(meter.SWEEPS)
    assert (len(woken), counts.next_at) == (1, meter.FLUSH_SECONDS)
    counts.flush()
    assert counts.next_at == meter.FLUSH_SECONDS, "it is not time yet"
    now[0] = meter.FLUSH_SECONDS
    counts.flush()
    assert counts.next_at == 2 * meter.FLUSH_SECONDS, "kept for the next time"
    here = redis.Redis.from_url(redis_url)
    counts._add = Meter(here)._add
    now[0] = 2 * meter.FLUSH_SECONDS
    counts.flush()
    assert (counts.next_at, dict(stored(here))) == (None, {("vancetope_sweeps",): 2.0})
    here.close()


def test_invented_names_do_not_fill_redis(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meter, "MAX_FIELDS", 10)
    monkeypatch.setattr(meter, "MAX_PENDING", 30)
    client = redis.Redis.from_url(redis_url)
    counts = Meter(client)
    for number in range(10):
        counts.count(meter.CALLS, "openai", f"model-{number}", "")
    counts.flush(everything=True)
    for number in range(100):
        counts.count(meter.CALLS, "openai", f"other-{number}" + "x" * 500, "")
    counts.count(meter.CALLS, "openai", "model-3", "")
    counts.flush(everything=True)
    found = dict(stored(client))
    assert len(found) == 10
    # Full for newcomers, and still right for those that were there before.
    assert found["vancetope_provider_calls", "openai", "model-2", ""] == 1
    client.delete(KEY)
    counts.count(meter.CALLS, "openai", "x" * 500, "")
    counts.flush(everything=True)
    assert [len(field[2]) for field in dict(stored(client))] == [meter.MAX_LABEL]
    client.close()


# -- who may see it ----------------------------------------------------------------------------------------------------


def ask(api: Api, host: str, **headers: str) -> int:
    client = TestClient(api.app, base_url="http://metrics:8000", client=(host, 50_000))
    return int(client.get("/metrics", headers=headers).status_code)


def test_without_a_token_nothing_is_shown(database_url: str, redis_url: str) -> None:
    api = Api(database_url, redis_url)
    with api.client as client:
        problem(client.get("/metrics"), 401, "unauthorized")
        assert ask(api, "10.1.2.3") == 401
        for scope in (Scope.READ, Scope.ADMIN):
            assert client.get("/metrics", headers=api.token(scope)).status_code == 200
        problem(client.get("/metrics", headers=api.token(Scope.SUBMIT)), 403, "forbidden")


def test_a_token_of_a_guest_does_not_show_what_others_do(database_url: str, redis_url: str) -> None:
    api = Api(database_url, redis_url)
    with api.client as client:
        answer = problem(client.get("/metrics", headers=api.token(Scope.ADMIN, tenant="guest")), 403, "forbidden")
        assert "tenant default" in answer["detail"]


def test_opened_it_answers_private_networks_and_nobody_from_outside(database_url: str, redis_url: str) -> None:
    api = Api(database_url, redis_url, metrics_open="true")
    with api.client:
        assert [ask(api, host) for host in ("10.1.2.3", "127.0.0.1", "fd00::1", "100.64.0.9")] == [200] * 4
        assert [ask(api, host) for host in ("8.8.8.8", "2001:4860:4860::8888", "not-an-address")] == [401] * 3
        # A proxy has a private address itself; whom it speaks for is not known.
        assert ask(api, "10.1.2.3", **{"X-Forwarded-For": "8.8.8.8"}) == 401
        assert ask(api, "10.1.2.3", Authorization="Bearer vt_wrong") == 401


# -- how it is read ----------------------------------------------------------------------------------------------------


def test_many_scrapes_ask_the_database_once(database_url: str, redis_url: str) -> None:
    runtime = Api(database_url, redis_url).runtime
    with Rig(database_url) as rig:
        runtime.__dict__["database"] = rig.database
        now = [100.0]
        found = Metrics(runtime, clock=lambda: now[0])
        in_threads(8, lambda _: list(found.collect()))
        assert rig.database.sent.count("BEGIN") == 1
        now[0] += FRESH_SECONDS
        list(found.collect())
        assert rig.database.sent.count("BEGIN") == 2
    runtime.close()


def test_without_redis_or_postgresql_the_other_one_is_still_shown(database_url: str, redis_url: str) -> None:
    found = scrape(database_url, NO_REDIS)
    assert (found["vancetope_postgresql_up"], found["vancetope_redis_up"]) == (1, 0)
    assert "vancetope_due_turns{engine=jeltz}" in found
    found = scrape("postgresql://nobody@127.0.0.1:1/x", redis_url)
    assert (found["vancetope_postgresql_up"], found["vancetope_redis_up"]) == (0, 1)
    assert found[f"vancetope_queue_messages{{queue={engine_queue('ford')}}}"] == 0


def test_the_format_is_the_one_that_was_asked_for(database_url: str, redis_url: str) -> None:
    api = Api(database_url, redis_url, is_open=True)
    with api.client as client:
        plain = client.get("/metrics")
        assert plain.headers["content-type"].startswith("text/plain; version=")
        modern = client.get("/metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0"})
        assert modern.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
        assert modern.text.endswith("# EOF\n")


def test_queues_and_breakers_are_shown(rig: Rig, database_url: str, redis_url: str) -> None:
    with Rig(database_url, redis_url=redis_url, shared=True, breaker_failures=1, breaker_seconds=3600) as shared:
        shared.submit(ASK)
        shared.client.during = _raising(LlmError(ErrorKind.OVERLOADED, "no", provider="fake", model="m"))
        shared.run_next()
        shared.redis.lpush(engine_queue("jeltz"), "x", "y")
        shared.redis.lpush(f"{engine_queue('jeltz')}\x06\x163", "z")
        shared.flush_counts()
        found = scrape(database_url, redis_url)
        assert found[f"vancetope_queue_messages{{queue={engine_queue('jeltz')}}}"] == 3
        assert found["vancetope_provider_breaker_open{provider=fake}"] == 1
        shared.client.during = None
        shared.redis.delete("vancetope:gate:{fake}:state")
        make_everything_due(shared.database)
        assert scrape(database_url, redis_url)["vancetope_provider_breaker_open{provider=fake}"] == 0


def test_calls_that_wait_for_a_batch_are_seen_and_ended_batches_counted(database_url: str, redis_url: str) -> None:
    with FakeProvider(default=Answer(json={"n": 1})) as provider:
        stage = BatchLaneStage(database_url, redis_url, provider)
        stage.jeltz()
        stage.park()
        stage.rig.database.statement("UPDATE batch_requests SET created_at = now() - interval '26 hours'", {})
        waiting = scrape(database_url, redis_url)
        stage.settle()
        stage.rig.flush_counts()
        found = scrape(database_url, redis_url)
        stage.close()
        shutdown()
    assert waiting["vancetope_nodes{state=waits_for_batch}"] == 1
    assert 93_600 <= waiting["vancetope_oldest_batch_request_seconds"] < 94_000
    assert found["vancetope_nodes{state=waits_for_batch}"] == found["vancetope_oldest_batch_request_seconds"] == 0
    assert found["vancetope_batches_total{outcome=completed,provider=openai}"] == 1
    assert found["vancetope_provider_calls_total{error_kind=,model=gpt-4o,provider=openai}"] == 1
    # It was awaited for hours and read in no time: neither says how fast the provider is.
    assert not shown(found, "vancetope_provider_call_duration_seconds_count")


# -- dashboard and alerts ----------------------------------------------------------------------------------------------


def expressions() -> Iterator[tuple[str, str]]:
    """``(where, PromQL)`` of the dashboard and of the rules."""
    dashboard = json.loads((MONITORING / "dashboard.json").read_text(encoding="utf-8"))
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"]
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["name"], variable["query"]
    for group in yaml.safe_load((MONITORING / "alerts.yaml").read_text(encoding="utf-8"))["groups"]:
        for rule in group["rules"]:
            yield rule["alert"], rule["expr"]


@pytest.fixture
def exposed(rig: Rig, database_url: str, redis_url: str) -> dict[str, set[str]]:
    """The labels of every sample of an installation where each metric has one."""
    counts = rig.background.meter
    for metric in meter.METRICS:
        if isinstance(metric, meter.Counter):
            counts.count(metric, *(["x"] * len(metric.labels)))
        else:
            counts.observe(metric, *(["x"] * len(metric.labels)), value=1.0)
    rig.flush_counts()
    api = Api(database_url, redis_url, is_open=True)
    found: dict[str, set[str]] = {}
    with api.client as client:
        for family in text_string_to_metric_families(client.get("/metrics").text):
            for sample in family.samples:
                found.setdefault(sample.name, set()).update(sample.labels)
    return found


def test_dashboard_and_alerts_ask_only_for_what_is_exposed(exposed: dict[str, set[str]]) -> None:
    asked = list(expressions())
    assert len(asked) > 20
    for where, expression in asked:
        names = re.findall(r"\bvancetope_\w+", expression)
        assert names, f"{where}: asks for none of our metrics"
        assert set(names) <= set(exposed), f"{where}: {set(names) - set(exposed)} is not exposed"
        labels = set().union(*(exposed[name] for name in names)) | {"job", "instance"}
        used = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)\s*\"", expression))
        for group in re.findall(r"\b(?:by|without|on|ignoring)\s*\(([^)]*)\)", expression):
            used |= {each.strip() for each in group.split(",") if each.strip()}
        assert used <= labels, f"{where}: {used - labels} is no label of {names}"
        assert expression.count("(") == expression.count(")"), where


def test_every_alert_says_what_is_wrong_and_what_to_do() -> None:
    rules = yaml.safe_load((MONITORING / "alerts.yaml").read_text(encoding="utf-8"))["groups"][0]["rules"]
    names = [rule["alert"] for rule in rules]
    assert len(set(names)) == len(names) >= 8
    for rule in rules:
        assert rule["labels"]["severity"] in ("page", "ticket"), rule["alert"]
        assert set(rule["annotations"]) == {"summary", "description"}, rule["alert"]
        assert re.fullmatch(r"\d+[smh]", rule["for"]), rule["alert"]
