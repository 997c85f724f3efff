"""Laws of the texts with needles, of their questions, and of what answers say of a model's length."""

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.model.needles import (
    DEPTHS,
    KINDS,
    NEAR,
    PASSING,
    Line,
    filler,
    judged,
    lengths_for,
    needles,
    places,
    woven,
)

WINDOWS = st.integers(2_560, 200_000)
LENGTHS = st.just((1_000, 2_000, 3_000, 4_000))
CELLS = [(length, kind, depth) for length in (1_000, 2_000, 3_000, 4_000) for kind in KINDS for depth in DEPTHS]
RESULTS = st.fixed_dictionaries({cell: st.booleans() for cell in CELLS})


def line(text):
    """A tokenizer: words, and each sign by itself."""
    return Line(text, b"\0\0\0\0" * (len(text.split()) + sum(not sign.isalnum() and sign != " " for sign in text)))


def haystack(lengths):
    asked = needles(lengths)
    between = (line(text) for text in filler())
    return asked, woven(between, {place: [line(text) for text in some] for place, some in asked.lines.items()})


@given(WINDOWS)
def test_six_lengths_rise_in_even_steps_to_the_longest_text_that_the_window_holds(window):
    lengths = lengths_for(window)
    steps = [longer / shorter for shorter, longer in pairwise(lengths)]
    assert len(lengths) == 6
    assert max(steps) - min(steps) < 0.01
    assert 512 <= window - lengths[-1] < 512 + 256


@given(st.integers(0, 2_559))
def test_a_shorter_window_is_not_measured(window):
    assert lengths_for(window) == ()


@given(WINDOWS)
def test_a_needle_stands_near_its_depth_and_the_last_one_at_the_end(window):
    lengths = lengths_for(window)
    found = places(lengths)
    assert set(found) == {(length, depth) for length in lengths for depth in DEPTHS}
    assert all(abs(place - depth * length) <= NEAR * length + 1 for (length, depth), place in found.items())
    assert all(found[length, 1.0] == length for length in lengths)


@pytest.mark.parametrize("window", [9_000, 33_000, 131_072])
def test_every_line_stands_where_it_should_in_texts_as_long_as_they_should_be(window):
    lengths = lengths_for(window)
    asked, hay = haystack(lengths)
    starts = {one.text: start for one, start in zip(hay.lines, hay.starts, strict=True)}
    for place, some in asked.lines.items():
        size = sum(line(text).tokens for text in some)
        assert all(place - size - 40 <= starts[text] <= max(place, size) for text in some)
    for length in lengths:
        assert length - 40 <= sum(one.tokens for one in hay.text(length)) <= length


@pytest.mark.parametrize("window", [9_000, 131_072])
def test_a_shorter_text_is_the_beginning_of_a_longer_one_and_states_each_answer_once(window):
    lengths = lengths_for(window)
    asked, hay = haystack(lengths)
    longest = "".join(one.text for one in hay.text(lengths[-1]))
    for length in lengths:
        text = "".join(one.text for one in hay.text(length))
        assert longest.startswith(text)
        for question in asked.questions(length):
            assert all(text.count(code) == 1 for code in question.expected)


def test_a_chain_leads_from_its_variable_to_its_number_within_each_of_its_texts():
    lengths = lengths_for(33_000)
    asked, hay = haystack(lengths)
    hops = Counter()
    for length in lengths:
        said = dict(
            one.text.removeprefix("The value of variable ").strip(".\n").split(" is ")
            for one in hay.text(length)
            if one.text.startswith("The value of variable ")
        )
        for depth in DEPTHS:
            value, code = asked.chains[asked.places[length, depth]]
            steps = 0
            while value in said:
                value, steps = said[value].removeprefix("the value of variable "), steps + 1
            assert value == code
            hops[steps - 1] += 1
    assert set(hops) == {2, 3, 4}


def test_the_same_seed_makes_the_same_text_and_another_one_another():
    lengths = lengths_for(9_000)
    assert needles(lengths, 1) == needles(lengths, 1) != needles(lengths, 2)
    assert [text for text, _ in zip(filler(1), range(99), strict=False)] == [
        text for text, _ in zip(filler(1), range(99), strict=False)
    ]


def test_an_answer_is_right_by_its_first_numbers_alone():
    single, *_, several, _, _, _, _, chain = needles(lengths_for(9_000)).questions(lengths_for(9_000)[0])
    (code,) = single.expected
    assert single.judge(f" {code}.") == single.judge(f"**amber-anchor**: {code}\n\n7654321") == (True,)
    assert single.judge(f"7654321 or {code}") == single.judge(f"{code}0") == single.judge("I do not know") == (False,)
    assert several.judge("\n".join(reversed(several.expected))) == (True,) * 5
    assert several.judge(f"1. {several.expected[1]}") == (False, True, False, False, False)
    assert several.judge("1234567\n" * 5 + several.expected[0]) == (False,) * 5
    assert chain.judge(f"{chain.expected[0]}") == (True,)


@given(LENGTHS, RESULTS)
def test_the_effective_length_is_followed_with_all_shorter_ones_and_the_next_is_not(lengths, results):
    verdict = judged(lengths, results)

    def right(length, kinds):
        # divided once: 12 / 5 / 3 is less than 12 / 15, and 0.8 is where a length is followed
        return sum(results[length, kind, depth] for kind in kinds for depth in DEPTHS) / (5 * len(kinds))

    counted = [kind for kind in KINDS if right(lengths[0], [kind]) >= PASSING]
    follows = [bool(counted) and right(length, counted) >= PASSING for length in lengths]
    assert verdict.complete
    assert verdict.counted == tuple(counted)
    assert len(verdict.followed) == [*follows, False].index(False)
    assert verdict.effective == (verdict.followed[-1] if counted else None)
    assert verdict.limit(2_500) == (
        max(verdict.effective, 2_500) if counted and len(verdict.followed) < len(lengths) else None
    )


@given(LENGTHS, RESULTS, st.sampled_from([cell for cell in CELLS if cell[0] > 1_000]))
def test_a_further_right_answer_never_shortens_the_effective_length(lengths, results, cell):
    before, after = judged(lengths, results), judged(lengths, results | {cell: True})
    assert (after.effective or 0) >= (before.effective or 0)


@given(LENGTHS, RESULTS, st.sets(st.sampled_from(CELLS)))
def test_what_is_known_of_some_answers_holds_with_all_of_them(lengths, results, unknown):
    part = judged(lengths, {cell: right for cell, right in results.items() if cell not in unknown})
    whole = judged(lengths, results)
    if part.complete:
        assert part == whole
    else:
        assert part.followed == whole.followed[: len(part.followed)]
        assert part.missing == lengths[len(part.followed) :]
