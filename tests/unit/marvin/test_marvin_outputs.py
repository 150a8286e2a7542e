"""From a model's text to a phase output: what is tolerated, and what is refused in words that help."""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.marvin.outputs import (
    ConcludeOutput,
    NewTask,
    PhaseOutput,
    PhaseParseError,
    PostAction,
    PostChildrenOutput,
    RecipeCall,
    ReflectOutput,
    ScopeOutput,
    UserInput,
    ValidateOutput,
    parse_output,
    post_actions_of,
    schema_for,
    user_input_of,
)
from engines.marvin.words import (
    Criticality,
    InputType,
    Phase,
    PostChildrenAction,
    ScopeAction,
    TaskKind,
    Verdict,
)
from engines.structured.native import plan_native
from engines.structured.schema import compile_schema

CALL = RecipeCall(recipe="web-research", steer_content="find it")


def parse(phase: Phase, answer: Any) -> PhaseOutput:
    return parse_output(phase, answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False))


def scope(**answer: Any) -> ScopeOutput:
    output = parse(Phase.SCOPE, answer)
    assert isinstance(output, ScopeOutput)
    return output


def refused(phase: Phase, answer: Any) -> PhaseParseError:
    with pytest.raises(PhaseParseError) as caught:
        parse(phase, answer)
    assert caught.value.phase is phase
    assert caught.value.message
    return caught.value


@pytest.mark.parametrize("phase", [Phase.SCOPE, Phase.REFLECT])
def test_both_opening_phases_take_the_same_answers(phase: Phase) -> None:
    answer = {"action": "CALL_RECIPE", "recipeCall": {"recipe": "web-research", "steerContent": "find it"}}
    output = parse(phase, answer)
    assert isinstance(output, ScopeOutput if phase is Phase.SCOPE else ReflectOutput)
    assert (output.phase, output.action, output.recipe_call) == (phase, ScopeAction.CALL_RECIPE, CALL)


# --- required parts and tokens (rows 47-49, 67) -----------------------------------------------------------------------


@dataclass(frozen=True)
class Refused:
    id: str
    phase: Phase
    answer: Any
    names: tuple[str, ...]


REFUSED = [
    Refused("call without a call", Phase.SCOPE, {"action": "CALL_RECIPE"}, ("recipeCall", "steerContent")),
    Refused(
        "call without an assignment", Phase.SCOPE, {"action": "CALL_RECIPE", "recipeCall": {"recipe": "w"}},
        ("recipeCall", "steerContent"),
    ),
    Refused("no subtasks", Phase.SCOPE, {"action": "NEEDS_SUBTASKS"}, ("newTasks", "goal")),
    Refused("empty subtasks", Phase.POST_CHILDREN, {"action": "NEEDS_SUBTASKS", "newTasks": []}, ("newTasks",)),
    Refused("no question", Phase.REFLECT, {"action": "NEEDS_USER_INPUT"}, ("userInput", "title")),
    Refused("empty question", Phase.REFLECT, {"action": "NEEDS_USER_INPUT", "userInput": {}}, ("userInput",)),
    Refused("no problem", Phase.SCOPE, {"action": "BLOCKED_BY_PROBLEM"}, ("problem",)),
    Refused("blank problem", Phase.SCOPE, {"action": "BLOCKED_BY_PROBLEM", "problem": " \n"}, ("problem",)),
    Refused("no action", Phase.SCOPE, {"reason": "x"}, ("action", "PROCEED_TO_CONCLUDE")),
    Refused("no result", Phase.CONCLUDE, {"reason": "x"}, ("result",)),
    Refused("blank result", Phase.CONCLUDE, {"result": " \n "}, ("result", "blank")),
    Refused("result is no text", Phase.CONCLUDE, {"result": {"a": 1}}, ("result", "string")),
    Refused("no verdict", Phase.VALIDATE, {"issues": []}, ("verdict", "PASS")),
    Refused(
        "misspelt verdict", Phase.VALIDATE, {"verdict": "NEEDS_MORE_DATA"},
        ("verdict", "NEEDS_MORE_DATA", "NEED_MORE_DATA", "HARD_FAIL"),
    ),
    Refused("unknown action", Phase.SCOPE, {"action": "THINK"}, ("action", "THINK", "CALL_RECIPE")),
    Refused(
        "action of another phase", Phase.POST_CHILDREN, {"action": "CALL_RECIPE", "recipe": "w", "query": "q"},
        ("action", "CALL_RECIPE", "NEEDS_SUBTASKS"),
    ),
    Refused("action is no text", Phase.SCOPE, {"action": 3}, ("action",)),
    Refused("empty reply", Phase.SCOPE, "", ("empty",)),
    Refused("prose", Phase.SCOPE, "I would rather conclude.", ("JSON",)),
    Refused("broken", Phase.SCOPE, '{"action": "PROCEED_TO', ("JSON",)),
    Refused("a list", Phase.SCOPE, '["PROCEED_TO_CONCLUDE"]', ("object",)),
]  # fmt: skip


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.id)
def test_what_cannot_be_used_is_named_with_what_would_be_right(case: Refused) -> None:
    error = refused(case.phase, case.answer)
    assert [name for name in case.names if name not in error.message] == []
    assert [name for name in case.names if name not in error.correction] == []


