"""Words of code and their parts, and what a question asks for by its words."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codex.words import asked, identifiers, query_words, words

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


@pytest.mark.parametrize(
    ("question", "exact"),
    [
        ('what raises "cannot open file"?', ("cannot open file",)),
        ("what raises “cannot open”?", ("cannot open",)),
        ("what does `a->b` mean beside `plain_name`, `.ret` and `os.path.join()`?", ("a->b",)),
        ("__init__", ("__init__",)),
        ("foo->bar", ("foo->bar",)),
        ("std::move?", ("std::move",)),
        ("--no-color", ("--no-color",)),
        ("->", ("->",)),
        ("get_user", ()),
        ("os.path.join", ()),
        ("how does __init__ work", ()),
        ("it's the user's", ()),
        ('""', ('""',)),
        ("", ()),
    ],
)
def test_a_question_says_what_it_wants_as_it_is(question: str, exact: tuple[str, ...]) -> None:
    assert asked(question).exact == exact


@pytest.mark.parametrize(
    "question",
    [
        "Which tests check this change? Fixed a crash.",
        "which of the existing unit tests cover the parser",
        "What test class verifies redirects?",
        "Where are the parser tests?",
        "Show me all tests for cookies",
        "tests for the cookie parser",
        "Can you find tests of the loader?",
        "How is the loader tested?",
    ],
)
def test_a_question_can_want_tests(question: str) -> None:
    assert asked(question).tests_wanted


@pytest.mark.parametrize(
    "question",
    [
        "Why does the test that checks the handler add one?",
        "Which class runs tests?",
        "Which function tests whether a path is absolute?",
        "Find where tests are collected",
        "The tests for the parser fail, why?",
        "Tests for the parser fail",
        "Fix the crash in the loader. Run the tests.",
        "Fix the crash. The tests that cover it fail.",
        "Where is the code that runs tests?",
        "How are tests collected?",
        "Where is the helper, which the test function uses, defined?",
        "What is the latest contest?",
    ],
)
def test_a_question_that_only_speaks_of_tests_does_not_want_them(question: str) -> None:
    assert not asked(question).tests_wanted


def test_a_question_says_whether_it_is_about_tests() -> None:
    assert [asked(text).tests for text in ("the test of x", "TestCase", "latest pytest news", "contest")] == [
        *(True, True, False, False)
    ]


@pytest.mark.parametrize(
    ("question", "is_phrase"),
    [
        ("the lines of a file are read here.", True),
        ("where are the lines of a file read?", False),
        ("read the lines", False),
        ('all that "lines of a file" says to us', False),
        ("word " * 100, False),
    ],
)
def test_what_may_have_been_copied_has_a_few_words_and_asks_nothing(question: str, is_phrase: bool) -> None:
    assert bool(asked(question).phrase) == is_phrase
