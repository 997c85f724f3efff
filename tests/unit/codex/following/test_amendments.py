import pytest

from codex.documents import Document
from codex.following.amendments import (
    Amendment,
    AmendmentWriter,
    ChangeKind,
    effective,
    new_entries,
    rebase_reason,
)


def document(path: str, digest: str) -> Document:
    """A stand-in for the catalog: a digest is its text, with one word per letter."""
    return Document(path, " ".join(digest), digest, len(digest))


def definitions(old: Document, new: Document) -> str | None:
    return None if "?" in new.text else "~" + " ".join(sorted(set(new.text.split()) - set(old.text.split())))


TELLER = AmendmentWriter(document, lambda text: len(text.split()), definitions, whole_file_tokens=5)


def test_changed_and_added_files_are_told_by_path_and_removed_ones_last() -> None:
    log = new_entries({"a": "1", "b": "1", "c": "1"}, (), {"b": "2", "c": "1", "d": "3"}, TELLER)
    assert log == (
        Amendment(1, "b", ChangeKind.CHANGED, "2", "2"),
        Amendment(2, "d", ChangeKind.ADDED, "3", "3"),
        Amendment(3, "a", ChangeKind.REMOVED, None),
    )


def test_a_second_edit_is_told_again_behind_the_first() -> None:
    log = new_entries({"a": "1"}, (), {"a": "2"}, TELLER)
    assert new_entries({"a": "1"}, log, {"a": "3"}, TELLER) == (Amendment(2, "a", ChangeKind.CHANGED, "3", "3"),)


def test_a_large_file_is_told_by_its_changed_definitions() -> None:
    (only,) = new_entries({"a": "abcdef"}, (), {"a": "abcdez"}, TELLER)
    assert only == Amendment(1, "a", ChangeKind.CHANGED, "abcdez", "~z", whole=False)


def test_definitions_are_relative_to_what_was_told_last() -> None:
    first = new_entries({"a": "abcdef"}, (), {"a": "abcdez"}, TELLER)
    (second,) = new_entries({"a": "abcdef"}, first, {"a": "abcdyz"}, TELLER)
    assert second.text == "~y"


def test_a_large_file_whose_change_has_no_definitions_is_told_whole() -> None:
    (only,) = new_entries({"a": "abcdef"}, (), {"a": "abcde?"}, TELLER)
    assert (only.text, only.whole) == ("a b c d e ?", True)


def test_a_file_that_only_moved_is_told_without_its_text() -> None:
    assert new_entries({"old": "abc"}, (), {"new": "abc"}, TELLER) == (
        Amendment(1, "new", ChangeKind.MOVED, "abc", source="old"),
        Amendment(2, "old", ChangeKind.REMOVED, None),
    )


def test_a_copy_is_no_move() -> None:
    (only,) = new_entries({"old": "abc"}, (), {"old": "abc", "new": "abc"}, TELLER)
    assert (only.kind, only.text) == (ChangeKind.ADDED, "a b c")


def test_a_file_that_is_as_it_was_is_told_to_be_restored() -> None:
    log = new_entries({"a": "1"}, (), {"a": "2"}, TELLER)
    assert new_entries({"a": "1"}, log, {"a": "1"}, TELLER) == (Amendment(2, "a", ChangeKind.RESTORED, "1"),)


def test_nothing_new_is_nothing_to_tell() -> None:
    log = new_entries({"a": "1"}, (), {"a": "2"}, TELLER)
    assert new_entries({"a": "1"}, log, effective({"a": "1"}, log), TELLER) == ()


@pytest.mark.parametrize(
    ("amended", "to_compute", "questions", "due"),
    [
        (0, 0, 99, False),
        (1_000, 10_000, 1, False),
        (1_001, 10_000, 1, True),
        (500, 4_000, 8, False),
        (500, 4_000, 9, True),
    ],
)
def test_when_a_new_generation_pays(amended: int, to_compute: int, questions: int, due: bool) -> None:
    assert bool(rebase_reason(10_000, amended, to_compute, questions, share=0.10)) is due


def test_a_log_that_does_not_fit_calls_for_a_new_generation_and_is_not_measured_by_a_share() -> None:
    reason = rebase_reason(457, 21_330, 10**6, 0, 0.5, overfull=True)
    assert reason == "21,330 amended tokens behind 457 are more than fits"
    assert rebase_reason(10_000, 50, 10**6, 0, 0.004) == "50 amended tokens are more than 0.4% of 10,000"
