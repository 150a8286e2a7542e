"""The command line where no backend is: what it says, and what works all the same."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tasks.cli import main
from tasks.cli.root import SECTIONS

SCHEMA = '{"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}'
COMMANDS = [name for part in SECTIONS.values() for name in part]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # No stack of the developer's runs in this folder.
    monkeypatch.chdir(tmp_path)


def invoke(*arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(main, list(arguments), input=stdin)


FOREGROUND = {"api"}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_and_json(command: str) -> None:
    result = invoke(command, "--help")
    assert result.exit_code == 0
    # What runs in the foreground until Ctrl-C answers nothing.
    assert "--json" in result.output or "Commands:" in result.output or command in FOREGROUND


def test_the_top_loads_nothing_of_the_application() -> None:
    check = (
        "import sys, tasks.cli\n"
        "heavy = {'sqlalchemy', 'pydantic', 'celery', 'psycopg', 'redis', 'jinja2', 'engines', 'models'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_a_misspelt_command_gets_the_nearest_one() -> None:
    result = invoke("statsu")
    assert result.exit_code == 2
    assert "did you mean 'status'" in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("list",),
        ("status", "last"),
        ("stop", "01a22c9d-8d9b-724b-8f5c-e2fcc6244023"),
        ("run", "jeltz", "--prompt", "x", "--schema", SCHEMA),
        ("watch", "last"),
    ],
)
def test_without_a_backend_both_ways_to_get_one_are_named(arguments: tuple[str, ...]) -> None:
    result = invoke(*arguments)
    assert result.exit_code == 3
    assert "vancetope dev" in result.stderr
    assert "VANCETOPE_DATABASE_URL" in result.stderr
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""


def test_half_a_backend_is_not_completed_by_guessing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VANCETOPE_DATABASE_URL", "postgresql://u:secret@127.0.0.1:1/x")
    result = invoke("list")
    assert result.exit_code == 3
    assert "VANCETOPE_REDIS_URL is not set" in result.stderr


def test_an_unknown_setting_is_refused_with_the_nearest_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VANCETOPE_DATABSE_URL", "x")
    result = invoke("list")
    assert result.exit_code == 3
    assert "did you mean VANCETOPE_DATABASE_URL?" in result.stderr


def test_an_unreachable_database_is_one_line_without_the_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VANCETOPE_DATABASE_URL", "postgresql://u:secret-word@127.0.0.1:1/x")
    monkeypatch.setenv("VANCETOPE_REDIS_URL", "redis://127.0.0.1:1/0")
    result = invoke("list")
    assert result.exit_code == 3
    assert "PostgreSQL cannot be reached" in result.stderr
    assert "secret-word" not in result.output
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--prompt", "-", "--schema", "-"), "cannot both read standard input"),
        (("--prompt", "@missing.txt"), "--prompt: missing.txt: No such file"),
        (("--schema", "missing.json"), "--schema: missing.json: No such file"),
        (("--schema", "{broken"), "--schema: line 1, column 2"),
        (("--param", "novalue"), "must be KEY=VALUE"),
        (("--param", "prompt=a", "--prompt", "b"), "'prompt' is given twice"),
        (("--priority", "urgent"), "'urgent' is not one of"),
        (("--max-attempts", "11"), "11 is not in the range"),
        (("--max-cost", "0"), "--max-cost"),
        (("--id", "nonsense"), "is no process id"),
        (("--tenant", "../x"), "tenant: "),
    ],
)
def test_usage_errors_name_what_is_wrong(arguments: tuple[str, ...], words: str) -> None:
    result = invoke("run", "jeltz", *arguments)
    assert result.exit_code == 2, result.output
    assert words in result.stderr
    assert result.stdout == ""


def test_a_batch_with_a_bad_line_names_file_and_line(tmp_path: Path) -> None:
    batch = tmp_path / "jobs.jsonl"
    batch.write_text('{"params": {"prompt": "a"}}\n\n{"params": 1}\nnot json\n{"recpie": "x"}\n')
    result = invoke("submit", "jeltz", "--batch", str(batch))
    assert result.exit_code == 2
    assert "nothing was submitted" in result.stderr
    for line in (3, 4, 5):
        assert f"jobs.jsonl:{line}: " in result.stderr
    assert "jobs.jsonl:1: " not in result.stderr


def test_recipes_are_listed_shown_and_checked_without_a_backend() -> None:
    listed = invoke("recipes", "ls")
    assert listed.exit_code == 0
    assert "extract-event" in listed.stdout
    shown = json.loads(invoke("recipes", "show", "extract-event", "--json").stdout)
    assert shown["engine"] == "jeltz"
    checked = {each["recipe"]: each["problems"] for each in json.loads(invoke("recipes", "check", "--json").stdout)}
    assert [checked[name] for name in ("jeltz", "extract-event", "classify-ticket", "outline")] == [[]] * 4
    missing = invoke("recipes", "show", "extract-evnet")
    assert missing.exit_code == 2
    assert "did you mean 'extract-event'" in missing.stderr


def test_a_wrong_recipe_file_fails_its_check(tmp_path: Path) -> None:
    wrong = tmp_path / "mine.yaml"
    wrong.write_text("description: x\nengine: jeltz\nprmopt: y\n")
    result = invoke("recipes", "check", str(wrong))
    assert result.exit_code == 1
    assert "prmopt" in result.stdout


def test_a_tool_that_is_not_there_fails_the_check(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("description: x\nengine: ford\nallowedTools: [web_search, doc_raed]\n")
    result = invoke("recipes", "check", "mine.yaml", "--json")
    assert result.exit_code == 1
    ((problem,),) = [each["problems"] for each in json.loads(result.stdout)]
    assert problem == "mine.yaml: there is no tool 'doc_raed' here: did you mean 'doc_read'?"


def test_a_good_schema_gets_a_forecast_for_every_kind_of_model() -> None:
    found = json.loads(invoke("schema", "check", "-", "--json", stdin=SCHEMA).stdout)
    assert found["accepted"] is True
    assert {each["path"] for each in found["paths"]} >= {"strict", "loose"}
    for each in found["paths"]:
        assert each["models"]
        assert (each["sentSchema"] is None) == (each["path"] == "prompt")


def test_what_only_our_validator_holds_is_named() -> None:
    schema = '{"type": "object", "properties": {"a": {"type": "string", "minLength": 2}}}'
    result = invoke("schema", "check", schema, "--model", "openai:gpt-5")
    assert result.exit_code == 0
    assert "/properties/a/minLength" in result.stdout


def test_a_refused_schema_is_told_by_pointer() -> None:
    result = invoke("schema", "check", '{"type": "object", "properties": {"a": {"$ref": "#/x"}}}')
    assert result.exit_code == 1
    assert "/properties/a/$ref" in result.stdout


def test_models_mark_what_can_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    nothing = json.loads(invoke("models", "--json").stdout)
    assert not any(row["usable"] for row in nothing["models"])
    assert nothing["aliases"]["default:fast"] is None
    monkeypatch.setenv("VANCETOPE_ANTHROPIC_API_KEY", "sk-test-abcdef123")
    some = invoke("models", "--json")
    usable = {row["provider"] for row in json.loads(some.stdout)["models"] if row["usable"]}
    assert usable == {"anthropic"}
    assert "sk-test" not in some.output


def test_doctor_says_what_to_do_when_there_is_nothing() -> None:
    result = invoke("doctor", "--json")
    assert result.exit_code == 1
    checks = {line["check"]: line for line in json.loads(result.stdout)["checks"]}
    assert checks["PostgreSQL"]["state"] == "problem"
    assert "VANCETOPE_DATABASE_URL" in checks["PostgreSQL"]["text"]
    assert "VANCETOPE_REDIS_URL" in checks["Redis"]["text"]
    assert "VANCETOPE_OPENAI_API_KEY" in checks["providers"]["text"]
    assert checks["engines"]["state"] == "ok"
