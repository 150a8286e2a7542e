"""Everything this client raises on purpose.

::

    ClientError
    ├── InvalidSubmission (also ValueError)   the job cannot be sent as it is; nothing was sent
    ├── Unreachable (also ConnectionError)    broker or result backend cannot be reached
    ├── NoAnswer (also TimeoutError)          no worker of the backend answered a question in time
    ├── JobTimeout (also TimeoutError)        the job is not closed yet; it goes on
    ├── AnswerRefused (also ValueError)       the inbox does not take this answer; ``code`` says why
    ├── WebhookRefused (also ValueError)      a request that is not, or not provably, a webhook of the backend
    └── BackendFailed                         a worker answered with an error instead of an answer

A job that *ends badly* raises nothing: its result is a wrapper with ``"success": False``.
"""

from __future__ import annotations


class ClientError(Exception):
    """Base of every error of this client."""


class InvalidSubmission(ClientError, ValueError):
    """The job cannot be sent as it is. The message names the field and what would be right."""


class Unreachable(ClientError, ConnectionError):
    """The broker or the result backend cannot be reached. Submitting again with the same id is safe."""


class NoAnswer(ClientError, TimeoutError):
    """No worker answered in time: none is running, or all are busy. A stop that was sent may still be carried out."""


class JobTimeout(ClientError, TimeoutError):
    """The job is not closed yet. It goes on; ask again later."""


class AnswerRefused(ClientError, ValueError):
    """The inbox does not take this answer or dismissal; nothing was changed.

    code: ``INVALID`` (does not fit the question), ``OTHER`` (a different answer was accepted before), ``EXPIRED``,
    ``CLOSED`` (dismissed, or its job has ended), ``FOREIGN`` (somebody else's question) or ``UNKNOWN``.
    """

    def __init__(self, message: str, code: str = "INVALID") -> None:
        super().__init__(message, code)
        self.message = message
        self.code = code

    def __str__(self) -> str:
        return self.message


class WebhookRefused(ClientError, ValueError):
    """The request is no webhook of the backend, or too old to be taken. Answer with 400 and do nothing."""


class BackendFailed(ClientError):
    """A worker answered with an error."""
