"""The laws of filler: what a text says is still said, what stands between fences stays to the letter, nothing grows."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formatters.blocks import Role
from formatters.context import StateView, TurnView
from orchestrator.prompt.filler import AGAIN, _is_rule, lean, without_filler

WORDS = st.sampled_from(
    ["def", "x = 1", "a  b", "'a  b'", "    four", "\tcode", "====", "- - -", "", " ", "ERROR no route"]
)
LINES = st.builds(
    lambda word, tail, times: f"{word}{tail}\n" * times, WORDS, st.sampled_from(["", "  "]), st.integers(1, 9)
)
LOGS = st.builds(
    lambda seconds, times: "".join(f"2026-01-01 12:00:{(seconds + n) % 60:02} gone\n" for n in range(times)),
    st.integers(0, 59),
    st.integers(1, 9),
)
TEXTS = st.lists(LINES | LOGS, max_size=8).map("".join) | st.text(max_size=200)
FENCED = (
    st.tuples(st.sampled_from(["```", "~~~~"]), TEXTS)
    .filter(lambda one: one[0][:3] not in one[1])
    .map(lambda one: f"{one[0]}py\n{one[1]}\n{one[0]}\n")
)
TIME = re.compile(r"(?:2026-01-01 )?12:00:\d\d ")


@given(TEXTS)
def test_every_word_is_still_there_and_the_text_is_not_longer(text: str) -> None:
    left = without_filler(text)
    assert len(left) <= len(text)
    assert {word for word in TIME.sub("", text).split() if not _is_rule(word)} <= set(left.split())


@given(TEXTS)
def test_what_has_no_filler_is_left_as_it_is(text: str) -> None:
    once = without_filler(text)
    assert without_filler(once) == once


@given(TEXTS, FENCED, TEXTS)
def test_what_stands_between_fences_stays_to_the_letter(before: str, fenced: str, after: str) -> None:
    assert fenced in without_filler(f"said\n{before.replace('`', '').replace('~', '')}\n{fenced}{after}")


@pytest.mark.parametrize("line", ["    x  =  1", "\tx  =  1", "print('a  b')", 'say "a  b"', "run `a  b`"])
def test_blanks_in_code_and_in_quotes_stay(line: str) -> None:
    assert without_filler(line) == line


def test_a_result_that_comes_again_stands_where_it_came_last() -> None:
    result = "".join(f"found in line {number}\n" for number in range(9))
    turns = tuple(TurnView(role=Role.TOOL, text=text) for text in (result, "other", result))
    assert [turn.text for turn in lean(StateView(turns=turns)).turns] == [AGAIN, "other", result]


def test_of_repeated_lines_of_a_log_the_first_stays_whatever_the_time() -> None:
    log = "".join(f"2026-01-01 12:00:{second:02} no route to host\n" for second in range(38))
    assert without_filler(log) == "2026-01-01 12:00:00 no route to host\n… (the line above 37 times more)\n"
