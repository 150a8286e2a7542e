"""Every exception the engines raise on purpose.

::

    EngineError
    ├── InvalidParams      a caller's parameters are wrong: names the field, what was found, what would be right
    ├── InvalidSchema      a caller's JSON Schema is refused: one problem per JSON pointer
    ├── RecipeError        a recipe is malformed, or refers to something unknown
    │   └── UnknownRecipe  there is none of that name
    ├── TemplateError      a recipe's template does not compile or exceeds its limits
    └── LlmError           one provider call failed; ``kind`` decides what happens next (see engines.llm.policy)

Control flow (a turn that lost its lease) is not an error and lives in ``models.store``.
"""

from __future__ import annotations

from typing import Any


class EngineError(Exception):
    """Base of every error raised by the engines. Pickles by its constructor arguments."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message

    def __reduce__(self) -> tuple[Any, ...]:
        # Exceptions pickle as cls(*args); subclasses with more arguments than a message would break a result backend or
        # a process pool, so they are rebuilt from their attributes instead.
        return (_rebuild, (type(self), self.message, self.__dict__.copy()))


def _rebuild(cls: type[EngineError], message: str, attributes: dict[str, Any]) -> EngineError:
    error = cls.__new__(cls)
    Exception.__init__(error, message)
    error.__dict__.update(attributes)
    return error


class InvalidParams(EngineError):
    """A caller's parameters are wrong. ``field`` names the one at fault."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field


class InvalidSchema(EngineError):
    """A caller's JSON Schema is refused. ``problems`` holds ``(json_pointer, message)`` pairs, at least one."""

    def __init__(self, problems: tuple[tuple[str, str], ...]) -> None:
        super().__init__("; ".join(f"{pointer or '/'}: {text}" for pointer, text in problems))
        self.problems = problems


class RecipeError(EngineError):
    """A recipe cannot be used: unknown name, malformed file, unknown key. The message says what would be right."""


class UnknownRecipe(RecipeError):
    """There is no recipe of this name. The message says which names are near."""


class TemplateError(EngineError):
    """A recipe's template does not compile, uses something forbidden, or runs over its size or time limit."""
