"""The objects of the API. Keys are camelCase, times ISO 8601 with an offset, money US dollars."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, JsonValue
from pydantic.alias_generators import to_camel

from models.ages import LONGEST_DAYS
from models.records import Priority
from tasks.submission import Budget, Lane

EXAMPLE_ID = "0190f6a2-7c1b-7c3e-9a55-0f3c2d1e4b5a"


class Shape(BaseModel):
    """An answer. Read from objects and from rows alike."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, from_attributes=True)


class Wanted(BaseModel):
    """A request: unknown keys are refused, as they are spelling mistakes."""

    model_config = ConfigDict(extra="forbid", alias_generator=to_camel, populate_by_name=True)


class NewProcess(Wanted):
    """A job to run. The tenant is the token's."""

    id: UUID | None = Field(
        default=None,
        description="Chosen by the caller: the same id again is the same process. Made by the server when absent.",
        examples=[EXAMPLE_ID],
    )
    recipe: Annotated[str, Field(min_length=1, max_length=200, examples=["extract-event"])]
    params: dict[str, JsonValue] = Field(
        default_factory=dict,
        description="The recipe's parameters, such as `prompt` and `schema` of the engine jeltz.",
        examples=[{"prompt": "Standup on Monday at 9 with Ann"}],
    )
    goal: str = Field(default="", max_length=1_000_000, description="What marvin or ford is to reach or answer.")
    project: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")] | None = None
    owner: Annotated[str, Field(min_length=1, max_length=200)] | None = Field(
        default=None, description="For whom it is: its questions are theirs. Default: the pool's."
    )
    priority: Priority = Priority.NORMAL
    limits: Budget = Budget()
    lane: Lane = Field(
        default="normal",
        description="`batch`: its model calls wait for the providers' batches, which cost less and may take a day.",
    )
    batch_deadline_seconds: Annotated[float, Field(gt=0, le=31_536_000)] | None = Field(
        default=None,
        description="Of a job in the lane `batch`: how long, from submission; then its calls are made at once.",
    )
    trace_context: dict[str, str] = Field(
        default_factory=dict,
        description="W3C trace context of the caller; default: the request's own `traceparent` and `tracestate`.",
    )


class Usage(Shape):
    """What the calls of a process and its sub-processes came to."""

    calls: int
    failed_calls: int
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    cost_usd: float = Field(description="Of calls whose model has a known price.")


class ProcessSummary(Shape):
    """A line of a list."""

    id: UUID
    status: str = Field(examples=["RUNNING"], description="INIT, RUNNING, BLOCKED, SUSPENDED or CLOSED.")
    close_reason: str | None = Field(description="DONE, FAILED or STOPPED, of a closed process.")
    engine: str = Field(examples=["jeltz"])
    recipe: str = Field(examples=["extract-event"])
    project: str
    owner: str | None
    created_at: datetime
    started_at: datetime | None
    closed_at: datetime | None


class Process(ProcessSummary):
    """A process with its limits and what it has used."""

    tenant: str
    priority: int
    root_id: UUID = Field(description="The process at the top: budgets and usage are its.")
    deadline_at: datetime | None
    lane: str = Field(description="`normal` or `batch`.")
    batch_until: datetime | None = Field(description="Of the lane `batch`: its deadline.")
    max_calls: int | None
    max_tokens: int | None
    max_cost_usd: float | None
    warnings: list[str] = Field(
        default_factory=list, description="When it is submitted: what is legal but surely not meant."
    )
    artifacts_removed_at: datetime | None = Field(
        description="When retention took its texts away: messages, artifacts, what its turns said."
    )
    nodes: dict[str, int] = Field(description="Number of nodes by status.", examples=[{"DONE": 12, "RUNNING": 2}])
    usage: Usage


class ProcessPage(Shape):
    """``next_cursor`` is the `cursor` of the next page; `null` on the last one."""

    items: list[ProcessSummary]
    next_cursor: str | None


class Result(Shape):
    """``result`` is there as soon as the process is closed. Its form is the engine's (`success` is always there)."""

    id: UUID
    status: str
    close_reason: str | None
    result: dict[str, Any] | None = Field(
        examples=[{"success": True, "data": {"title": "Standup"}, "attempts": 1}],
    )


class Changed(Shape):
    """``changed`` is false when the process was in that state already."""

    id: UUID
    changed: bool


class PlanNode(Shape):
    """A task of the tree. Texts are beginnings."""

    id: int
    parent_id: int | None
    order_key: list[int]
    kind: str
    goal: str
    status: str
    awaiting: bool = Field(description="Done with its own phases, its children are not.")
    phase: str
    summary: str = Field(description="Of its result.")
    failure: str


class Plan(Shape):
    """The nodes, parents before children; ``cut`` when there are more."""

    nodes: list[PlanNode]
    cut: bool


class ChatMessage(Shape):
    """A message of the process's history."""

    id: int
    role: str
    kind: str
    content: str
    created_at: datetime