@pytest.mark.parametrize("action", ["proceed_to_conclude", " Proceed_To_Conclude\n"])
def test_tokens_are_trimmed_and_may_be_in_lower_case(action: str) -> None:
    assert scope(action=action).action is ScopeAction.PROCEED_TO_CONCLUDE


def test_a_verdict_may_be_in_lower_case_too() -> None:
    output = parse(Phase.VALIDATE, {"verdict": "pass"})
    assert isinstance(output, ValidateOutput)
    assert output.verdict is Verdict.PASS


def test_surplus_fields_are_ignored_and_blank_texts_are_none() -> None:
    output = scope(action="PROCEED_TO_CONCLUDE", confidence=0.4, reason="  ", problem="", newTasks=None, userInput=None)
    assert (output.reason, output.problem, output.new_tasks, output.user_input) == (None, None, (), None)


def test_a_part_that_another_action_would_need_is_not_required() -> None:
    assert scope(action="PROCEED_TO_CONCLUDE", recipeCall={}, newTasks=[{}]).recipe_call is None


# --- duplicate keys, several objects, braces (A11, A13, row 55) -------------------------------------------------------


@pytest.mark.parametrize(
    ("phase", "text", "key"),
    [
        (Phase.SCOPE, '{"action":"BLOCKED_BY_PROBLEM","action":"PROCEED_TO_CONCLUDE","reason":"x"}', "action"),
        (Phase.SCOPE, '{"action":"CALL_RECIPE","recipeCall":{"recipe":"a","recipe":"b","query":"q"}}', "recipe"),
        (Phase.VALIDATE, '{"verdict":"HARD_FAIL","verdict":"PASS"}', "verdict"),
    ],
)
def test_duplicate_keys_are_refused_at_any_depth(phase: Phase, text: str, key: str) -> None:
    assert f'duplicate key "{key}"' in refused(phase, text).message


def test_two_different_answers_are_no_answer() -> None:
    text = '{"verdict": "PASS"} or perhaps {"verdict": "HARD_FAIL"}'
    assert "2 different objects" in refused(Phase.VALIDATE, text).message


def test_an_object_that_is_no_answer_does_not_hide_the_one_that_is() -> None:
    output = parse(Phase.VALIDATE, 'Looking at {"a": 1}: {"verdict": "PASS"}')
    assert isinstance(output, ValidateOutput)


@pytest.mark.parametrize("result", ["a lone } brace", '{ and " and \\', '```json\n{"verdict": "PASS"}\n```', "{{ x }"])
def test_braces_inside_texts_do_not_matter(result: str) -> None:
    text = f"Here it is:\n```json\n{json.dumps({'result': result})}\n```\nDone."
    output = parse(Phase.CONCLUDE, text)
    assert isinstance(output, ConcludeOutput)
    assert output.result == result


