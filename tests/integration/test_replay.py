"""A process that is exported and run again decides the same, and what was changed in between is found."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from designs import TEMPLATES, design
from factory import rows, value
from plans import WEB_RESEARCH, Stage, call, closed_plan, straight, submit_plan, subtasks
from rig import Rig
from services import new_database
from valem_specs import GOOD, RAISE_VAT, answer, failing_tests, text, wrong_paths

from engines.base import ToolResult
from engines.llm.base import ErrorKind, LlmError, LlmRequest, StopKind
from engines.llm.scripted import Script, ScriptedAnswer, ScriptedToolCall
from engines.valem.jsonata.evaluation import evaluate_here
from models.ages import Ages
from models.store import documents, inbox, processes, retention, scratch
from models.store.database import Database
from models.store.export import exported
from models.store.sweep import wake_overdue
from tasks.cookbook import recipe_sources
from tasks.replay.archive import Archive, NotReplayable
from tasks.replay.compare import Report, compared
from tasks.replay.run import replay
from tasks.settings import load_settings
from tasks.submission import parse_submission, prepare

GOAL = "Choose a city and plan the trip"
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
Again = Callable[..., Report]


@pytest.fixture
def stage(database_url: str) -> Iterator[Stage]:
    stage = Stage(database_url)
    yield stage
    stage.close()


@pytest.fixture
def again(postgres_admin_url: str, _template: str) -> Iterator[Again]:
    """Replays an archive, or the export of a process as ``change`` leaves it, in a database of its own."""
    with ExitStack() as ends:

        def run(
            rig: Rig, process: UUID, *, change: Callable[[dict[str, Any]], None] | None = None, prompts: bool = True
        ) -> Report:
            archive = taken(rig.database, process, change)
            url = ends.enter_context(new_database(postgres_admin_url, _template))
            settings = load_settings({"VANCETOPE_ENGINES": "factory:PROBE"})
            return compared(archive, replay(archive, url, settings, evaluator=evaluate_here), prompts=prompts)

        yield run


def taken(database: Database, process: UUID, change: Callable[[dict[str, Any]], None] | None = None) -> Archive:
    found = json.loads("".join(exported(database, process)))
    if change is not None:
        change(found)
    return Archive.parse(json.dumps(found), "export")


def submitted(rig: Rig, recipe: str, **payload: Any) -> UUID:
    settings = load_settings({})
    prepared = prepare(
        parse_submission({"recipe": recipe, **payload}), settings, rig.engines, recipe_sources(settings, rig.database)
    )
    return rig.send(prepared)


def same(report: Report) -> None:
    assert report.differences == ()
    assert report.same


def plays(script: dict[tuple[str, str], Any]) -> Any:
    """The answers of ``script`` by goal and phase; everything else goes straight to a conclusion."""

    def play(phase: str, goal: str, request: LlmRequest) -> Any:
        return script.get((goal, phase)) or straight(f"result of {goal}")(phase)

    return play


def jeltz(rig: Rig, *answers: Any, limits: dict[str, Any] | None = None, **params: Any) -> UUID:
    rig.script.add(*answers)
    process = submitted(rig, "jeltz", params={"prompt": "How many?", "schema": SCHEMA, **params}, limits=limits or {})
    rig.drain(skip_delays=True)
    assert rig.status(process) == "CLOSED"
    return process


# -- the same ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def rig(database_url: str) -> Iterator[Rig]:
    with Rig(database_url) as rig:
        yield rig


def test_a_job_with_a_correction_decides_the_same(rig: Rig, again: Again) -> None:
    report = again(rig, jeltz(rig, {"n": "many"}, "no JSON at all", {"n": 3}))
    same(report)
    assert (report.processes, report.nodes, report.turns, report.calls) == (1, 1, 3, 3)


def test_failures_retries_cut_answers_and_refusals_are_replayed(rig: Rig, again: Again) -> None:
    overloaded = LlmError(ErrorKind.OVERLOADED, "busy", retry_after=2.0)
    cut = ScriptedAnswer(text='{"n":', stop=StopKind.LENGTH)
    same(again(rig, jeltz(rig, overloaded, ErrorKind.TIMEOUT, cut, ErrorKind.SCHEMA_REJECTED, {"n": 1})))
    same(again(rig, jeltz(rig, LlmError(ErrorKind.REFUSAL, "no"))))
    same(again(rig, jeltz(rig, *[LlmError(ErrorKind.BAD_REQUEST, "what?")] * 5)))


def test_limits_that_ended_a_job_end_it_again(rig: Rig, again: Again) -> None:
    process = jeltz(rig, {"n": "a"}, {"n": "b"}, {"n": "c"}, limits={"maxCalls": 2})
    assert (rig.result(process) or {})["error"] == "budget_exceeded"
    same(again(rig, process))
    rig.script.add({"n": "x"}, {"n": 1})
    late = submitted(rig, "jeltz", params={"prompt": "?", "schema": SCHEMA}, limits={"deadlineSeconds": 3600})
    rig.run_next()
    rows(rig.database, "UPDATE processes SET deadline_at = now() WHERE id = %(id)s RETURNING id", id=late)
    rig.drain()
    assert (rig.result(late) or {})["error"] == "budget_exceeded"
    same(again(rig, late))


def test_a_job_that_was_stopped_or_lost_its_workers_is_replayed(rig: Rig, again: Again) -> None:
    rig.script.add({"n": "x"})
    process = submitted(rig, "jeltz", params={"prompt": "?", "schema": SCHEMA})
    rig.run_next()
    engine = rig.engines["jeltz"]
    processes.stop(rig.database, process, lambda closing: engine.wrapper(closing.cursor, error="stopped", message="!"))
    same(again(rig, process))
    rig.script.add({"n": "x"})
    poisoned = submitted(rig, "jeltz", params={"prompt": "?", "schema": SCHEMA})
    while rig.publisher.turns:
        rig.run_next()
        rows(rig.database, "UPDATE nodes SET losses = 3 WHERE settled_at IS NULL RETURNING id")
    assert (rig.result(poisoned) or {})["error"] == "internal_error"
    same(again(rig, poisoned))


def test_engines_of_an_installation_and_their_crashes_are_replayed(rig: Rig, again: Again) -> None:
    rig.script.add("one", "two", "three")
    process = rig.submit(
        {"ask": "q"},
        {"crash": "boom", "times": 2},
        {"fan_out": 2, "steps": [{"ask": "q"}, {"write": ["result", "text"]}]},
        {"call": [{"say": "below"}, {"finish": "reply"}], "timeout": 60},
        {"finish": 1},
    )
    rig.drain(skip_delays=True)
    report = again(rig, process)
    same(report)
    assert report.processes == 2
    assert value(rig.database, "SELECT count(*) FROM phase_records WHERE reason = 'CRASHED'") == 2


def test_what_cannot_be_stored_is_replaced_in_the_same_way(rig: Rig, again: Again) -> None:
    same(again(rig, jeltz(rig, {"n": "a\x00b"}, 'no \ud800 JSON \x00 "', {"n": 3, "more": "\ud800 ü \x00"})))


@pytest.fixture
def recipes(tmp_path: Path) -> Path:
    folder = tmp_path / "recipes"
    folder.mkdir()
    (folder / "web-research.yaml").write_text(WEB_RESEARCH)
    return folder


QUESTION = {
    "type": "DECISION", "title": "Which city?", "body": "Both are fine.", "criticality": "NORMAL",
    "payload": {"options": ["Graz", "Linz"]},
}  # fmt: skip
ASKS = {"action": "NEEDS_USER_INPUT", "userInput": QUESTION, "reason": "it is theirs to say"}
LINZ = {"outcome": "DECIDED", "value": {"chosen": "Linz"}}
WRITES = {"tool": "doc_write", "args": {"path": "trip/{{ node.goal | slug }}.md", "kind": "text",
                                        "content": "{{ node.result }}"}}  # fmt: skip
OUTLINE = "---\nkind: list\ntitle: The book\n---\n- Water\n- Roads\n"
FAN = {
    "goal": "All chapters", "taskKind": "EXPAND_FROM_DOC",
    "taskSpec": {"documentRef": {"path": "outline.md"},
                 "childTemplate": {"taskKind": "WORKER", "goal": "Write {{ item.text }}"}},
}  # fmt: skip


def plan(stage: Stage, recipes: Path, *, mode: str = "PARALLEL") -> tuple[Rig, UUID]:
    """Children, a question with its answer, a recipe call, a fanned-out document, documents written."""
    script = {
        (GOAL, "SCOPE"): subtasks("A", "B", FAN, "C"),
        ("A", "SCOPE"): call("web-research", "Research the city"),
        ("Research the city", "ANSWER"): {"text": "It is large."},
        ("B", "SCOPE"): ASKS,
        ("C", "SCOPE"): subtasks("C1", "C2"),
        ("C1", "CONCLUDE"): {"result": "the text", "postActions": [WRITES], "reason": "written"},
        ("C2", "SCOPE"): "this is no JSON" if mode == "SEQUENTIAL" else None,
    }
    if mode == "SEQUENTIAL":
        broken = iter(["this is no JSON", straight()("SCOPE")])
        script[("C2", "SCOPE")] = None
        answers = plays(script)

        def play(phase: str, goal: str, request: LlmRequest) -> Any:
            return next(broken) if (goal, phase) == ("C2", "SCOPE") else answers(phase, goal, request)

        rig, _ = stage(play)
    else:
        rig, _ = stage(plays(script))
    documents.put(rig.database, "default", "default", "outline.md", "older")
    documents.put(rig.database, "default", "default", "outline.md", OUTLINE, title="Outline")
    process = submit_plan(
        rig, GOAL, recipes=recipes, availableRecipes=["web-research"], defaultExecutionMode=mode, maxParallelNodes=3
    )
    rig.drain()
    (item,) = inbox.items(rig.database, "default", "default")
    rig.publisher.publish(inbox.answer(rig.database, item.id, LINZ, by="ada").due)
    rig.drain()
    closed_plan(rig, process)
    return rig, process


@pytest.mark.parametrize("mode", ["PARALLEL", "SEQUENTIAL"])
def test_a_plan_with_everything_in_it_decides_the_same(stage: Stage, recipes: Path, again: Again, mode: str) -> None:
    rig, process = plan(stage, recipes, mode=mode)
    # What is there now is not what was there then.
    documents.put(rig.database, "default", "default", "outline.md", "---\nkind: list\n---\n- Other\n")
    report = again(rig, process)
    same(report)
    assert report.processes == 2
    assert report.nodes == value(rig.database, "SELECT count(*) FROM nodes")


def storm(stage: Stage, recipes: Path, burst: int) -> tuple[Rig, UUID]:
    """A plan whose nodes were at work in several threads at once, with a model that answers within milliseconds."""
    script: dict[tuple[str, str], Any] = {(GOAL, "SCOPE"): subtasks(*(f"T{n}" for n in range(12)))}
    for n in range(12):
        script[(f"T{n}", "SCOPE")] = call("web-research", f"look {n}") if n % 2 else subtasks(f"T{n}-1", f"T{n}-2")
        script[(f"look {n}", "ANSWER")] = {"text": f"found {n}"}
    rig, _ = stage(plays(script), burst=burst, pool_size=8)
    process = submit_plan(
        rig, GOAL, recipes=recipes, availableRecipes=["web-research"], defaultExecutionMode="PARALLEL",
        maxParallelNodes=5,
    )  # fmt: skip
    rig.drain_in_threads(4, until=rig.all_closed)
    closed_plan(rig, process)
    return rig, process


@pytest.mark.parametrize("burst", [1, 8])
def test_turns_that_overlapped_see_what_they_saw(stage: Stage, recipes: Path, again: Again, burst: int) -> None:
    rig, process = storm(stage, recipes, burst)
    report = again(rig, process)
    same(report)
    assert (report.processes, report.nodes) == (7, 31)


def test_turns_that_waited_for_a_free_provider_are_seen_as_they_were(
    stage: Stage, again: Again, redis_url: str
) -> None:
    rig, model = stage(
        plays({(GOAL, "SCOPE"): subtasks(*"ABCDEFGH")}), shared=True, concurrency=1, redis_url=redis_url, pool_size=8
    )
    rig.client.during = lambda *_: time.sleep(0.01)  # a model that takes its time, or nobody would have to wait
    process = submit_plan(rig, GOAL, defaultExecutionMode="PARALLEL")
    rig.drain_in_threads(4, until=rig.all_closed)
    closed_plan(rig, process)
    assert value(rig.database, "SELECT max(fence) FROM nodes")
    assert len(model.asked) == rig.client.calls
    same(again(rig, process))


def test_without_transactions_the_times_give_the_order(stage: Stage, recipes: Path, again: Again) -> None:
    rig, process = storm(stage, recipes, 1)

    def restored(found: dict[str, Any]) -> None:
        for row in (*found["phase_records"], *found["inbox_items"]):
            row["transaction"] = 7

    same(again(rig, process, change=restored, prompts=False))


def test_questions_that_nobody_answers_run_out_again(stage: Stage, again: Again) -> None:
    rig, _ = stage(plays({(GOAL, "SCOPE"): subtasks("A", "B"), ("B", "SCOPE"): ASKS, ("A", "SCOPE"): ASKS}))
    process = submit_plan(rig, GOAL, defaultExecutionMode="PARALLEL")
    rig.drain()
    first, second = inbox.items(rig.database, "default", "default")
    rig.publisher.publish(inbox.dismiss(rig.database, first.id, by="ada").due)
    rig.drain()
    scratch.run_out(rig.database, second.id)
    rig.publisher.publish(inbox.expire(rig.database, batch=10))
    rig.drain()
    closed_plan(rig, process)
    same(again(rig, process))


def test_a_deadline_that_passed_while_people_were_waited_for_passes_again(stage: Stage, again: Again) -> None:
    rig, _ = stage(plays({(GOAL, "SCOPE"): subtasks("A", "B"), ("B", "SCOPE"): ASKS}))
    process = submit_plan(rig, GOAL, limits={"deadlineSeconds": 3_600})
    rig.drain()
    rows(rig.database, "UPDATE processes SET deadline_at = now() - interval '1 second' RETURNING id")
    rig.publisher.publish(wake_overdue(rig.database, batch=10))
    rig.drain()
    assert rig.status(process) == "CLOSED"
    same(again(rig, process))


class Search:
    """A tool of the installation."""

    name = "web_search"
    description = "Searches."
    parameters: dict[str, Any] = {"type": "object", "properties": {"query": {"type": "string"}}}  # noqa: RUF012

    def __init__(self) -> None:
        self.asked: list[str] = []

    def run(self, arguments: dict[str, Any], context: Any) -> ToolResult:
        self.asked.append(arguments["query"])
        return ToolResult(text=f"found {len(self.asked)}: {arguments['query']}")


def using(*calls: tuple[str, dict[str, Any]]) -> ScriptedAnswer:
    called = tuple(ScriptedToolCall(id=f"c{at}", name=name, arguments=args) for at, (name, args) in enumerate(calls))
    return ScriptedAnswer(text="I look.", tool_calls=called)


def test_tools_say_what_they_said_and_reach_out_to_nobody(database_url: str, again: Again) -> None:
    search = Search()
    script = Script.of(
        using(("web_search", {"query": "towers"}), ("web_search", {"query": "heights"})),
        using(("doc_write", {"path": "tower.md", "content": "324 m", "kind": "text"}), ("no_such", {})),
        "It is 324 m high.",
    )
    with Rig(database_url, script=script, tools=[search]) as rig:
        process = submitted(rig, "ford", goal="How high is the tower?")
        rig.drain()
        assert (rig.result(process) or {})["success"] is True
        report = again(rig, process, prompts=False)
        same(report)
        assert search.asked == ["towers", "heights"] or search.asked == ["heights", "towers"]
        assert report.calls == 3


def test_queries_of_a_called_process_are_processes_again(stage: Stage, again: Again) -> None:
    def play(phase: str, goal: str, request: LlmRequest) -> Any:
        if goal == "what is n?":
            return {"n": 7}
        if goal == "Measure it.":
            asked = any(message.role == "tool" for message in request.messages)
            query = ("structured_query", {"prompt": "what is n?", "schema": SCHEMA})
            return "It is 7." if asked else using(query, ("doc_list", {}))
        return call("ford", "Measure it.") if phase == "SCOPE" else straight("n is 7")(phase)

    rig, _ = stage(play)
    process = submit_plan(rig, GOAL, availableRecipes=["ford"])
    rig.drain()
    closed_plan(rig, process)
    report = again(rig, process)
    same(report)
    assert report.processes == 3


def test_a_design_that_was_corrected_is_replayed(stage: Stage, again: Again) -> None:
    designs = [design(TEMPLATES[0], availableRecipes=["web-reserach"]), design(TEMPLATES[0])]

    def author(phase: str, goal: str, request: LlmRequest) -> Any:
        if not designs:
            return ScriptedAnswer(text="The recipe is ready.")
        return ScriptedAnswer(tool_calls=(ScriptedToolCall(name="recipe_write", arguments=designs.pop(0)),))

    rig, _ = stage(author)
    process = submitted(rig, "marvin-architect", goal="I need such a recipe")
    rig.drain()
    assert (rig.result(process) or {})["documents"]
    same(again(rig, process))


def test_a_spec_is_checked_again_and_stored_again(database_url: str, again: Again) -> None:
    script = Script.of(answer(wrong_paths(2)), answer(failing_tests(1)), answer(GOOD), text(RAISE_VAT))
    with Rig(database_url, script=script) as rig:
        made = submitted(rig, "valem-generate", params={"domainDescription": "Orders with lines and VAT."})
        rig.drain()
        assert (rig.result(made) or {})["modelId"] == "order-total"
        same(again(rig, made))
        evolved = submitted(
            rig, "valem-evolve", params={"evolutionRequest": "Raise VAT to 25 %.", "modelId": "order-total"}
        )
        rig.drain()
        assert (rig.result(evolved) or {})["version"] == 2
        same(again(rig, evolved))


# -- differences -------------------------------------------------------------------------------------------------------


def test_a_changed_prompt_is_a_difference_with_its_new_lines(rig: Rig, again: Again) -> None:
    process = jeltz(rig, {"n": "many"}, {"n": 3})

    def change(found: dict[str, Any]) -> None:
        found["process_inputs"][0]["recipe"]["promptPrefix"] = "Count with care.\n\n{{ schema_json }}"

    report = again(rig, process, change=change)
    assert [(each.kind, each.where, each.turn, each.phase) for each in report.differences] == [
        ("prompt", "root", 1, "ANSWER"), ("prompt", "root", 2, "ANSWER"),
    ]  # fmt: skip
    first = report.differences[0]
    assert first.lines[0].startswith("message 1 (system): recorded ")
    assert any("is new: Count with care." in line for line in first.lines)
    same(again(rig, process, change=change, prompts=False))


def test_a_lower_cap_is_found_where_it_first_decides(rig: Rig, again: Again) -> None:
    process = jeltz(rig, {"n": "many"}, {"n": "more"}, {"n": 3}, maxAttempts=3)

    def change(found: dict[str, Any]) -> None:
        found["process_inputs"][0]["params"]["maxAttempts"] = 2

    report = again(rig, process, change=change)
    assert not report.same
    first = report.differences[0]
    assert (first.kind, first.where, first.turn, first.phase) == ("decision", "root", 2, "ANSWER")
    assert (first.what, first.recorded, first.replayed) == ("reason", "CORRECTED", "CONCLUDED")
    kinds = [each.kind for each in report.differences]
    assert {"turn", "result"} <= set(kinds)


def test_a_higher_cap_wants_what_was_not_recorded(rig: Rig, again: Again) -> None:
    process = jeltz(rig, {"n": "many"}, {"n": "more"}, maxAttempts=2)

    def change(found: dict[str, Any]) -> None:
        found["process_inputs"][0]["params"]["maxAttempts"] = 3

    report = again(rig, process, change=change)
    assert (report.differences[0].what, report.differences[0].replayed) == ("reason", "CORRECTED")
    (more,) = [each for each in report.differences if each.kind == "turn"]
    assert more.what == "one more"
    assert str(more.replayed).startswith("wants a call of ")


def test_children_and_results_that_differ_are_told_at_their_place(stage: Stage, recipes: Path, again: Again) -> None:
    rig, process = plan(stage, recipes)

    def change(found: dict[str, Any]) -> None:
        for row in found["phase_records"]:
            said = (row["recorded"] or {}).get("reply", {}).get("text", "")
            if '"C2"' in said:
                row["recorded"]["reply"]["text"] = said.replace('"C2"', '"C2 in detail"')

    report = again(rig, process, change=change)
    first = report.differences[0]
    assert (first.kind, first.where, first.phase) == ("decision", "root/3", "SCOPE")
    assert first.what.startswith("output.newTasks[1]")
    children = [each for each in report.differences if each.kind == "child"]
    assert [(each.where, each.what, each.recorded, each.replayed) for each in children] == [
        ("root/3", "goal", "C2", "C2 in detail")
    ]
    assert any(each.kind == "prompt" and each.where == "root/3/1" for each in report.differences)


def test_a_document_that_is_gone_is_a_gap_and_then_a_difference(stage: Stage, recipes: Path, again: Again) -> None:
    rig, process = plan(stage, recipes)
    assert documents.remove(rig.database, "default", "default", "outline.md")
    (gap,) = taken(rig.database, process).gaps()
    assert re.fullmatch(
        r"turn 1 \(EXPAND\) of root/2 saw document \d+ in version 2, which was deleted before the export", gap
    )
    report = again(rig, process)
    first = report.differences[0]
    assert (first.kind, first.where, first.phase) == ("decision", "root/2", "EXPAND")


# -- refusals ----------------------------------------------------------------------------------------------------------


def test_what_cannot_be_replayed_is_refused_with_the_reason(rig: Rig, again: Again) -> None:
    process = jeltz(rig, {"n": 1})

    def unrecorded(found: dict[str, Any]) -> None:
        found["phase_records"][0]["recorded"] = None

    def foreign(found: dict[str, Any]) -> None:
        found["processes"][0]["engine"] = "golem"

    def newer(found: dict[str, Any]) -> None:
        found["version"] = 2

    with pytest.raises(NotReplayable, match=r"turn 1 \(ANSWER\) of root has no recording"):
        again(rig, process, change=unrecorded)
    with pytest.raises(NotReplayable, match="there is no engine 'golem' here"):
        again(rig, process, change=foreign)
    with pytest.raises(NotReplayable, match="version 2; known here is 1"):
        again(rig, process, change=newer)
    with pytest.raises(NotReplayable, match="export is no export: it is not JSON"):
        Archive.parse("{", "export")
    with pytest.raises(NotReplayable, match="'nodes' must be a list of rows"):
        again(rig, process, change=lambda found: found.update(nodes=[{}]))
    is_open = submitted(rig, "jeltz", params={"prompt": "?", "schema": SCHEMA})
    with pytest.raises(NotReplayable, match="was not closed when it was exported"):
        again(rig, is_open)


def test_an_export_without_its_texts_is_refused_and_names_retention(rig: Rig, again: Again) -> None:
    process = jeltz(rig, {"n": 1})
    processes.mark_delivered(rig.database, [process])
    rows(rig.database, "UPDATE processes SET closed_at = closed_at - interval '9 days' RETURNING id")
    assert retention.remove_artifacts(rig.database, Ages(artifacts=1)) == 1
    with pytest.raises(NotReplayable, match=r"texts of process .* were removed by retention on 2\d{3}-"):
        again(rig, process)
