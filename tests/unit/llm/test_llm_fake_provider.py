"""The fake provider itself, over plain HTTP: what other tests and drills rely on."""

from __future__ import annotations

import concurrent.futures
import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fakes.provider import Answer, FakeProvider

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def post(fake: FakeProvider, path: str, **body: Any) -> httpx2.Response:
    body.setdefault("messages", [{"role": "user", "content": "hi"}])
    return httpx2.post(fake.url + path, json={"model": "m", **body}, trust_env=False, timeout=10)


def test_plain_answers_of_both_kinds(fake: FakeProvider) -> None:
    fake.rule("hi", Answer(text="hello"))
    openai = post(fake, "/v1/chat/completions").json()
    anthropic = post(fake, "/v1/messages").json()
    assert openai["choices"][0]["message"]["content"] == "hello"
    assert openai["usage"]["total_tokens"] == 15
    assert anthropic["content"] == [{"type": "text", "text": "hello"}]
    assert post(fake, "/v1/elsewhere").status_code == 404


@pytest.mark.parametrize(
    "body",
    [
        {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}}},
        {"messages": [{"role": "system", "content": f"Answer with\n{json.dumps(SCHEMA, indent=2)}\nonly."}]},
    ],
)
def test_default_answer_fits_the_requested_schema(fake: FakeProvider, body: dict[str, Any]) -> None:
    content = post(fake, "/v1/chat/completions", **body).json()["choices"][0]["message"]["content"]
    assert json.loads(content) == {"n": 1}


def test_queue_goes_before_rules_and_rules_wear_down(fake: FakeProvider) -> None:
    fake.rule("hi", Answer(text="r1"), Answer(text="r2"))
    fake.enqueue(Answer(text="q"))
    texts = [post(fake, "/v1/messages").json()["content"][0]["text"] for _ in range(4)]
    assert texts == ["q", "r1", "r2", "r2"]


def test_held_answer_waits_for_the_test(fake: FakeProvider) -> None:
    gate = threading.Event()
    fake.enqueue(Answer(text="late", hold=gate))
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        future = pool.submit(post, fake, "/v1/messages")
        fake.wait_for(lambda requests: bool(requests) and requests[0].waiting)
        assert not future.done()
        gate.set()
        assert future.result(10).json()["content"][0]["text"] == "late"
    fake.wait_for(lambda requests: requests[0].finished)


def test_requests_are_recorded_in_order_with_headers_and_text(fake: FakeProvider) -> None:
    post(fake, "/v1/messages", system=[{"type": "text", "text": "sys"}])
    post(fake, "/v1/chat/completions", user="u1")
    first, second = fake.requests
    assert (first.order, second.order) == (0, 1)
    assert first.text == "sys\nhi"
    assert second.body["user"] == "u1"
    assert "content-type" in second.headers


def test_one_connection_serves_many_requests_at_once_and_after_another(fake: FakeProvider) -> None:
    with httpx2.Client(trust_env=False) as http, concurrent.futures.ThreadPoolExecutor(8) as pool:

        def call(number: int) -> str:
            messages = [{"role": "user", "content": f"n {number}"}]
            body = {"model": "m", "messages": messages}
            return str(http.post(fake.url + "/v1/messages", json=body).json()["content"][0]["text"])

        assert list(pool.map(call, range(400))) == ["ok"] * 400
    assert sorted(request.order for request in fake.requests) == list(range(400))


def test_as_a_process_with_rules_and_a_log(tmp_path: Path) -> None:
    rules, log = tmp_path / "rules.json", tmp_path / "calls.jsonl"
    rules.write_text(json.dumps([{"match": "hi", "answers": [{"status": 529}, {"text": "from rules"}]}]))
    script = Path(__file__).resolve().parents[2] / "fakes" / "provider.py"
    command = [sys.executable, str(script), "--port", "0", "--log", str(log), "--rules", str(rules)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().split()[-1]
            body = {"model": "m", "user": "u7", "messages": [{"role": "user", "content": "hi drill-node-12.a there"}]}
            statuses = []
            for _ in range(2):
                answer = httpx2.post(url + "/v1/chat/completions", json=body, trust_env=False)
                statuses.append(answer.status_code)
            assert statuses == [529, 200]
            assert answer.json()["choices"][0]["message"]["content"] == "from rules"
        finally:
            process.terminate()
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [(line["order"], line["user"], line["marks"]) for line in lines] == [
        (0, "u7", ["drill-node-12.a"]),
        (1, "u7", ["drill-node-12.a"]),
    ]
    assert lines[0]["prompt_sha256"] == lines[1]["prompt_sha256"]
