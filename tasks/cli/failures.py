"""What a command's end means to the shell, and the one line a person gets instead of a traceback.

=====  ==========================================================================
code   meaning
=====  ==========================================================================
0      done; for ``run`` and ``result``: the result is a success
1      the result is a failure, or a check found a problem
2      the command line or its input is wrong
3      not configured, or PostgreSQL, Redis or the workers cannot be reached
4      not finished yet, or not within ``--timeout``
130    interrupted with Ctrl-C
=====  ==========================================================================
"""

from __future__ import annotations

import sys

import click

from tasks.logs import Redactor

FAILED = 1
USAGE = 2
UNREACHABLE = 3
UNFINISHED = 4
INTERRUPTED = 130

_SCHEMA_MISSING = "the database has no (or older) tables of vancetope: run `vancetope migrate`"

# By name, so that explaining an error imports nothing: a class whose module was never loaded cannot have been raised.
_KNOWN = (
    ("tasks.settings", "SettingsError", UNREACHABLE),
    ("tasks.submission", "SubmissionError", USAGE),
    ("engines.errors", "EngineError", USAGE),
    ("models.store.clean", "NotStorable", USAGE),
    ("tasks.dev.process", "StackError", UNREACHABLE),
    ("models.store.database", "DatabaseUnavailable", UNREACHABLE),
    ("redis.exceptions", "RedisError", UNREACHABLE),
    ("kombu.exceptions", "OperationalError", UNREACHABLE),
)
_WHERE = {
    "DatabaseUnavailable": "PostgreSQL cannot be reached (VANCETOPE_DATABASE_URL): ",
    "RedisError": "Redis cannot be reached (VANCETOPE_REDIS_URL): ",
    "OperationalError": "the broker cannot be reached (VANCETOPE_REDIS_URL): ",
}


class CommandError(click.ClickException):
    """Ends a command with one clear line and an exit code of the table above."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(Redactor()(message))
        # Click declares it for the class and reads it from the instance.
        self.exit_code = exit_code  # type: ignore[misc]


def explained(error: BaseException) -> CommandError | None:
    """The line and code for an error that is a person's or the installation's doing; ``None`` for one that is ours."""
    if _tables_missing(error):
        return CommandError(_SCHEMA_MISSING, UNREACHABLE)
    for module, name, code in _KNOWN:
        kind = getattr(sys.modules.get(module), name, None)
        if kind is not None and isinstance(error, kind):
            return CommandError(_WHERE.get(name, "") + (str(error) or type(error).__name__), code)
    return None


def _tables_missing(error: BaseException) -> bool:
    errors = sys.modules.get("psycopg.errors")
    if errors is None:
        return False
    missing = (errors.UndefinedTable, errors.UndefinedColumn)
    return isinstance(error, missing) or isinstance(getattr(error, "orig", None), missing)
