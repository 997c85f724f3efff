"""The arithmetic of a pool's cells: what is promised is reserved, and nothing is promised twice."""

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.machine import END_EVERY, Machine

from orchestrator.engine.cache.conservation import check
from orchestrator.engine.cache.pool import Pool, sequences_of
from orchestrator.engine.fake import FakeBackend
from orchestrator.engine.messages import Outcome

FLOOR = array("I", range(100))


def pool(cells: int = 500, sequences: int = 5) -> Pool:
    return Pool("code", FakeBackend().open(cells, sequences), lambda _pool, _node: None)


def test_an_empty_pool_has_all_its_cells_but_the_scratch() -> None:
    empty = pool()
    assert (empty.free(), empty.reserved(), empty.idle()) == (500, 0, True)


def test_a_ticket_reserves_its_prompt_and_all_it_may_answer() -> None:
    one = pool()
    assert one.admit(1, FLOOR, 100, 1, 50) is not None
    assert one.free() == 500 - 150
    check(one)


def test_two_tickets_with_the_same_floor_reserve_it_once() -> None:
    one = pool()
    one.admit(1, FLOOR + array("I", [1]), 100, 1, 50)
    one.admit(2, FLOOR + array("I", [2]), 100, 2, 50)
    assert one.free() == 500 - 100 - 2 - 100
    check(one)


def test_what_does_not_fit_is_not_admitted_leaves_nothing_and_says_what_it_wanted() -> None:
    one = pool()
    assert one.admit(1, FLOOR, 100, 1, 401) is None
    assert (one.free(), one.idle(), list(one.tree.nodes())) == (500, True, [])
    assert one.wanted == 100 + 401
    check(one)


def test_who_asks_for_room_round_after_round_makes_nothing_older() -> None:
    one = pool()
    tip = one.admit(1, FLOOR, 100, 1, 0)
    assert tip is not None
    tip.computed = 100
    one.release(1, tip)
    before = one.tree._clock, tip.used
    for _ in range(20):
        assert one.admit(2, FLOOR + array("I", [1]), 100, 1, 401) is None
    assert (one.tree._clock, tip.used) == before


def test_no_more_tickets_enter_than_there_are_sequences() -> None:
    one = pool(cells=5000, sequences=4)
    entered = [one.admit(number, array("I", [number]), 0, 1, 5) is not None for number in range(5)]
    assert entered == [True, True, True, False, False]
    check(one)


def test_a_released_ticket_gives_everything_back() -> None:
    one = pool()
    tip = one.admit(1, FLOOR, 100, 1, 50)
    assert tip is not None
    one.release(1, tip)
    assert one.free() == 500
    check(one)


@given(st.integers(2, 256), st.integers(32, 65_536), st.booleans())
def test_a_pool_has_room_for_one_answer_and_never_more_of_them_than_a_step_has_rows(
    sequences: int, batch: int, ranges: bool
) -> None:
    assert (2 if ranges else 3) <= sequences_of(FakeBackend(ranges=ranges), sequences, batch) <= max(3, batch)


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("ranges", [False, True])
def test_with_the_fewest_sequences_that_may_be_set_everybody_is_answered(ranges: bool, constant: bool) -> None:
    machine = Machine(sequences=2, backend=FakeBackend(END_EVERY, ranges=ranges, constant=constant))
    machine.floor("code", range(50))
    for ticket in (1, 2, 3):
        machine.ask(ticket, "code", [ticket, 7], 5)
    machine.finish()
    assert [machine.ends[ticket][0].outcome for ticket in (1, 2, 3)] == [Outcome.DONE] * 3
