"""The thin client's pure parts, and that it drags nothing of the backend along."""

from __future__ import annotations

import importlib
import shutil
import subprocess
import sys
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

CLIENT = Path(__file__).resolve().parents[2] / "tasks" / "client"


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client package, as an application that installed it would import it."""
    monkeypatch.syspath_prepend(str(CLIENT))


def part(name: str) -> Any:
    return importlib.import_module(name)


def submission(**given: Any) -> Any:
    payload = part("vancetope_client.payload")
    defaults: dict[str, Any] = dict.fromkeys(("params", "tenant", "project", "limits", "callback", "trace_context"))
    asked = {"recipe": "jeltz", "identity": payload.new_id(), "goal": "", "priority": "normal", "max_bytes": 1_000_000}
    return payload.submission(**{**defaults, **asked, **given})


def test_the_client_alone_loads_nothing_of_the_backend(tmp_path: Path) -> None:
    # A copy, and isolated from this checkout: whatever it imports must come from Celery's own dependencies.
    shutil.copytree(CLIENT / "vancetope_client", tmp_path / "vancetope_client")
    check = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "class Guard:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.partition('.')[0] in ('sqlalchemy', 'pydantic', 'psycopg', 'engines', 'models', 'tasks'):\n"
        "            raise ImportError('the client must not import ' + name)\n"
        "sys.meta_path.insert(0, Guard())\n"
        "import vancetope_client\n"
        "client = vancetope_client.Client('redis://127.0.0.1:1/0')\n"
        "client.close()\n"
        "print(sorted(vancetope_client.__all__))"
    )
    found = subprocess.run(
        [sys.executable, "-W", "error", "-c", check], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stderr
    assert "'Client'" in found.stdout


def test_a_lane_is_one_that_there_is_and_has_a_deadline_only_if_it_waits() -> None:
    refused = part("vancetope_client.errors").InvalidSubmission
    assert "lane" not in submission()
    given = submission(lane="batch", batch_deadline_seconds=60)
    assert (given["lane"], given["batchDeadlineSeconds"]) == ("batch", 60)
    for wrong in ({"lane": "slow"}, {"batch_deadline_seconds": 60}, {"lane": "batch", "batch_deadline_seconds": 0}):
        with pytest.raises(refused, match=r"^(lane|batch_deadline_seconds): "):
            submission(**wrong)


def test_ids_are_version_7_and_sort_by_minting() -> None:
    new_id = part("vancetope_client.payload").new_id
    ids = [new_id() for _ in range(10_000)]
    assert ids == sorted(ids)
    assert len(set(ids)) == len(ids)
    one = uuid.UUID(ids[0])
    assert one.version == 7
    assert one.variant == uuid.RFC_4122
    age = datetime.now(UTC).timestamp() * 1000 - (one.int >> 80)
    assert abs(age) < 3_600_000


def test_only_what_was_given_is_sent() -> None:
    found = submission(params={"prompt": "x"}, callback="app.done", limits={"maxCalls": 2})
    assert set(found) == {"id", "recipe", "params", "priority", "limits", "callback"}
    assert found["callback"] == {"task": "app.done", "queue": "celery"}
    assert submission(callback=("app.done", "mine"))["callback"]["queue"] == "mine"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"recipe": " "}, "recipe: must be"),
        ({"priority": "urgent"}, "priority: 'urgent' is none of high, normal, low"),
        ({"limits": {"maxCall": 1}}, "there is no 'maxCall', only maxCalls"),
        ({"params": {"x": {1, 2}}}, "params: must be plain JSON"),
        ({"params": {"at": datetime(2026, 1, 1, tzinfo=UTC)}}, "params: must be plain JSON"),
        ({"params": {"x": float("nan")}}, "params: has no JSON form"),
        ({"params": {"x": "y" * 2_000_000}}, "at most 1,000,000 bytes"),
        ({"callback": ""}, "callback: must be"),
    ],
)
def test_what_cannot_be_sent_is_refused_by_name(given: dict[str, Any], words: str) -> None:
    with pytest.raises(part("vancetope_client").InvalidSubmission, match=words):
        submission(**given)


def test_an_unreachable_broker_is_said_so() -> None:
    package = part("vancetope_client")
    with (
        package.Client("redis://127.0.0.1:1/0") as client,
        pytest.raises(package.Unreachable, match="cannot be reached"),
    ):
        client.submit("jeltz", params={"prompt": "x"})
