"""A person's plain words as an answer: what a command line or a chat has in hand. Pure."""

from __future__ import annotations

import json
from typing import Any, Final

from engines.inbox.answers import InvalidAnswer, Payload, option_ids, shape_of
from engines.inbox.words import InputType
from engines.structured.text import quote

_YES: Final = frozenset({"yes", "y", "true", "ok", "approve", "approved"})
_NO: Final = frozenset({"no", "n", "false", "reject", "rejected"})


def spoken_value(kind: InputType, payload: Payload, words: str) -> dict[str, Any]:
    """The value ``words`` stand for in an answer of this type; to be checked by ``parse_answer``.

    ``yes`` or ``no`` approves or not; an option (its beginning is not enough) is chosen, other words are free text; ids
    in order are separated by commas; a structure is JSON.
    """
    words = words.strip()
    plain = words.casefold()
    match kind:
        case InputType.APPROVAL | InputType.OUTPUT_TEXT | InputType.OUTPUT_IMAGE | InputType.OUTPUT_DOCUMENT:
            if plain in _YES | _NO:
                return {"approved": plain in _YES}
            if kind is not InputType.APPROVAL:
                return {"text": words}
            raise InvalidAnswer(f"answer: found {quote(words)}; yes or no would be right")
        case InputType.DECISION:
            options = option_ids(kind, payload)
            chosen = next((each for each in options if each.casefold() == plain), None)
            return {"chosen": chosen} if chosen else {"freeText": words}
        case InputType.FEEDBACK:
            return {"text": words}
        case InputType.ORDERING:
            return {"orderedIds": [each.strip() for each in words.split(",") if each.strip()]}
        case InputType.STRUCTURE_EDIT:
            try:
                return {"value": json.loads(words)}
            except ValueError as error:
                raise InvalidAnswer(f"answer: is no JSON ({error}); {shape_of(kind)} would be right") from None
