"""The sizes of a memory's text: its first sentence in a line, and as many whole ones as fit."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.karma.records import DecisionOutcome
from orchestrator.karma.sizes import MICRO, SUMMARY, in_line, micro_of, summary_of, tokens_of


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("The cache is Redis. It expires keys.", "The cache is Redis."),
        ("How to release: 1. Tag it. 2. Push it.", "How to release: 1. Tag it."),
        ("Steps: 10. Rest.", "Steps: 10. Rest."),
        ("The port is 6379. It is fixed.", "The port is 6379."),
        ("a " * 100, "a " * 39 + "a…"),
        ("", ""),
    ],
)
def test_a_line_is_the_first_sentence_and_a_steps_number_ends_none(text: str, line: str) -> None:
    assert micro_of(text, 1.0, None) == line


def test_what_qualifies_a_memory_stands_behind_its_line() -> None:
    assert micro_of("Use SQLite. It is one file.", 0.8, DecisionOutcome.SUCCESS) == "Use SQLite. [success, 80% sure]"


@given(st.text(max_size=2_000), st.integers(2, 200))
def test_no_size_is_longer_than_it_may_be(text: str, most: int) -> None:
    assert len(in_line(text, most)) <= most
    assert len(micro_of(text, 1.0, None)) <= MICRO
    assert len(summary_of(text)) <= SUMMARY
    assert in_line(text) == " ".join(text.split())
    assert 4 * (tokens_of(text) - 1) < len(text) <= 4 * tokens_of(text) or not text
