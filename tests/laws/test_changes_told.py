"""Laws of what is told of a changed file: the parts, laid over what was told before, are the file as it is now."""

from itertools import pairwise

from hypothesis import assume, given
from hypothesis import strategies as st

from codex.documents import Document, lines
from orchestrator.codices.known_lines import changed_parts, laid_over, parts_of, read_parts

WORDS = st.sampled_from(
    [
        "",
        "import os",
        "class A:",
        "    x = 1",
        "    def f(self):",
        "        return 1",
        "def g():",
        "    return 2",
        "@cached",
    ]
)
TEXTS = st.lists(WORDS, max_size=40).map(lambda kept: "".join(f"{line}\n" for line in kept))


def document(text: str, name: str = "a.py") -> Document:
    return Document(name, text, "d", len(text))


@given(TEXTS, TEXTS, st.sampled_from(["a.py", "notes.txt"]))
def test_the_parts_laid_over_the_file_as_it_was_told_are_the_file_as_it_is(old: str, new: str, name: str) -> None:
    assume(new)
    parts = parts_of(document(old, name), document(new, name))
    told = "\n".join(part.written() for part in parts)
    assert laid_over(old, told) == new
    assert list(read_parts(told)) == parts


@given(TEXTS, TEXTS)
def test_each_part_shows_lines_of_the_file_as_it_is_and_none_touches_another(old: str, new: str) -> None:
    parts = parts_of(document(old), document(new))
    for part in parts:
        assert list(part.text) == lines(new)[part.start : part.end]
    assert all(one.end < other.start for one, other in pairwise(parts))


@given(TEXTS, TEXTS)
def test_what_is_told_is_clearly_shorter_than_the_file_or_it_is_the_file(old: str, new: str) -> None:
    told = changed_parts(document(old), document(new))
    assert told is None or len(told) <= 0.75 * len(new)
