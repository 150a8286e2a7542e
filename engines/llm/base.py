"""The provider-neutral shapes of one model call, and the protocol each provider implements.

An engine builds an :class:`LlmRequest` and gets an :class:`LlmReply` or an :class:`LlmError`; it never sees an SDK.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, Protocol

from engines.errors import EngineError

NORMAL_LANE = "normal"
BATCH_LANE = "batch"
"""How a call travels: at once, or with others in a batch that is answered within a day and costs less."""


class ErrorKind(StrEnum):
    """Why a provider call failed. The kind, never the exception's class or text, decides what happens next."""

    RATE_LIMITED = "rate_limited"
    OVERLOADED = "overloaded"
    TIMEOUT = "timeout"
    TRANSPORT = "transport"
    REFUSAL = "refusal"
    CONTENT_FILTER = "content_filter"
    CONTEXT_TOO_LONG = "context_too_long"
    REQUEST_TOO_LARGE = "request_too_large"
    SCHEMA_REJECTED = "schema_rejected"
    """The provider refused the native structured-output path before inference: step down the ladder."""
    SAMPLING_REJECTED = "sampling_rejected"
    """The provider refused a sampling parameter before inference: resend without it."""
    BAD_REQUEST = "bad_request"
    AUTH = "auth"
    EMPTY = "empty"
    """The call ended normally, or for an unknown reason, without any text or tool call."""
    CANCELLED = "cancelled"
    """Our own doing: the lease was lost or the process stopped while the call ran."""
    NOT_CONFIGURED = "not_configured"
    """No such provider, model or key here: the message says what to set."""


class StopKind(StrEnum):
    """Why the model stopped writing, in provider-neutral words."""

    END = "end"
    LENGTH = "length"
    TOOL_USE = "tool_use"
    OTHER = "other"


class StructuredPath(StrEnum):
    """The rungs of the structured-output ladder, best first."""

    STRICT = "strict"
    LOOSE = "loose"
    PROMPT = "prompt"


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens as the provider counted them; zero when it said nothing."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0

    @property
    def total_tokens(self) -> int:
        return self.input_tokens + self.output_tokens + self.cache_read_tokens + self.cache_write_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """One tool call of the model. ``arguments`` is the parsed object; ``raw`` what it wrote when that is no object."""

    id: str
    name: str
    arguments: dict[str, Any]
    raw: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message of a conversation. ``tool`` messages answer ``tool_call_id``; ``cache`` asks for a breakpoint."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    cache: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    """A tool offered to the model; ``parameters`` is a JSON Schema object.

    by_name_only: offered only where it is allowed by its name, never as one of all.
    """

    name: str
    description: str
    parameters: dict[str, Any]
    by_name_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LlmRequest:
    """One model call.

    model: an alias (``default:fast``), ``provider:model`` or a bare catalogue name; a comma list is tried in order.
    max_output_tokens: ``None`` means the catalogue's default for the model; clamped to its hard limit.
    schema: the reply must be one JSON object of this JSON Schema; the client picks the ladder's rung.
    highest_path: no rung above this one is tried (learned from an earlier refusal of this schema and model).
    without: parameter names a provider refused earlier for this model (``temperature``, ...); never sent again.
    timeout_seconds: total wall clock of the call; ``None`` means the client's own limit.
    tool_choice: ``auto``, ``none`` or the name of an offered tool. ``none`` keeps the tools in the request (the history
        may hold their calls, the cached prefix holds their definitions) but asks for an answer without a call. A named
        tool is forced where the model allows that, and otherwise left to it.
    answer_beside_tools: where the schema travels as a tool, it may stand among ``tools``, unforced: the messages say
        that a call of it is the answer. Otherwise such a model is asked in the prompt when there are tools.
    schema_in_prompt: whether the messages already show the schema, so that the prompt rung need not add it; ``None``
        means: look for it (pretty-printed or compact JSON of ``schema`` in any message).
    """

    model: str
    messages: tuple[Message, ...]
    schema: dict[str, Any] | None = None
    schema_name: str = "answer"
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: str = "auto"
    temperature: float | None = None
    max_output_tokens: int | None = None
    thinking_tokens: int | None = None
    highest_path: StructuredPath = StructuredPath.STRICT
    without: frozenset[str] = frozenset()
    timeout_seconds: float | None = None
    answer_beside_tools: bool = False
    schema_in_prompt: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LlmReply:
    """A finished call. ``text`` of a native tool path is the tool's arguments as JSON text, exactly as streamed."""

    text: str
    tool_calls: tuple[ToolCall, ...] = ()
    stop: StopKind = StopKind.END
    stop_reason: str = ""
    """The provider's own word."""
    usage: Usage = field(default_factory=Usage)
    provider: str = ""
    model: str = ""
    """The provider's model name that answered."""
    path: StructuredPath | None = None
    """The rung used; ``None`` when no schema was asked for."""
    cost_usd: float | None = None
    """From the catalogue's prices; ``None`` for an unpriced model."""
    latency_ms: int = 0
    output_limit: int | None = None
    """The output-token limit this call was sent with."""
    output_ceiling: int | None = None
    """The most this model can be asked for."""
    lane: str = NORMAL_LANE


class LlmError(EngineError):
    """One provider call failed.

    kind: see :class:`ErrorKind`. retry_after: seconds the provider asked for, already sanitised, or ``None``.
    reached_inference: the model had begun to work, so the call counts (and may have cost something: ``usage``).
    parameter: for ``sampling_rejected``, the parameter's name. path: the rung that was refused or used.
    """

    def __init__(
        self,
        kind: ErrorKind,
        message: str,
        *,
        retry_after: float | None = None,
        status: int | None = None,
        provider: str = "",
        model: str = "",
        parameter: str | None = None,
        path: StructuredPath | None = None,
        partial_text: str = "",
        usage: Usage | None = None,
        cost_usd: float | None = None,
        latency_ms: int = 0,
        reached_inference: bool = False,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.retry_after = retry_after
        self.status = status
        self.provider = provider
        self.model = model
        self.parameter = parameter
        self.path = path
        self.partial_text = partial_text
        self.usage = usage or Usage()
        self.cost_usd = cost_usd
        self.latency_ms = latency_ms
        self.reached_inference = reached_inference
        self.lane = NORMAL_LANE


class CancelToken(Protocol):
    """Set from another thread when the call's lease is lost or its process is stopped."""

    def is_set(self) -> bool: ...

    def on_cancel(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Run ``callback`` once when the token is set (at once if it is). Returns a function that unregisters."""
        ...


ChunkSink = Callable[[str], None]
"""Gets each piece of text as it arrives. Must not raise and must not block."""


class LlmClient(Protocol):
    """Anything that can carry out one call. Blocks the calling thread; safe to share between threads."""

    def complete(
        self, request: LlmRequest, *, cancel: CancelToken | None = None, on_chunk: ChunkSink | None = None
    ) -> LlmReply:
        """One call, no retries. Raises :class:`LlmError` and nothing else for what the provider or the network does."""
        ...
