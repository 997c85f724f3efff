"""What a question wants, from its words alone."""

import pytest

from codex.words import asked


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
