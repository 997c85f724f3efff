"""Words of code, and their parts."""

import re

from hypothesis import given
from hypothesis import strategies as st

from codex.identifiers import words

BY_THE_BOOK = re.compile(r"[^\W_]\w*|_+[^\W_]\w*")  # what a word is; it takes the square of a run of underscores


@given(st.text(alphabet="ab_7 .é-", max_size=40))
def test_a_word_has_a_letter_or_a_digit_and_takes_its_underscores_along(text: str) -> None:
    assert words(text) == [part for word in BY_THE_BOOK.findall(text) for part in words(f"({word})")]
    assert bool(words(text)) == bool(BY_THE_BOOK.search(text))


def test_underscores_alone_are_no_word_however_many() -> None:
    assert words("_ ___ " + "_" * 20_000) == []
    assert words("__init__") == ["init"]
