"""Errors of Celery, kombu and the Redis library as this client's own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kombu.exceptions import OperationalError

from vancetope_client.errors import BackendFailed, NoAnswer, Unreachable


@contextmanager
def translated() -> Iterator[None]:
    """Errors of Celery, kombu and the Redis library as this client's own."""
    try:
        yield
    except (BackendFailed, NoAnswer):
        raise
    except (OperationalError, OSError) as error:
        raise Unreachable(f"the backend cannot be reached: {_first_line(error)}") from error
    except Exception as error:
        # The Redis library's errors by their home: the import of another backend's library is not ours to demand.
        if type(error).__module__.partition(".")[0] == "redis":
            raise Unreachable(f"the backend cannot be reached: {_first_line(error)}") from error
        raise BackendFailed(f"{type(error).__name__}: {_first_line(error)}") from error


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
