"""Every exception class of both SDKs and of the HTTP client below them becomes an LlmError: none leaks."""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
from collections.abc import Iterator
from typing import Any

import anthropic
import anthropic._error_classes
import httpx2
import openai
import pytest

from engines.llm import anthropic as anthropic_wire
from engines.llm import openai as openai_wire
from engines.llm.base import ErrorKind, LlmError, StructuredPath

REQUEST = httpx2.Request("POST", "http://provider/v1")


def descendants(root: type[BaseException]) -> Iterator[type[BaseException]]:
    for child in root.__subclasses__():
        yield child
        yield from descendants(child)


def sdk_classes(module: Any, root: type[BaseException]) -> list[type[BaseException]]:
    """Every exception of the SDK: descendants of its base, and whatever else it exports that is an exception."""
    # Not everything there is: both SDKs load their types lazily, and all of them would take seconds.
    for info in pkgutil.iter_modules(module.__path__):
        if info.name in ("_exceptions", "_response", "_legacy_response", "_streaming", "_error_classes"):
            importlib.import_module(f"{module.__name__}.{info.name}")
    exported = [getattr(module, name) for name in dir(module) if name.endswith(("Error", "Exception"))]
    found = {root, *descendants(root), *exported}
    return sorted(
        (cls for cls in found if cls.__module__.startswith(module.__name__)), key=lambda cls: cls.__qualname__
    )


def http_classes() -> list[type[BaseException]]:
    exported = [getattr(httpx2, name) for name in httpx2.__all__]
    return [item for item in exported if inspect.isclass(item) and issubclass(item, Exception)]


def make(cls: type[BaseException], status: int = 400, body: Any = None) -> BaseException:
    """An instance as the SDK would raise it, whatever its constructor asks for."""
    code = getattr(cls, "status_code", None)
    response = httpx2.Response(code if isinstance(code, int) else status, request=REQUEST)
    known: dict[str, Any] = {
        "response": response,
        "request": REQUEST,
        "body": body,
        "completion": None if "Filter" in cls.__name__ else type("Completion", (), {"usage": None})(),
        "unsent_messages": [],
    }
    arguments: dict[str, Any] = {}
    for name, parameter in list(inspect.signature(cls.__init__).parameters.items())[1:]:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        if name in known:
            arguments[name] = known[name]
        elif parameter.default is parameter.empty:
            arguments[name] = "message"
    try:
        return cls(**arguments)
    except (TypeError, AttributeError):  # a constructor that wants real objects: the class alone decides
        bare = cls.__new__(cls)
        BaseException.__init__(bare, "message")
        return bare


OPENAI = sdk_classes(openai, openai.OpenAIError)
ANTHROPIC = sdk_classes(anthropic, anthropic.AnthropicError)


def test_the_lists_are_not_empty() -> None:
    assert len(OPENAI) > 20
    assert len(ANTHROPIC) > 150
    assert len(http_classes()) > 20


@pytest.mark.parametrize("cls", OPENAI, ids=lambda cls: cls.__qualname__)
def test_every_openai_exception_is_mapped(cls: type[BaseException]) -> None:
    assert isinstance(openai_wire.map_error(make(cls)), LlmError)


@pytest.mark.parametrize("cls", ANTHROPIC, ids=lambda cls: cls.__qualname__)
def test_every_anthropic_exception_is_mapped(cls: type[BaseException]) -> None:
    assert isinstance(anthropic_wire.map_error(make(cls)), LlmError)


@pytest.mark.parametrize("cls", http_classes(), ids=lambda cls: cls.__qualname__)
@pytest.mark.parametrize("wire", [openai_wire, anthropic_wire])
def test_every_http_exception_is_mapped(cls: type[BaseException], wire: Any) -> None:
    assert isinstance(wire.map_error(make(cls)), LlmError)


