"""Designs of plan recipes: what is refused and how it is said, and what the recipes that pass tell a plan."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from designs import TEMPLATES, design

from engines.architect.shapes import SHAPES, Aspect, DesignRefused, Question
from engines.architect.templates import template_problem
from engines.architect.vetting import vetted_recipe
from engines.documents.actions import DocWrite, read_action
from engines.documents.spec import read_expand_spec
from engines.ford.engine import Ford
from engines.llm.base import ToolCall
from engines.marvin.engine import Marvin
from engines.marvin.modes import execution_mode
from engines.marvin.outputs import ScopeOutput, parse_output, user_input_of
from engines.marvin.words import Phase, TaskKind
from engines.recipes.cascade import BundledRecipes, effective_params, resolve
from engines.recipes.model import Recipe
from engines.recipes.prompt import prompt_variables, system_prompt
from engines.recipes.render import render_prompt
from engines.tools.base import ToolContext
from engines.tools.recipe_write import RecipeWrite
from engines.tools.registry import Registry, bundled_tools
from models.records import ChildMode

RESEARCH, CHAPTERS, DECISION = TEMPLATES
BUNDLED = BundledRecipes()


class Project:
    """A project's recipe documents."""

    layer = "project"

    def __init__(self, **recipes: str) -> None:
        self.recipes = {name.replace("_", "-"): text for name, text in recipes.items()}

    def read(self, name: str) -> tuple[str, str] | None:
        return (self.recipes[name], f"project: recipes/{name}.yaml") if name in self.recipes else None

    def read_prompts(self, name: str, parts: Any) -> dict[str, tuple[str, str]]:
        return {}

    def names(self) -> list[str]:
        return list(self.recipes)


def vetted(given: dict[str, Any], **project: str) -> tuple[Recipe, str]:
    return vetted_recipe(given, [Project(**project), BUNDLED], Marvin.param_names)


def refused(given: dict[str, Any], **project: str) -> str:
    with pytest.raises(DesignRefused) as caught:
        vetted(given, **project)
    return "\n".join(caught.value.problems)


def aspects(number: int) -> list[dict[str, str]]:
    return [{"role": "r", "goal": f"goal {each}"} for each in range(number)]


def questions(number: int) -> list[dict[str, str]]:
    return [{"title": f"t {each}", "body": "b"} for each in range(number)]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({**design(RESEARCH), "templateId": "research"}, "templateId: there is no template \"research\""),
        ({**design(RESEARCH), "templateId": "doc-driven-chapter"}, "did you mean 'doc-driven-chapters'"),
        ({**design(RESEARCH), "params": "x"}, "params: must be an object with the fields of research-aggregate-write"),
        ({**design(RESEARCH), "justifications": []}, "justifications: must be a list with at least one reason"),
        ({**design(RESEARCH), "shapeRationale": " "}, "shapeRationale: must say"),
        (design(RESEARCH, aspects=[]), "params.aspects: "),
        (design(RESEARCH, aspects=aspects(11)), "params.aspects: "),
        (design(RESEARCH, aspects=[{"role": "r", "goal": "g"}] * 2), "number 2 is the same as number 1"),
        (design(RESEARCH, aspects=[{"role": "r", "goal": " "}]), "params.aspects.0.goal: "),
        (design(RESEARCH, "synthesisPrompt"), "params.synthesisPrompt: is missing"),
        (design(RESEARCH, "description"), "params.description: is missing"),
        (design(RESEARCH, outputPath="x.md"), "params.outputPath: unknown field: did you mean 'outputPathTpl'"),
        (design(RESEARCH, aspects=[{"role": "r", "gaol": "g"}]), "aspects.0.gaol: unknown field: did you mean 'goal'"),
        (design(RESEARCH, reportLengthWords="many"), "params.reportLengthWords: "),
        (design(CHAPTERS, "finalPath"), "finalPath must be there when consolidate is true"),
        (design(CHAPTERS, "consolidatePrompt", "finalPath"), "consolidatePrompt and finalPath must be there"),
        (design(CHAPTERS, chapterPromptTpl="Write a chapter"), "params.chapterPromptTpl: must say {{ item.text }}"),
        (design(DECISION, questions=[]), "params.questions: "),
        (design(DECISION, questions=questions(11)), "params.questions: "),
        (design(DECISION, questions=[{"title": "t", "body": "b", "type": "VOTE"}]), "params.questions.0.type: "),
        (design(DECISION, questions=[{"title": "t", "body": "b", "criticality": "HIGH"}]), "questions.0.criticality: "),
        (design(DECISION, questions=[{"title": "t", "body": "b", "type": "DECISION"}]), "at least two different"),
        (design(DECISION, questions=[{"title": "t", "body": "b", "options": ["a", "b"]}]), "for type DECISION only"),
    ],
)  # fmt: skip
def test_what_is_missing_or_wrong_is_named_with_its_place(given: dict[str, Any], said: str) -> None:
    assert said in refused(given)


