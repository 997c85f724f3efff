"""Laws of order: nothing is lost, equal input gives equal order, and no order shares more with the generation before."""

from itertools import permutations

from hypothesis import given
from hypothesis import strategies as st
from support.prefixes import shared_prefix

from codex.library import fresh_order, next_order

DIGESTS = st.dictionaries(st.sampled_from("abcde"), st.sampled_from("123"), max_size=5)
STEPS = st.dictionaries(st.sampled_from("abcde"), st.integers(0, 3))


@given(DIGESTS, DIGESTS, STEPS, STEPS)
def test_no_order_of_the_new_files_shares_a_longer_prefix(
    before: dict[str, str], after: dict[str, str], then: dict[str, int], now: dict[str, int]
) -> None:
    old = [(path, before[path]) for path in fresh_order(before, then)]
    made = [(path, after[path]) for path in next_order(old, after, now)]
    best = max(shared_prefix(old, list(order)) for order in permutations(after.items()))
    assert sorted(made) == sorted(after.items())
    assert shared_prefix(old, made) == best


@given(st.lists(st.text(max_size=3), unique=True), STEPS)
def test_the_order_does_not_depend_on_how_the_disk_lists_files(paths: list[str], steps: dict[str, int]) -> None:
    assert fresh_order(paths, steps) == fresh_order(reversed(paths), steps)
    assert sorted(fresh_order(paths, steps)) == sorted(paths)
