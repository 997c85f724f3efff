"""Which codex a question is about."""

import pytest

from orchestrator.errors import InvalidRequest, NotFound
from orchestrator.prompt.codex_choice import ReadableCodex, SessionCodex, choose_codex

OUTER = ReadableCodex("outer", "/src")
INNER = ReadableCodex("inner", "/src/inner")
OTHER = ReadableCodex("other", "/other")
ALL = (OUTER, INNER, OTHER)


def test_a_named_codex_is_taken() -> None:
    assert choose_codex("other", "/src", ALL) == "other"


def test_none_asks_the_bare_model_whatever_is_loaded() -> None:
    assert choose_codex("none", "/src", ALL) is None
    assert choose_codex("none", "", ()) is None


def test_an_unknown_name_is_refused_with_the_nearest_ones() -> None:
    with pytest.raises(NotFound) as refusal:
        choose_codex("iner", "/src", ALL)
    assert "inner" in refusal.value.hint


@pytest.mark.parametrize(
    ("cwd", "name"),
    [
        ("/src", "outer"),
        ("/src/lib", "outer"),
        ("/src/inner", "inner"),
        ("/src/inner/a/b", "inner"),
        ("/other", "other"),
    ],
)
def test_the_deepest_root_that_holds_the_working_directory_is_taken(cwd: str, name: str) -> None:
    assert choose_codex(None, cwd, ALL) == name


def test_a_single_file_is_not_meant_by_who_stands_in_its_folder() -> None:
    file = ReadableCodex("clients.md", "/src/inner/docs/clients.md")
    assert choose_codex(None, "/src/inner/docs", (*ALL, file)) == "inner"
    assert choose_codex(None, "/src/inner/docs", (file,)) == "clients.md"  # there is no other


def test_a_name_that_only_begins_alike_holds_nothing() -> None:
    with pytest.raises(InvalidRequest):
        choose_codex(None, "/src-old", ALL)


def test_elsewhere_the_only_codex_is_taken() -> None:
    assert choose_codex(None, "/tmp", (OTHER,)) == "other"
    assert choose_codex(None, "", (OTHER,)) == "other"


def test_elsewhere_among_several_the_names_are_told() -> None:
    with pytest.raises(InvalidRequest) as refusal:
        choose_codex(None, "/tmp", ALL)
    assert "inner, other, outer" in refusal.value.hint


def test_without_any_codex_the_way_out_is_told() -> None:
    with pytest.raises(InvalidRequest) as refusal:
        choose_codex(None, "/tmp", ())
    assert "-c none" in refusal.value.hint


def test_a_conversation_keeps_its_codex() -> None:
    assert choose_codex(None, "/other", ALL, SessionCodex("s", "inner")) == "inner"
    assert choose_codex("inner", "/other", ALL, SessionCodex("s", "inner")) == "inner"
    assert choose_codex(None, "/other", ALL, SessionCodex("s", None)) is None


@pytest.mark.parametrize(("asked", "kept"), [("other", "inner"), ("none", "inner"), ("inner", None)])
def test_a_conversation_is_not_moved_to_another_codex(asked: str, kept: str | None) -> None:
    with pytest.raises(InvalidRequest):
        choose_codex(asked, "/src", ALL, SessionCodex("s", kept))


def test_a_conversation_whose_codex_was_dropped_says_so() -> None:
    with pytest.raises(NotFound):
        choose_codex(None, "/src", ALL, SessionCodex("s", "gone"))
