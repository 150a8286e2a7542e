"""Document paths: F6 (traversal), F7 (reserved prefixes by another spelling), row 133."""

from __future__ import annotations

import copy
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.documents.errors import BadPath
from engines.documents.paths import MAX_PATH_BYTES, MAX_SEGMENT_BYTES, RESERVED_PREFIXES, check_writable, normalise_path

PIECES = st.sampled_from(
    [
        *(
            "..",
            ".",
            "/",
            "\\",
            "%2e",
            "%2f",
            "%5c",
            "%25",
            "%",
            "\u2024",
            "\u2025",
            "\uff0f",
            "\uff3c",
            "\uff0e",
            "C:",
        ),
        *(
            "_vance",
            "\uff3fvance",
            "recipes",
            "RECIPES",
            " ",
            "a",
            "b.md",
            "con",
            "~",
            "\u200b",
            "\0",
            "\u00e9",
            "\ufb01",
        ),
        *("\u2028", "\ud800", "...", "%c3%a9", "\ufe0f", "\u1680", "http://", "\u212a"),
    ]
)
SPELLINGS = st.lists(PIECES, max_size=12).map("".join) | st.text(max_size=40)


@pytest.mark.parametrize(
    ("spelling", "reason"),
    [
        ("../x", "leads out"),
        ("/etc/x", "absolute"),
        ("a/../../x", "leads out"),
        ("a\\..\\..\\x", "leads out"),
        ("%2e%2e/x", "leads out"),
        ("%252e%252e%252fx", "leads out"),
        ("a/\u2024\u2024/x/../../..", "leads out"),
        ("\u2024\u2024/x", "leads out"),
        ("\u2025/x", "leads out"),
        ("\uff0e\uff0e\uff0fx", "leads out"),
        (".. /x", "leads out"),
        ("x\0.md", "control character (U+0000)"),
        ("x%00.md", "control character (U+0000)"),
        ("x\n.md", "control character (U+000A)"),
        ("x\u202egpj.md", "invisible character (U+202E)"),
        ("x\u2028y", "line separator"),
        ("x\ud800", "surrogate"),
        ("C:\\x", "drive"),
        ("\uff23\uff1ax", "drive"),
        ("a/c:/x", "drive"),
        ("http://example.org/x", "URL"),
        ("~/x", "home"),
        ("", "empty"),
        ("  ", "empty"),
        (".", "empty"),
        ("./", "empty"),
        ("a/..", "empty"),
        ("...", "dots only"),
        ("a/. ./b", "dots only"),
        ("\\\\server\\share", "absolute"),
        ("%2fetc%2fpasswd", "absolute"),
        ("\uff0fetc", "absolute"),
        ("x" * 5000, "longer"),
        ("ab/" * 400 + "x", "longer"),
        ("x" * 256, "part of the path is longer"),
        ("\u00e4" * 128, "part of the path is longer"),
        ("con", "device"),
        ("a/CON.md", "device"),
        ("aux/x", "device"),
        ("lpt\u00b9.txt", "device"),
        ("nul .md", "device"),
        ("%ff", "UTF-8"),
        ("%" + "25" * 20 + "2e", "too many times"),
    ],
)
def test_f6_refused_with_a_reason(spelling: str, reason: str) -> None:
    with pytest.raises(BadPath) as caught:
        normalise_path(spelling)
    assert reason in caught.value.reason
    assert caught.value.reason.isprintable()  # it ends up in logs and prompts
    with pytest.raises(BadPath):
        check_writable(spelling)


def test_what_is_no_text_is_no_path() -> None:
    with pytest.raises(BadPath, match="must be a text"):
        normalise_path(None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("spelling", "path"),
    [
        ("notes/x.md", "notes/x.md"),
        ("./notes//x.md/", "notes/x.md"),
        ("notes/../other/./x.md", "other/x.md"),
        ("a\\b\\c.md", "a/b/c.md"),
        ("a%2fb%20c.md", "a/b c.md"),
        ("  notes / x.md  ", "notes/x.md"),
        ("notes./x.md. .", "notes/x.md"),
        ("\uff21\ufb01.md", "Afi.md"),
        ("100% growth.md", "100% growth.md"),
        ("contract/console.md", "contract/console.md"),
        ("com/compact.md", "com/compact.md"),
        ("a..b/..c/x...y", "a..b/..c/x...y"),
        ("Re: plan.md", "Re: plan.md"),
        ("e\u0301.md", "\u00e9.md"),
    ],
)
def test_one_spelling_for_each_path(spelling: str, path: str) -> None:
    assert normalise_path(spelling) == path


@pytest.mark.parametrize(
    "spelling",
    [
        *("_vance/a", "./_vance/a", "notes/../_vance/a", "//_vance/a", "/_vance/a", "_VANCE/a", "\uff3fvance/a"),
        *(
            "_vance%2fa",
            "_vance\\a",
            "recipes",
            "recipes/",
            "_marvin-drafts/x",
            "Recipes/x.yaml",
            "_vance./a",
            "_vance /a",
        ),
        *("_van\u200bce/a", "_van\ufe0fce/a", "_van\u034fce", "%5fvance/a", "%255fvance/a", "recipe\u017f/a"),
        *("_vance", "a/b/../../_USER/x", "_\uff53lart/x"),
        *(f"{prefix}/x" for prefix in RESERVED_PREFIXES),
    ],
)
def test_f7_reserved_in_every_spelling(spelling: str) -> None:
    with pytest.raises(BadPath):
        check_writable(spelling)


def test_f7_the_reason_names_the_prefix() -> None:
    with pytest.raises(BadPath, match=r"reserved: documents below _vance/"):
        check_writable("notes/../_VANCE/a")


def test_the_reserved_prefixes_of_the_specification() -> None:
    named = "recipes/ _user/ _vance/ _slart/ _tenant/ _zaphod-drafts/ _vogon-drafts/ _marvin-drafts/"
    assert {f"{prefix}/" for prefix in RESERVED_PREFIXES} == set(named.split())


@pytest.mark.parametrize(
    "path", ["my_vance/a", "recipes-old/a", "recipes.md", "notes/_vance/a", "notes/recipes", "_vances/a", "_private/a"]
)
def test_f7_neighbours_are_allowed(path: str) -> None:
    assert check_writable(path) == path


def test_a_reserved_path_can_still_be_named_for_reading() -> None:
    assert normalise_path("_marvin-drafts/1/0__x.md") == "_marvin-drafts/1/0__x.md"


@given(SPELLINGS)
def test_normalising_is_idempotent_and_stays_inside(spelling: str) -> None:
    try:
        path = normalise_path(spelling)
    except BadPath:
        return
    segments = path.split("/")
    assert normalise_path(path) == path
    assert not {"", ".", ".."} & set(segments)
    assert "\\" not in path
    assert unicodedata.is_normalized("NFKC", path)
    assert not any(unicodedata.category(character)[0:2] in ("Cc", "Cf", "Cs") for character in path)
    assert len(path.encode()) <= MAX_PATH_BYTES
    assert max(len(segment.encode()) for segment in segments) <= MAX_SEGMENT_BYTES


@given(SPELLINGS)
def test_nothing_reserved_is_ever_writable(spelling: str) -> None:
    try:
        path = check_writable(spelling)
    except BadPath:
        return
    assert path.split("/")[0].casefold() not in RESERVED_PREFIXES
    assert check_writable(path) == path


def test_the_error_can_be_rebuilt() -> None:
    error = copy.copy(BadPath("no"))
    assert (type(error), error.reason) == (BadPath, "no")
