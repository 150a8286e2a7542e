"""Retention on the command line, over HTTP and in the console."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from factory import new_process, root_node, rows
from fastapi.testclient import TestClient
from rig import Rig

from engines.llm.scripted import Script
from models.ages import Ages
from models.store import processes, retention, tokens
from models.store.tokens import Scope
from tasks.api.app import create_app
from tasks.broker import publisher_app
from tasks.cli import main
from tasks.settings import load_settings
from tasks.wiring import Runtime

STEPS = [{"ask": "q"}, {"write": ["result", "a long text"]}, {"finish": 1}]
POLICY = "/v1/retention"


@pytest.fixture(autouse=True)
def _here(database_url: str, redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VANCETOPE_DATABASE_URL", database_url)
    monkeypatch.setenv("VANCETOPE_REDIS_URL", redis_url)
    monkeypatch.setenv("VANCETOPE_RETENTION_DAYS", "90")


@pytest.fixture
def rig(database_url: str) -> Iterator[Rig]:
    with Rig(database_url, script=Script.from_data({"default": {"text": "an answer"}})) as rig:
        yield rig


@pytest.fixture
def browser(rig: Rig) -> Iterator[TestClient]:
    """A caller on this machine, who needs no token."""
    settings = load_settings()
    app = create_app(Runtime(settings, publisher_app(settings)), open_to_loopback=True)
    with TestClient(app, base_url="http://127.0.0.1:8000", client=("127.0.0.1", 50_000)) as client:
        yield client


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["retention", *arguments])


def said(*arguments: str) -> Any:
    result = invoke(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def old(rig: Rig, days: float) -> Any:
    process = rig.send(new_process(STEPS))
    rig.drain()
    processes.mark_delivered(rig.database, [process])
    rows(
        rig.database,
        "UPDATE processes SET closed_at = closed_at - make_interval(days => %(days)s::int) WHERE id = %(id)s"
        " RETURNING id",
        id=process,
        days=days,
    )
    return process


def test_policies_are_set_listed_and_removed_on_the_command_line(rig: Rig) -> None:
    assert said("ls") == {"default": {"keep_days": 90, "artifacts_days": None}, "policies": []}
    made = said("set", "--tenant", "shop", "--days", "30", "--artifacts-days", "7")
    assert (made["tenant"], made["keep_days"], made["artifacts_days"]) == ("shop", 30, 7)
    assert [each["tenant"] for each in said("ls")["policies"]] == ["shop"]
    shown = invoke("ls").output
    assert "(all others)  90 days    as their process" in shown
    assert "shop          30 days    7 days" in shown
    wrong = invoke("set", "--days", "3", "--artifacts-days", "4")
    assert wrong.exit_code == 2
    assert "--artifacts-days: 4 is more than --days, 3" in wrong.output
    assert said("rm", "--tenant", "shop") == {"tenant": "shop", "removed": True}
    again = invoke("rm", "--tenant", "shop")
    assert again.exit_code == 2
    assert "'shop' has no policy of its own" in again.output


def test_a_preview_on_the_command_line_deletes_nothing(rig: Rig) -> None:
    old(rig, 100)
    old(rig, 40)
    said("set", "--days", "80", "--artifacts-days", "30")
    for _ in range(2):
        found = said("preview")
        assert [(each["tenant"], each["processes"], each["artifacts"]) for each in found] == [("default", 1, 1)]
    assert "would be deleted" in invoke("preview").output


def test_a_tenant_keeps_its_own_policy_over_http(rig: Rig, browser: TestClient) -> None:
    def token(*scopes: Scope, tenant: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {tokens.create(rig.database, tenant, '-'.join(scopes), scopes)[1]}"}

    shop, reader = token(Scope.ADMIN, tenant="shop"), token(Scope.READ, Scope.SUBMIT, tenant="shop")
    unset = {"keepDays": 90.0, "artifactsDays": None, "own": False, "updatedAt": None}
    assert browser.get(POLICY, headers=shop).json() == unset
    calls: list[Callable[..., Any]] = [browser.get, browser.delete, lambda *a, **k: browser.put(*a, json={}, **k)]
    assert [call(POLICY, headers=reader).status_code for call in calls] == [403, 403, 403]
    made = browser.put(POLICY, json={"keepDays": 30, "artifactsDays": 7}, headers=shop)
    assert made.status_code == 200
    assert made.json() | {"updatedAt": None} == unset | {"keepDays": 30, "artifactsDays": 7, "own": True}
    wrong = browser.put(POLICY, json={"keepDays": 1, "artifactsDays": 7}, headers=shop)
    assert (wrong.status_code, wrong.json()["code"]) == (422, "invalid_request")
    assert "artifactsDays: 7 is more than keepDays, 1" in wrong.json()["detail"]
    assert browser.put(POLICY, json={"keepDays": 0}, headers=shop).status_code == 422
    assert [each.tenant for each in retention.policies(rig.database)] == ["shop"]
    assert browser.get(f"{POLICY}/preview", headers=shop).json()["processes"] == 0
    assert browser.delete(POLICY, headers=shop).status_code == 204
    assert browser.delete(POLICY, headers=shop).status_code == 404
    assert browser.get(POLICY, headers=shop).json() == unset


def test_what_retention_took_is_said_where_it_is_missed(rig: Rig, browser: TestClient) -> None:
    process = old(rig, 40)
    assert browser.get(f"{POLICY}/preview").json() == {
        "keepDays": 90.0, "artifactsDays": None, "own": False, "processes": 0, "artifacts": 0, "undelivered": 0,
    }  # fmt: skip
    assert browser.get(f"/v1/processes/{process}").json()["artifactsRemovedAt"] is None
    before = browser.get("/v1/usage", params={"group": "day"}).json()
    assert retention.remove_artifacts(rig.database, Ages(artifacts=30)) == 1

    found = browser.get(f"/v1/processes/{process}").json()
    assert found["artifactsRemovedAt"] is not None
    assert found["usage"]["calls"] == 1
    assert browser.get("/v1/usage", params={"group": "day"}).json() == before
    assert browser.get(f"/v1/processes/{process}/result").json()["result"]["success"] is True
    assert [each["kind"] for each in browser.get(f"/v1/processes/{process}/messages").json()] == ["result"]
    page = browser.get(f"/console/processes/{process}").text
    assert "Removed by retention on" in page
    node = browser.get(f"/console/processes/{process}/nodes/{root_node(rig.database, process)}").text
    assert "Its texts were removed by retention on" in node
    assert node.count("Removed by retention.") >= 3
    shown = CliRunner().invoke(main, ["status", str(process)])
    assert "removed by retention on" in shown.output
    assert retention.delete_old(rig.database, Ages(keep=30)) == 1
    assert browser.get("/v1/usage", params={"group": "day"}).json() == [], "the ledger's rows go with their process"