def test_an_answer_cut_off_at_the_limit_is_refused_unless_complete() -> None:
    assert parse_output(Phase.VALIDATE, '{"verdict": "PASS"}', truncated=True)
    with pytest.raises(PhaseParseError) as caught:
        parse_output(Phase.CONCLUDE, '{"result": "half', truncated=True)
    assert "cut off" in caught.value.message
    assert "fewer words" in caught.value.correction


# --- recipe calls (row 50) --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "parts",
    [
        {"recipeCall": {"recipe": "web-research", "steerContent": "find it"}},
        {"recipeCall": {"recipe": " web-research ", "steer": "find it"}},
        {"recipeCall": {"recipe": "web-research", "prompt": "find it"}},
        {"recipeCall": {"recipe": "web-research", "query": "find it"}},
        {"recipeCall": {"recipe": "web-research", "input": "find it"}},
        {"recipeCall": {"recipe": "web-research", "content": "find it"}},
        {"recipeCall": {"recipe": "web-research", "steerContent": " ", "query": "find it"}},
        {"recipeCall": {"recipe": "web-research", "parameters": {"query": "find it"}}},
        {"recipe": "web-research", "steerContent": "find it"},
        {"recipe": "web-research", "query": "find it"},
        {"recipe": "web-research", "parameters": {"input": "find it"}},
        {"recipe": "web-research", "args": {"prompt": "find it"}},
        {"recipeCall": {"recipe": "web-research"}, "content": "find it"},
        {"recipeCall": "web-research", "steerContent": "find it"},
        {"recipeCall": None, "recipe": "web-research", "prompt": "find it"},
        {"recipeCall": [1], "recipe": "web-research", "prompt": "find it"},
    ],
)
def test_spellings_of_a_recipe_call(parts: dict[str, Any]) -> None:
    assert scope(action="call_recipe", **parts).recipe_call == CALL


def test_the_first_text_that_says_something_is_the_assignment() -> None:
    call = scope(
        action="CALL_RECIPE", recipeCall={"recipe": "r", "content": "last", "steerContent": "first"}
    ).recipe_call
    assert call is not None
    assert call.steer_content == "first"


# --- subtasks (rows 51, 52; internal keys) ----------------------------------------------------------------------------


def tasks(*entries: Any) -> tuple[NewTask, ...]:
    return scope(action="NEEDS_SUBTASKS", newTasks=list(entries)).new_tasks


def test_unusable_subtasks_are_dropped_and_the_rest_kept() -> None:
    kept = tasks("text", 3, None, {"goal": " "}, {"goal": 1}, {"goal": "a", "taskKind": "PLAN"}, {"goal": " b "})
    assert kept == (NewTask(goal="b"),)


@pytest.mark.parametrize(
    "entries", [["x"], [{"goal": ""}], [{"goal": "a", "taskKind": "AGGREGATE"}], [{"taskKind": "WORKER"}]]
)
def test_no_usable_subtask_is_none_at_all(entries: list[Any]) -> None:
    assert "newTasks" in refused(Phase.SCOPE, {"action": "NEEDS_SUBTASKS", "newTasks": entries}).message


@pytest.mark.parametrize("kind", list(TaskKind))
def test_subtasks_of_all_kinds(kind: TaskKind) -> None:
    assert tasks({"goal": "a", "taskKind": kind.value.lower()})[0].task_kind is kind


def test_a_spec_that_is_no_object_is_empty() -> None:
    assert tasks({"goal": "a", "taskSpec": "x"})[0].task_spec == {}


def test_internal_keys_never_come_from_a_model() -> None:
    spec = {
        "_phaseHint": "CONCLUDE",
        "childTemplate": {"_pendingPostActions": [], "goal": "g"},
        "list": [{"_a": 1, "b": 2}],
    }
    assert tasks({"goal": "a", "taskSpec": spec})[0].task_spec == {"childTemplate": {"goal": "g"}, "list": [{"b": 2}]}


