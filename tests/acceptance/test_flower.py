"""The real Flower beside real workers: closed without credentials, readable, silent about prompts and keys."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

import requests
from cluster import Cluster, MakeCluster
from fakes.provider import FakeProvider
from fakes.wire_formats import Answer
from processes import eventually

PROMPT = "SECRET-123"
KEY = "sk-test-abcdef"
AUTH = ("ann", "pa55-word")
CONSOLE = "https://vancetope.example/console"
VARIABLES = {"FLOWER_BASIC_AUTH": ":".join(AUTH), "VANCETOPE_CONSOLE_URL": CONSOLE}
HOSTILE = "<img src=x onerror=alert(1)>"
TABLE = "/tasks/datatable?draw=1&start=0&length=500&order[0][column]=0&columns[0][data]=name"
PAGES = ("/", "/workers", "/tasks", "/broker", TABLE, "/task/1")
API = ("/api/tasks", "/api/workers", "/api/task/types", "/api/task/info/1", "/api/task/result/1", "/api/queues/length")


class Flower:
    """A Flower that answers."""

    def __init__(
        self, cluster: Cluster, variables: dict[str, str] = VARIABLES, address: str = "--address=0.0.0.0"
    ) -> None:
        self.member, self.url = cluster.flower(address, environment=variables)
        eventually(self._answers, "Flower answers")

    def _answers(self) -> bool:
        assert self.member.running, "\n".join(self.member.lines)
        try:
            return requests.get(f"{self.url}/healthcheck", timeout=5).ok
        except requests.ConnectionError:
            return False

    def get(self, path: str, auth: tuple[str, str] | None = AUTH) -> requests.Response:
        return requests.get(f"{self.url}{path}", auth=auth, timeout=10)

    def tasks(self) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = self.get("/api/tasks?limit=500").json()
        return found

    def turns(self, process_id: object) -> list[dict[str, Any]]:
        return [
            task
            for task in self.tasks().values()
            if task["name"].endswith(".turn") and str(process_id) in (task["result"] or "")
        ]


def test_flower_shows_readable_tasks_and_nothing_that_was_written(
    make_cluster: MakeCluster, provider: FakeProvider
) -> None:
    cluster = make_cluster(llm_api_key=KEY)
    flower = Flower(cluster)
    for path in (*PAGES, *API):
        assert flower.get(path, None).status_code == 401, path
        assert flower.get(path, ("ann", "guessed")).status_code == 401, path
    assert requests.post(f"{flower.url}/api/worker/shutdown/x", timeout=10).status_code == 401

    cluster.worker(events=True)
    cluster.beat()
    told = {"error": {"message": f"Incorrect API key provided: {KEY}", "type": "invalid_request_error"}}
    eventually(flower.tasks, "Flower listens")
    good = cluster.send(f"the number of {PROMPT}?", tenant="shop")
    cluster.wait_closed(good)
    provider.enqueue(Answer(status=401, body=told))
    failed = cluster.send(f"again {PROMPT}?")
    strange = cluster.send(PROMPT, recipe=f"{HOSTILE} {PROMPT}")
    cluster.wait_closed(failed, strange)
    cluster.app.send_task("vancetope.stop", args=(f"no id but {PROMPT}",), queue="vancetope.urgent")
    cluster.app.send_task("vancetope.inbox.answer", args=(17, PROMPT, "ann"), queue="vancetope.urgent")
    eventually(lambda: len(flower.turns(good)) == 1 and len(flower.turns(failed)) == 1, "Flower knows both turns")
    ended = ("SUCCESS", "FAILURE")
    names = {"vancetope.stop", "vancetope.inbox.answer", "vancetope.sweep"}
    eventually(
        lambda: names <= {task["name"] for task in flower.tasks().values() if task["state"] in ended}, "and the rest"
    )

    tasks = flower.tasks()
    submitted = tasks[str(good)]
    assert (submitted["name"], submitted["args"]) == ("vancetope.submit", "()")
    assert submitted["kwargs"] == repr({"process": str(good), "recipe": "jeltz", "tenant": "shop"})
    assert tasks[str(strange)]["kwargs"] == repr({"process": str(strange)})
    (turn,) = flower.turns(good)
    node = cluster.rows("SELECT id FROM nodes WHERE process_id = %s", good)[0][0]
    assert turn["name"] == "vancetope.jeltz.turn"
    assert turn["kwargs"] == repr({"node": node, "turn": 1})
    assert f"'process': '{good}'" in turn["result"]
    assert "'status': 'DONE'" in turn["result"]
    by_name = {task["name"]: task for task in tasks.values()}
    assert by_name["vancetope.inbox.answer"]["kwargs"] == repr({"item": 17})
    assert by_name["vancetope.stop"]["state"] == "FAILURE"
    assert by_name["vancetope.stop"]["exception"] == "ValueError"
    assert flower.get(f"/api/tasks?search={good}&limit=500").json().keys() == {str(good), turn["uuid"]}

    page = flower.get(f"/task/{turn['uuid']}").text
    assert links_of(page) == [f"{CONSOLE}/processes/{good}", f"{CONSOLE}/nodes/{node}"]
    assert f"node {node}, turn 1" in page
    assert "status DONE" in page
    assert links_of(flower.get(f"/task/{good}").text) == [f"{CONSOLE}/processes/{good}"]
    assert links_of(flower.get(f"/task/{by_name['vancetope.inbox.answer']['uuid']}").text) == [f"{CONSOLE}/inbox/17"]
    assert not links_of(flower.get(f"/task/{by_name['vancetope.sweep']['uuid']}").text)

    places = {path: flower.get(path).text for path in (*PAGES[:-1], *API[:3], "/metrics")}
    for task_id in tasks:
        places |= {path: flower.get(path).text for path in (f"/task/{task_id}", f"/api/task/info/{task_id}")}
    assert f"node {node}, turn 1" in places[TABLE]
    places["Redis"] = cluster.everything_in_redis()
    places |= {member.name: "\n".join(member.lines) for member in cluster.members}
    for place, text in places.items():
        assert PROMPT not in unescape(text), place
        assert KEY not in text, place
        assert HOSTILE not in text, place
        assert AUTH[1] not in text, place


def test_a_turn_under_way_links_by_its_node(make_cluster: MakeCluster, provider: FakeProvider) -> None:
    cluster = make_cluster()
    flower = Flower(cluster)
    cluster.worker(events=True)
    cluster.beat()
    eventually(flower.tasks, "Flower listens")
    provider.enqueue(Answer(hang=True))
    job = cluster.submit("How many?")
    eventually(lambda: provider.requests, "the call is under way")
    node = cluster.rows("SELECT id FROM nodes WHERE process_id = %s", job)[0][0]
    started = eventually(
        lambda: [each for each in flower.tasks().values() if each["state"] == "STARTED" and "jeltz" in each["name"]],
        "Flower shows it",
    )
    page = flower.get(f"/task/{started[0]['uuid']}").text
    assert links_of(page) == [f"{CONSOLE}/nodes/{node}/process", f"{CONSOLE}/nodes/{node}"]


def test_flower_does_not_listen_for_anybody_without_credentials(cluster: Cluster) -> None:
    member, _ = cluster.flower("--address=0.0.0.0")
    eventually(lambda: not member.running, "Flower has ended")
    assert member.returncode == 1
    assert member.said("set FLOWER_BASIC_AUTH=user:password")
    assert not member.said("Traceback")


def test_flower_on_the_loopback_needs_no_credentials_and_changes_nothing(cluster: Cluster) -> None:
    flower = Flower(cluster, {}, "--address=127.0.0.1")
    assert flower.get("/tasks", None).ok
    assert flower.get(TABLE, None).json()["data"] == []
    assert requests.post(f"{flower.url}/api/worker/shutdown/x", timeout=10).status_code == 401


def links_of(page: str) -> list[str]:
    """Where our links on the page of a task lead."""
    found = re.search(r'id="console-links".*?</nav>', page, re.DOTALL)
    return [unescape(each) for each in re.findall(r'href="([^"]*)"', found[0])] if found else []
