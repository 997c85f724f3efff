"""Where a client's prompt leaves what its last one shared: which message moved, and how much is behind it."""

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.answering.clients import ClientPrompt, departure_of, moved_in, nearest
from orchestrator.engine.messages import ID_BYTES, same_beginning

LONG = "Answer with care and name the file. " * 20
texts = st.text(alphabet="ab\n", max_size=400)
messages = st.lists(st.tuples(st.sampled_from(["system", "user", "assistant"]), texts), max_size=6).map(tuple)


def prompt(*words: tuple[str, str], floor: str = "floor") -> ClientPrompt:
    """A token for each character."""
    return ClientPrompt(words, floor, array("i", [ord(one) for _, text in words for one in text]).tobytes())


@given(messages, messages)
def test_what_goes_on_from_the_earlier_request_or_asks_it_again_departs_nowhere(before, more):
    assert moved_in(before, before + more) is None
    assert moved_in(before + more, before) is None


@given(messages, messages)
def test_a_departure_has_text_behind_it_that_both_requests_have(before, now):
    moved = moved_in(before, now)
    if moved is not None:
        assert before[: moved.number - 1] == now[: moved.number - 1]
        assert before[moved.number - 1] != now[moved.number - 1]
        assert 0 < moved.same <= sum(len(text) for _, text in now[moved.number - 1 :])


@pytest.mark.parametrize(
    ("before", "now", "how", "number"),
    [
        ([("system", f"10:15. {LONG}"), ("user", "a")], [("system", f"10:16. {LONG}"), ("user", "b")], "changed", 1),
        (
            [("system", LONG), ("user", LONG)],
            [("user", "new"), ("system", LONG), ("user", LONG)],
            "behind a new message",
            1,
        ),
        ([("user", "old"), ("user", LONG)], [("user", LONG), ("user", "b")], "gone", 1),
        ([("user", "a"), ("user", "b"), ("user", LONG)], [("user", "a"), ("user", "c"), ("user", LONG)], "changed", 2),
    ],
)
def test_it_is_said_what_happened_to_which_message(before, now, how, number):
    moved = moved_in(before, now)
    assert moved is not None
    assert (moved.how, moved.number) == (how, number)


def test_a_summary_in_the_place_of_old_messages_is_no_departure():
    before = (("system", LONG), ("user", "one " * 100), ("assistant", "two " * 100), ("user", "three"))
    assert moved_in(before, (("system", LONG), ("user", "in short"), ("user", "four"))) is None


def test_tokens_that_were_not_computed_are_not_lost():
    before = prompt(("system", f"10:15. {LONG}"), ("user", "a"))
    now = prompt(("system", f"10:16. {LONG}"), ("user", "b"))
    found = departure_of(before, now, 10_000)
    assert found is not None
    assert (found.at, found.tokens) == (4, len(f" . {LONG}") - 1)
    assert bytes(found.was) == bytes(before.tail[: 10 * ID_BYTES])
    partly = departure_of(before, now, 7)
    assert partly is not None
    assert partly.tokens == 7
    assert departure_of(before, now, 0) is None


def test_a_prompt_is_compared_with_the_conversation_that_it_shares_most_with():
    one = prompt(("system", LONG), ("user", "one"), ("user", "more"))
    other = prompt(("system", LONG), ("user", "other"), ("user", "further"))
    now = prompt(("system", "changed"), ("user", "one"), ("user", "more"), ("user", "last"))
    assert nearest([one, other], now) is one
    assert nearest([other], now) is other, "a program that asks one question at a time shares its system message"
    assert nearest([prompt(("system", LONG), ("user", "one"), floor="another")], now) is None


@given(st.binary(max_size=60), st.binary(max_size=60), st.sampled_from([1, 4]))
def test_the_same_beginning_is_found_by_halving_as_by_looking(one, other, unit):
    looked = 0
    while (looked + 1) * unit <= min(len(one), len(other)) and one[: (looked + 1) * unit] == other[
        : (looked + 1) * unit
    ]:
        looked += 1
    assert same_beginning(one, other, unit) == looked