# --- questions, post-actions, issues ----------------------------------------------------------------------------------


def question(given: Any) -> UserInput | None:
    return scope(action="NEEDS_USER_INPUT", userInput=given).user_input


def test_a_question_has_defaults() -> None:
    assert question({"title": "Which?"}) == UserInput(title="Which?")
    assert question({"body": "b", "type": "decision", "criticality": "critical"}) == UserInput(
        type=InputType.DECISION, body="b", criticality=Criticality.CRITICAL
    )


@pytest.mark.parametrize(("kind", "criticality"), [("CHAT", "HIGH"), (None, None), (3, []), ("", "urgent")])
def test_bad_types_and_criticalities_fall_back(kind: Any, criticality: Any) -> None:
    found = question({"title": "t", "type": kind, "criticality": criticality})
    assert found is not None
    assert (found.type, found.criticality) == (InputType.FEEDBACK, Criticality.NORMAL)


def test_a_bare_text_is_a_question_and_a_payload_keeps_no_internal_keys() -> None:
    assert question("Which one?") == UserInput(title="Which one?")
    found = question({"title": "t", "payload": {"options": ["a"], "_x": 1}})
    assert found is not None
    assert found.payload == {"options": ["a"]}


def test_the_question_of_a_planned_node_comes_from_its_spec() -> None:
    spec = {"type": "APPROVAL", "body": "b", "criticality": "HIGH", "executionMode": "PARALLEL"}
    assert user_input_of("Go on?", spec) == UserInput(type=InputType.APPROVAL, title="Go on?", body="b")
    assert user_input_of("", {}) == UserInput()


def test_post_actions_in_their_spellings() -> None:
    output = parse(
        Phase.CONCLUDE,
        {
            "result": "r",
            "postActions": [
                {"tool": "doc_write", "args": {"path": "a.md", "content": "{{ node.result }}"}},
                {"toolName": "doc_write", "params": {"path": "b.md"}},
                {"args": {"path": "c"}},
                {"tool": " "},
                "doc_write",
                {"tool": "t", "args": "no object"},
            ],
        },
    )
    assert isinstance(output, ConcludeOutput)
    assert output.post_actions == (
        PostAction(tool="doc_write", args={"path": "a.md", "content": "{{ node.result }}"}),
        PostAction(tool="doc_write", args={"path": "b.md"}),
        PostAction(tool="t", args={}),
    )


def test_post_actions_of_a_task_are_read_the_same_way() -> None:
    assert post_actions_of([{"toolName": "doc_write", "params": {"path": "p"}}, 3]) == (
        PostAction(tool="doc_write", args={"path": "p"}),
    )
    assert post_actions_of(None) == post_actions_of("x") == ()


def test_issues_are_texts_that_say_something() -> None:
    output = parse(Phase.VALIDATE, {"verdict": "RETRY_CONCLUDE", "issues": ["a", " ", None, 3, {"x": 1}, "b "]})
    assert isinstance(output, ValidateOutput)
    assert output.issues == ("a", "b")
    single = parse(Phase.VALIDATE, {"verdict": "RETRY_CONCLUDE", "issues": "only one"})
    assert isinstance(single, ValidateOutput)
    assert single.issues == ("only one",)


def test_a_result_is_kept_as_it_is_written() -> None:
    output = parse(Phase.CONCLUDE, {"result": "\n    code\n\n"})
    assert isinstance(output, ConcludeOutput)
    assert output.result == "\n    code\n\n"


# --- errors and schemas -----------------------------------------------------------------------------------------------


def test_an_error_can_be_rebuilt_from_its_parts() -> None:
    error = refused(Phase.VALIDATE, {"verdict": "MAYBE"})
    again = copy.copy(error)
    assert (again.message, again.phase, again.correction) == (error.message, error.phase, error.correction)
    assert again.last_invalid == {"verdict": "MAYBE"}


