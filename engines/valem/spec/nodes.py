"""Reading one JSON object of a spec: typed access to its keys, and failures that name the place."""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import NoReturn, TypeVar

from engines.errors import EngineError
from engines.structured.text import describe, quote, quote_all
from engines.valem.spec.records import Json

T = TypeVar("T")
E = TypeVar("E", bound=StrEnum)


class SpecParseError(EngineError):
    """A spec cannot be read. ``location`` is the place (``derivations[2].expr``), ``detail`` what is wrong there."""

    def __init__(self, location: str, detail: str) -> None:
        super().__init__(f"{location or 'spec'}: {detail}")
        self.location = location
        self.detail = detail


class Node:
    """A JSON object at ``location``. Each reader returns ``None`` (or nothing) for a key that is absent or null."""

    def __init__(self, data: object, location: str) -> None:
        self.location = location
        if not isinstance(data, Mapping):
            raise SpecParseError(location, f"must be an object, not {describe(data)}")
        self._data: Mapping[str, Json] = data

    def at(self, key: str) -> str:
        """The location of ``key``."""
        return f"{self.location}.{key}" if self.location else key

    def fail(self, key: str, detail: str) -> NoReturn:
        raise SpecParseError(self.at(key), detail)

    def get(self, key: str) -> Json:
        return self._data.get(key)

    def text(self, key: str, *, as_json: bool = False) -> str | None:
        """``as_json``: numbers, booleans and arrays are taken as their JSON text."""
        value = self.get(key)
        if as_json and isinstance(value, int | float | list):
            return json.dumps(value, ensure_ascii=False)
        if value is not None and not isinstance(value, str):
            self.fail(key, f"must be a text, not {describe(value)}")
        return value

    def required_text(self, key: str, *, as_json: bool = False) -> str:
        value = self.text(key, as_json=as_json)
        if value is None:
            self.fail(key, "is missing")
        return value

    def number(self, key: str) -> int | float | None:
        value = self.get(key)
        if value is None:
            return None
        is_finite = math.isfinite(value) if isinstance(value, float) else isinstance(value, int)
        if isinstance(value, bool) or not is_finite:
            self.fail(key, f"must be a number, not {describe(value)}")
        found: int | float = value
        return found

    def choice(self, key: str, choices: type[E]) -> E | None:
        value = self.text(key)
        if value is None:
            return None
        try:
            return choices(value)
        except ValueError:
            near = difflib.get_close_matches(value, [choice.value for choice in choices], n=1)
            meant = f"did you mean {quote(near[0])}?" if near else f"it is one of {quote_all(choices)}"
            self.fail(key, f"{quote(value)} is unknown: {meant}")

    def mapping(self, key: str) -> Mapping[str, Json] | None:
        value = self.get(key)
        if value is not None and not isinstance(value, Mapping):
            self.fail(key, f"must be an object, not {describe(value)}")
        return value

    def texts(self, key: str) -> dict[str, str]:
        """An object whose values are texts."""
        node = Node(self.mapping(key) or {}, self.at(key))
        return {name: node.required_text(name) for name in node._data}

    def items(self, key: str) -> list[Json] | None:
        value = self.get(key)
        if value is not None and not isinstance(value, list):
            self.fail(key, f"must be a list, not {describe(value)}")
        return value

    def each(self, key: str, read: Callable[[object, str], T]) -> tuple[T, ...]:
        """Every item of a list, read at its own location."""
        return tuple(read(item, f"{self.at(key)}[{at}]") for at, item in enumerate(self.items(key) or ()))