class Call(Shape):
    """One provider call, as the ledger has it."""

    node_id: int
    turn: int
    lane: str = Field(description="`normal` or `batch`; a turn that did not wait for its batch may have one of each.")
    attempt: int
    provider: str
    model: str
    error_kind: str | None
    stop_reason: str
    structured_path: str | None
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    cost_usd: float | None
    latency_ms: int = Field(description="In the lane `batch`: from the request to its answer.")
    reached_inference: bool
    created_at: datetime


class Item(Shape):
    """A question to a person."""

    id: int
    process_id: UUID
    node_id: int
    project: str
    type: str = Field(examples=["DECISION"])
    criticality: str = Field(examples=["NORMAL"])
    title: str
    body: str
    payload: dict[str, Any] = Field(description="Options, items, default: what the type has.")
    status: str = Field(examples=["PENDING"])
    owner: str | None
    originator: str = Field(description="Who asks.")
    tags: list[str]
    answer: dict[str, Any] | None
    answered_by: str | None
    created_at: datetime
    expires_at: datetime
    answered_at: datetime | None


class Answer(Wanted):
    """An answer to a question, in the form its type asks for."""

    answer: dict[str, JsonValue] = Field(
        description='APPROVAL `{"approved": true}`, DECISION `{"chosen": "b"}` or `{"freeText": …}`, FEEDBACK'
        ' `{"text": …}`, ORDERING `{"orderedIds": […]}`, STRUCTURE_EDIT `{"value": …}`, OUTPUT_…'
        ' `{"approved": true}` or `{"text": …}`; or `{"outcome": "UNDECIDABLE", "reason": …}`.',
        examples=[{"approved": True}],
    )


class Resolution(Shape):
    """What became of an answer: only STORED and SAME are accepted."""

    outcome: str = Field(examples=["STORED"])
    message: str
    status: str | None = None


class DocumentLine(Shape):
    """A line of a list of documents."""

    path: str
    version: int
    kind: str
    title: str | None
    characters: int
    updated_at: datetime


class Document(Shape):
    """A document in one version."""

    path: str
    version: int
    kind: str
    title: str | None
    mime: str
    content: str


class NewDocument(Wanted):
    """What to store at a path."""

    content: str = Field(max_length=5_000_000)
    kind: str = Field(default="text", examples=["text"], max_length=40)
    title: str | None = Field(default=None, max_length=500)
    mime: str = Field(default="text/markdown", max_length=200)


class Version(Shape):
    """Where a document is now."""

    path: str
    version: int


class RecipeLine(Shape):
    """A line of a list of recipes; ``error`` when it cannot be used."""

    name: str
    engine: str | None
    summary: str | None
    source: str | None
    error: str | None


class RecipeText(Wanted):
    """A recipe to check, as YAML."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]{0,63}$", examples=["extract-event"])
    text: str = Field(max_length=200_000)


class Checked(Shape):
    """Empty ``problems``: it can be used."""

    problems: list[str]
    warnings: list[str]


class SchemaText(Wanted):
    """A JSON Schema to check."""

    json_schema: dict[str, Any] = Field(alias="schema", examples=[{"type": "object", "properties": {}}])


class SchemaProblem(Shape):
    """``pointer`` is a JSON pointer into the schema."""

    pointer: str
    problem: str


class SchemaVerdict(Shape):
    """Whether answers can be validated against the schema."""

    accepted: bool
    sha256: str | None = None
    problems: list[SchemaProblem] = Field(default_factory=list)


class LedgerLine(Shape):
    """Usage of one group of calls."""

    group: str = Field(description="The day (UTC), the recipe or the model.", examples=["2026-11-30"])
    calls: int
    failed_calls: int
    input_tokens: int
    output_tokens: int
    cost_usd: float


class Health(Shape):
    """``checks`` says of each part `ok` or what is wrong."""

    healthy: bool
    checks: dict[str, str]


Days = Annotated[float, Field(gt=0, le=LONGEST_DAYS)]


class RetentionAges(Wanted):
    """In days since a process was closed."""

    keep_days: Days | None = Field(
        default=None, examples=[90], description="Then it goes with everything it owns. Default: never."
    )
    artifacts_days: Days | None = Field(
        default=None, examples=[14], description="Then its texts go; at most `keepDays`. Default: with the process."
    )


class RetentionPolicy(Shape):
    """The ages in force. ``own``: they are the tenant's, and not those of the installation."""

    keep_days: float | None = Field(examples=[90])
    artifacts_days: float | None = Field(examples=[14])
    own: bool
    updated_at: datetime | None


class RetentionPreview(Shape):
    """What retention would remove now. Top-level processes, counted up to 100,000."""

    keep_days: float | None = Field(examples=[90])
    artifacts_days: float | None = Field(examples=[14])
    own: bool
    processes: int = Field(examples=[120], description="Would be deleted with everything they own.")
    artifacts: int = Field(examples=[310], description="Would stay and lose their texts.")
    undelivered: int = Field(examples=[0], description="Old enough, and kept: nobody was given their result.")