@pytest.mark.parametrize("phase", list(Phase))
@pytest.mark.parametrize("dialect", ["openai_strict", "anthropic_strict"])
def test_the_schemas_fit_the_strict_modes_of_providers(phase: Phase, dialect: Any) -> None:
    compiled = compile_schema(schema_for(phase))
    plan = plan_native(compiled, dialect)
    assert plan.reasons == ()
    assert plan.path == "strict"


def test_a_schema_is_the_callers_own() -> None:
    schema_for(Phase.SCOPE)["properties"].clear()
    assert schema_for(Phase.SCOPE)["properties"]


WRITE = {"tool": "doc_write", "args": {"path": "p", "kind": "text", "content": "c"}}
EXPAND = {
    "documentRef": {"path": "essays/outline.md"},
    "treeMode": "FLAT",
    "childTemplate": {"taskKind": "WORKER", "goal": "Write {{ item.text }}", "taskSpec": {"postActions": [WRITE]}},
}
ASK = {"type": "DECISION", "title": "t", "payload": {"options": ["a"]}}
FULL: dict[Phase, dict[str, Any]] = {
    Phase.SCOPE: {
        "action": "NEEDS_SUBTASKS",
        "newTasks": [
            {"goal": "g", "taskKind": "EXPAND_FROM_DOC", "taskSpec": EXPAND},
            {"goal": "q", "taskKind": "USER_INPUT", "taskSpec": ASK},
        ],
        "reason": "r",
    },
    Phase.REFLECT: {"action": "CALL_RECIPE", "recipeCall": {"recipe": "r", "steerContent": "s"}, "reason": "r"},
    Phase.POST_CHILDREN: {"action": "BLOCKED_BY_PROBLEM", "problem": "p", "reason": "r"},
    Phase.CONCLUDE: {"result": "x", "postActions": [WRITE], "reason": "r"},
    Phase.VALIDATE: {"verdict": "PASS", "issues": [], "hint": "h", "reason": "r"},
}


@pytest.mark.parametrize("phase", list(Phase))
def test_an_answer_of_the_schema_is_read_without_loss(phase: Phase) -> None:
    answer = FULL[phase]
    assert compile_schema(schema_for(phase)).validate(answer) == ()
    dumped = parse(phase, answer).model_dump(mode="json", exclude_none=True)
    assert {key: dumped[key] for key in answer} == answer


def test_models_hold_by_themselves_what_the_parser_promises() -> None:
    with pytest.raises(ValueError, match="steerContent"):
        ScopeOutput(action=ScopeAction.CALL_RECIPE)
    with pytest.raises(ValueError, match="task"):
        PostChildrenOutput(action=PostChildrenAction.NEEDS_SUBTASKS)
    with pytest.raises(ValueError, match="blank"):
        ConcludeOutput(result=" ")


KEYS = st.sampled_from(
    [
        *("action", "verdict", "result", "recipeCall", "recipe", "query", "newTasks", "goal", "taskKind", "taskSpec"),
        *("userInput", "title", "payload", "problem", "issues", "postActions", "tool", "args", "parameters", "_x"),
    ]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=5),
    max_leaves=12,
)
WORDS = st.sampled_from([*ScopeAction, *Verdict, *TaskKind, "x", ""])


@given(st.sampled_from(Phase), st.dictionaries(KEYS, JSON | WORDS, max_size=8))
def test_no_json_breaks_the_parser(phase: Phase, answer: dict[str, Any]) -> None:
    try:
        output = parse_output(phase, json.dumps(answer))
    except PhaseParseError:
        return
    assert output.phase is phase
    assert '"_x"' not in json.dumps(output.model_dump(mode="json"))


@given(st.sampled_from(Phase), st.text())
def test_no_text_breaks_the_parser(phase: Phase, text: str) -> None:
    with pytest.raises(PhaseParseError):
        parse_output(phase, text + "!")