@pytest.mark.parametrize(
    "path",
    [
        "recipes/x.yaml", "_vance/x.md", "_tenant/x.md", "_user/x.md", "_slart/x.md", "_zaphod-drafts/x.md",
        "_vogon-drafts/x.md", "_marvin-drafts/x.md", "./recipes/x.md", "a/../recipes/x.md", "RECIPES/x.md",
        "%72ecipes/x", "/etc/passwd", "../x.md", "{{ process.goal }}/x.md", "{{ params.folder }}.md",
    ],
)  # fmt: skip
def test_reserved_and_open_paths_are_refused(path: str) -> None:
    assert "params.outputPathTpl: " in refused(design(RESEARCH, outputPathTpl=path))
    assert "params.chaptersDir: " in refused(design(CHAPTERS, chaptersDir=path))
    assert "params.finalPath: " in refused(design(CHAPTERS, finalPath=path))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{{ secrets.key }}", 'names "secrets": only "goal", "lang", "params", "process" are known here'),
        ("{{ item.text }}", 'names "item"'),
        ("{% if goal %}x{% endif %}", "no {% … %}"),
        ("{# note #}", "no {# … #}"),
        ("{{ process.goal", "a {{ without its }}"),
        ("{{ process.goal | shout }}", "shout"),
        ('{{ process.goal | replace("a", "b") }}', "single quotes"),
        ("{{ process.goal.__class__ }}", "__class__"),
        ("{{ ''.join(params) }}", "params"),
    ],
)
def test_templates_may_name_what_is_known_and_nothing_else(text: str, said: str) -> None:
    assert "params.synthesisPrompt: " in (found := refused(design(RESEARCH, synthesisPrompt=text)))
    assert said in found
    assert "params.aspects.0.goal: " in refused(design(RESEARCH, aspects=[{"role": "r", "goal": text}]))
    assert "params.decisionPrompt: " in refused(design(DECISION, decisionPrompt=text))
    options = [{"title": "t", "body": "b", "type": "DECISION", "options": ["a", text]}]
    assert "params.questions.0.options.1: " in refused(design(DECISION, questions=options))


def test_both_times_in_one_expression_are_refused() -> None:
    text = "{{ item.text ~ process.goal }}"
    assert "use two expressions" in str(template_problem(text, {"item", "process"}))
    assert "params.chapterPromptTpl: " in refused(design(CHAPTERS, chapterPromptTpl=text))


@pytest.mark.parametrize(
    ("recipes", "said"),
    [
        ([], "is empty: research needs at least one recipe"),
        (["web-reserach"], "there is no recipe 'web-reserach': did you mean 'web-research'"),
        (["web-research", "Web Research"], '"web-research" stands there twice'),
        (["marvin"], "'marvin' is a plan itself"),
        (["our-plan"], "'our-plan' is a plan itself"),
        (["broken"], "project: recipes/broken.yaml:1: "),
    ],
)
def test_recipes_must_exist_once_and_be_no_plans(recipes: list[str], said: str) -> None:
    given = design(RESEARCH, availableRecipes=recipes)
    assert said in refused(given, our_plan="description: x\nengine: marvin\n", broken="engine: jeltz\n")


