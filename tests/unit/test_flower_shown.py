"""What is shown of a task: ids and names from its worker, a line and addresses in Flower, and nothing else."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tasks.flower.shown import Formatter, templates
from tasks.redaction import about

PROCESS = "0193e3a4-7b1c-7c3e-9f10-000000000001"
CONSOLE = "https://vancetope.example/console"
PROMPT = "tell me a secret, please"
ALL = {"process": PROCESS, "recipe": "ford"}


@pytest.mark.parametrize(
    ("task", "args", "kwargs", "told"),
    [
        ("vancetope.marvin.turn", [12, 3], {}, {"node": 12, "turn": 3}),
        ("vancetope.marvin.turn", [PROMPT, True], {}, {}),
        ("vancetope.marvin.turn", [12, 3, PROMPT], {}, {}),
        ("vancetope.submit", [], {"recipe": "ford", "params": {"a": PROMPT}}, ALL),
        ("vancetope.submit", [{"recipe": "ford", "tenant": "a"}], {}, ALL | {"tenant": "a"}),
        ("vancetope.submit", [], {"id": PROMPT, "recipe": PROMPT, "project": ["x"]}, {}),
        ("vancetope.submit", [PROMPT], {}, {"process": PROCESS}),
        ("vancetope.stop", [PROCESS], {}, {"process": PROCESS}),
        ("vancetope.steer", [], {"process_id": PROCESS, "message": PROMPT}, {"process": PROCESS}),
        ("vancetope.status", [PROMPT], {}, {}),
        ("vancetope.inbox.answer", [7, PROMPT, "ann"], {}, {"item": 7}),
        ("vancetope.inbox.list", [], {"tenant": "a", "owner": PROMPT}, {"tenant": "a"}),
        ("vancetope.sweep", [], {}, {}),
        ("shop.mail", [PROCESS], {"recipe": "ford"}, {}),
    ],
)  # fmt: skip
def test_a_task_is_described_by_ids_and_names(
    task: str, args: list[Any], kwargs: dict[str, Any], told: dict[str, Any]
) -> None:
    assert about(task, PROCESS, args, kwargs) == told


def shown(console: str | None = CONSOLE, **fields: object) -> Any:
    return Formatter(console)(SimpleNamespace(**{"args": "()", "kwargs": "{}", "result": None, **fields}))


def test_a_turn_links_to_its_process_and_node() -> None:
    by_node = shown(kwargs="{'node': 12, 'turn': 3}")
    assert by_node.console_links == [("Process", f"{CONSOLE}/nodes/12/process"), ("Node 12", f"{CONSOLE}/nodes/12")]
    assert by_node.kwargs == "node 12, turn 3"
    ended = shown(kwargs="{'node': 12, 'turn': 3}", result=f"{{'process': '{PROCESS}', 'node': 12, 'phase': 'PLAN'}}")
    assert [address for _, address in ended.console_links] == [
        f"{CONSOLE}/processes/{PROCESS}",
        f"{CONSOLE}/nodes/12",
    ]
    assert ended.result == f"phase PLAN, process {PROCESS}"


def test_a_callback_in_another_application_links_to_its_process() -> None:
    told = shown(args=f"('{PROCESS}', ...)")
    assert [address for _, address in told.console_links] == [f"{CONSOLE}/processes/{PROCESS}"]


def test_an_address_of_the_console_may_end_in_a_slash_or_be_unknown() -> None:
    assert shown(f"{CONSOLE}/", kwargs="{'item': 7}").console_links == [("Question 7", f"{CONSOLE}/inbox/7")]
    assert shown(None, kwargs="{'item': 7}").console_links == []


@pytest.mark.parametrize(
    "hostile",
    [
        "{'process': 'javascript:alert(1)'}",
        "{'process': '../../x', 'node': '12/../../y', 'item': True}",
        "{'node': -1, 'item': 10**400}",
        "{'node': 99999999999999999999999}",
        "{'process': ['" + PROCESS + "']}",
        "__import__('os').system('true')",
        "{" * 5_000,
        "{'node': 12}" + " " * 20_000,
        "<a href='x'>",
        "{[]: 1}",
        None,
        12,
    ],
)
def test_what_anybody_may_write_into_a_message_becomes_no_address(hostile: object) -> None:
    assert shown(kwargs=hostile, result=hostile, args=hostile).console_links == []


def test_the_page_escapes_what_it_shows() -> None:
    template = templates().load("task.html")
    task = SimpleNamespace(
        uuid="<b>id", name="<b>name", state="SUCCESS", args="", kwargs="<b>kwargs", result="<b>result", _fields=(),
        console_links=[("<b>label", 'https://x/"><b>')],
    )  # fmt: skip
    handler = SimpleNamespace(application=SimpleNamespace(options=SimpleNamespace(auth=None)))
    html = template.generate(
        task=task, read_only=True, reverse_url=lambda *_: "/", static_url=lambda path: path, url_prefix=None,
        handler=handler, current_user=None, humanize=str, _tt_modules=SimpleNamespace(Template=lambda *_, **__: ""),
    ).decode()  # fmt: skip
    assert "<b>" not in html
    assert "&lt;b&gt;kwargs" in html
    assert 'href="https://x/&quot;&gt;&lt;b&gt;"' in html
