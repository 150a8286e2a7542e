"""The command line on a real PostgreSQL and Redis; turns are run in this process, as a worker would."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis
from click.testing import CliRunner, Result

from tasks.broker import publisher_app
from tasks.cli import main
from tasks.cli.follow import Follower
from tasks.settings import load_settings
from tasks.wiring import Runtime

pytestmark = pytest.mark.filterwarnings("ignore:Call to deprecated setex:DeprecationWarning")

SCHEMA = '{"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}'
DUE = (
    "SELECT n.id, n.turn, p.engine FROM nodes n JOIN processes p ON p.id = n.process_id"
    " WHERE n.due_at <= now() AND n.lease_expires_at IS NULL AND p.status IN ('INIT', 'RUNNING')"
)


@pytest.fixture(autouse=True)
def _here(database_url: str, redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VANCETOPE_DATABASE_URL", database_url)
    monkeypatch.setenv("VANCETOPE_REDIS_URL", redis_url)


def invoke(*arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(main, list(arguments), input=stdin)


def said(result: Result, code: int = 0) -> Any:
    """The JSON on standard output of a command that ended with ``code``."""
    assert result.exit_code == code, result.output
    return json.loads(result.stdout)


@pytest.fixture
def working(tmp_path: Path, database_url: str) -> Callable[[Any], Any]:
    """``with working(script):`` a worker in a thread that answers from the script."""

    @contextmanager
    def work(script: Any) -> Iterator[None]:
        file = tmp_path / "script.json"
        file.write_text(json.dumps(script))
        settings = load_settings().model_copy(update={"scripted_file": file})
        app = publisher_app(settings)
        runtime = Runtime(settings, app)
        done = threading.Event()

        def serve() -> None:
            with psycopg.connect(database_url, autocommit=True) as connection:
                while not done.wait(0.02):
                    for node_id, turn, engine in connection.execute(DUE).fetchall():
                        runtime.runner.run(engine, node_id, turn)

        thread = threading.Thread(target=serve, name="test-worker")
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join(30)
            runtime.close()
            app.close()

    return work


def answering(*values: Any) -> dict[str, Any]:
    return {"rules": [{"replies": [{"json": value} for value in values], "by": "count"}]}


def submitted(*more: str) -> str:
    result = invoke("submit", "jeltz", "--prompt", "count", "--schema", SCHEMA, *more)
    assert result.exit_code == 0, result.output
    return result.stdout.strip()


def test_run_prints_the_wrapper_and_nothing_else(working: Callable[[Any], Any]) -> None:
    with working(answering({"n": "one"}, {"n": 1})):
        result = invoke("run", "jeltz", "--prompt", "-", "--schema", SCHEMA, "--timeout", "60", stdin="count")
    wrapper = said(result)
    assert wrapper["success"] is True
    assert wrapper["attempts"] == 2
    assert wrapper["data"] == {"n": 1}
    assert "corrected" in result.stderr


def test_run_of_a_failing_job_ends_with_1(working: Callable[[Any], Any]) -> None:
    with working(answering({"n": "one"})):
        result = invoke("run", "jeltz", "--prompt", "x", "--schema", SCHEMA, "--max-attempts", "1", "--timeout", "60")
    assert said(result, 1)["error"] == "schema_violation"


def test_run_says_when_no_worker_is_there_and_when_time_is_up() -> None:
    result = invoke("run", "jeltz", "--prompt", "x", "--schema", SCHEMA, "--timeout", "4")
    assert result.exit_code == 4
    assert "no worker answers: start one with `vancetope dev`" in result.stderr
    assert "vancetope watch" in result.stderr
    assert result.stdout == ""


def test_an_unknown_recipe_is_refused_at_once_and_stores_nothing() -> None:
    result = invoke("run", "extract-evnt", "--prompt", "x")
    assert result.exit_code == 2
    assert "did you mean 'extract-event'" in result.stderr
    assert said(invoke("list", "--json")) == []


def test_submit_status_list_and_the_same_id_twice() -> None:
    identity = submitted("--goal", "g", "--priority", "high", "--max-calls", "3")
    again = said(invoke("submit", "jeltz", "--prompt", "other", "--schema", SCHEMA, "--id", identity, "--json"))
    assert again == {"id": identity, "new": False}
    status = said(invoke("status", identity, "--json"))
    assert (status["status"], status["priority"], status["max_calls"]) == ("INIT", 0, 3)
    assert said(invoke("status", "last", "--json"))["id"] == identity
    assert [row["id"] for row in said(invoke("list", "--json"))] == [identity]
    assert identity in invoke("list").stdout
    assert "INIT" in invoke("status", identity).stdout


def test_the_lane_and_its_deadline_are_options() -> None:
    identity = submitted("--lane", "batch", "--batch-deadline", "7200")
    status = said(invoke("status", identity, "--json"))
    asked, until = (datetime.fromisoformat(status[name]) for name in ("created_at", "batch_until"))
    assert (status["lane"], (until - asked).total_seconds()) == ("batch", 7200)
    assert "batch, until " in invoke("status", identity).stdout
    assert said(invoke("status", submitted(), "--json"))["lane"] == "normal"
    alone = invoke("submit", "jeltz", "--prompt", "x", "--schema", SCHEMA, "--batch-deadline", "7200")
    assert alone.exit_code == 2
    assert 'batchDeadlineSeconds is for jobs with lane "batch"' in alone.stderr


def test_jobs_are_found_by_who_submitted_them() -> None:
    hers, his = submitted("--owner", " ada "), submitted("--owner", "bob")
    nobodys = submitted()
    assert [row["id"] for row in said(invoke("list", "--json"))] == [nobodys, his, hers]
    assert [row["owner"] for row in said(invoke("list", "--json"))] == [None, "bob", "ada"]
    assert [row["id"] for row in said(invoke("list", "--owner", "ada", "--json"))] == [hers]
    assert "ada" in invoke("list").stdout
    assert said(invoke("status", hers, "--json"))["owner"] == "ada"
    assert "bob" in invoke("status", his).stdout
    assert invoke("submit", "jeltz", "--prompt", "x", "--owner", "x" * 201).exit_code == 2


def test_a_batch_is_stored_whole_in_order_with_defaults(tmp_path: Path) -> None:
    lines = [{"params": {"prompt": str(number)}} for number in range(3)] + [
        {"recipe": "extract-event", "params": {"prompt": "x"}, "limits": {"maxCalls": 9}}
    ]
    (tmp_path / "jobs.jsonl").write_text("\n".join(json.dumps(line) for line in lines))
    result = invoke("submit", "jeltz", "--batch", "jobs.jsonl", "--schema", SCHEMA, "--max-calls", "2")
    assert result.exit_code == 0, result.output
    ids = result.stdout.split()
    assert len(ids) == 4
    shown = {row["id"]: row for row in said(invoke("list", "--json"))}
    assert [shown[each]["recipe"] for each in ids] == ["jeltz"] * 3 + ["extract-event"]
    assert [said(invoke("status", each, "--json"))["max_calls"] for each in ids] == [2, 2, 2, 5]


def test_one_unknown_recipe_in_a_batch_and_nothing_is_stored(tmp_path: Path) -> None:
    lines = [{"recipe": "jeltz", "params": {"prompt": "a"}}, {"recipe": "jelzt", "params": {"prompt": "a"}}]
    (tmp_path / "jobs.jsonl").write_text("\n".join(json.dumps(line) for line in lines))
    result = invoke("submit", "--batch", "jobs.jsonl")
    assert result.exit_code == 2
    assert "job 2: recipe: there is no recipe 'jelzt'" in result.stderr
    assert said(invoke("list", "--json")) == []


def test_result_of_an_open_job_says_so_and_wait_waits(working: Callable[[Any], Any]) -> None:
    identity = submitted()
    early = invoke("result", identity)
    assert early.exit_code == 4
    assert "INIT: no result yet; --wait" in early.stderr
    with working(answering({"n": 7})):
        assert said(invoke("result", identity, "--wait", "--timeout", "60", "--json"))["data"] == {"n": 7}
    assert said(invoke("result", identity))["data"] == {"n": 7}


def test_ledger_and_history_of_a_corrected_job(working: Callable[[Any], Any]) -> None:
    with working(answering({"n": "one"}, {"n": 1})):
        invoke("run", "jeltz", "--prompt", "how many?", "--schema", SCHEMA, "--timeout", "60")
    calls = said(invoke("calls", "last", "--json"))
    assert [call["attempt"] for call in calls] == [1, 2]
    history = said(invoke("history", "last", "--json"))
    assert [phase["reason"] for phase in history["phases"]] == ["CORRECTED", "CONCLUDED"]
    assert [message["kind"] for message in history["messages"]] == ["prompt", "reply", "correction", "result"]
    shown = invoke("history", "last").stdout
    assert "how many?" in shown
    assert "CORRECTED" in shown


def test_stop_closes_once() -> None:
    identity = submitted()
    assert said(invoke("stop", identity, "--json")) == {"closed": [identity]}
    assert said(invoke("stop", identity, "--json")) == {"closed": []}
    assert said(invoke("result", identity), 1)["error"] == "stopped"
    assert "STOPPED" in invoke("status", identity).stdout


def test_suspend_and_resume(working: Callable[[Any], Any]) -> None:
    identity = submitted()
    assert said(invoke("suspend", identity, "--json")) == {"changed": True, "status": "SUSPENDED"}
    assert said(invoke("suspend", identity, "--now", "--json")) == {"changed": False, "status": "SUSPENDED"}
    assert said(invoke("resume", identity, "--json"))["changed"] is True
    assert invoke("resume", identity).exit_code == 1
    with working(answering({"n": 1})):
        assert said(invoke("result", identity, "--wait", "--timeout", "60"))["success"] is True


def test_watch_ends_with_the_job_and_tells_every_turn(working: Callable[[Any], Any]) -> None:
    identity = submitted()
    with working(answering({"n": "one"}, {"n": 1})):
        result = invoke("watch", identity, "--timeout", "60", "--json")
    assert result.exit_code == 0, result.output
    events = [json.loads(line) for line in result.stdout.splitlines()]
    assert events[-1] | {"kind": "state", "status": "CLOSED", "reason": "DONE"} == events[-1]
    assert "chunk" in {event["kind"] for event in events}


def test_watch_goes_on_without_redis(working: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    identity = submitted()
    with working(answering({"n": 1})):
        monkeypatch.setenv("VANCETOPE_REDIS_URL", "redis://127.0.0.1:1/0")
        result = invoke("watch", identity, "--timeout", "60")
    assert result.exit_code == 0, result.output
    assert "CLOSED DONE" in result.stdout


def test_redis_away_does_not_lose_a_submission(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VANCETOPE_REDIS_URL", "redis://127.0.0.1:1/0")
    identity = submitted()
    assert said(invoke("status", identity, "--json"))["status"] == "INIT"


def test_an_unknown_id_is_a_usage_error() -> None:
    for command in ("status", "result", "stop", "suspend", "resume", "calls", "history", "watch"):
        result = invoke(command, "01a22c9d-8d9b-724b-8f5c-e2fcc6244023")
        assert result.exit_code == 2, command
        assert "there is no job 01a22c9d" in result.stderr


def test_dead_letters_hide_their_content_unless_asked(database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("INSERT INTO dead_letters (task, problem, payload) VALUES ('t', 'p', 'SECRET')")
    assert "SECRET" not in invoke("dead-letters").output
    assert said(invoke("dead-letters", "--payload", "--json"))[0]["payload"] == "SECRET"


def test_doctor_finds_what_is_missing(redis_url: str) -> None:
    report = said(invoke("doctor", "--json"), 1)
    checks = {line["check"]: line for line in report["checks"]}
    assert checks["PostgreSQL"]["state"] == "ok"
    assert checks["workers"]["state"] == "problem"
    assert "celery -A tasks.celery worker" in checks["workers"]["text"]
    with redis.Redis.from_url(redis_url) as client:
        before = client.config_get("maxmemory-policy")["maxmemory-policy"]
        client.config_set("maxmemory-policy", "allkeys-lru")
        try:
            checks = {line["check"]: line for line in said(invoke("doctor", "--json"), 1)["checks"]}
        finally:
            client.config_set("maxmemory-policy", before)
    assert checks["Redis"]["state"] == "problem"
    assert "noeviction" in checks["Redis"]["text"]


def test_an_unmigrated_database_says_what_to_run(empty_database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VANCETOPE_DATABASE_URL", empty_database_url)
    before = invoke("list")
    assert before.exit_code == 3
    assert "vancetope migrate" in before.stderr
    checks = {line["check"]: line for line in said(invoke("doctor", "--json"), 1)["checks"]}
    assert "never migrated" in checks["PostgreSQL"]["text"]
    assert said(invoke("migrate", "--json"))["before"] is None
    assert said(invoke("list", "--json")) == []


def test_ctrl_c_leaves_the_job_alone_and_says_how_to_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(self: Follower, timeout: float | None = None) -> Iterator[None]:
        raise KeyboardInterrupt

    monkeypatch.setattr(Follower, "events", interrupted)
    result = invoke("run", "jeltz", "--prompt", "x", "--schema", SCHEMA)
    assert result.exit_code == 130
    identity = said(invoke("list", "--json"))[0]["id"]
    assert f"vancetope watch {identity}" in result.stderr
    assert f"vancetope stop {identity}" in result.stderr
    assert said(invoke("status", identity, "--json"))["status"] == "INIT"


def planning(*rules: Any) -> dict[str, Any]:
    """A script for plans: nodes do their work by themselves unless a rule says otherwise."""
    by_phase = {
        "scope": {"action": "PROCEED_TO_CONCLUDE", "reason": "small"},
        "post_children": {"action": "PROCEED_TO_CONCLUDE", "reason": "enough"},
        "reflect": {"action": "PROCEED_TO_CONCLUDE", "reason": "enough"},
        "conclude": {
            "result": "# Report",
            "postActions": [
                {"tool": "doc_write", "args": {"path": "out/report.md", "kind": "text", "content": "{{ node.result }}"}}
            ],
            "reason": "written",
        },
        "validate": {"verdict": "PASS", "issues": [], "reason": "good"},
    }
    return {
        "rules": [*rules, *({"when": {"schema": phase}, "reply": {"json": said}} for phase, said in by_phase.items())]
    }


def test_a_plan_runs_and_its_tree_and_documents_can_be_looked_at(
    working: Callable[[Any], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes" / "web-research.yaml").write_text(
        "description: Looks things up.\nengine: jeltz\n"
        "schema: {type: object, required: [text], properties: {text: {type: string}}}\n"
    )
    monkeypatch.setenv("VANCETOPE_RECIPES_DIR", str(tmp_path / "recipes"))
    tasks = [{"goal": "Look up history", "taskKind": "WORKER"}, {"goal": "Look up prices", "taskKind": "WORKER"}]
    call = {"recipe": "web-research", "steerContent": "prices of reactors"}
    script = planning(
        {
            "when": {"schema": "scope", "regex": r"<<< Goal \[\w+\]\nWrite a report\n"},
            "reply": {"json": {"action": "NEEDS_SUBTASKS", "newTasks": tasks, "reason": "two parts"}},
        },
        {
            "when": {"schema": "scope", "regex": r"<<< Goal \[\w+\]\nLook up prices\n"},
            "reply": {"json": {"action": "CALL_RECIPE", "recipeCall": call, "reason": "unknown"}},
        },
        {"when": {"last": "prices of reactors"}, "reply": {"json": {"text": "9,000 EUR"}}},
    )
    with working(script):
        given = ("run", "marvin", "--goal", "Write a report", "--recipes", "web-research", "--timeout", "60")
        wrapper = said(invoke(*given))
    assert (wrapper["success"], wrapper["result"], wrapper["nodeCount"]) == (True, "# Report", 3)
    plan = said(invoke("plan", "last", "--json"))["rootNode"]
    assert [(node["title"], node["status"]) for node in plan["children"]] == [
        ("Look up history", "done"), ("Look up prices", "done"),
    ]  # fmt: skip
    shown = invoke("watch", "last").stdout
    assert "✓ Look up prices" in shown
    assert [line["path"] for line in said(invoke("docs", "ls", "--json"))] == ["out/report.md"]
    assert len(said(invoke("docs", "ls", "--all", "--json"))) == 4
    # Three nodes wrote it, the root last.
    found = said(invoke("docs", "cat", "out/report.md", "--json"))
    assert (found["content"], found["version"]) == ("# Report", 3)


def test_a_plan_without_a_goal_is_refused() -> None:
    result = invoke("run", "marvin", "--prompt", "x")
    assert result.exit_code == 2
    assert "goal: is blank" in result.stderr


def test_documents_are_put_printed_and_removed(tmp_path: Path) -> None:
    (tmp_path / "list.md").write_text("---\nkind: list\n---\n- one\n")
    assert said(invoke("docs", "put", "a/../lists/x.md", "list.md", "--json")) == {"path": "lists/x.md", "version": 1}
    assert said(invoke("docs", "put", "lists/x.md", "-", "--json", stdin="second"))["version"] == 2
    assert invoke("docs", "cat", "lists/x.md").stdout == "second\n"
    assert "- one" in invoke("docs", "cat", "lists/x.md", "--version", "1").stdout
    assert "lists/x.md" in invoke("docs", "ls", "lists/").stdout
    assert invoke("docs", "cat", "lists/x.md", "--project", "other").exit_code == 2
    assert invoke("docs", "put", "../x.md", "list.md").exit_code == 2
    assert said(invoke("docs", "export", "files", "--json"))["paths"] == ["lists/x.md"]
    assert (tmp_path / "files" / "lists" / "x.md").read_text() == "second"
    assert said(invoke("docs", "rm", "lists/x.md", "--json"))["removed"] is True
    missing = invoke("docs", "rm", "lists/x.md")
    assert missing.exit_code == 2
    assert "there is no such document" in missing.stderr