def test_a_name_that_is_taken_is_refused_unless_the_architect_wrote_it() -> None:
    assert "there is a recipe 'web-research' already (bundled: " in refused(design(RESEARCH, name="Web Research"))
    hand = "description: x\nengine: ford\n"
    assert "somebody wrote by hand" in refused(design(RESEARCH), subject_report=hand)
    assert "no recipe name" in refused(design(RESEARCH, name="../up"))
    _, first = vetted(design(RESEARCH))
    recipe, _ = vetted(design(RESEARCH, description="Better."), subject_report=first)
    assert recipe.summary == "Better."


def test_everything_wrong_is_told_at_once() -> None:
    found = refused(design(RESEARCH, outputPathTpl="recipes/x", synthesisPrompt="{{ x }}", availableRecipes=["marvin"]))
    assert [line.split(":")[0] for line in found.splitlines()] == [
        "params.availableRecipes", "params.synthesisPrompt", "params.outputPathTpl",
    ]  # fmt: skip


# --- what passes ------------------------------------------------------------------------------------------------------


def told(recipe: Recipe, goal: str = "tidal power") -> str:
    params = effective_params(recipe, {}).params
    return render_prompt(recipe.prompt_prefix, prompt_variables(recipe, params=params, goal=goal, lang=params["lang"]))


def lists_in(prompt: str) -> list[list[dict[str, Any]]]:
    return [json.loads(found) for found in re.findall(r"^\[$.*?^\]$", prompt, re.DOTALL | re.MULTILINE)]


def tasks_of(recipe: Recipe) -> ScopeOutput:
    (tasks, *_) = lists_in(told(recipe))
    answer = {"action": "NEEDS_SUBTASKS", "newTasks": tasks, "reason": "the shape"}
    found = parse_output(Phase.SCOPE, json.dumps(answer))
    assert isinstance(found, ScopeOutput)
    assert len(found.new_tasks) == len(tasks)
    return found


@pytest.mark.parametrize("template", TEMPLATES)
def test_each_template_becomes_a_recipe_on_marvin(template: str) -> None:
    recipe, text = vetted(design(template))
    assert (recipe.engine, recipe.warnings, recipe.params["lang"]) == ("marvin", (), "en")
    assert recipe.params["availableRecipes"] == design(template)["params"]["availableRecipes"]
    assert recipe.summary == design(template)["params"]["description"]
    assert text.startswith(f"# Shape: {template}. It falls into sides.\n# the wish names two sides\n")
    prompt = told(recipe)
    for words in ("SCOPE", "NEEDS_SUBTASKS", "POST_CHILDREN", "PROCEED_TO_CONCLUDE", "CONCLUDE", "language: en"):
        assert words in prompt
    assert "tidal power" in prompt or template == DECISION
    assert vetted(design(template))[1] == text


def test_research_gives_one_worker_per_aspect_at_the_same_time_and_one_document() -> None:
    recipe, _ = vetted(design(RESEARCH))
    tasks = tasks_of(recipe).new_tasks
    assert [task.goal for task in tasks] == [
        'As a historian: Find out how tidal power came about, "firsts" included.',
        "As an engineer: Find out how tidal power works.",
    ]
    assert execution_mode(TaskKind.WORKER, {}, recipe.params) is ChildMode.PARALLEL
    prompt = told(recipe)
    assert "First history, then technology.\nThe text has about 800 words." in prompt
    assert read_action(lists_in(prompt)[1][0]) == DocWrite(
        path="reports/tidal-power.md", kind="text", content="{{ node.result }}", title="On tidal power"
    )


