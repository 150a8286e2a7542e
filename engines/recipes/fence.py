"""Fences around text that is data: web pages, documents, replies of other recipes, what users typed.

A fence has a random token in it, new for every call, so nobody outside can write one that looks real. On top of that,
whatever in the text resembles a fence or the frame of the plan view is changed to look-alikes: models are easily
impressed.
"""

from __future__ import annotations

import re
from functools import lru_cache

from engines.structured.text import one_line

MIN_TOKEN_CHARS = 8
# Zero-width characters between the brackets, full-width brackets: a model reads all of these as a marker.
_INVISIBLE = "\u200b\u200c\u200d\u2060\ufeff\u00ad"
_OPENING = re.compile(rf"(?:[<＜﹤][{_INVISIBLE}]*){{3,}}")
_CLOSING = re.compile(rf"(?:[>＞﹥][{_INVISIBLE}]*){{3,}}")
_FRAME = re.compile(r"([┌└├])[ \t]*[─━]+")
_HERE = re.compile(r"\[\s*(you\s+are\s+here)\s*\]", re.IGNORECASE)
# Without one of these characters nothing below can match; most texts have none.
_SUSPECT = re.compile(r"[<＜﹤>＞﹥┌└├\[]")
_LABEL = re.compile(r"[^\w .,:()'/-]+")


def fence(text: str, label: str, token: str) -> str:
    """``text`` between one opening and one closing marker. ``token``: random for each call, letters and digits."""
    if len(token) < MIN_TOKEN_CHARS or not (token.isascii() and token.isalnum()):
        raise ValueError(f"a fence token needs at least {MIN_TOKEN_CHARS} letters or digits")
    shown = " ".join(_LABEL.sub(" ", label).split())[:80]
    inside = re.sub(re.escape(token), "…", defuse(text), flags=re.IGNORECASE)
    return f"<<< {shown} [{token}]\n{inside}\n[{token}] end >>>"


def defuse(text: str) -> str:
    """``text`` with everything that imitates a marker or the plan frame made harmless and still readable."""
    if _SUSPECT.search(text) is None:
        return text
    text = _OPENING.sub(lambda found: "‹" * _brackets(found.group(), "<＜﹤"), text)
    text = _CLOSING.sub(lambda found: "›" * _brackets(found.group(), ">＞﹥"), text)
    text = _FRAME.sub("+--", text)
    return _HERE.sub(r"(\1)", text)


def flattened(text: str, limit: int) -> str:
    """``text`` on one line, harmless inside the frame of the plan view, of at most ``limit`` characters."""
    # Only the beginning can be shown: a text of megabytes is not worth a walk.
    return _flattened(text[: limit * 20], limit)


# Every turn of a tree shows the goals and results of the same neighbours.
@lru_cache(maxsize=2048)
def _flattened(text: str, limit: int) -> str:
    clean = defuse(one_line(" ".join(text.split()))).replace("│", "|")
    return clean if len(clean) <= limit else f"{clean[: limit - 1].rstrip()}…"


def _brackets(text: str, kinds: str) -> int:
    return sum(character in kinds for character in text)
