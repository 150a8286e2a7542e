"""Submit jobs to a vancetope backend from any Python program that can use Celery.

::

    from vancetope_client import Client

    with Client("redis://:password@host:6379/0") as client:
        job = client.jeltz("Ada paid 12 EUR", {"type": "object", "properties": {"eur": {"type": "number"}}})
        print(job.id, job.result(timeout=60))
"""

from vancetope_client.client import Client
from vancetope_client.errors import (
    AnswerRefused,
    BackendFailed,
    ClientError,
    InvalidSubmission,
    JobTimeout,
    NoAnswer,
    Unreachable,
    WebhookRefused,
)
from vancetope_client.job import Job
from vancetope_client.watching import Picture
from vancetope_client.webhooks import verify_webhook

__all__ = [
    "AnswerRefused",
    "BackendFailed",
    "Client",
    "ClientError",
    "InvalidSubmission",
    "Job",
    "JobTimeout",
    "NoAnswer",
    "Picture",
    "Unreachable",
    "WebhookRefused",
    "verify_webhook",
]
