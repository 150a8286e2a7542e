"""Recipes among documents: which one wins, what a broken one says, what a running process keeps."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from plans import Stage, call, closed_plan, straight
from rig import Rig

from models.store import documents
from tasks.cli import main
from tasks.cookbook import held, recipe_sources
from tasks.settings import load_settings
from tasks.submission import SubmissionError, parse_submission, prepare

SCHEMA = "schema: {type: object, required: [text], properties: {text: {type: string}}}\n"


def jeltz(description: str, extra: str = "") -> str:
    return f"description: {description}\nengine: jeltz\n{SCHEMA}{extra}"


@pytest.fixture
def rig(database_url: str) -> Iterator[Rig]:
    with Rig(database_url) as made:
        yield made


@pytest.fixture
def stage(database_url: str) -> Iterator[Stage]:
    made = Stage(database_url)
    yield made
    made.close()


def store(rig: Rig, name: str, text: str, *, project: str = "default", tenant: str = "default") -> None:
    documents.put(rig.database, tenant, project, f"recipes/{name}", text)


def prepared(rig: Rig, recipe: str, *, folder: Path | None = None, warn: Any = None, **payload: Any) -> Any:
    settings = load_settings({} if folder is None else {"VANCETOPE_RECIPES_DIR": str(folder)})
    submission = parse_submission({"recipe": recipe, "params": {"prompt": "q"}, **payload})
    heard: list[str] = [] if warn is None else warn
    return prepare(submission, settings, rig.engines, recipe_sources(settings, rig.database), heard.append)


def source_of(process: Any) -> str:
    return str(process.recipe["source"])


def test_project_then_tenant_then_folder_then_bundled(rig: Rig, tmp_path: Path) -> None:
    def found() -> str:
        return source_of(prepared(rig, "outline", folder=tmp_path))

    assert found() == "bundled: recipes/outline.yaml"
    (tmp_path / "outline.yaml").write_text(jeltz("folder"))
    assert found() == f"{tmp_path}/outline.yaml"
    tenants = tmp_path / "default" / "_tenant"
    tenants.mkdir(parents=True)
    (tenants / "outline.yaml").write_text(jeltz("folder of the tenant"))
    assert found() == f"{tenants}/outline.yaml"
    store(rig, "outline.yaml", jeltz("tenant"), project="_tenant")
    assert found() == "tenant default: recipes/outline.yaml"
    store(rig, "outline.yaml", jeltz("project"))
    assert found() == "project default/default: recipes/outline.yaml"


def test_documents_of_others_are_not_seen(rig: Rig) -> None:
    store(rig, "mine.yaml", jeltz("of another project"), project="other")
    store(rig, "mine.yaml", jeltz("of another tenant"), tenant="acme")
    with pytest.raises(SubmissionError, match="there is no recipe 'mine'"):
        prepared(rig, "mine")
    assert source_of(prepared(rig, "mine", project="other")) == "project default/other: recipes/mine.yaml"
    assert source_of(prepared(rig, "mine", tenant="acme")) == "project acme/default: recipes/mine.yaml"


def test_an_unknown_name_gets_near_ones_among_documents(rig: Rig) -> None:
    store(rig, "weekly-report.yaml", jeltz("x"))
    with pytest.raises(SubmissionError, match="did you mean 'weekly-report'"):
        prepared(rig, "weekly-raport")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("description: x\nengine: jeltz\nprmopt: y\n", r"recipes/mine.yaml:3: unknown key 'prmopt': did you mean"),
        ("description: x\nengine: jetlz\n", r"recipes/mine.yaml: there is no engine 'jetlz': did you mean 'jeltz'"),
        (jeltz("x", "params: {maxAttemps: 2}\n"), r"recipes/mine.yaml: params.maxAttemps: .*'maxAttempts'"),
        (jeltz("x", "promptPrefix: |\n  a\n  {% for %}\n"), r"recipes/mine.yaml .*promptPrefix, line 2: "),
    ],
)
def test_a_broken_document_says_what_where_and_what_would_be_right(rig: Rig, text: str, message: str) -> None:
    store(rig, "mine.yaml", text)
    with pytest.raises(SubmissionError, match=rf"^recipe: project default/default: {message}"):
        prepared(rig, "mine")


def test_prompt_documents_reach_a_bundled_recipe(rig: Rig) -> None:
    store(rig, "prompts/marvin-worker-system.md", "You are a worker of ours.", project="_tenant")
    store(rig, "prompts/marvin-worker-conclude.md", "Write like us.")
    process = prepared(rig, "marvin", goal="g", params={})
    worker = process.recipe["snapshots"]["marvin-worker"]["recipe"]
    assert worker["promptPrefix"] == "You are a worker of ours."
    assert worker["prompts"]["CONCLUDE"] == "Write like us."
    assert "reviewer" in worker["prompts"]["VALIDATE"]


def test_a_batch_reads_each_text_once(rig: Rig) -> None:
    store(rig, "mine.yaml", jeltz("x"))
    settings = load_settings({})
    sources = held(recipe_sources(settings, rig.database))
    before = len(rig.database.sent)
    for _ in range(20):
        prepare(parse_submission({"recipe": "mine", "params": {"prompt": "q"}}), settings, rig.engines, sources)
    assert len(rig.database.sent) - before == 1


def test_a_plan_calls_the_recipe_of_its_own_project(stage: Stage) -> None:
    asked: list[str] = []

    def play(phase: str, goal: str, request: Any) -> Any:
        if phase == "ANSWER":
            asked.append(request.messages[0].content)
            return {"text": "42 EUR"}
        return call("look-up", "the price") if phase == "SCOPE" else straight()(phase)

    rig, model = stage(play)
    store(rig, "look-up.yaml", jeltz("Looks up.", "promptPrefix: Voice of the other project\n"), project="other")
    store(rig, "look-up.yaml", jeltz("Looks up.", "promptPrefix: Voice of the tenant\n"), project="_tenant")
    process = prepared(rig, "marvin", goal="Report", project="alpha", params={"availableRecipes": ["look-up"]})
    rig.send(process)
    rig.drain()
    closed_plan(rig, process.id)
    assert ["Voice of the tenant" in text for text in asked] == [True]
    assert any("42 EUR" in message.content for request in model.requests for message in request.messages)


def test_a_running_process_keeps_the_recipes_it_began_with(stage: Stage) -> None:
    asked: list[str] = []

    def play(phase: str, goal: str, request: Any) -> Any:
        if phase == "ANSWER":
            asked.append(request.messages[0].content)
            return {"text": "yes"}
        return call("look-up", "the price") if phase == "SCOPE" else straight()(phase)

    rig, _ = stage(play)
    store(rig, "look-up.yaml", jeltz("Looks up.", "promptPrefix: The first voice\n"))
    first = prepared(rig, "marvin", goal="Report", params={"availableRecipes": ["look-up"]})
    rig.send(first)
    store(rig, "look-up.yaml", jeltz("Looks up.", "promptPrefix: The second voice\n"))
    rig.drain()
    closed_plan(rig, first.id)
    assert ["The first voice" in text for text in asked] == [True]


def test_a_recipe_a_plan_cannot_call_is_remarked_at_submission_and_told_to_the_plan(stage: Stage) -> None:
    def play(phase: str, goal: str, request: Any) -> Any:
        if phase == "SCOPE":
            return call("look-up", "the price")
        if phase == "REFLECT":
            seen.append("\n".join(message.content for message in request.messages))
        return straight()(phase)

    seen: list[str] = []
    rig, _ = stage(play)
    store(rig, "look-up.yaml", "description: x\nengine: jeltz\nprmopt: y\n")
    heard: list[str] = []
    names = ["look-up", "web-reserach"]
    process = prepared(rig, "marvin", goal="Report", params={"availableRecipes": names}, warn=heard)
    assert any("'look-up': project default/default: recipes/look-up.yaml:3: unknown key" in text for text in heard)
    assert any("did you mean 'web-research'" in text for text in heard)
    rig.send(process)
    rig.drain()
    closed_plan(rig, process.id)
    assert "[recipe call 'look-up': refused: project default/default: recipes/look-up.yaml:3: unknown key" in seen[0]


# --- the command line ---------------------------------------------------------------------------------------------


@pytest.fixture
def invoke(database_url: str, redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VANCETOPE_DATABASE_URL", database_url)
    monkeypatch.setenv("VANCETOPE_REDIS_URL", redis_url)

    def run(*arguments: str) -> Result:
        return CliRunner().invoke(main, list(arguments))

    return run


def test_put_checks_before_it_stores_and_lists_say_where_each_comes_from(invoke: Any, tmp_path: Path) -> None:
    (tmp_path / "wrong.yaml").write_text("description: x\nengine: jeltz\nparams: {maxAttemps: 1}\n")
    (tmp_path / "Right One.yaml").write_text(jeltz("Does it right."))
    refused = invoke("recipes", "put", "Right One.yaml", "wrong.yaml")
    assert (refused.exit_code, "did you mean 'maxAttempts'" in refused.stderr) == (2, True)
    assert json.loads(invoke("docs", "ls", "--json").stdout) == []
    assert invoke("recipes", "put", "Right One.yaml").exit_code == 0
    (tmp_path / "outline.yaml").write_text(jeltz("Outlines as we do."))
    assert invoke("recipes", "put", "outline.yaml", "--project", "_tenant").exit_code == 0
    listed = {each["name"]: each for each in json.loads(invoke("recipes", "ls", "--json").stdout)}
    layers = {name: listed[name]["layer"] for name in ("right-one", "outline", "jeltz")}
    assert layers == {"right-one": "project", "outline": "tenant", "jeltz": "bundled"}
    assert "project default/default: recipes/right-one.yaml" in invoke("recipes", "show", "right-one").stdout
    checked = {each["recipe"]: each["problems"] for each in json.loads(invoke("recipes", "check", "--json").stdout)}
    assert checked["right-one"] == []
    other = json.loads(invoke("recipes", "ls", "--json", "--project", "other").stdout)
    assert "right-one" not in [each["name"] for each in other]


def test_a_broken_document_is_shown_as_broken_and_fails_the_check(invoke: Any, tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("engine: jeltz\n")
    assert invoke("docs", "put", "recipes/bad.yaml", "bad.yaml").exit_code == 0
    assert "'description' is missing" in invoke("recipes", "ls").stdout.replace("\n", " ")
    result = invoke("recipes", "check", "--json")
    assert result.exit_code == 1
    problems = {each["recipe"]: each["problems"] for each in json.loads(result.stdout)}
    assert problems["bad"] == ["project default/default: recipes/bad.yaml:1: 'description' is missing"]


def test_what_a_locked_recipe_drops_is_said(invoke: Any, tmp_path: Path) -> None:
    (tmp_path / "fixed.yaml").write_text(jeltz("x", "locked: true\n"))
    assert invoke("recipes", "put", "fixed.yaml").exit_code == 0
    result = invoke("submit", "fixed", "--prompt", "q", "--model", "default:fast", "--max-attempts", "2")
    assert result.exit_code == 0
    assert "remark: recipe 'fixed' is locked: dropped maxAttempts, model" in result.stderr


def test_a_misspelt_parameter_is_refused(invoke: Any) -> None:
    result = invoke("submit", "extract-event", "--prompt", "q", "--param", "maxAttemps=2")
    assert result.exit_code == 2
    assert "params.maxAttemps: nothing reads this parameter: did you mean 'maxAttempts'?" in result.stderr