def test_chapters_come_from_an_outline_that_is_written_first() -> None:
    recipe, _ = vetted(design(CHAPTERS))
    outline, expansion = tasks_of(recipe).new_tasks
    assert execution_mode(TaskKind.WORKER, {}, recipe.params) is ChildMode.SEQUENTIAL
    stored = read_action(outline.task_spec["postActions"][0])
    assert isinstance(stored, DocWrite)
    assert (stored.path, stored.kind) == ("books/tidal-power/outline.md", "list")
    assert stored.content == "---\nkind: list\n---\n{{ node.result }}"
    spec = read_expand_spec(expansion.task_spec)
    assert (spec.document.path, spec.fail_on_empty) == (stored.path, True)
    assert spec.child.goal == "Write chapter {{ index1 }}, {{ item.text }}, of the handbook on tidal power"
    chapter = read_action(spec.child.task_spec["postActions"][0])
    assert isinstance(chapter, DocWrite)
    assert chapter.path == "books/tidal-power/chapters/{{ index1 }}-{{ item.text | slug }}.md"
    final = read_action(lists_in(told(recipe))[1][0])
    assert isinstance(final, DocWrite)
    assert final.path == "books/tidal-power/introduction.md"


def test_chapters_without_consolidation_end_without_a_document() -> None:
    recipe, _ = vetted(design(CHAPTERS, "consolidatePrompt", "finalPath", consolidate=False))
    assert len(lists_in(told(recipe))) == 1


def test_questions_are_asked_all_at_once() -> None:
    recipe, _ = vetted(design(DECISION))
    first, second = tasks_of(recipe).new_tasks
    assert execution_mode(TaskKind.WORKER, {}, recipe.params) is ChildMode.PARALLEL
    asked = [user_input_of(task.goal, task.task_spec) for task in (first, second)]
    assert [(each.type.value, each.title) for each in asked] == [
        ("DECISION", "Which supplier?"), ("FEEDBACK", "Anything else?"),
    ]  # fmt: skip
    assert (asked[0].body, asked[0].payload) == ("For tidal power.", {"options": ["A", "B"]})


# --- the recipe and its tool ------------------------------------------------------------------------------------------


def test_the_architects_prompt_states_every_template_with_all_its_fields_and_the_rules() -> None:
    recipe = resolve("marvin-architect", [BUNDLED])
    prompt = " ".join(system_prompt(recipe, "", prompt_variables(recipe, params=recipe.params)).split())
    for template, shape in SHAPES.items():
        assert template in prompt
        for model in (
            shape,
            *([Aspect] if template == RESEARCH else []),
            *([Question] if template == DECISION else []),
        ):
            assert [name for name in (f.alias or n for n, f in model.model_fields.items()) if name not in prompt] == []
    for words in (
        "recipe_list", "recipe_describe", "recipe_write", "justifications", "shapeRationale",
        "{{ process.goal | slug }}",
        "{{ item.text }}", "never with recipes/", "none on the engine marvin", "1 to 10", "correct every one of them",
    ):  # fmt: skip
        assert words in prompt
    assert "{%" not in prompt


def test_only_recipes_that_name_it_are_offered_the_tool() -> None:
    ford = Ford(Registry(bundled_tools()).specs())

    def offered(name: str) -> set[str]:
        return {spec.name for spec in ford.offered(resolve(name, [BUNDLED]))}

    architect = resolve("marvin-architect", [BUNDLED])
    assert offered("marvin-architect") == set(architect.allowed_tools or ())
    on_ford = [name for name in BUNDLED.names() if resolve(name, [BUNDLED]).engine == "ford"]
    holders = [name for name in on_ford if "recipe_write" in offered(name)]
    assert holders == ["marvin-architect"]


def test_the_tool_stores_what_passes_and_says_all_that_does_not() -> None:
    registry = Registry([RecipeWrite()])
    context = ToolContext(seconds=5, max_chars=5_000, recipes=(Project(), BUNDLED))

    def run(arguments: dict[str, Any]) -> Any:
        return registry.run(ToolCall(id="1", name="recipe_write", arguments=arguments), {"recipe_write"}, context)

    bad = run(design(RESEARCH, "synthesisPrompt", outputPathTpl="recipes/x"))
    assert (bad.ok, bad.documents) == (False, ())
    assert "params.synthesisPrompt: is missing" in bad.text
    good = run(design(RESEARCH))
    assert good.ok
    (document,) = good.documents
    assert (document.path, document.mime) == ("recipes/subject-report.yaml", "application/yaml")
    assert "vancetope run subject-report --goal" in good.text
