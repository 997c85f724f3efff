"""When the code that a memory is about is another one."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as some

from orchestrator.karma.records import CodeCitation
from orchestrator.karma.staleness import change_of, digest_of

TEXT = "one\ntwo\nthree\nfour\n"
LINES = replace(CodeCitation("a.py", 2, 3), digest=digest_of(TEXT, CodeCitation("a.py", 2, 3)) or "")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (TEXT, ""),
        ("zero\none\ntwo\nthree\n", ""),
        ("two  \nthree\n", ""),
        ("one\ntwo\nTHREE\n", "a.py:2-3 changed"),
        ("two\nbetween\nthree\n", "a.py:2-3 changed"),
        ("", "a.py:2-3 changed"),
        (None, "a.py is gone"),
    ],
)
def test_lines_that_stand_or_moved_are_no_change_and_others_are(text: str | None, why: str) -> None:
    assert change_of(LINES, text) == why


def test_a_whole_file_is_another_with_any_line_of_it() -> None:
    whole = replace(CodeCitation("a.py"), digest=digest_of(TEXT, CodeCitation("a.py")) or "")
    assert change_of(whole, TEXT) == ""
    assert change_of(whole, TEXT + "five\n") == "a.py changed"


def test_of_a_citation_without_a_digest_nothing_is_known() -> None:
    assert change_of(CodeCitation("a.py", 2, 3), "other") == ""


@pytest.mark.parametrize("lines", [(3, 2), (4, 9)])
def test_lines_that_are_not_there_have_no_digest(lines: tuple[int, int]) -> None:
    assert digest_of(TEXT, CodeCitation("a.py", *lines)) is None


@given(some.lists(some.text("abc \t", max_size=4), min_size=1, max_size=8), some.data())
def test_inserting_lines_elsewhere_never_makes_cited_lines_suspect(lines: list[str], data: some.DataObject) -> None:
    start = data.draw(some.integers(1, len(lines)))
    cited = CodeCitation("a.py", start, data.draw(some.integers(start, len(lines))))
    text = "\n".join(lines) + "\n"
    kept = replace(cited, digest=digest_of(text, cited) or "")
    before, after = (
        data.draw(some.lists(some.just("new"), max_size=3)),
        data.draw(some.lists(some.just("new"), max_size=3)),
    )
    assert change_of(kept, "\n".join([*before, *lines, *after]) + "\n") == ""
