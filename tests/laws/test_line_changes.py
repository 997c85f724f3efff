"""Changed lines: laid over the old text they give the new one, and what repeats costs no square of it."""

import time
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from codex.following import amendments
from codex.following.amendments import Block, changed_blocks

LINES = st.lists(st.sampled_from("abcdefghxyz}"), max_size=30)


def laid_over(old: list[str], new: list[str], blocks: list[Block]) -> list[str]:
    made: list[str] = []
    at = 0
    for kind, first, last, begin, end in blocks:
        assert at <= first <= last
        assert kind == ("insert" if first == last else "delete" if begin == end else "replace")
        made += old[at:first] + new[begin:end]
        at = last
    return made + old[at:]


@given(LINES, LINES)
def test_laid_over_the_old_lines_they_give_the_new_ones_and_none_touches_another(
    old: list[str], new: list[str]
) -> None:
    blocks = changed_blocks(old, new)
    assert laid_over(old, new, blocks) == new
    assert bool(blocks) == (old != new)
    for one, other in pairwise(blocks):
        assert one[2] < other[1]
        assert one[4] < other[3]


@given(LINES, st.integers(0, 30), st.sampled_from([[], ["new"], ["new", "newer"]]), st.integers(0, 3))
def test_one_change_is_one_block_no_larger_than_it(old: list[str], at: int, put: list[str], taken: int) -> None:
    at = min(at, len(old))
    new = old[:at] + put + old[at + taken :]
    blocks = changed_blocks(old, new)
    assert len(blocks) <= 1 or not put
    assert sum(last - first for _, first, last, _, _ in blocks) <= taken + len(put)


def test_lines_that_repeat_a_thousand_times_are_compared_in_no_time() -> None:
    """difflib took the square: 0.4 s for these, and four times as much for twice as many."""
    old = [line for number in range(1_000) for line in (f"call({number});", "}", "", "}", "")]
    new = [line + " " if number % 17 == 3 else line for number, line in enumerate(old)]
    begun = time.process_time()
    blocks = changed_blocks(old, new)
    assert time.process_time() - begun < 2
    assert laid_over(old, new, blocks) == new
    assert sum(end - begin for *_, begin, end in blocks) < len(old) / 4


def test_very_many_lines_without_one_that_is_alone_are_taken_for_changed(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(amendments, "_COMPARED", 10)
    old, new = list("abababab"), list("bbaabbaaa")
    assert laid_over(old, new, changed_blocks(old, new)) == new
