"""An export: everything of a tree, from one moment, without a secret; and the commands around it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from click.testing import CliRunner, Result
from factory import new_process, row, rows
from fastapi.testclient import TestClient
from rig import Rig

from engines.llm.scripted import Script
from models.store import documents, export, processes, tokens
from models.store.tokens import Scope
from tasks.api.app import create_app
from tasks.broker import publisher_app
from tasks.cli import main
from tasks.exporting import exported
from tasks.replay.archive import Archive
from tasks.settings import load_settings
from tasks.submission import parse_submission, prepare
from tasks.wiring import Runtime

TREE = [{"fan_out": 2, "steps": [{"ask": "q"}, {"write": ["result", "text"]}]}, {"call": [{"ask": "below"}]}]
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


@pytest.fixture(autouse=True)
def _here(database_url: str, redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VANCETOPE_DATABASE_URL", database_url)
    monkeypatch.setenv("VANCETOPE_REDIS_URL", redis_url)


@pytest.fixture
def rig(database_url: str) -> Iterator[Rig]:
    with Rig(database_url, script=Script.from_data({"default": {"text": "an answer"}})) as rig:
        yield rig


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments))


def job(rig: Rig, *answers: Any, **params: Any) -> UUID:
    rig.script.add(*answers)
    payload = {"recipe": "jeltz", "params": {"prompt": "How many?", "schema": SCHEMA, **params}}
    process = rig.send(prepare(parse_submission(payload), load_settings({}), rig.engines))
    rig.drain()
    assert rig.status(process) == "CLOSED"
    return process


def test_an_export_has_every_row_of_the_tree_and_no_other(rig: Rig) -> None:
    other = rig.submit(*TREE)
    process = rig.submit(*TREE)
    rig.drain()
    archive = Archive.parse("".join(export.exported(rig.database, process)), "export")
    everything = {table: rows(rig.database, f"SELECT count(*) FROM {table}")[0][0] for table in export.COLUMNS}
    assert {table: 2 * len(archive[table]) for table in export.COLUMNS} == everything
    assert len(archive["processes"]) == 2
    assert str(other) not in json.dumps(archive.tables)
    node = archive["nodes"][0]
    stored = row(rig.database, "nodes", node["id"])
    assert {name: node[name] for name in ("goal", "order_key", "cursor", "phase")} == {
        name: stored[name] for name in ("goal", "order_key", "cursor", "phase")
    }
    assert datetime.fromisoformat(node["created_at"]) == datetime.fromisoformat(stored["created_at"])
    assert {each["recorded"]["reply"]["text"] for each in archive["phase_records"] if "reply" in each["recorded"]} == {
        "an answer"
    }
    with pytest.raises(export.Unknown):
        list(export.exported(rig.database, uuid4()))


def test_an_export_is_of_one_moment_and_writes_nothing(rig: Rig) -> None:
    process = rig.submit(*TREE)
    rig.run_next()
    pieces = export.exported(rig.database, process)
    text = next(pieces)
    rig.drain()
    archive = Archive.parse(text + "".join(pieces), "export")
    assert [each["status"] for each in archive["processes"]] == ["RUNNING"]
    assert archive["results"] == []
    assert len(archive["phase_records"]) == 1
    with pytest.raises(Exception, match="read-only"), rig.database.snapshot() as connection:
        connection.exec_driver_sql("DELETE FROM processes")


def test_documents_come_with_their_versions_and_places(rig: Rig) -> None:
    documents.put(rig.database, "default", "default", "other.md", "of nobody")
    process = rig.submit({"say": "x"})
    rig.drain()
    node = rows(rig.database, "SELECT id FROM nodes")[0][0]
    for content in ("first", "second"):
        documents.put(rig.database, "default", "default", "report.md", content, title="R")
    rows(rig.database, "UPDATE document_versions SET node_id = %(node)s WHERE content <> 'of nobody' RETURNING version",
         node=node)  # fmt: skip
    found = Archive.parse("".join(export.exported(rig.database, process)), "export")["document_versions"]
    assert [(each["path"], each["version"], each["content"], each["tenant"]) for each in found] == [
        ("report.md", 1, "first", "default"), ("report.md", 2, "second", "default"),
    ]  # fmt: skip


def test_no_secret_of_the_installation_is_in_an_export(rig: Rig) -> None:
    secret, password = 'sk-"quoted"-and-long', "p4ssw0rd-of-redis"
    process = job(rig, {"n": f"{secret} {password}"}, {"n": 1}, prompt=f"My key is {secret}")
    tokens.create(rig.database, "default", "t", [Scope.READ])
    settings = load_settings(
        {"VANCETOPE_OPENAI_API_KEY": secret, "VANCETOPE_REDIS_URL": f"redis://:{password}@host:1/0"}
    )
    text = "".join(exported(rig.database, settings, process))
    found = json.loads(text)
    assert json.dumps(secret)[1:-1] not in text
    assert password not in text
    assert found["process_inputs"][0]["params"]["prompt"] == "My key is [redacted]"
    assert "api_tokens" not in found


def test_a_job_is_exported_and_replayed_on_the_command_line(
    rig: Rig, tmp_path: Path, postgres_admin_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = job(rig, {"n": "many"}, {"n": 3})
    known = databases(postgres_admin_url)
    file = tmp_path / "job.json"
    done = invoke("export", str(process), "-o", str(file), "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout) == {"root": str(process), "file": str(file), "bytes": file.stat().st_size}
    printed = invoke("export", "last").stdout
    assert {**json.loads(printed), "exportedAt": ""} == {**json.loads(file.read_text()), "exportedAt": ""}

    monkeypatch.delenv("VANCETOPE_DATABASE_URL")
    monkeypatch.delenv("VANCETOPE_REDIS_URL")
    again = invoke("replay", str(file), "--database", postgres_admin_url)
    assert (again.exit_code, again.output) == (0, "same: 2 turns, 1 node, 1 process, 2 calls\n")
    assert databases(postgres_admin_url) == known, "the temporary database is gone"

    changed = json.loads(file.read_text())
    changed["process_inputs"][0]["params"]["maxAttempts"] = 1
    file.write_text(json.dumps(changed))
    differs = invoke("replay", str(file), "--database", postgres_admin_url)
    assert differs.exit_code == 1, differs.output
    assert "the first divergence:\ndecision of root, turn 1, ANSWER: reason\n" in differs.output
    assert "  recorded  CORRECTED\n  replayed  CONCLUDED\n" in differs.output
    told = json.loads(invoke("replay", str(file), "--database", postgres_admin_url, "--json").stdout)
    assert told["same"] is False
    assert told["differences"][0] | {"lines": []} == {
        "kind": "decision", "node": "root", "turn": 1, "phase": "ANSWER", "what": "reason", "recorded": "CORRECTED",
        "replayed": "CONCLUDED", "lines": [],
    }  # fmt: skip


def test_a_replay_without_a_database_starts_one_of_its_own(rig: Rig, tmp_path: Path) -> None:
    file = tmp_path / "job.json"
    file.write_text("".join(export.exported(rig.database, job(rig, {"n": 3}))))
    again = invoke("replay", str(file))
    assert (again.exit_code, again.output) == (0, "same: 1 turn, 1 node, 1 process, 1 call\n")


def test_wrong_files_and_ids_are_refused_in_one_line(rig: Rig, tmp_path: Path) -> None:
    file = tmp_path / "job.json"
    file.write_text('{"format": "other"}')
    for arguments, told in (
        (["replay", str(file)], "is no export: `vancetope export ID` writes one"),
        (["replay", str(tmp_path / "none.json")], "cannot be read: No such file"),
        (["export", str(uuid4())], "there is no job"),
        (["export", "last"], "there is no job yet"),
    ):
        result = invoke(*arguments)
        assert result.exit_code == 2, result.output
        assert told in result.output
        assert "Traceback" not in result.output
    file.write_text("".join(export.exported(rig.database, job(rig, {"n": 3}))))
    unreachable = invoke("replay", str(file), "--database", "postgresql://nobody@127.0.0.1:1/none")
    assert unreachable.exit_code == 3
    assert "no database can be made for the replay" in unreachable.output


def test_a_tenants_token_exports_its_own_processes_over_http(rig: Rig) -> None:
    process = rig.submit(*TREE)
    rig.drain()
    settings = load_settings()
    app = create_app(Runtime(settings, publisher_app(settings)), open_to_loopback=False)

    def token(tenant: str, *scopes: Scope) -> dict[str, str]:
        return {"Authorization": f"Bearer {tokens.create(rig.database, tenant, 'reads', scopes)[1]}"}

    with TestClient(app, base_url="http://127.0.0.1:8000") as client:
        mine, other = token("default", Scope.READ), token("other", Scope.ADMIN)
        sub = rows(rig.database, "SELECT id FROM processes WHERE id <> root_id")[0][0]
        for identity in (process, sub):
            found = client.get(f"/v1/processes/{identity}/export", headers=mine)
            assert found.status_code == 200, found.text
            assert found.headers["content-disposition"] == f'attachment; filename="vancetope-{process}.json"'
            assert len(Archive.parse(found.text, "export")["processes"]) == 2
        assert client.get(f"/v1/processes/{process}/export", headers=other).status_code == 404
        assert client.get(f"/v1/processes/{process}/export").status_code == 401


def databases(admin_url: str) -> set[str]:
    with psycopg.connect(admin_url) as connection:
        found = connection.execute("SELECT datname FROM pg_database WHERE datname LIKE 'vancetope_replay_%'")
        return {str(each[0]) for each in found}


def test_an_open_process_can_be_exported_as_it_is(rig: Rig) -> None:
    process = rig.send(new_process([{"park": None}]))
    rig.drain()
    archive = Archive.parse("".join(export.exported(rig.database, process)), "export")
    assert archive["processes"][0]["closed_at"] is None
    assert not processes.undelivered(rig.database, batch=10)