@pytest.mark.parametrize("error", [KeyError("x"), TypeError("x"), AssertionError(), AttributeError("x")])
@pytest.mark.parametrize("wire", [openai_wire, anthropic_wire])
def test_our_own_bugs_are_not_dressed_up_as_provider_failures(error: Exception, wire: Any) -> None:
    assert wire.map_error(error) is None


@pytest.mark.parametrize(
    ("cls", "kind"),
    [
        (openai.APITimeoutError, ErrorKind.TIMEOUT),
        (openai.APIConnectionError, ErrorKind.TRANSPORT),
        (openai.RateLimitError, ErrorKind.RATE_LIMITED),
        (openai.AuthenticationError, ErrorKind.AUTH),
        (openai.PermissionDeniedError, ErrorKind.AUTH),
        (openai.BadRequestError, ErrorKind.BAD_REQUEST),
        (openai.NotFoundError, ErrorKind.BAD_REQUEST),
        (openai.ConflictError, ErrorKind.TRANSPORT),
        (openai.ContentFilterFinishReasonError, ErrorKind.CONTENT_FILTER),
        (openai.APIResponseValidationError, ErrorKind.TRANSPORT),
        (openai.OpenAIError, ErrorKind.NOT_CONFIGURED),
    ],
)
def test_openai_kinds(cls: type[BaseException], kind: ErrorKind) -> None:
    error = openai_wire.map_error(make(cls))
    assert error is not None
    assert error.kind is kind


@pytest.mark.parametrize(
    ("cls", "kind"),
    [
        (anthropic.APITimeoutError, ErrorKind.TIMEOUT),
        (anthropic.APIConnectionError, ErrorKind.TRANSPORT),
        (anthropic.RateLimitError, ErrorKind.RATE_LIMITED),
        (anthropic.AuthenticationError, ErrorKind.AUTH),
        (anthropic.PaymentRequiredError, ErrorKind.AUTH),
        (anthropic.OverloadedError, ErrorKind.OVERLOADED),
        (anthropic.ServiceUnavailableError, ErrorKind.OVERLOADED),
        (anthropic.GatewayTimeoutError, ErrorKind.TIMEOUT),
        (anthropic.ContentTooLargeError, ErrorKind.REQUEST_TOO_LARGE),
        (anthropic.CredentialsError, ErrorKind.NOT_CONFIGURED),
        (anthropic.RetryableError, ErrorKind.TRANSPORT),
    ],
)
def test_anthropic_kinds(cls: type[BaseException], kind: ErrorKind) -> None:
    error = anthropic_wire.map_error(make(cls))
    assert error is not None
    assert error.kind is kind


def test_anthropic_error_codes_are_read_from_the_details() -> None:
    details = {"error_code": "enforced_spend_limit_reached"}
    body = {"type": "error", "error": {"type": "rate_limit_error", "message": "limit", "details": details}}
    response = httpx2.Response(429, request=REQUEST, content=json.dumps(body))
    raised = anthropic._error_classes.make_status_error("limit", body=body, response=response)
    error = anthropic_wire.map_error(raised)
    assert error is not None
    assert error.kind is ErrorKind.AUTH


@pytest.mark.parametrize(
    "cause", [httpx2.ConnectTimeout("slow"), httpx2.ConnectError("refused"), httpx2.PoolTimeout("full")]
)
def test_a_request_that_was_never_sent_does_not_blame_the_structured_path(cause: Exception) -> None:
    raised = openai.APIConnectionError(request=REQUEST)
    raised.__cause__ = cause
    error = openai_wire.map_error(raised, path=StructuredPath.STRICT)
    assert error is not None
    assert error.path is None


def test_a_silent_provider_does() -> None:
    raised = openai.APITimeoutError(request=REQUEST)
    raised.__cause__ = httpx2.ReadTimeout("silent")
    error = openai_wire.map_error(raised, path=StructuredPath.STRICT)
    assert error is not None
    assert (error.kind, error.path) == (ErrorKind.TIMEOUT, StructuredPath.STRICT)
