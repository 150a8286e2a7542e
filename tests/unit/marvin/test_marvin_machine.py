"""The state machine of a worker node: every choice in every phase, the limits, and the diagram that promises them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from pathlib import Path

import pytest

from engines.marvin import caps as caps_module
from engines.marvin import machine
from engines.marvin.caps import Caps
from engines.marvin.machine import RULES, decide, token_of
from engines.marvin.outputs import (
    ConcludeOutput,
    NewTask,
    PhaseOutput,
    PostAction,
    PostChildrenOutput,
    RecipeCall,
    ReflectOutput,
    ScopeOutput,
    UserInput,
    ValidateOutput,
)
from engines.marvin.state import MarvinState, Rejected
from engines.marvin.steps import (
    Accept,
    AskUser,
    CallFailed,
    CallRecipe,
    Correct,
    Event,
    Fail,
    GoTo,
    NoCallAllowed,
    Place,
    Spawn,
    Step,
    Unreadable,
)
from engines.marvin.words import Phase, PostChildrenAction, ScopeAction, TaskKind, Verdict

CAPS = Caps()
ROOT = Place(depth=0, node_count=1, goals=("the goal",))
LEAF = Place(depth=3, node_count=9, goals=("the goal", "above"))
CALL = RecipeCall(recipe="web-research", steer_content="find it")
QUESTION = UserInput(title="Which?")
TASKS = (NewTask(goal="a"), NewTask(goal="b"), NewTask(goal="c"))
ACTION = PostAction(tool="doc_write", args={"path": "a.md"})
UNREADABLE = Unreadable(message="/action: found nothing", correction="say it again", excerpt="{}")


def opening(phase: Phase, action: ScopeAction) -> ScopeOutput | ReflectOutput:
    parts = {"recipe_call": CALL, "new_tasks": TASKS, "user_input": QUESTION, "problem": "no access"}
    model = ScopeOutput if phase is Phase.SCOPE else ReflectOutput
    return model.model_validate({"action": action, **parts})


def after_children(action: PostChildrenAction) -> PostChildrenOutput:
    return PostChildrenOutput(action=action, new_tasks=TASKS, problem="no access")


def verdict(word: Verdict, issues: tuple[str, ...] = ("too short",), hint: str | None = "longer") -> ValidateOutput:
    return ValidateOutput(verdict=word, issues=issues, hint=hint, reason="because")


RESULT = ConcludeOutput(result="the answer", post_actions=(ACTION,))


def outputs_of(phase: Phase) -> list[PhaseOutput]:
    match phase:
        case Phase.SCOPE | Phase.REFLECT:
            return [opening(phase, action) for action in ScopeAction]
        case Phase.POST_CHILDREN:
            return [after_children(action) for action in PostChildrenAction]
        case Phase.CONCLUDE:
            return [RESULT]
        case Phase.VALIDATE:
            return [verdict(word) for word in Verdict]


def at(phase: Phase, **more: object) -> MarvinState:
    """A state that can occur in ``phase``."""
    base: dict[str, object] = {"phase": phase}
    if phase is Phase.REFLECT:
        base["reflect_iter"] = 1
    if phase is Phase.POST_CHILDREN:
        base["post_children_rounds"] = 1
    if phase is Phase.VALIDATE:
        base |= {"validate_iter": 1, "candidate": "the answer", "post_actions": (ACTION,)}
    return replace(MarvinState(), **(base | more))  # type: ignore[arg-type]


def goto(step: Step, phase: Phase, *, forced: bool = False) -> MarvinState:
    assert isinstance(step, GoTo)
    assert (step.phase, step.state.phase, step.forced) == (phase, phase, forced)
    return step.state


# --- SCOPE and REFLECT (rows 42-46, 57, 60, 61) -----------------------------------------------------------------------

OPENINGS = [Phase.SCOPE, Phase.REFLECT]


@pytest.mark.parametrize("phase", OPENINGS)
def test_proceed_concludes(phase: Phase) -> None:
    state = at(phase)
    step = decide(state, opening(phase, ScopeAction.PROCEED_TO_CONCLUDE), CAPS, LEAF)
    assert goto(step, Phase.CONCLUDE) == replace(state, phase=Phase.CONCLUDE)


@pytest.mark.parametrize("phase", OPENINGS)
def test_a_recipe_call_uses_up_an_entry_into_reflect(phase: Phase) -> None:
    state = at(phase)
    step = decide(state, opening(phase, ScopeAction.CALL_RECIPE), CAPS, LEAF)
    assert isinstance(step, CallRecipe)
    assert step.call == CALL
    assert (step.state.phase, step.state.reflect_iter) == (Phase.REFLECT, state.reflect_iter + 1)


def test_reflect_at_its_limit_still_runs_but_calls_nothing() -> None:
    state = at(Phase.REFLECT, reflect_iter=3)
    concluded = goto(
        decide(state, opening(Phase.REFLECT, ScopeAction.CALL_RECIPE), CAPS, LEAF), Phase.CONCLUDE, forced=True
    )
    assert concluded.reflect_iter == 3
    assert "No further recipe call" in concluded.hints[-1]
    spawned = decide(state, opening(Phase.REFLECT, ScopeAction.NEEDS_SUBTASKS), CAPS, LEAF)
    assert isinstance(spawned, Spawn)


def test_three_calls_are_possible_in_all() -> None:
    state, calls = MarvinState(), 0
    while True:
        step = decide(state, opening(state.phase, ScopeAction.CALL_RECIPE), CAPS, LEAF)
        state = step.state
        if not isinstance(step, CallRecipe):
            break
        calls += 1
    assert calls == 3
    goto(step, Phase.CONCLUDE, forced=True)


@pytest.mark.parametrize("phase", OPENINGS)
def test_subtasks_are_spawned_and_lead_to_post_children(phase: Phase) -> None:
    step = decide(at(phase), opening(phase, ScopeAction.NEEDS_SUBTASKS), CAPS, LEAF)
    assert isinstance(step, Spawn)
    assert (step.tasks, step.refused) == (TASKS, 0)
    assert (step.state.phase, step.state.post_children_rounds) == (Phase.POST_CHILDREN, 1)
    assert step.state.hints == ()


@pytest.mark.parametrize("phase", OPENINGS)
def test_a_question_ends_its_asker(phase: Phase) -> None:
    step = decide(at(phase), opening(phase, ScopeAction.NEEDS_USER_INPUT), CAPS, LEAF)
    assert isinstance(step, AskUser)
    assert (step.question, step.as_child) == (QUESTION, False)
    assert step.task.task_kind is TaskKind.USER_INPUT
    assert step.task.goal == "Which?"
    assert step.task.task_spec["criticality"] == "NORMAL"


@pytest.mark.parametrize("phase", OPENINGS)
def test_the_root_waits_for_the_answer_to_its_question(phase: Phase) -> None:
    step = decide(at(phase), opening(phase, ScopeAction.NEEDS_USER_INPUT), CAPS, ROOT)
    assert isinstance(step, AskUser)
    assert step.as_child
    assert step.state.phase is Phase.POST_CHILDREN
    # The question is no round of subtasks: it takes no level away.
    assert (step.state.post_children_rounds, step.state.asked, step.state.level(0)) == (1, 1, 0)


def test_a_question_without_a_title_still_makes_a_node() -> None:
    untitled = AskUser(question=UserInput(body="Long  text"), as_child=False, state=MarvinState())
    assert untitled.task.goal == "Long text"
    assert AskUser(question=UserInput(payload={"a": 1}), as_child=False, state=MarvinState()).task.goal


def test_no_question_fits_into_a_full_tree() -> None:
    full = replace(LEAF, node_count=CAPS.max_tree_nodes)
    state = goto(
        decide(at(Phase.SCOPE), opening(Phase.SCOPE, ScopeAction.NEEDS_USER_INPUT), CAPS, full),
        Phase.CONCLUDE,
        forced=True,
    )
    assert "tree is full" in state.hints[0]


@pytest.mark.parametrize("phase", [*OPENINGS, Phase.POST_CHILDREN])
def test_blocked_fails_with_the_problem(phase: Phase) -> None:
    output = next(o for o in outputs_of(phase) if token_of(o) == "BLOCKED_BY_PROBLEM")
    step = decide(at(phase), output, CAPS, LEAF)
    assert isinstance(step, Fail)
    assert step.reason == "no access"


# --- depth, rounds, size (rows 62-64, 95; D19, D22) -------------------------------------------------------------------


@pytest.mark.parametrize("phase", [*OPENINGS, Phase.POST_CHILDREN])
@pytest.mark.parametrize(("depth", "spawns"), [(0, True), (4, True), (5, False), (9, False)])
def test_the_depth_limit_holds_in_every_phase(phase: Phase, depth: int, spawns: bool) -> None:
    output = next(o for o in outputs_of(phase) if token_of(o) == "NEEDS_SUBTASKS")
    step = decide(at(phase), output, CAPS, replace(LEAF, depth=depth))
    assert isinstance(step, Spawn) is spawns
    if not spawns:
        assert "No subtasks are possible at this depth" in goto(step, Phase.CONCLUDE, forced=True).hints[0]


@pytest.mark.parametrize("depth", range(6))
def test_rounds_of_one_node_are_bounded(depth: int) -> None:
    state, rounds = MarvinState(), 0
    place = replace(LEAF, depth=depth)
    while True:
        tasks = (NewTask(goal=f"task {rounds}"),)
        output: PhaseOutput = (
            PostChildrenOutput(action=PostChildrenAction.NEEDS_SUBTASKS, new_tasks=tasks)
            if rounds
            else ScopeOutput(action=ScopeAction.NEEDS_SUBTASKS, new_tasks=tasks)
        )
        step = decide(state, output, CAPS, place)
        state = step.state
        if not isinstance(step, Spawn):
            break
        rounds += 1
    assert rounds == (0 if depth >= 5 else 5 - depth + 1)
    assert rounds <= CAPS.most_rounds(depth)


def test_children_that_do_not_fit_are_left_out_and_named() -> None:
    place = replace(LEAF, node_count=CAPS.max_tree_nodes - 2)
    step = decide(at(Phase.SCOPE), opening(Phase.SCOPE, ScopeAction.NEEDS_SUBTASKS), CAPS, place)
    assert isinstance(step, Spawn)
    assert (step.tasks, step.refused) == (TASKS[:2], 1)
    assert step.state.hints == ("1 subtasks were not created, because the tree is full: c",)


@pytest.mark.parametrize("count", [200, 250])
def test_a_full_tree_concludes(count: int) -> None:
    place = replace(LEAF, node_count=count)
    step = decide(at(Phase.POST_CHILDREN), after_children(PostChildrenAction.NEEDS_SUBTASKS), CAPS, place)
    state = goto(step, Phase.CONCLUDE, forced=True)
    assert "3 subtasks were not created" in state.hints[0]
    assert "No subtask was created" in state.hints[-1]


def test_a_subtask_that_repeats_a_goal_is_not_created() -> None:
    tasks = (
        NewTask(goal=" The  GOAL "),
        NewTask(goal="new"),
        NewTask(goal="New"),
        NewTask(goal="new", task_spec={"x": 1}),
        NewTask(goal="above", task_kind=TaskKind.USER_INPUT),
    )
    output = ScopeOutput(action=ScopeAction.NEEDS_SUBTASKS, new_tasks=tasks)
    step = decide(at(Phase.SCOPE), output, CAPS, LEAF)
    assert isinstance(step, Spawn)
    assert (step.tasks, step.refused) == ((tasks[1], tasks[3], tasks[4]), 2)
    assert all("repeats" in hint for hint in step.state.hints)


def test_only_repeats_force_a_conclusion() -> None:
    output = ScopeOutput(action=ScopeAction.NEEDS_SUBTASKS, new_tasks=(NewTask(goal="the goal"),))
    state = goto(decide(at(Phase.SCOPE), output, CAPS, LEAF), Phase.CONCLUDE, forced=True)
    assert "repeats" in state.hints[0]


# --- CONCLUDE and VALIDATE (rows 67-74) -------------------------------------------------------------------------------


def test_a_conclusion_goes_to_its_review_and_replaces_an_earlier_one() -> None:
    before = at(Phase.CONCLUDE, validate_iter=1, candidate="old", post_actions=(PostAction(tool="x"),), hints=("h",))
    state = goto(decide(before, ConcludeOutput(result="new"), CAPS, LEAF), Phase.VALIDATE)
    assert (state.candidate, state.post_actions, state.validate_iter, state.hints) == ("new", (), 2, ())


def test_pass_accepts() -> None:
    step = decide(at(Phase.VALIDATE), verdict(Verdict.PASS), CAPS, LEAF)
    assert isinstance(step, Accept)
    assert (step.result, step.post_actions, step.forced, step.warning) == ("the answer", (ACTION,), False, None)
    assert step.state.audit_warning is None


def test_post_actions_of_the_task_follow_those_of_the_conclusion() -> None:
    other = PostAction(tool="doc_write", args={"path": "b.md"})
    step = decide(at(Phase.VALIDATE), verdict(Verdict.PASS), CAPS, replace(LEAF, spec_actions=(ACTION, other)))
    assert isinstance(step, Accept)
    assert step.post_actions == (ACTION, other)


@pytest.mark.parametrize("iteration", [1, 2])
def test_a_hard_fail_always_wins(iteration: int) -> None:
    step = decide(
        at(Phase.VALIDATE, validate_iter=iteration, conclude_retries=2), verdict(Verdict.HARD_FAIL), CAPS, LEAF
    )
    assert isinstance(step, Fail)
    assert step.reason == "because; too short; longer"
    silent = decide(at(Phase.VALIDATE), ValidateOutput(verdict=Verdict.HARD_FAIL), CAPS, LEAF)
    assert isinstance(silent, Fail)
    assert silent.reason


def test_a_retry_carries_issues_and_hint() -> None:
    state = goto(
        decide(at(Phase.VALIDATE), verdict(Verdict.RETRY_CONCLUDE, ("one", "two")), CAPS, LEAF), Phase.CONCLUDE
    )
    assert state.conclude_retries == 1
    assert [word in " ".join(state.hints) for word in ("one", "two", "longer")] == [True] * 3
    assert state.candidate == "the answer"


def test_a_retry_at_its_limit_accepts_with_a_warning() -> None:
    step = decide(at(Phase.VALIDATE, conclude_retries=2), verdict(Verdict.RETRY_CONCLUDE), CAPS, LEAF)
    assert isinstance(step, Accept)
    assert step.forced
    assert step.warning == step.state.audit_warning
    assert step.warning is not None
    assert "too short" in step.warning


def test_more_data_goes_back_to_reflect_with_its_hints() -> None:
    state = goto(decide(at(Phase.VALIDATE, reflect_iter=1), verdict(Verdict.NEED_MORE_DATA), CAPS, LEAF), Phase.REFLECT)
    assert (state.reflect_iter, state.need_more_data_iter) == (2, 1)
    assert [word in " ".join(state.hints) for word in ("too short", "longer")] == [True] * 2


@pytest.mark.parametrize("more", [{"reflect_iter": 3}, {"need_more_data_iter": 4}])
def test_more_data_that_cannot_be_had_is_a_retry(more: dict[str, int]) -> None:
    before = at(Phase.VALIDATE, **more)
    state = goto(decide(before, verdict(Verdict.NEED_MORE_DATA), CAPS, LEAF), Phase.CONCLUDE, forced=True)
    assert state.conclude_retries == 1
    assert "say what is missing" in state.hints[0]
    last = decide(replace(before, conclude_retries=2), verdict(Verdict.NEED_MORE_DATA), CAPS, LEAF)
    assert isinstance(last, Accept)
    assert last.forced


def test_hints_stay_until_the_next_review() -> None:
    state = goto(decide(at(Phase.VALIDATE), verdict(Verdict.NEED_MORE_DATA), CAPS, LEAF), Phase.REFLECT)
    state = decide(state, opening(Phase.REFLECT, ScopeAction.CALL_RECIPE), CAPS, LEAF).state
    state = decide(state, opening(Phase.REFLECT, ScopeAction.PROCEED_TO_CONCLUDE), CAPS, LEAF).state
    assert "too short" in " ".join(state.hints)
    assert decide(state, RESULT, CAPS, LEAF).state.hints == ()


def test_hints_are_bounded() -> None:
    review = verdict(Verdict.RETRY_CONCLUDE, tuple(f"{n}" * 3000 for n in range(60)))
    hints = decide(at(Phase.VALIDATE), review, CAPS, LEAF).state.hints
    assert len(hints) == machine.MAX_HINTS
    assert max(map(len, hints)) <= machine.HINT_CHARS
    assert "longer" in hints[-1]


def test_reviews_are_never_started_again() -> None:
    state, entered = at(Phase.CONCLUDE), []
    for _ in range(3):
        step = decide(state, RESULT, CAPS, LEAF)
        if isinstance(step, Accept):
            break
        entered.append(goto(step, Phase.VALIDATE).validate_iter)
        state = decide(step.state, verdict(Verdict.RETRY_CONCLUDE), CAPS, LEAF).state
    assert entered == [1, 2]
    assert isinstance(step, Accept)
    assert step.forced
    assert step.warning is not None
    assert "without a further review" in step.warning
    assert "too short" in step.warning
    assert (step.state.validate_iter, step.state.conclude_retries) == (2, 2)


def test_without_any_review_the_first_conclusion_is_accepted_with_a_warning() -> None:
    step = decide(at(Phase.CONCLUDE), RESULT, replace(CAPS, validate=0), LEAF)
    assert isinstance(step, Accept)
    assert (step.result, step.forced, bool(step.warning)) == ("the answer", True, True)


# --- without a readable answer (rows 53, 54, 56; D19) -----------------------------------------------------------------


@pytest.mark.parametrize("phase", list(Phase))
def test_corrections_touch_no_counter_of_the_phases(phase: Phase) -> None:
    state = before = at(phase)
    for number in (1, 2):
        step = decide(state, UNREADABLE, CAPS, LEAF)
        assert isinstance(step, Correct)
        assert step.message == UNREADABLE.message
        state = step.state
        assert state.corrections == number
        assert state.rejected is not None
        assert (state.rejected.excerpt, state.rejected.correction) == ("{}", "say it again")
        assert replace(state, corrections=0, rejected=None) == before
    last = decide(state, UNREADABLE, CAPS, LEAF)
    assert isinstance(last, Fail)
    assert last.reason == f"{phase.value} parse failed: /action: found nothing"


@pytest.mark.parametrize("phase", list(Phase))
def test_a_readable_answer_ends_the_corrections(phase: Phase) -> None:
    corrected = decide(at(phase), replace(UNREADABLE, next_limit=99), CAPS, LEAF).state
    assert corrected.output_limit == 99
    for output in outputs_of(phase):
        after = decide(corrected, output, CAPS, LEAF)
        assert after == decide(at(phase), output, CAPS, LEAF)
        assert (after.state.corrections, after.state.rejected, after.state.output_limit) == (0, None, None)


def test_no_corrections_may_be_allowed() -> None:
    assert isinstance(decide(MarvinState(), UNREADABLE, replace(CAPS, parse_corrections=0), LEAF), Fail)


def test_a_failed_call_is_told_apart_from_a_bad_answer() -> None:
    step = decide(at(Phase.CONCLUDE), CallFailed(message="auth: no key"), CAPS, LEAF)
    assert isinstance(step, Fail)
    assert step.reason == "CONCLUDE call failed: auth: no key"


@pytest.mark.parametrize("phase", Phase)
def test_a_prompt_that_is_too_long_is_sent_once_more_and_shorter(phase: Phase) -> None:
    too_long = CallFailed(message="context_too_long: 9,000 tokens", too_long=True)
    quoted = replace(at(phase), corrections=1, rejected=Rejected(excerpt="{…}", correction="say it again"))
    again = decide(quoted, too_long, CAPS, LEAF)
    assert isinstance(again, Correct)
    assert again.state == replace(quoted, short=True, rejected=Rejected(excerpt="", correction="say it again"))
    ended = decide(again.state, too_long, CAPS, LEAF)
    assert isinstance(ended, Fail)
    assert ended.reason == f"{phase} call failed, with the shortened prompt too: context_too_long: 9,000 tokens"
    # Material only grows: the node's later prompts are short ones from the start.
    for output in outputs_of(phase):
        assert decide(again.state, output, CAPS, LEAF).state.short
    assert MarvinState.from_cursor(again.state.to_cursor()) == again.state


@dataclass(frozen=True)
class Spent:
    id: str
    state: MarvinState
    material: str
    result: str | None


@pytest.mark.parametrize(
    "case",
    [
        Spent("candidate", at(Phase.VALIDATE), "replies", "the answer"),
        Spent("candidate of an earlier round", at(Phase.REFLECT, candidate="older"), "replies", "older"),
        Spent("material", at(Phase.REFLECT), "replies", "replies"),
        Spent("nothing", at(Phase.SCOPE), " ", None),
    ],
    ids=lambda case: case.id,
)
def test_a_spent_budget_ends_with_what_there_is(case: Spent) -> None:
    step = decide(case.state, NoCallAllowed(why="10,000 tokens", material=case.material), CAPS, LEAF)
    if case.result is None:
        assert isinstance(step, Fail)
        assert "10,000 tokens" in step.reason
    else:
        assert isinstance(step, Accept)
        assert (step.result, step.forced) == (case.result, True)
        assert step.warning is not None
        assert "10,000 tokens" in step.warning


def test_failure_reasons_are_bounded() -> None:
    output = ScopeOutput(action=ScopeAction.BLOCKED_BY_PROBLEM, problem="x" * 9_000)
    step = decide(MarvinState(), output, CAPS, LEAF)
    assert isinstance(step, Fail)
    assert len(step.reason) == machine.FAILURE_CHARS


def test_an_answer_of_another_phase_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(ValueError, match="CONCLUDE"):
        decide(MarvinState(), RESULT, CAPS, LEAF)


def test_a_review_without_a_candidate_fails() -> None:
    step = decide(MarvinState(phase=Phase.VALIDATE, validate_iter=1), verdict(Verdict.PASS), CAPS, LEAF)
    assert isinstance(step, Fail)


# --- all paths (row 75) -----------------------------------------------------------------------------------------------


def bare(state: MarvinState) -> MarvinState:
    """The state without its texts: they decide nothing, and without them there are few states."""
    return replace(state, hints=(), candidate=state.candidate and "c", post_actions=(), audit_warning=None)


def longest(caps: Caps, place: Place, most_rounds: int, choose: Callable[[list[int]], int] = max) -> int:
    """The number of phase calls on the longest (or ``choose``-n) path with at most ``most_rounds`` of POST_CHILDREN."""

    @cache
    def calls_from(state: MarvinState) -> int | None:
        lengths = []
        for output in outputs_of(state.phase):
            step = decide(state, output, caps, place)
            if isinstance(step, Fail):
                lengths += [1] if choose is max else []
            elif isinstance(step, Accept) or (isinstance(step, AskUser) and not step.as_child):
                lengths += [1] if choose is max or isinstance(step, Accept) else []
            elif step.state.post_children_rounds <= most_rounds:
                rest = calls_from(bare(step.state))
                lengths += [] if rest is None else [1 + rest]
        return choose(lengths) if lengths else None

    found = calls_from(MarvinState())
    assert found is not None
    return found


@pytest.mark.parametrize("place", [ROOT, LEAF], ids=["root", "leaf"])
def test_ten_calls_are_the_worst_case_with_defaults_and_one_round_of_children(place: Place) -> None:
    assert longest(CAPS, place, most_rounds=1) == 10
    assert CAPS.worst_case_calls(1) == 10


def test_three_calls_are_the_best_case() -> None:
    assert longest(CAPS, LEAF, most_rounds=1, choose=min) == 3


def test_all_paths_end_within_the_formula_for_other_limits() -> None:
    for reflect, validate, retries, more, depth in product((0, 1, 3), (0, 1, 3), (0, 2), (0, 4), (0, 2)):
        caps = Caps(reflect=reflect, validate=validate, conclude_retries=retries, need_more_data=more, max_tree_depth=2)
        place = Place(depth=depth, node_count=5)
        rounds = caps.most_rounds(depth)
        assert longest(caps, place, most_rounds=99) <= caps.worst_case_calls(rounds), (caps, depth)


def test_with_defaults_no_path_of_the_root_is_longer_than_the_formula() -> None:
    assert longest(CAPS, ROOT, most_rounds=99) <= CAPS.worst_case_calls(CAPS.most_rounds(0))


# --- the diagram ------------------------------------------------------------------------------------------------------


def test_the_table_covers_every_choice_and_no_other() -> None:
    assert set(RULES) == {(phase, token_of(output)) for phase in Phase for output in outputs_of(phase)}


def target(step: Step) -> str:
    match step:
        case Accept():
            return "DONE"
        case Fail():
            return "FAILED"
        case AskUser():
            return "POST_CHILDREN" if step.as_child else "DONE"
        case _:
            return step.state.phase.value


def arrows() -> Iterator[tuple[str, str, str]]:
    """Every arrow that can occur, found by walking all reachable states in different places and under small limits."""
    places = [ROOT, LEAF, replace(ROOT, node_count=200), replace(LEAF, node_count=200), replace(LEAF, depth=5)]
    for caps in (CAPS, Caps(conclude_retries=0, max_tree_depth=1), Caps(reflect=0)):
        for place in places:
            seen, todo = set(), [MarvinState()]
            while todo:
                state = todo.pop()
                if state in seen:
                    continue
                seen.add(state)
                for output in outputs_of(state.phase):
                    step = decide(state, output, caps, place)
                    limit = " at a limit" if getattr(step, "forced", False) else ""
                    yield state.phase.value, target(step), token_of(output) + limit
                    if target(step) in Phase.__members__:
                        todo.append(bare(step.state))


def test_the_readme_draws_every_arrow_and_no_other() -> None:
    text = (Path(machine.__file__).parent / "README.md").read_text(encoding="utf-8")
    drawn = set(re.findall(r"^\s+(\w+) --> (\w+): ([\w ]+)$", text, re.MULTILINE))
    events: list[Event] = [
        UNREADABLE,
        CallFailed(message="m"),
        CallFailed(message="m", too_long=True),
        NoCallAllowed(why="w", material="m"),
        NoCallAllowed(why="w"),
    ]
    anywhere = set()
    for phase, event, corrections in product(Phase, events, (0, 2)):
        step = decide(replace(at(phase), candidate=None, corrections=corrections), event, CAPS, LEAF)
        found = target(step)
        anywhere.add(("ANY", "ANY" if found == phase.value else found, type(event).__name__))
    assert drawn == set(arrows()) | anywhere


def test_the_readme_names_every_parameter() -> None:
    text = (Path(machine.__file__).parent / "README.md").read_text(encoding="utf-8")
    names = [limit.name for limit in caps_module.RANGES.values()]
    others = ["model", "availableRecipes", "defaultExecutionMode", "defaultExecutionModePerKind"]
    assert [name for name in (*names, *others) if f"`{name}`" not in text] == []
