"""Words of code, and their parts."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codex.words import identifiers, query_words, words

BY_THE_BOOK = re.compile(r"[^\W_]\w*|_+[^\W_]\w*")  # what a word is; it takes the square of a run of underscores


@given(st.text(alphabet="ab_7 .é-", max_size=40))
def test_a_word_has_a_letter_or_a_digit_and_takes_its_underscores_along(text: str) -> None:
    assert words(text) == [part for word in BY_THE_BOOK.findall(text) for part in words(f"({word})")]
    assert bool(words(text)) == bool(BY_THE_BOOK.search(text))


def test_underscores_alone_are_no_word_however_many() -> None:
    assert words("_ ___ " + "_" * 20_000) == []
    assert words("__init__") == ["init"]


@pytest.mark.parametrize(
    ("question", "telling"),
    [
        ("Runs task number 7.", ["runs", "task", "number", "7"]),
        ("what does `x` mean", ["mean", "x"]),
        ("where is plan_b made", ["plan_b", "plan", "b", "made"]),
        ("where is plan_a made", ["plan_a", "plan", "made"]),
        ("is it x or y, I ask for a friend's car", ["ask", "friend", "car"]),
        ("don't say it's 'quoted text' of s", ["don", "say", "quoted", "text"]),
        ("the letter é", ["letter", "é"]),
        ("x", ["x"]),
    ],
)
def test_a_digit_is_a_word_and_a_letter_is_one_where_it_was_written_as_code(question: str, telling: list[str]) -> None:
    assert sorted(query_words(question)) == sorted(telling)


def test_identifiers_are_words_whole_and_in_parts() -> None:
    assert words("getUserName HTTP_PORT2 __init__") == [
        *("getusername", "get", "user", "name"),
        *("http_port2", "http", "port"),
        "init",
    ]
    assert identifiers("the os.path and getName of foo_bar, plainly") == ["os.path", "getName", "foo_bar"]


def test_stop_words_leave_the_query_unless_nothing_else_is_left() -> None:
    assert query_words("how does the parser do it") == ["parser"]
    assert query_words("if not") == ["if", "not"]
