"""What is drafted is what followed the same tokens at the latest place in the source."""

from array import array

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.engine.scheduler.step import GRAM, Source

few_words = st.lists(st.integers(0, 3), max_size=60)
any_words = st.lists(st.integers(0, 2**32 - 1), max_size=30)


def latest(ids: list[int], last: list[int], most: int) -> list[int]:
    run = last[-GRAM:]
    places = [at for at in range(len(ids) - GRAM + 1) if ids[at : at + GRAM] == run]
    return ids[places[-1] + GRAM :][:most] if places and len(run) == GRAM else []


@given(few_words | any_words, few_words, st.integers(0, 12))
def test_a_draft_is_what_followed_at_the_latest_place(ids: list[int], last: list[int], most: int) -> None:
    assert Source(array("I", ids)).after(last, most) == latest(ids, last, most)


@given(any_words, st.data())
def test_every_run_of_the_source_is_found_again(ids: list[int], data: st.DataObject) -> None:
    if len(ids) >= GRAM:
        at = data.draw(st.integers(0, len(ids) - GRAM))
        last = ids[: at + GRAM]
        assert Source(array("I", ids)).after(last, 5) == latest(ids, last, 5)
